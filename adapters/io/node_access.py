"""Access of callers to a node: from any thread, under one lock, writing out at once what their entry produced.

Owns: the lock, what callers leave to the loop, the operations whose end somebody waits for, and how bytes get from the
node to sockets. Leaves to others: the loop, which enters the node too (`loop`), and how a caller waits (runtimes).

A blocking send needs no hand-over between threads but that of its answer. Nothing is sent, received or waited for under
the lock: data are *taken* under it, and a stream that somebody is sending to is marked (`Stream.sending`), so that
whoever comes later only adds to its backlog and the order of bytes is the order of the entries.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple

from mqproto.adapters.io.lifecycle import GONE, log
from mqproto.adapters.io.pollers import READ
from mqproto.adapters.io.sockets import Wire, describe, send_buffers
from mqproto.compiling import mypyc_attr
from mqproto.errors import StateError
from mqproto.state.node.contract import Action, Buffer, Deliver, Link, Node, Ticket

_TOGETHER_MAX: Final = 1 << 15  # so many bytes of small entries are one write; more would only keep the peer waiting
#: What a caller carries out itself; the rest is the loop's.
FOR_CALLERS: Final = (Ticket, Deliver)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Stream:
    """Stream: the driver's side of a connected link, its socket and what that did not take yet."""

    __slots__ = ("backlog", "closing", "failure", "fd", "gone", "link", "mask", "sending", "sock", "turn")

    def __init__(self, link: Link, sock: Wire) -> None:
        self.link = link
        self.sock = sock
        self.fd = sock.fileno()
        #: What the poller waits for.
        self.mask = READ
        #: Taken from the node and not yet sent; changed under the lock only.
        self.backlog: list[Buffer] = []
        #: Somebody is between taking and settling; changed under the lock only.
        self.sending = False
        #: The node has hung up: no more reading, and over when all is sent.
        self.closing = False
        #: No longer driven; whoever is sending closes the socket (a descriptor must not be reused under a sender).
        self.gone = False
        self.failure = ""
        #: The turn of the loop in which something was last taken to be sent.
        self.turn = -1


Batch: TypeAlias = list[tuple[Stream, list[Buffer]]]


@mypyc_attr(allow_interpreted_subclasses=True)
class NodeAccess:
    """Callers' side of a driver. `deliver` gets the task of each `Deliver` action, outside the node, and must not
    block; `cancel` is the node's way to give an operation up that nobody waits for any more.
    """

    __slots__ = (
        "_bursts",
        "_cancel",
        "_deliver",
        "_inputs",
        "_latest",
        "_lock",
        "_pending",
        "_quit",
        "_refusal",
        "_seen",
        "_shut_down",
        "_todo",
        "_unmasked",
        "_until",
        "_waker",
        "_wakes",
        "_woken",
        "_written_soon",
        "failure",
        "name",
        "node",
        "turns",
    )

    def __init__(
        self,
        node: Node,
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        name: str,
        lock: AbstractContextManager[object],
    ) -> None:
        self.node = node
        self.name = name
        #: How often the loop has turned. An idle driver does not turn.
        self.turns = 0
        #: What ended the loop out of turn: a fault of the node or of the driver itself.
        self.failure: BaseException | None = None
        self._lock = lock
        self._deliver = deliver
        self._cancel = cancel
        self._unmasked: list[Stream] = []  # streams whose mask or state the loop has to look at; under the lock
        self._todo: list[Action] = []  # what callers left to the loop; under the lock
        self._inputs: deque[Callable[[int], None]] = deque()  # called with the time at the loop's next turn
        self._latest = 0  # the time of the last caller's entry; under the lock
        self._seen = -1  # when the clocks were last read
        self._until = 0  # when the loop turns at the latest; under the lock
        self._woken = False
        self._written_soon = False  # what callers left is written when the runtime comes to it; under the lock
        # the loop turns within a moment whatever happens, because callers start much: see `threaded.Driver`
        self._bursts = False
        self._quit = False
        self._refusal = f"{name} is closed"  # what whoever enters is told then
        self._shut_down = False  # everything is closed
        self._pending: set[Ticket[Any]] = set()  # operations whose end somebody wants to hear of
        self._waker, self._wakes = socket.socketpair()
        for sock in (self._waker, self._wakes):
            sock.setblocking(False)

    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts, together: bool = False) -> T:
        """Call a method of the node with the time as last argument, write out what it produced, return its result.

        `together`: where something was written to a connection since the loop last turned, what comes now may wait for
        the next turn, so that many small entries make one write. The first one never waits, but for a burst of which
        many are under way.
        """
        return self.launch(None, verb, arguments, together)

    def enter_from_pool(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T:
        """The same for one of several threads that do little else; see `mqproto.adapters.threaded.Driver`."""
        return self.launch(None, verb, arguments)

    def launch(
        self,
        wake: Callable[[], None] | None,
        verb: Callable[[*Ts, int], T],
        arguments: tuple[*Ts],
        together: bool = False,
        lock: AbstractContextManager[object] | None = None,  # another way to take the driver's own
    ) -> T:
        """`enter` with an operation, whose ticket the verb gives: `wake` is called once, in any thread, at its end."""
        ticket: Ticket[Any] | None = None
        batch: Batch | None = None
        mid_step = False
        try:
            with self._lock if lock is None else lock:
                if self._quit:
                    raise self._has_ended(self._refusal)
                mid_step = True
                try:
                    now = time.monotonic_ns() // 1_000_000
                    if now != self._seen:  # in a burst the wall clock is read once in a millisecond
                        now = self._now()
                    self._latest = now
                    result = verb(*arguments, now)
                    if wake is not None:
                        assert isinstance(result, Ticket)
                        ticket = result
                        ticket.wake = wake
                        self._pending.add(ticket)
                    if together and self._written_soon:
                        for link in self.node.touched:
                            if link.unsent >= _TOGETHER_MAX:
                                break
                        else:
                            return result
                    batch, actions = self._take(together)
                    deadline = self.node.next_deadline()
                    soon = not self._written_soon and bool(self.node.touched)
                    if soon:
                        self._written_soon = True
                    due = deadline is not None and deadline < self._until
                    for action in actions:
                        if not isinstance(action, FOR_CALLERS):
                            self._todo.append(action)
                            due = True
                except BaseException as error:
                    if not isinstance(error, Exception):
                        self._quit = True  # before the lock is free: nobody may enter what is half-changed
                    raise
            if batch:
                try:
                    send_batch(batch)
                except BaseException:  # it may have cost that connection, and nothing else
                    self._leave(batch, actions)
                    mid_step = False
                    raise
                self._settle(batch)
            for action in actions:
                if isinstance(action, Ticket):
                    self._finish(action)
                elif type(action) is Deliver:
                    self._hand_over(action.task)
            if due or self._unmasked:
                self.wake()
            elif soon:
                self.write_soon()
        except BaseException as failure:
            self._undo(failure, mid_step, ticket, batch)
            raise
        return result

    def _leave(self, batch: Batch, actions: list[Action]) -> None:
        """Have the loop send and do what a caller does as a rule, who has left the rest to it before."""
        self._settle(batch)
        with self._lock:
            self._todo += [action for action in actions if isinstance(action, FOR_CALLERS)]

    def _undo(self, failure: BaseException, mid_step: bool, ticket: Ticket[Any] | None, batch: Batch | None) -> None:
        """A failure or an interrupt came to a caller, perhaps in the middle of a step."""
        if mid_step and not isinstance(failure, Exception):
            self._cut_short(failure, batch)
        else:
            self._back_out(ticket)

    def _back_out(self, ticket: Ticket[Any] | None) -> None:
        """The caller gets no ticket, so the operation must not go on."""
        try:
            if ticket is not None:
                self.give_up(ticket)  # first: nobody may hear of its end who has no ticket
        finally:
            # others rely on what was about to be written; and what a verb did before it failed is the loop's now
            self.wake()

    def _cut_short(self, interrupt: BaseException, batch: Batch | None = None) -> None:
        """End out of turn: an interrupt came to somebody inside, who leaves the node or its output half-changed.

        Nobody enters any more, the loop included, nothing is written any more, connections are closed, and everybody
        who waits is told.
        """
        self._quit = True
        if self.failure is None:
            what = type(interrupt).__name__
            self._refusal = (
                f"{self.name} was interrupted ({what}) in the middle of a step and has ended:"
                " close it and make a new one"
            )
            self.failure = StateError(self._refusal)
            self.failure.__cause__ = interrupt
        if batch:
            self._settle(batch)  # nobody sends it; but sockets that are being sent to are not closed
        self._rouse()
        # the loop had ended by itself, and whoever was about to be told was not among those that it told
        if self._shut_down:
            self._tell_all()
        log.warning("%s", self._refusal)

    def write_soon(self) -> None:
        """Have what `enter` left written when the present turn of the runtime is over. From any thread."""
        self.wake()

    def _hand_over(self, task: object) -> None:
        assert self._deliver is not None, "a node that delivers needs somebody to deliver to"
        self._deliver(task)

    def _finish(self, ticket: Ticket[Any]) -> None:
        try:
            try:
                self._pending.remove(ticket)  # whoever removes it tells, so that it is told once
            except KeyError:
                return
            if ticket.wake is not None:
                ticket.wake()
        except Exception:
            raise
        except BaseException:
            # an interrupt ends the driver, whose end tells again: once more is better than not at all
            self._pending.add(ticket)
            raise

    def _tell_all(self) -> None:
        """Nothing that is pending ends any more: tell whoever waits for it."""
        for ticket in list(self._pending):
            with suppress(RuntimeError):  # a gate that is open: it was told, and an interrupt came in that moment
                self._finish(ticket)

    def outcome(self, ticket: Ticket[T]) -> T:
        """What came of an operation that was launched: its value, or raises its failure."""
        if not ticket.settled:
            raise self._has_ended(f"{self.name} ended before the operation did")
        return ticket.result()

    def _has_ended(self, text: str) -> StateError:
        """What is raised once nobody can enter any more, with the reason as its cause (compiled code knows no
        `raise ... from`).
        """
        error = StateError(text)
        error.__cause__ = self.failure
        return error

    def give_up(self, ticket: Ticket[Any]) -> None:
        """Nobody waits for this operation any more."""
        if self._cancel is not None and not ticket.settled:
            with suppress(StateError):
                self.enter(self._cancel, ticket)

    def feed(self, entry: Callable[[int], None]) -> None:
        """Have the loop call `entry(now)` at its next turn. From any thread."""
        self._inputs.append(entry)
        self.wake()

    def wake(self) -> None:
        """Have the loop turn once more. From any thread."""
        if not self._woken and not self._quit:
            self._woken = True
            try:
                self._wakes.send(b"\0")
            except OSError:
                pass  # full: it will wake; closed: the loop has just ended
            except BaseException:  # whether it was sent or not
                self._rouse()
                raise

    def _rouse(self) -> None:
        """Wake the loop whatever was said before."""
        with suppress(OSError):
            self._wakes.send(b"\0")

    # For both sides.

    def _now(self) -> int:
        """The time; the node's wall time is exact with it."""
        now = self._seen = time.monotonic_ns() // 1_000_000
        self.node.wall_ahead = time.time_ns() // 1_000_000 - now
        return now

    def _entry_time(self, now: int) -> int:
        """The time of an entry of the loop: that of its turn, unless a caller was inside since. Time never runs back
        for a node.

        Under the lock.
        """
        return max(now, self._latest)

    def _take(self, together: bool = False) -> tuple[Batch, list[Action]]:
        """Take what the node has to send and to do. Under the lock. `together`: see `enter`."""
        node = self.node
        batch: Batch = []
        if node.touched:
            left: list[Link] = []
            try:
                for link in node.touched:
                    stream = link.driver_slot
                    if type(stream) is Stream:
                        if together and (self._bursts or stream.turn == self.turns) and link.unsent < _TOGETHER_MAX:
                            left.append(link)
                            continue
                        stream.turn = self.turns
                        buffers = node.data_to_send(link)
                        if stream.sending or stream.backlog:
                            stream.backlog += buffers
                            if stream.mask & READ and not link.wants_read:
                                self._unmasked.append(stream)
                        else:
                            stream.sending = True
                            batch.append((stream, buffers))
                    elif stream is GONE:
                        node.data_to_send(link)
                    # else it is not connected yet: the data wait in the link
                node.touched.clear()
                node.touched.update(left)
            except BaseException:  # nobody gets this batch
                for stream, buffers in batch:
                    stream.sending = False
                    stream.backlog = buffers
                    self._unmasked.append(stream)
                raise
        actions = node.actions
        if not actions:
            return batch, []  # never the node's own list: it fills again as soon as the lock is left
        node.actions = []
        return batch, actions

    def _settle(self, batch: Batch) -> None:
        """Count what was sent; what was not is the loop's to send. A second time is harmless once `_quit` is set."""
        with self._lock:
            try:
                for stream, left in batch:
                    stream.sending = False
                    if left:
                        stream.backlog = left + stream.backlog
                    link = stream.link
                    if stream.backlog or link.out:
                        link.unsent = sum(map(len, stream.backlog)) + sum(map(len, link.out))
                    else:
                        link.unsent = 0
                    if stream.gone:
                        stream.sock.close()
                    elif stream.backlog or stream.closing or stream.mask != READ:
                        self._unmasked.append(stream)
            except Exception:
                raise
            except BaseException:
                self._quit = True  # before the lock is free: nobody may send what is in the wrong place
                raise


def send_batch(batch: Batch) -> None:
    """Send without waiting; afterwards the batch holds what is left. Not under the lock."""
    for index, (stream, buffers) in enumerate(batch):
        try:
            left = send_buffers(stream.sock, buffers)
        except OSError as error:
            stream.failure = describe(error)
            left = buffers
        except BaseException:
            stream.failure = "interrupted while sending"  # nobody knows how much
            raise
        batch[index] = (stream, left)
