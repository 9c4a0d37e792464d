"""Hooks of producers, which an application puts around its sends (docs/protocol/client.md 3.12): code that sees each
send before and after, and code that may forbid it.

Transactional messages and requests are sends too; what ends a transaction is none and has a hook of its own. All of it
runs in the thread or task that sends (or that answers a question about a transaction), outside the client's node, so it
may block that (an asynchronous one blocks its event loop) and nothing else. After a `submit` it runs where callbacks of
futures do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.transactions import LocalTransactionState


class CommunicationMode(Enum):
    """Way in which a send waits for its broker."""

    SYNC = "SYNC"
    #: `submit`: the outcome goes to a future.
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


@dataclass(slots=True)
class SendContext:
    """One send, as its hooks see it. Before and after get the same object."""

    #: Group and namespace of the producer.
    group: str
    namespace: str
    #: What is sent: copies, which hooks before the send may change or replace; their properties travel. A list stands
    #: for a batch.
    message: Message | Sequence[Message]
    mode: CommunicationMode
    #: Where the application sends it, by itself or by a selector; None where the producer chooses; then `result` has
    #: the queue.
    queue: MessageQueue | None = None
    #: After the send, unless it failed. None after a one-way send and after a request, which has a reply instead.
    result: SendResult | None = None
    #: Why it failed; for a cancelled send the cancellation.
    error: BaseException | None = None
    #: For hooks that have something to remember from before to after.
    attributes: dict[str, object] = field(default_factory=dict)


class SendMessageHook:
    """Hook that sees every send of the producers that it is registered with; override one method or both.

    What they raise is logged and ignored.
    """

    def send_message_before(self, context: SendContext) -> None:
        """The send is about to begin."""

    def send_message_after(self, context: SendContext) -> None:
        """The send has ended, well or not. Called once for each call of `send_message_before`."""


class CheckForbiddenHook:
    """Hook that may forbid sends."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise to forbid the send: its caller gets that exception. Called before the other hooks."""


@dataclass(slots=True)
class EndTransactionContext:
    """The end of one transaction, as its hooks see it."""

    #: Group and namespace of the producer.
    group: str
    namespace: str
    #: The message of the local transaction: a `HalfMessage` after it was run, a `MessageExt` after a check.
    message: Message | MessageExt
    msg_id: str
    #: What the broker calls the transaction, if anything.
    transaction_id: str | None
    #: The verdict that the broker gets.
    state: LocalTransactionState
    #: Whether a broker has asked. Otherwise the local transaction has just been run, or was left out because its
    #: message is not safe.
    from_transaction_check: bool
    #: The broker that gets it; not known after a check of a release before 5.0.
    broker_name: str | None = None


class EndTransactionHook:
    """Hook that sees the verdicts on transactions that brokers get. What it raises is logged and ignored."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """The verdict is about to be sent."""
