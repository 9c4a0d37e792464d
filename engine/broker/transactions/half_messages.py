"""States of half messages: which of them nobody has ended yet (docs/protocol/store.md 12).

Owns: the state of each half message from the oldest open one on, and of some before it; the copies of each transaction;
how far both queues are done with.
Leaves to others: messages (`end_transaction`, `transaction_check`), when progress may be saved.

A half message takes one byte, and those that are open are found by a search for a byte: what a look at them costs, and
what they take, does not depend on how many were ended. A half message that is checked goes on as a copy at the end of
its queue, under a new offset. Whoever ends any of the copies ends the transaction, and that once.
"""

from __future__ import annotations

from array import array
from typing import Final

OPEN: Final = 0
#: Committed or rolled back.
SETTLED: Final = 1
#: Put back as a copy, moved aside, or not readable.
PASSED: Final = 2

#: Half messages before the oldest open one that are remembered, so that an end that comes twice is known.
_BEHIND: Final = 1 << 16
#: Op messages that one of them takes along when it is counted, so that no end takes long.
_OPS_AT_A_TIME: Final = 64
#: Copies that are remembered as belonging together. An end of a superseded copy of any other transaction settles only
#: that copy.
_COPIES_MAX: Final = 200_000
_NO_HALF: Final = -1


class HalfMessages:
    """States of the half messages from the offset `first` on, with the op messages from `op_first` on still to be read
    (`note`, `loaded`).
    """

    __slots__ = (
        "_ahead",
        "_copies",
        "_floor",
        "_loading",
        "_ops",
        "_ops_begin",
        "_passed_ops",
        "_states",
        "first",
        "open",
    )

    def __init__(self, first: int, op_first: int, next_offset: int) -> None:
        #: No half message before this one is open.
        self.first = first
        #: How many are open.
        self.open = 0
        #: States from the offset `_floor` on.
        self._floor = first
        self._states = bytearray()
        #: For each op message from `_ops_begin` on the last half message that it settles. Of these the first ones are
        #: of no use any more.
        self._ops = array("q")
        self._ops_begin = op_first
        self._passed_ops = 0
        #: Op messages that were stored before the earlier ones had been read.
        self._loading = True
        self._ahead: list[tuple[int, int]] = []
        #: Offsets of all copies of a transaction, the last one open, under each of them.
        self._copies: dict[int, list[int]] = {}
        self.reach(next_offset)

    @property
    def op_first(self) -> int:
        """No op message before this one says anything about a half message from `first` on."""
        return self._ops_begin + self._passed_ops

    @property
    def end(self) -> int:
        """The offset of the next half message."""
        return self._floor + len(self._states)

    def reach(self, next_offset: int) -> None:
        """The queue has messages up to here; new ones are open."""
        more = next_offset - self.end
        if more > 0:
            self._states.extend(bytes(more))
            self.open += more

    # --- looking ---

    def is_open(self, offset: int) -> bool:
        return self.first <= offset < self.end and self._states[offset - self._floor] == OPEN

    def is_settled(self, offset: int) -> bool:
        """Whether a half message is known to have been ended, by itself or by one of its copies."""
        return self._floor <= offset < self.end and self._states[offset - self._floor] == SETTLED

    def next_open(self, offset: int, end: int) -> int | None:
        """The first open one from an offset on and before `end`."""
        found = self._states.find(OPEN, max(offset, self.first) - self._floor, max(0, end - self._floor))
        return None if found < 0 else self._floor + found

    def run_of_open(self, offset: int, end: int) -> int:
        """How many open ones follow each other from an offset on and before `end`."""
        states = self._states[offset - self._floor : end - self._floor]
        return len(states) - len(states.lstrip(b"\x00"))

    def copies(self, offset: int) -> tuple[int, ...]:
        """What has to be settled with a half message: itself, and the copy of it that is open."""
        known = self._copies.get(offset)
        return (offset,) if known is None or known[-1] == offset else (offset, known[-1])

    # --- changes ---

    def settle(self, offset: int) -> None:
        """A half message was ended, and with it all of its copies."""
        known = self._copies.get(offset)
        for each in (offset,) if known is None else tuple(known):
            self._mark(each, SETTLED)
        self._forget(offset)
        self._advance()

    def moved(self, offset: int, copy: int) -> None:
        """A half message goes on as a copy."""
        self.reach(copy + 1)
        self._mark(offset, PASSED)
        known = self._copies.get(offset)
        if len(self._copies) < _COPIES_MAX:
            if known is None:
                known = self._copies[offset] = [offset]
            known.append(copy)
            self._copies[copy] = known
        else:
            self._forget(offset)
        self._advance()

    def join(self, offset: int, copy: int) -> None:
        """A half message belongs to a transaction that has gone on as an open copy already."""
        self._mark(offset, PASSED)
        known = self._copies.get(copy)
        if known is not None and len(self._copies) < _COPIES_MAX:
            known.insert(0, offset)
            self._copies[offset] = known
        self._advance()

    def pass_over(self, begin: int, end: int) -> int:
        """The half messages of this range are to be left alone; gives how many of them were open."""
        low, high = max(begin, self.first) - self._floor, end - self._floor
        states = self._states[low:high]
        count = states.count(OPEN)
        self._states[low:high] = states.replace(bytes((OPEN,)), bytes((PASSED,)))
        self.open -= count
        self._advance()
        return count

    def give_up(self, offset: int) -> None:
        """A half message was moved aside."""
        self._mark(offset, PASSED)
        self._forget(offset)
        self._advance()

    def _mark(self, offset: int, state: int) -> None:
        at = offset - self._floor
        if 0 <= at < len(self._states):
            if self._states[at] == OPEN:
                self.open -= 1
            self._states[at] = state

    def _forget(self, offset: int) -> None:
        for each in self._copies.get(offset, ()):
            del self._copies[each]

    def _advance(self) -> None:
        """Let `first` and `op_first` follow, and drop what lies far behind."""
        found = self._states.find(OPEN, self.first - self._floor)
        self.first = self.end if found < 0 else self._floor + found
        if self.first - self._floor > 2 * _BEHIND:
            drop = self.first - self._floor - _BEHIND
            del self._states[:drop]
            self._floor += drop
        self.pass_ops(_OPS_AT_A_TIME)

    # --- op messages ---

    def read(self, op_offset: int, offsets: list[int]) -> None:
        """An op message that was there at the start says that these half messages are settled."""
        for offset in offsets:
            if self.first <= offset < self.end:
                self._mark(offset, SETTLED)
        self._count(op_offset, max(offsets, default=_NO_HALF))
        self._advance()

    def loaded(self) -> None:
        """All op messages that were there at the start are read."""
        self._loading = False
        for op_offset, offset in self._ahead:
            self._count(op_offset, offset)
        self._ahead.clear()
        self.pass_ops(_OPS_AT_A_TIME)

    def note(self, op_offset: int, offset: int) -> None:
        """An op message was stored for a half message."""
        if self._loading:
            self._ahead.append((op_offset, offset))
        else:
            self._count(op_offset, offset)

    def _count(self, op_offset: int, offset: int) -> None:
        gap = op_offset - self._ops_begin - len(self._ops)
        if gap > 0:  # places of the queue without a message
            self._ops.extend(array("q", (_NO_HALF,)) * gap)
        self._ops.append(offset)

    def pass_ops(self, count: int) -> None:
        """Let `op_first` follow, over so many op messages at most."""
        ops = self._ops
        at = self._passed_ops
        end = min(len(ops), at + count)
        while at < end and ops[at] < self.first:
            at += 1
        self._passed_ops = at
        if at > 1024 and at * 2 > len(ops):
            del ops[:at]
            self._ops_begin += at
            self._passed_ops = 0
