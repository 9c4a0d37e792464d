"""Acknowledgements that wait for the disk.

Owns: what waits for a flush of the log or for a table to be saved, the end of that wait, what is answered when the disk
takes too long.
Leaves to others: flushing (`mqproto.engine.store`), saving tables (`tables.config_manager`), what an answer says.

One read brings many messages of one peer, and one flush makes all of them durable: their answers are one `HeldAnswer`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mqproto.codec import ONEWAY_FLAG, Command, decode, encode, encode_response
from mqproto.engine.broker.interfaces.requests import Peer
from mqproto.wire.codes import FLUSH_DISK_TIMEOUT, SUCCESS

if TYPE_CHECKING:
    from mqproto.engine.broker.core.core import ClientLink, Core

_OPEN: Final = 1 << 62


class HeldAnswer:
    """Answers to one peer for what one entry appended."""

    __slots__ = ("answers", "end", "link", "since", "until")

    def __init__(self, link: Peer, since: int, until: int) -> None:
        self.link = link
        #: When the wait began, and when it is over.
        self.since = since
        self.until = until
        #: The log has to be durable up to here; known when the entry ends.
        self.end = _OPEN
        self.answers: list[bytes] = []


class PendingAcks:
    """Acknowledgements that wait. `count` is how many."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._timeout_ms = 0
        self._settings_changed()
        core.configuration.hooks.append(self._settings_changed)
        self.count = 0
        #: Waiting for a flush, in the order of their ends.
        self._held: deque[HeldAnswer] = deque()
        #: Those of them that the entry under way has made.
        self._fresh: list[HeldAnswer] = []
        #: Waiting for a table to be saved first: number of its change, end in the log or 0, when the wait is over,
        #: link, answer.
        self._unsaved: deque[tuple[int, int, int, Peer, bytes]] = deque()

    def _settings_changed(self, keys: frozenset[str] = frozenset()) -> None:
        self._timeout_ms = self._core.store.settings.sync_flush_timeout

    @property
    def full(self) -> bool:
        """Whether so many wait that no more are taken: sends are refused, the broker is busy."""
        return self.count >= self._core.settings.send_thread_pool_queue_capacity

    @property
    def wait_for_tables(self) -> bool:
        """Whether any wait for a table."""
        return bool(self._unsaved)

    @property
    def head_wait_ms(self) -> int:
        """How long the one that waits longest has waited."""
        begins = [self._held[0].since] if self._held else []
        if self._unsaved:
            begins.append(self._unsaved[0][2] - self._timeout_ms)
        return max([self._core.now - begin for begin in begins], default=0)

    def send(self, link: ClientLink, answer: bytes, wait: bool, topic: str) -> None:
        """Answer for a message of a topic that was just appended: now, or under SYNC_FLUSH once it is durable.

        Never before the topic is saved: after a crash nobody would find the message. Other topics do not wait for it.
        """
        core = self._core
        change = core.topics.changes.get(topic, 0)
        if change > core.config_manager.saved:
            self._hold_unsaved(change, core.store.end if wait and core.store.sync else 0, link, answer)
        elif wait and core.store.sync:
            self.hold(link, answer)
        else:
            core.write(link, answer)

    def confirm(self, link: Peer, request: Command) -> None:
        """Answer that a change of a table was made, once it is saved."""
        if link.ended or request.flag & ONEWAY_FLAG:
            return
        answer = encode_response(request.opaque, SUCCESS, serialize_type=request.serialize_type)
        config_manager = self._core.config_manager
        if config_manager.changes > config_manager.saved:
            self._hold_unsaved(config_manager.changes, 0, link, answer)
        else:
            link.write(answer)

    def hold(self, link: ClientLink, answer: bytes) -> None:
        """Keep an answer until what was appended so far is flushed."""
        fresh = self._fresh
        if fresh and fresh[-1].link is link:
            fresh[-1].answers.append(answer)
        else:
            held = HeldAnswer(link, self._core.now, self._core.now + self._timeout_ms)
            held.answers.append(answer)
            if not self._held:
                self._core.after(self._timeout_ms, self.give_up)
            self._held.append(held)
            fresh.append(held)
            self._core.flush_wanted = True
        self.count += 1

    def _hold_unsaved(self, change: int, end: int, link: Peer, answer: bytes) -> None:
        """Keep an answer until a change of a table is saved and, if `end` is not 0, what lies below that is flushed."""
        core = self._core
        core.after(self._timeout_ms, self.give_up)
        self._unsaved.append((change, end, core.now + self._timeout_ms, link, answer))
        self.count += 1
        core.flush_wanted = core.flush_wanted or end > 0

    def entry_over(self) -> None:
        """An entry ends: what it appended lies below the end of the log."""
        end = self._core.store.end
        for held in self._fresh:
            held.end = end
        self._fresh.clear()

    def release(self) -> None:
        """After a flush or a save: send what is on the disk now."""
        core = self._core
        held, unsaved = self._held, self._unsaved
        saved, flushed = core.config_manager.saved, core.store.flushed
        while unsaved and unsaved[0][0] <= saved:
            _, end, until, link, answer = unsaved.popleft()
            late = HeldAnswer(link, until - self._timeout_ms, until)
            late.end = end
            late.answers.append(answer)
            held.append(late)
        while held and held[0].end <= flushed:
            item = held.popleft()
            self.count -= len(item.answers)
            core.statistics.store_stats.put_waited(item.since, len(item.answers))
            if not item.link.ended:
                item.link.write(b"".join(item.answers))
        self._arm()

    def _arm(self) -> None:
        """Let the alarm ring when the first of what still waits has waited long enough."""
        core = self._core
        core.alarms.cancel(self.give_up)
        if self._held:
            core.after(self._held[0].until - core.now, self.give_up)
        if self._unsaved:
            core.after(self._unsaved[0][2] - core.now, self.give_up)

    def give_up(self) -> None:
        """Alarm: the disk took too long.

        The message is stored and will be flushed, so the answer is complete but for its code.
        """
        core = self._core
        late: list[tuple[Peer, bytes]] = []
        while self._held and self._held[0].until <= core.now:
            held = self._held.popleft()
            core.statistics.store_stats.put_waited(held.since, len(held.answers))
            late += [(held.link, answer) for answer in held.answers]
        while self._unsaved and self._unsaved[0][2] <= core.now:
            late.append(self._unsaved.popleft()[3:])
        self.count -= len(late)
        for link, answer in late:
            if not link.ended:
                response = decode(answer[4:])
                response.code = FLUSH_DISK_TIMEOUT
                link.write(encode(response))
        self._arm()
