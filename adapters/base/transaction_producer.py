"""Producers of messages in transactions as users see them: what is independent of waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack, cast

from mqproto.adapters.base.producer import BaseProducer, check_choice
from mqproto.adapters.base.settings.client_settings import transaction_settings
from mqproto.adapters.base.settings.options import ProducerOptions, TransactionOptions
from mqproto.errors import InvalidMessage, InvalidSetting
from mqproto.hooks import EndTransactionHook
from mqproto.message import Message
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.settings import TransactionSettings
from mqproto.state.producer.transactions import CheckTask, Half, TransactionCore
from mqproto.transactions import LocalTransactionState, TransactionListener, TransactionSendResult

log: Final = logging.getLogger("mqproto.client")

#: An object with `execute` and `check`, or these two as functions.
Listener: TypeAlias = TransactionListener | tuple[Callable[..., Any], Callable[..., Any]]


class BaseTransactionProducer(BaseProducer):
    """Producer of messages that consumers get only if a local transaction succeeds. Sends all others as well.

    `listener` has two methods, or is a pair of functions (see `mqproto.transactions.TransactionListener`):
    `execute(message, argument)` runs the local transaction of a message that the broker has put aside, `check(message)`
    says later what came of it when a broker asks. Both give a `LocalTransactionState`. A broker asks any running
    producer of the group, so every process of the group must know the outcome of every message of the group: by
    `message.msg_id`, which is the same in both, or by what the message says.

    Brokers ask about messages that were left UNKNOW, whose producer has died, or whose end got lost: for the first time
    some seconds after the send (`transactionTimeOut`), then every minute or so (`transactionCheckInterval`), up to 15
    times. Questions are answered beside everything else, `check_thread_pool_max_size` at a time; up to
    `check_request_hold_max` wait.

    Further arguments are those of `Producer`. Raises InvalidName and InvalidSetting.
    """

    _transactions: TransactionCore

    def __init__(
        self,
        group: str,
        listener: Listener,
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[TransactionOptions],
    ) -> None:
        self._execute, self._check = listener_functions(listener)
        super().__init__(group, namesrv, **cast(ProducerOptions, options))

    def _read_settings(self, group: str, options: Mapping[str, Any]) -> TransactionSettings:
        self._transaction_settings = transaction_settings(group, options)
        return self._transaction_settings

    def _registering(self, now: int) -> Flow[None]:
        self._transactions = self._node.add_transaction_producer(self._transaction_settings, self, now)
        self._core = self._transactions.producer
        self._registered = True
        yield Sleep(now)

    def register_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Have a hook see from now on what brokers are told of transactions (docs/protocol/client.md 3.12)."""
        self._hooks.add_end(hook)

    def _failed(self, what: str, error: BaseException) -> None:
        """The listener raised: what follows is UNKNOW; a program is easier to mend with the place where it happened."""
        log.warning("%s of the listener of transaction group %s failed", what, self.group, exc_info=error)

    # Verbs for the driver.

    def _begin_half(self, message: Message, timeout_ms: int | None, now: int) -> Ticket[Half]:
        if not isinstance(message, Message):
            raise InvalidMessage("a batch cannot be sent in a transaction")
        check_choice(None, timeout_ms)
        return self._node.start(self._transactions.send_half(message, now, timeout_ms=timeout_ms), now)

    def _begin_end(self, half: Half, ended: TransactionSendResult, now: int) -> Ticket[TransactionSendResult]:
        # Not limited: a local transaction that has been run must be told of, however much else is in flight.
        return self._node.start(self._transactions.end(half, ended, now), now, limited=False)

    # Outside the node.

    def _decided(self, half: Half, verdict: object, raised: BaseException | None) -> TransactionSendResult:
        """What came of a local transaction, shown to hooks."""
        ended = self._transactions.judged(half, verdict, raised)
        broker_name, state = ended.queue.broker_name, ended.local_transaction_state
        self._hooks.ending(half.message, ended.msg_id, ended.transaction_id, state, broker_name, asked=False)
        return ended

    def _answered(self, task: CheckTask, result: object) -> LocalTransactionState:
        """What the listener's answer to a question counts as, shown to hooks."""
        state = self._transactions.state_of(result)
        self._hooks.ending(
            task.message, task.message.msg_id, task.header.transaction_id, state, task.broker_name, asked=True
        )
        return state

    def _untold(self, ended: TransactionSendResult) -> TransactionSendResult:
        """Log that the producer was closed while the local transaction ran: the broker will ask others of the group."""
        log.warning("group %s was closed before the end of transaction %s could be sent", self.group, ended.msg_id)
        return ended


def listener_functions(listener: Listener) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Both functions of a listener. Raises InvalidSetting for what is none."""
    execute: Any
    check: Any
    if isinstance(listener, tuple) and len(listener) == 2:
        execute, check = listener
    else:
        execute, check = getattr(listener, "execute", None), getattr(listener, "check", None)
    if not callable(execute) or not callable(check):
        raise InvalidSetting(
            "listener", listener, "an object with the methods execute and check expected, or a pair of functions"
        )
    return execute, check
