"""Delayed messages, which leave the schedule topic for where they belong when their time has come
(docs/protocol/store.md 11).

Owns: one alarm for each level that has something to wait for, the progress of each level.
Leaves to others: putting messages into the schedule topic (`message_writer`), keeping the progress
(`tables.delay_progress`).

The consume queue of a level holds the delivery time of each message in place of its tag code. A level is in order of
these times, so only its head is looked at: an idle level costs nothing. Levels that have something due take turns, a
few messages each, so that others get on with theirs; a waiting one looks at the clock now and then, which may be set.

Progress counts what is durable: were it saved before the delivered copies are flushed, a power loss would lose them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqproto.engine.broker.interfaces.answers import DiskReads
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.interfaces.requests import Refused
from mqproto.engine.broker.sends.message_writer import MessageWriter, NewMessage, Stored
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.statistics.store_stats import TrafficCounters
from mqproto.engine.broker.tables.delay_progress import DelayProgress
from mqproto.engine.broker.tables.topics import legal_topic
from mqproto.engine.store import PutRefused, PutStatus, Queue, Store
from mqproto.wire import properties as names
from mqproto.wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from mqproto.wire.record import RecordError, decode_record

#: Messages that one level delivers before others get their turn. Each 32 KiB of a long one count as one more.
_AT_A_TIME: Final = 32
_PART_BITS: Final = 15
#: How late a message may be after the clock was set forward.
_LOOK_MS: Final = 30_000
#: Delivering counts as what a group of this name reads.
SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
#: Pause when the store takes nothing (a full disk), or when messages are not durable yet.
_PAUSE_MS: Final = 1000
_NOT_YET_MS: Final = 100
#: Pause when the disk cannot be read. Messages are not left out for that: it may pass.
_DISK_PAUSE_MS: Final = 10_000


class DelayLevel:
    """Delay level, or a queue of a level that is no longer set: that one goes by delivery times alone."""

    __slots__ = (
        "_delivered",
        "_head",
        "_left",
        "_warm_to",
        "_warming",
        "delay_ms",
        "levels",
        "number",
        "offset",
        "queue",
    )

    def __init__(self, levels: DelayLevels, number: int, queue: Queue) -> None:
        self.levels = levels
        self.number = number
        self.queue = queue
        self.delay_ms = levels.delays[number - 1] if number <= len(levels.delays) else None
        #: The next one to deliver. A progress outside of the queue says nothing: rather deliver twice than not at all
        #: (DLY-01).
        self.offset = levels.progress.table.get(number, queue.min_offset)
        if not queue.min_offset <= self.offset <= queue.next_offset:
            levels.notices.notice(
                f"delay level {number}: progress {self.offset} is outside of its queue, beginning at {queue.min_offset}"
            )
            self.offset = queue.min_offset
        #: Where the log ended after a delivery, and the next offset then: progress, once that is flushed.
        self._delivered: deque[tuple[int, int]] = deque()
        #: Messages that slept long were just brought into memory up to here, or are being.
        self._warm_to = 0
        self._warming = False
        #: What may still be delivered in this turn.
        self._left = 0
        #: A message that waits: its offset, when it is due, its delay. It need not be read to look at the clock.
        self._head = (-1, 0, 0)

    def run(self) -> None:
        """Alarm: something may be due."""
        self.levels.ready(self)

    def deliver(self) -> None:
        """Deliver what is due, and be called again when the next one is."""
        levels = self.levels
        begin = self.offset
        wait_ms: int | None = 0
        self._left = _AT_A_TIME
        while self._left > 0 and wait_ms == 0:
            self._left -= 1
            wait_ms = self._step()
        if self.offset != begin:
            self._delivered.append((levels.store.end, self.offset))
            self.count(levels.store.flushed)
        self._warm_to = 0
        if wait_ms is not None:
            levels.timers.alarms.set(self.run, levels.timers.now + min(wait_ms, _LOOK_MS))

    def _warm(self) -> bool:
        """Whether the head can be read without waiting for the disk; else a job sees to that, and `run` follows."""
        if self._warming:
            return False
        levels = self.levels
        job = levels.store.reads.warm(self.queue, self.offset, _AT_A_TIME)
        if job is None:
            return True
        self._warming = True
        try:
            levels.reads.wait(levels.reads.own, job, self._warmed, lambda refused: self._warmed(None))
        except Refused:
            self._warmed(None)
        return False

    def _warmed(self, offset: int | None) -> None:
        """The messages up to an offset are in memory; None: they are not, which is tried again."""
        self._warming = False
        if offset is None:
            self.levels.timers.alarms.set(self.run, self.levels.timers.now + _DISK_PAUSE_MS)
        else:
            self._warm_to = max(offset, self.offset + 1)
            self.run()

    def count(self, flushed: int) -> None:
        """The log is durable up to here: what was delivered below is progress."""
        delivered = self._delivered
        offset = -1
        while delivered and delivered[0][0] <= flushed:
            offset = delivered.popleft()[1]
        if offset >= 0:
            self.levels.progress.set(self.number, offset)

    def _step(self) -> int | None:
        """Look at the head: 0 if it was delivered (or is of no use), else how long to wait; None: until something comes
        or is read.
        """
        levels = self.levels
        queue = self.queue
        self.offset = max(self.offset, queue.min_offset)
        if self.offset >= queue.max_offset:
            return _NOT_YET_MS if self.offset < queue.next_offset else None
        at, due, delay_ms = self._head
        if at == self.offset and 0 < due - levels.timers.wall <= delay_ms:
            return due - levels.timers.wall
        if self.offset >= self._warm_to and not self._warm():
            return None
        entry = levels.store.reader.entry(queue, self.offset)
        if entry is not None:
            physical, _, due = entry
            wait_ms = due - levels.timers.wall
            # Further away than the delay: the clock was set back since, so it has waited long enough
            # (docs/protocol/store.md 11).
            if wait_ms > 0 and wait_ms <= (delay_ms := self._delay_of(due)):
                self._head = (self.offset, due, delay_ms)
                return wait_ms
            wait_ms = self._deliver(physical)
            if wait_ms:
                return wait_ms
        self.offset += 1
        return 0

    def _delay_of(self, due: int) -> int:
        """How long the message at the head has to wait in all, from when it was stored."""
        if self.delay_ms is not None:
            return self.delay_ms
        return due - self.levels.store.reader.store_time(self.queue, self.offset)

    def _deliver(self, physical: int) -> int:
        """Store the copy of one message where it belongs; gives how long to wait before another try, 0 if it is
        settled.
        """
        record = self.levels.store.reader.record(physical)
        if record is None:
            return 0
        self._left -= len(record) >> _PART_BITS
        try:
            message = decode_record(record)
        except RecordError as damage:
            self.levels.notices.notice(
                f"delay level {self.number}: message at {physical} is unreadable and left out: {damage}"
            )
            return 0
        topic = message.properties.get(names.REAL_TOPIC, "")
        queue_text = message.properties.get(names.REAL_QUEUE_ID, "")
        if not legal_topic(topic) or not (queue_text.isascii() and queue_text.isdigit() and len(queue_text) < 10):
            self.levels.notices.notice(
                f"delay level {self.number}: message at {physical} does not say where it belongs and is left out"
            )
            return 0
        if topic == HALF_TOPIC:
            return 0  # a half that was delayed by mistake: nobody could end it (docs/protocol/store.md 11)
        new_message = NewMessage.again(message, topic, int(queue_text))
        try:
            self._count(self.levels.message_writer.append(new_message))
        except PutRefused as refused:
            if refused.status in (PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED):
                return _PAUSE_MS
            self.levels.notices.notice(
                f"delay level {self.number}: message at {physical} cannot be delivered and is left out: {refused}"
            )
        return 0

    def _count(self, stored: Stored) -> None:
        """A message counts as read from here and as put where it belongs (docs/protocol/broker.md 9.1)."""
        levels = self.levels
        if levels.store.settings.enable_schedule_message_stats:
            levels.traffic.messages_in += 1
            levels.statistics.read(self.queue, SCHEDULE_GROUP, 1, stored.size)
            levels.statistics.put(stored.queue, 1, stored.size)


class DelayLevels:
    """Delay levels of the broker."""

    def __init__(
        self,
        timers: Timers,
        traffic: TrafficCounters,
        notices: Notices,
        store: Store,
        progress: DelayProgress,
        statistics: Statistics,
        reads: DiskReads,
        message_writer: MessageWriter,
    ) -> None:
        self.timers = timers
        self.traffic = traffic
        self.notices = notices
        self.store = store
        self.progress = progress
        self.statistics = statistics
        self.reads = reads
        self.message_writer = message_writer
        #: Milliseconds of each level, the first one for level 1.
        self.delays = store.settings.delay_levels
        self.levels: dict[int, DelayLevel] = {}
        #: Levels that may have something due, in turn.
        self._ready: deque[DelayLevel] = deque()
        message_writer.delayed = self.arrived

    def begin(self) -> None:
        """Deliver what came due while nobody was there."""
        for queue in self.store.queues():
            if queue.topic == SCHEDULE_TOPIC and queue.next_offset > 0:
                self._level(queue.queue_id + 1)
        for number in sorted(self.levels):
            self.timers.alarms.set(self.levels[number].run, self.timers.now)

    def ready(self, level: DelayLevel) -> None:
        """A level may have something due."""
        if level not in self._ready:
            self._ready.append(level)
            self.timers.after(0, self.run)

    def run(self) -> None:
        """Alarm: the turn of one level."""
        self._ready.popleft().deliver()
        if self._ready:
            self.timers.after(0, self.run)

    def flushed(self) -> None:
        """More of the log is durable."""
        flushed = self.store.flushed
        for level in self.levels.values():
            level.count(flushed)

    def end(self) -> None:
        """The broker ends, and the store flushes everything: all that was delivered is progress, unless its disk
        failed.
        """
        if self.store.writer.writable:
            for level in self.levels.values():
                level.count(self.store.end)

    def arrived(self, number: int) -> None:
        """A message was put aside under a level."""
        level = self._level(number)
        if level.run not in self.timers.alarms and level not in self._ready:
            assert level.delay_ms is not None
            self.timers.alarms.set(level.run, self.timers.now + min(level.delay_ms, _LOOK_MS))

    def _level(self, number: int) -> DelayLevel:
        level = self.levels.get(number)
        if level is None:
            queue = self.store.queue(SCHEDULE_TOPIC, number - 1)
            level = self.levels[number] = DelayLevel(self, number, queue)
        return level
