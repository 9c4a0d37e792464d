"""Messages in transactions, for one producer group (docs/protocol/client.md 3.11).

Owns: what is sent before and after a local transaction, what a verdict means on the wire, the broker's questions that
wait for an answer. Leaves to others: the send itself (`core`), the application's listener (an adapter calls it,
outside the node), reading questions (`broker_requests`).

    half = send_half(message)                     the broker has the message, nobody gets it
    listener.execute(half.message, argument)      by the adapter, if `half.accepted`
    end(half, judged(half, verdict, failure))     commits, rolls back, or leaves it open: then a broker asks

A question goes out as a `Deliver` action with a `CheckTask`, and is answered by `Producers.checked`. A broker that
hears no answer asks again in its next round, so what is lost here is only late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from mqproto.errors import InvalidMessage, MQError
from mqproto.message import Message, MessageExt, SendResult, SendStatus
from mqproto.namespaces import Namespace
from mqproto.replies import ReplyMessage
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Oneway, failure
from mqproto.state.node.contract import Action, Deliver, Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.send_request import traced
from mqproto.transactions import HalfMessage, LocalTransactionState, TransactionSendResult, half_message
from mqproto.validation import check_message
from mqproto.wire import properties
from mqproto.wire.codes import RequestCode
from mqproto.wire.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from mqproto.wire.headers import CheckTransactionStateRequest, EndTransactionRequest
from mqproto.wire.ids import IdError, parse_offset_msg_id

#: Limit of the request that answers a question (docs/protocol/client.md 3.11).
ANSWER_TIMEOUT_MS: Final = 3_000

_WIRE: Final = {
    LocalTransactionState.COMMIT_MESSAGE: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK_MESSAGE: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOW: TRANSACTION_NONE,
}


class TransactionHost(Protocol):
    """Members of the client node that transactions need."""

    namespace: Namespace
    routes: RouteTable
    notices: deque[str]
    actions: list[Action]

    def spawn(self, flow: Flow[None], now: int) -> Ticket[None]: ...


@dataclass(frozen=True, slots=True)
class Half:
    """Message that the broker has and nobody gets yet."""

    message: HalfMessage
    result: SendResult

    @property
    def accepted(self) -> bool:
        """Whether the local transaction is to be run. Otherwise the message is rolled back without it."""
        return self.result.status is SendStatus.SEND_OK


@dataclass(slots=True, eq=False)
class CheckTask:
    """Question of a broker: call `listener.check(message)`, answer by `Producers.checked(task, result, now)`, once.

    The result is what the listener returned, or the exception that it raised. A task may stay unanswered: the broker
    asks again.
    """

    group: str
    #: What the core was given.
    listener: object
    message: MessageExt
    #: Who asks.
    address: str
    #: The answer but for the verdict.
    header: EndTransactionRequest
    broker_name: str | None


class TransactionCore:
    """Transactions of one producer; made by `ClientNode.add_transaction_producer`."""

    def __init__(self, producer: ProducerCore, listener: object, host: TransactionHost, checks_max: int) -> None:
        """Questions carry `listener`, which is asked.

        `checks_max` may wait for its answer; more are dropped, with a notice.
        """
        self.producer = producer
        self._listener = listener
        self.group = producer.group
        self._host = host
        self._checks_max = checks_max
        self._checks: set[CheckTask] = set()

    # --- a message and its local transaction

    def send_half(self, message: Message, now: int, *, timeout_ms: int | None = None) -> Flow[Half]:
        """Give the message to a broker, which keeps it back: attempts and errors as of `ProducerCore.send`.

        Raises InvalidMessage for a delayed message, of which neither the delay nor the transaction would be what the
        application meant (TXN-05), and for a reply.
        """
        check_message(message, self.producer.settings.max_message_size)
        if message.delay_level:
            raise InvalidMessage("a message in a transaction cannot be delayed")
        if isinstance(message, ReplyMessage):
            raise InvalidMessage("a reply cannot wait for a transaction: it is passed on at once")
        added = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: self.group}
        prepared = replace(message, properties={**message.properties, **added})
        result = yield from self.producer.send(prepared, now, timeout_ms=timeout_ms, checked=True)
        return Half(half_message(message, result.msg_id), result)

    def judged(self, half: Half, verdict: object, raised: BaseException | None) -> TransactionSendResult:
        """What came of it, by the listener's `verdict`, or by what it `raised`. Of a half that was not accepted both
        are left unread.

        May be called outside the node.
        """
        state = LocalTransactionState.ROLLBACK_MESSAGE
        if half.accepted:
            state = self.state_of(verdict if raised is None else raised)
        else:
            raised = None
        result = half.result
        return TransactionSendResult(
            result.status,
            result.msg_id,
            result.queue,
            result.queue_offset,
            result.offset_msg_id,
            result.transaction_id,
            result.region_id,
            result.trace_on,
            state,
            raised,
        )

    def state_of(self, verdict: object) -> LocalTransactionState:
        """What a listener's answer, or its exception, counts as; one that is no verdict gets a notice.

        Also outside the node.
        """
        if isinstance(verdict, LocalTransactionState):
            return verdict
        if verdict is not None and not isinstance(verdict, BaseException):
            self._host.notices.append(
                f"the listener of transaction group {self.group} said {verdict!r}, which counts as UNKNOW"
            )
        return LocalTransactionState.UNKNOW

    def end(self, half: Half, ended: TransactionSendResult, now: int) -> Flow[TransactionSendResult]:
        """Tell the broker what came of the local transaction, as `judged`; gives `ended`. Never raises.

        Nobody answers this; where it cannot be sent a notice says so, and the broker asks later.
        """
        result = half.result
        address = self._host.routes.master(result.queue.broker_name)
        if address is None:
            self._unended(half.message.msg_id, f"no master of broker {result.queue.broker_name} is known")
            return ended
        try:
            _, offset = parse_offset_msg_id(result.offset_msg_id or result.msg_id)
        except IdError as error:
            self._unended(half.message.msg_id, str(error))
            return ended
        header = EndTransactionRequest(
            self.group,
            result.queue_offset,
            offset,
            _WIRE[ended.local_transaction_state],
            result.msg_id,
            False,
            result.transaction_id,
        )
        self._trace(
            half.message.wire_properties(), half.message.topic, address, header, ended.local_transaction_state, now
        )
        yield from self._tell(address, header, result.queue.broker_name, now + self.producer.settings.send_timeout_ms)
        return ended

    # --- questions

    def check(
        self, asked: CheckTransactionStateRequest, message: MessageExt, address: str, broker_name: str | None
    ) -> None:
        """A broker asks what came of a message of the group, whoever has sent it."""
        if self.producer.closed:
            return
        message.topic = self._host.namespace.unwrap(message.topic)
        if len(self._checks) >= self._checks_max:
            text = f"{self._checks_max} questions about transactions wait already: one of {address} is dropped"
            self._host.notices.append(f"group {self.group}: {text}")
            return
        header = EndTransactionRequest(
            self.group,
            asked.tran_state_table_offset,
            asked.commit_log_offset,
            TRANSACTION_NONE,
            message.msg_id,
            True,
            asked.transaction_id,
        )
        task = CheckTask(self.group, self._listener, message, address, header, broker_name)
        self._checks.add(task)
        self._host.actions.append(Deliver(task))

    def checked(self, task: CheckTask, result: object, now: int) -> None:
        """The listener's answer to a question. A second one changes nothing."""
        if task not in self._checks:
            return
        self._checks.remove(task)
        if not self.producer.closed:
            state = self.state_of(result)
            header = replace(task.header, commit_or_rollback=_WIRE[state])
            self._trace(task.message.properties, task.message.topic, task.address, header, state, now)
            self._host.spawn(self._tell(task.address, header, task.broker_name, now + ANSWER_TIMEOUT_MS), now)

    def _trace(
        self,
        values: Mapping[str, str],
        topic: str,
        address: str,
        header: EndTransactionRequest,
        state: LocalTransactionState,
        now: int,
    ) -> None:
        trace = self.producer.trace
        if trace is not None:
            message = traced(header.msg_id, values, b"")
            trace.ending(message, topic, address, header.transaction_id, state.name, header.from_transaction_check, now)

    def _tell(self, address: str, header: EndTransactionRequest, broker_name: str | None, deadline: int) -> Flow[None]:
        fields = header.encode()
        if broker_name is not None:
            fields["bname"] = broker_name
        try:
            outcome, _ = yield Oneway(address, RequestCode.END_TRANSACTION, fields, b"", deadline)
        except MQError as error:
            self._unended(header.msg_id, str(error))
            return
        if outcome is not None:
            self._unended(header.msg_id, str(failure(outcome)))

    def _unended(self, msg_id: str, why: str) -> None:
        self._host.notices.append(f"the broker could not be told of transaction {msg_id} and will ask: {why}")
