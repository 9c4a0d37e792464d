"""Producers for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from adapters.faces.producer import Messages, ProducerFace, Selection, Submitted, check_target
from adapters.sync.client import SyncClient
from adapters.sync.kit import CALLBACKS_AT_A_TIME, OpenFuture, Pool, SendFuture
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.selectors import Selector
from mqproto.state.node import Ticket

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SyncProducer(ProducerFace, SyncClient):
    __doc__ = ProducerFace.__doc__

    _callbacks: Pool

    def _prepare(self) -> None:
        self._callbacks = self._kit.pool(f"{self._name()}-callbacks", CALLBACKS_AT_A_TIME)

    def _clean_up(self, seconds: float) -> None:
        self._callbacks.close(seconds)

    def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or a batch of messages of one topic, and wait until a broker has taken it.

        To `queue`, or to the one that `selector(queues, message, argument)` chooses, in one attempt; else to queues in turn, with further
        attempts. `timeout_ms` (`send_msg_timeout` unless given) is the budget of all of it. Raises what `ProducerCore.send` raises:
        InvalidMessage, InvalidName, BrokerError, NoNameServer, NoRoute, CallExpired, SendFailed; StateError when it does not run.
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        return self._driver.wait(self._begin_send, message, queue, timeout_ms)

    def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendFuture[SendResult]:
        """Send as `send` does, without waiting for the broker: the outcome is in the future. (A selector is waited for.)

        Further attempts follow lost connections only, never an answer (client.md 3.5).
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        return self._launch(self._begin_submit, (message, queue, timeout_ms))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message that no broker answers; ends when it is on its way, in one attempt. Raises as `send`, but no BrokerError."""
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        self._driver.wait(self._begin_oneway, message, queue, timeout_ms)

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply that somebody gives by `mqproto.reply_to`.

        `timeout_ms` (`send_msg_timeout` unless given) is the budget of both. To `queue`, or to the one that the selector chooses, as with
        `send`. Raises RequestTimeout when the message was sent and no reply came in time; else what `send` raises. The reply is a received
        message: its body and properties are the responder's.
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        return self._driver.wait(self._begin_request, message, queue, timeout_ms)

    def submit_request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendFuture[MessageExt]:
        """The same without waiting: the reply, or why there is none, is in the future. (A selector is waited for.)"""
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        return self._launch(self._begin_request, (message, queue, timeout_ms))

    def _launch(self, verb: Callable[[*Ts, int], Ticket[T]], arguments: tuple[*Ts]) -> SendFuture[T]:
        """Start an operation whose outcome goes to a future."""
        future: OpenFuture[T] = self._kit.future(self._callbacks)

        def settle(ticket: Ticket[T]) -> None:
            try:
                result = self._driver.outcome(ticket)
            except Exception as failure:  # the future's holder is told
                future.set_exception(failure)
            else:
                future.set_result(result)

        submitted = Submitted(settle)
        self._driver.launch(submitted.wake, submitted.begin, verb, arguments)
        return future

    def _select(self, message: Messages, selector: Selector, argument: object, timeout_ms: int | None) -> tuple[MessageQueue, int]:
        selection = Selection(self, message, selector, argument, timeout_ms)
        queues = self._driver.wait(self._begin_queues, selection.topic, selection.timeout_ms)
        return selection.choose(queues), selection.timeout_ms
