"""What an application can put around its sends (client.md 3.12): code that sees each send before and after, and code that may forbid it.

Transactional messages and requests are sends too; what ends a transaction is none. All of it runs in the thread or task that sends,
outside the client's node, so it may block that send (an asynchronous one blocks its event loop) and nothing else. After a `submit` it
runs where callbacks of futures do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mqproto.message import Message, MessageQueue, SendResult


class CommunicationMode(Enum):
    """How a send waits for its broker."""

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
    #: What is sent: copies, which hooks before the send may change or replace; their properties travel. A list stands for a batch.
    message: Message | Sequence[Message]
    mode: CommunicationMode
    #: Where the application sends it, by itself or by a selector; None where the producer chooses. `result` tells where it went.
    queue: MessageQueue | None = None
    #: After the send, unless it failed. None after a one-way send and after a request, which has a reply instead.
    result: SendResult | None = None
    #: Why it failed; for a cancelled send the cancellation.
    error: BaseException | None = None
    #: For hooks that have something to remember from before to after.
    attributes: dict[str, object] = field(default_factory=dict)


class SendMessageHook:
    """Sees every send of the producers that it is registered with; override one method or both. What they raise is logged and ignored."""

    def send_message_before(self, context: SendContext) -> None:
        """The send is about to begin."""

    def send_message_after(self, context: SendContext) -> None:
        """The send has ended, well or not. Called once for each call of `send_message_before`."""


class CheckForbiddenHook:
    """May forbid sends."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise to forbid the send: whoever sends gets that exception. Called before the other hooks."""
