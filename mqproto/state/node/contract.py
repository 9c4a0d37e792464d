"""Contract between a node and whatever drives it.

A *node* is a machine that owns many links: a client, a broker, a name server. It opens no socket, starts no thread and
reads no clock; a *driver* (one for each runtime, under `adapters`) brings bytes, times and the ends of jobs in, and
carries bytes and actions out. Every driver can drive every node, because all it knows is on this page.

Rules that both sides keep:

- One thread is inside a node at a time. The driver owns the lock, if its runtime needs one.
- `now` is a monotonic time in whole milliseconds. Wall time, which only stored and shown times use, is
  `now + wall_ahead`; the driver sets `wall_ahead` before it enters the node, so a stepped wall clock moves time stamps
  and never a deadline.
- After each entry the driver empties `touched` (links that have bytes to send) and `actions`, then asks
  `next_deadline`.
- Nothing that a peer sends raises out of `received`: a link whose peer broke the protocol ends by a `HangUp` action.
- Early, late and repeated `timer` calls are harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from mqproto.compiling import mypyc_attr

Buffer: TypeAlias = bytes | memoryview

#: A server stops reading from a peer that leaves this many bytes of answers unread (style: back-pressure by a limit).
SERVER_UNSENT_LIMIT = 4 << 20

T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)
class Link:
    """Byte stream between a node and a peer.

    The node makes every link (`Node.accept` for a stream that came in, a `Dial` action for one that goes out) and
    writes into `out`. The driver takes the buffers by `Node.data_to_send`, counts `unsent` down as the peer takes them,
    and reads from the stream only while `wants_read` holds.
    """

    __slots__ = ("address", "driver_slot", "ended", "listener", "out", "unsent", "unsent_limit")

    def __init__(self, address: str, listener: str = "", unsent_limit: int | None = None) -> None:
        #: `host:port` of the peer; for a dialled link the address as it was asked for.
        self.address = address
        #: Name of the listener that a stream came in by ("main", "fast" ...); empty for a dialled link.
        self.listener = listener
        #: Buffers not yet given to the driver. A view (of the mapped log) stays valid until it was sent.
        self.out: list[Buffer] = []
        #: Bytes written to `out` and not yet taken by the peer. The node adds, the driver subtracts.
        self.unsent = 0
        self.unsent_limit = unsent_limit
        #: Set by the node when the link is over (closed by either side); nothing more is sent or expected.
        self.ended = False
        #: For the driver alone: its socket, stream or task.
        self.driver_slot: object = None

    @property
    def wants_read(self) -> bool:
        """Whether the driver should read.

        Only servers refuse to: if both ends stopped reading they would stall each other.
        """
        return self.unsent_limit is None or self.unsent <= self.unsent_limit


class Job(Protocol):
    """Work that may block: an fsync, the creation or deletion of a file, a local offset file.

    The driver calls `run` once, beside its loop (in a thread, or inline where the runtime simulates), and then enters
    the node with `done`. A job keeps what it found in itself. It touches only what it owns: the node runs on.
    """

    def run(self) -> None:
        """Do the work; an exception is handed to `Node.done`."""


class Ticket(Generic[T]):
    """End of an operation that the application has started on a node and waits for.

    The node settles a ticket exactly once and then puts it among its actions; the driver calls `wake`.
    """

    __slots__ = ("_value", "failure", "settled", "wake")

    def __init__(self) -> None:
        self.settled = False
        self.failure: BaseException | None = None
        #: Set by whoever waits, before the node is left; called by the driver outside the node, once.
        self.wake: Callable[[], None] | None = None

    def settle(self, value: T) -> None:
        assert not self.settled
        self._value = value
        self.settled = True

    def fail(self, failure: BaseException) -> None:
        assert not self.settled
        self.failure = failure
        self.settled = True

    def result(self) -> T:
        """The value, or raises the failure. Only after `settled`."""
        assert self.settled
        if self.failure is not None:
            raise self.failure
        return self._value


@dataclass(frozen=True, slots=True)
class Dial:
    """Action: connect `link` to `link.address` (`host:port`, the last colon splits); answer by `opened` or `closed`."""

    link: Link
    timeout_ms: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class HangUp:
    """Action: send what the link still has (without waiting long for it) and close it. No `closed` follows."""

    link: Link
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """Action: run the job beside the loop, then call `done`."""

    job: Job


@dataclass(slots=True)  # made for every message: frozen ones take three times as long
class Deliver:
    """Action: hand a task to the application, most often messages. A `ConsumeTask` is answered by `consumed`."""

    task: Any


#: A ticket stands for itself, so that there is no further object for each message: it was settled, call its `wake`.
Action: TypeAlias = Dial | HangUp | Run | Ticket[Any] | Deliver


class Node(Protocol):
    """Client, broker and name server, as every driver sees them."""

    #: Wall clock minus monotonic clock in milliseconds; the driver sets it.
    wall_ahead: int
    #: How long ago, in milliseconds, the driver saw that the bytes which it brings were there; it sets this where it is
    #: busy.
    behind: int
    #: Links that have bytes to send. The driver empties it.
    touched: set[Link]
    #: What the driver has to do, in order. The driver empties it.
    actions: list[Action]

    @property
    def ended(self) -> bool:
        """True once `close` has run to its end: no link, job or ticket is open any more."""

    def begin(self, now: int) -> None:
        """The first input: the driver runs and every listener is bound."""

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        """A stream came in by `listener` from `address`; None refuses it. It counts as opened."""

    def opened(self, link: Link, now: int) -> None:
        """A dialled link is connected."""

    def received(self, link: Link, data: bytes, now: int) -> None:
        """Bytes came. `data` is never empty, and the node may keep it."""

    def closed(self, link: Link, reason: str, now: int) -> None:
        """The link ended (peer, error, or dialling failed). Not called for a link that the node hung up."""

    def timer(self, now: int) -> None:
        """Time has passed; called at or after `next_deadline`."""

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        """A job ended, with the exception that its `run` raised, or None."""

    def data_to_send(self, link: Link) -> list[Buffer]:
        """The buffers to write now, in order; the node forgets them."""

    def next_deadline(self) -> int | None:
        """When `timer` wants to be called, or None."""

    def close(self, now: int) -> None:
        """Begin an orderly end; goes on until `ended`. Calling it twice is harmless."""


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeBase:
    """Base of all nodes: the sets that the driver empties and the way bytes leave."""

    __slots__ = (
        "actions",
        "behind",
        "touched",
        "wall_ahead",
    )

    def __init__(self) -> None:
        self.wall_ahead = 0
        self.behind = 0
        self.touched: set[Link] = set()
        self.actions: list[Action] = []

    def write(self, link: Link, data: Buffer) -> None:
        """Queue one buffer for a link."""
        link.out.append(data)
        link.unsent += len(data)
        self.touched.add(link)

    def data_to_send(self, link: Link) -> list[Buffer]:
        out = link.out
        link.out = []
        return out

    def hang_up(self, link: Link, reason: str) -> None:
        """End a link from our side; `closed` will not be called for it."""
        if not link.ended:
            link.ended = True
            self.actions.append(HangUp(link, reason))
