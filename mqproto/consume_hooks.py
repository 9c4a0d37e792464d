"""Hooks of consumers, which an application puts around its listener (docs/protocol/client.md 3.12): code that sees each
delivery before and after, and filters.

All of it runs in the thread or task of the listener, or of the caller that asks for messages, outside the client's
node, so it may hold up that delivery (a coroutine's holds up its event loop) and nothing else. A `SimpleConsumer` has
no listener: its answers are `ack` and `retry_later`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mqproto.message import MessageExt, MessageQueue


class ConsumeOutcome(Enum):
    """Outcome of a delivery; Apache's `ConsumeReturnType`."""

    SUCCESS = "SUCCESS"
    #: An answer came, but later than `consume_timeout`; `result` holds it. For a message of a `SimpleConsumer` no
    #: answer came by then.
    TIME_OUT = "TIME_OUT"
    #: The listener raised `error`, or it interrupted the caller of `SimpleConsumer.receive`; the next caller gets the
    #: message then.
    EXCEPTION = "EXCEPTION"
    #: The listener returned None.
    RETURN_NULL = "RETURNNULL"
    #: The messages come again: that is the answer, or it no longer counts, or a `SimpleConsumer` was closed before
    #: there was one.
    FAILED = "FAILED"


@dataclass(slots=True)
class ConsumeMessageContext:
    """One delivery, as its hooks see it. Before and after get the same object."""

    group: str
    namespace: str
    queue: MessageQueue
    #: What the listener is given; from a `SimpleConsumer` one message.
    messages: list[MessageExt]
    #: After the delivery: what it counts as, what the listener returned (the answer to a `SimpleConsumer`), and what it
    #: raised.
    outcome: ConsumeOutcome | None = None
    result: object = None
    error: BaseException | None = None
    #: For hooks that have something to remember from before to after.
    attributes: dict[str, object] = field(default_factory=dict)


class ConsumeMessageHook:
    """Hook that sees every delivery of the consumers that it is registered with; override one method or both. What they
    raise is logged and ignored.
    """

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """The listener is about to be called, or the caller that asked for a message to get it."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """The listener has answered, well or not. Called once for each call of `consume_message_before`."""


@dataclass(slots=True)
class FilterMessageContext:
    """Messages of one queue that the application is about to get."""

    group: str
    queue: MessageQueue
    #: Filters take out what the application shall not see; that is done with, as if it had succeeded. What they put in
    #: is ignored.
    messages: list[MessageExt]
    unit_mode: bool = False


class FilterMessageHook:
    """Hook that sorts messages out after the broker and the filter by tags did."""

    def filter_message(self, context: FilterMessageContext) -> None:
        """Edit `context.messages`. What it raises is logged, and the list stays as it is then."""
