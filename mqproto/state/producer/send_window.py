"""Window of sends: how much a producer may have in flight, so that a loop that sends faster than brokers take waits for
room and does not fill the memory.

Owns: the messages and bytes of the sends under way, who waits for room in which order, what a flush waits for.
Leaves to others: how long a send may wait, and what it does then (`core`); waking who waits (the node).

First come, first served: a small message does not pass a large one that waits. What is larger than the whole window is
let in once nothing else is in flight, so it passes alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mqproto.state.node.contract import Ticket


class Generation:
    """Sends that began between two flushes. `ended` is settled by the last of them, where somebody waits for it."""

    __slots__ = ("count", "ended")

    def __init__(self) -> None:
        self.count = 0
        self.ended: Ticket[None] | None = None


class WindowPlace:
    """Place of one send in the window, from `SendWindow.enter` to `SendWindow.leave`."""

    __slots__ = ("generation", "messages", "room", "size", "waits")

    def __init__(self, messages: int, size: int, generation: Generation) -> None:
        self.messages = messages
        self.size = size
        self.generation = generation
        #: True until there is room.
        self.waits = False
        #: Settled when there is room, or when the send has given up waiting; None for a send that did not have to wait.
        self.room: Ticket[None] | None = None


class SendWindow:
    """Window of at most `messages_max` messages and `size_max` bytes.

    `wake` settles a ticket and resumes the flows that wait for it, at the node's next step: it is called from flows
    that are being closed too, which know no time.
    """

    __slots__ = ("_generation", "_messages_max", "_older", "_size_max", "_wake", "line", "messages", "size")

    def __init__(self, messages_max: int, size_max: int, wake: Callable[[Ticket[None]], None]) -> None:
        self._messages_max = messages_max
        self._size_max = size_max
        self._wake = wake
        #: What is in flight now, without what waits for room.
        self.messages = 0
        self.size = 0
        #: Who waits for room, first come first; out of a dict the first is slow to find once many have left.
        self.line: OrderedDict[WindowPlace, None] = OrderedDict()
        self._generation = Generation()
        #: Those before it that somebody waits for.
        self._older: list[Generation] = []

    @property
    def waiting(self) -> int:
        """How many sends wait for room."""
        return len(self.line)

    def enter(self, messages: int, size: int) -> WindowPlace:
        """Begin a send of so many messages and bytes.

        Where `waits` is set it may go on once `room` is settled and `waits` is not.
        """
        generation = self._generation
        generation.count += 1
        place = WindowPlace(messages, size, generation)
        if not self.line and self._fits(messages, size):
            self.messages += messages
            self.size += size
        else:
            place.waits = True
            place.room = Ticket()
            self.line[place] = None
        return place

    def take(self, size: int) -> Generation | None:
        """Begin a send of one message that is to have no place of its own, where there is room: ended by `give`, or
        `adopt` and `leave`.
        """
        if self.line:
            return None
        messages = self.messages
        if messages and (messages >= self._messages_max or self.size + size > self._size_max):
            return None
        self.messages = messages + 1
        self.size += size
        generation = self._generation
        generation.count += 1
        return generation

    def give(self, generation: Generation, size: int) -> None:
        """A send that `take` let in is over."""
        generation.count -= 1
        if not generation.count and generation.ended is not None:
            self._wake(generation.ended)
            self._older.remove(generation)
        self.messages -= 1
        self.size -= size
        if self.line:
            self._admit()

    def adopt(self, generation: Generation, size: int) -> WindowPlace:
        """The place of a send that `take` let in."""
        return WindowPlace(1, size, generation)

    def last(self) -> Ticket[None] | None:
        """What the send that began last waits for; None when it did not have to wait."""
        return next(reversed(self.line)).room if self.line else None

    def leave(self, place: WindowPlace) -> None:
        """A send is over, whether it was let in or not. Once for each."""
        generation = place.generation
        generation.count -= 1
        if not generation.count and generation.ended is not None:
            self._wake(generation.ended)
            self._older.remove(generation)
        if place.waits:
            del self.line[place]
            assert place.room is not None
            self._wake(place.room)
        else:
            self.messages -= place.messages
            self.size -= place.size
        if self.line:
            self._admit()

    def in_flight(self) -> list[Ticket[None]]:
        """Tickets that are settled when all sends that have begun by now are over; none where there are none."""
        generation = self._generation
        if generation.count:
            generation.ended = Ticket()
            self._older.append(generation)
            self._generation = Generation()
        return [one.ended for one in self._older if one.ended is not None]

    def _fits(self, messages: int, size: int) -> bool:
        if not self.messages:
            return True
        return self.messages + messages <= self._messages_max and self.size + size <= self._size_max

    def _admit(self) -> None:
        waiting = self.line
        while waiting:
            place = next(iter(waiting))
            if not self._fits(place.messages, place.size):
                return
            del waiting[place]
            place.waits = False
            self.messages += place.messages
            self.size += place.size
            assert place.room is not None
            self._wake(place.room)
