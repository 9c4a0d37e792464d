"""Statistics of the broker under Apache's names (docs/protocol/broker.md 9.1).

Owns: which counter stands for what, their number, what becomes of them when a topic or a group is deleted.
Leaves to others: their snapshots (`sampling`, `mqproto.engine.counters`), the figures of the store as a whole
(`store_stats`).

Counters belong to queues, and those of a topic are the sum of its queues': so the hot paths find them in the objects
that they have anyway, and a count costs a few additions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mqproto.engine.broker.interfaces.clock import Timers
from mqproto.engine.broker.statistics.sampling import Sampler
from mqproto.engine.broker.statistics.store_stats import StoreStats, TrafficCounters
from mqproto.engine.counters import COUNT, SIZE, SPENT, WINDOWS, Counter, CounterReader, span, spans
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import Queue, Store
from mqproto.wire.bodies import BrokerStats

#: Counters that are kept; peers make them by sending and pulling. What one more counts is only in the totals.
COUNTERS_MAX: Final = 100_000
#: Time between two looks for counters that rest, when there are too many.
_SWEEP_MS: Final = 3_600_000


class Statistics:
    """Counters of a broker."""

    def __init__(
        self, timers: Timers, traffic: TrafficCounters, settings: BrokerSettings, store: Store, utc_offset_ms: int
    ) -> None:
        self._timers = timers
        self._traffic = traffic
        self._settings = settings
        self._store = store
        self.sampler = Sampler(timers, self._woken)
        self.store_stats = StoreStats(timers, traffic, store, utc_offset_ms, lambda: self.sampler.busy)
        #: By topic and queue; by topic, group and queue; by topic and group.
        self._puts: dict[str, dict[int, Counter]] = {}
        self._reads: dict[str, dict[str, dict[int, CounterReader]]] = {}
        self._backs: dict[str, dict[str, Counter]] = {}
        #: The broker as a whole, once anything was counted.
        self._broker: dict[str, Counter] = {}
        self._count = 0
        self._swept_at = -_SWEEP_MS
        #: Stands for those that are too many.
        self._spare = CounterReader(0)
        self._spare.changed = True

    def begin(self) -> None:
        """The broker begins: the first tick is now."""
        self.sampler.begin()
        self.store_stats.begin()

    # --- counting ---

    def touch(self, counter: Counter) -> None:
        """See `Sampler.touch`."""
        self.sampler.touch(counter)

    def put(self, queue: Queue, count: int, size: int) -> None:
        """A request has put messages into a queue."""
        counter = self.puts(queue)
        counter.times += 1
        counter.more += count - 1
        counter.size += size
        if not counter.changed:
            self.touch(counter)

    def puts(self, queue: Queue) -> Counter:
        """The counter of what is put into a queue."""
        by_queue = self._puts.get(queue.topic)
        counter = None if by_queue is None else by_queue.get(queue.queue_id)
        if counter is None:
            if not self._place():
                return self._spare
            counter = Counter(self.sampler.elapsed)
            self._puts.setdefault(queue.topic, {})[queue.queue_id] = counter
        return counter

    def read(self, queue: Queue, group: str, count: int, size: int) -> None:
        """A group was given messages of a queue."""
        reader = self.reader(queue, group)
        reader.times += 1
        reader.more += count - 1
        reader.size += size
        if not reader.changed:
            self.touch(reader)

    def reader(self, queue: Queue, group: str) -> CounterReader:
        """The counter of what a group reads from a queue; `queue.readers` has it from now on."""
        reader = None if queue.readers is None else queue.readers.get(group)
        if reader is not None:
            return reader
        if not self._place():
            return self._spare
        reader = CounterReader(self.sampler.elapsed)
        if queue.readers is None:
            queue.readers = {}
        queue.readers[group] = reader
        self._reads.setdefault(queue.topic, {}).setdefault(group, {})[queue.queue_id] = reader
        return reader

    def read_took(self, queue: Queue, group: str, ms: int) -> None:
        """What a group was just given had to be fetched from the disk."""
        reader = None if queue.readers is None else queue.readers.get(group)
        if reader is not None:
            reader.spent += ms

    def given_back(self, topic: str, group: str) -> None:
        """A consumer has given a message of a topic back."""
        counter = self._backs.get(topic, {}).get(group)
        if counter is None:
            if not self._place():
                return
            counter = self._backs.setdefault(topic, {})[group] = Counter(self.sampler.elapsed)
        counter.times += 1
        if not counter.changed:
            self.touch(counter)

    def _woken(self, elapsed: int) -> None:
        """Before a tick, and when something is counted after a rest: what the broker counts as a whole."""
        self.store_stats.wake()
        traffic = self._traffic
        for name, total in (("BROKER_PUT_NUMS", traffic.messages_in), ("BROKER_GET_NUMS", traffic.messages_out)):
            counter = self._broker.get(name)
            if counter is None and total:
                counter = self._broker[name] = Counter(elapsed)
            if counter is not None and counter.more != total:
                counter.more = total
                if not counter.changed:
                    self.sampler.add(counter)

    # --- bounds ---

    def _place(self) -> bool:
        """Whether there is a place for one more."""
        if self._count >= COUNTERS_MAX:
            now = self._timers.now
            if now - self._swept_at < _SWEEP_MS:
                return False
            self._swept_at = now
            self._sweep()
            if self._count >= COUNTERS_MAX:
                return False
        self._count += 1
        return True

    def _sweep(self) -> None:
        """Forget the readers that have not read for a day. Puts belong to topics, which have a bound of their own."""
        tick = self.sampler.elapsed // WINDOWS[-1].period
        for topic, groups in self._reads.items():
            for group, readers in list(groups.items()):
                if all(reader.rests(tick) for reader in readers.values()):
                    self._drop(topic, group, groups.pop(group))

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self._count -= len(self._puts.pop(topic, ())) + len(self._backs.pop(topic, ()))
        for group, readers in self._reads.pop(topic, {}).items():
            self._drop(topic, group, readers)

    def forget_group(self, group: str) -> None:
        """A group was deleted."""
        for backs in self._backs.values():
            self._count -= backs.pop(group, None) is not None
        for topic, groups in self._reads.items():
            self._drop(topic, group, groups.pop(group, {}))

    def _drop(self, topic: str, group: str, readers: dict[int, CounterReader]) -> None:
        self._count -= len(readers)
        for queue_id in readers:
            queue = self._store.find_queue(topic, queue_id)
            if queue is not None and queue.readers is not None:
                queue.readers.pop(group, None)

    # --- reading ---

    def find(self, name: str, key: str) -> BrokerStats | None:
        """What one of Apache's counters shows, by the names of its set and of itself; None if there is none.

        Without a counter are the sets that Apache never increases and those of commercial features
        (docs/protocol/broker.md 9.1).
        """
        elapsed = self.sampler.elapsed
        if name in self._broker:
            known = key == self._settings.broker_cluster_name
            return spans((self._broker[name],), elapsed, COUNT, timeless=True) if known else None
        finder = _SETS.get(name)
        if finder is None:
            return None
        find, place = finder
        counters = find(self, key)
        return spans(counters, elapsed, place) if counters else None

    def _of_topic(self, key: str) -> list[Counter]:
        return list(self._puts.get(key, {}).values())

    def _of_queue(self, key: str) -> list[Counter]:
        topic, _, number = key.partition("@")
        return self._only(self._puts.get(topic, {}), number)

    def _of_group(self, key: str) -> list[Counter]:
        topic, _, group = key.partition("@")
        return list(self._reads.get(topic, {}).get(group, {}).values())

    def _of_backs(self, key: str) -> list[Counter]:
        topic, _, group = key.partition("@")
        counter = self._backs.get(topic, {}).get(group)
        return [] if counter is None else [counter]

    def _of_latency(self, key: str) -> list[Counter]:
        number, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        return self._only(self._reads.get(topic, {}).get(group, {}), number)

    def _of_queue_read(self, key: str) -> list[Counter]:
        topic, _, rest = key.partition("@")
        number, _, group = rest.partition("@")
        return self._only(self._reads.get(topic, {}).get(group, {}), number)

    def _only(self, counters: dict[int, Counter] | dict[int, CounterReader], number: str) -> list[Counter]:
        counter = next((counter for queue_id, counter in counters.items() if str(queue_id) == number), None)
        return [] if counter is None else [counter]

    def read_tps(self, topic: str, group: str) -> float:
        """Messages a second that a group was given of a topic in the last minute."""
        return span(self._reads.get(topic, {}).get(group, {}).values(), 0, self.sampler.elapsed, COUNT).tps

    def readers(self) -> Iterator[CounterReader]:
        """Everything that groups read, each with how far behind the log's end the last read was."""
        for groups in self._reads.values():
            for readers in groups.values():
                yield from readers.values()

    def readers_by_group(self) -> Iterator[tuple[str, CounterReader]]:
        """The same with the names of the groups. Groups and topics may come and go meanwhile."""
        for topic in list(self._reads):
            groups = self._reads.get(topic, {})
            yield from [(group, reader) for group, readers in groups.items() for reader in readers.values()]

    def keys(self) -> Iterable[tuple[str, str]]:
        """Sets and keys of topics and groups that count something: for those who show all."""
        for topic in self._puts:
            yield "TOPIC_PUT_NUMS", topic
        for topic, groups in self._reads.items():
            for group in groups:
                yield "GROUP_GET_NUMS", f"{topic}@{group}"
        for topic, backs in self._backs.items():
            for group in backs:
                yield "SNDBCK_PUT_NUMS", f"{topic}@{group}"


#: Apache's sets: who finds the counters of a key, and which of their numbers the set shows.
_SETS: Final[dict[str, tuple[Callable[[Statistics, str], list[Counter]], int]]] = {
    "TOPIC_PUT_NUMS": (Statistics._of_topic, COUNT),
    "TOPIC_PUT_SIZE": (Statistics._of_topic, SIZE),
    "QUEUE_PUT_NUMS": (Statistics._of_queue, COUNT),
    "QUEUE_PUT_SIZE": (Statistics._of_queue, SIZE),
    "GROUP_GET_NUMS": (Statistics._of_group, COUNT),
    "GROUP_GET_SIZE": (Statistics._of_group, SIZE),
    "GROUP_GET_LATENCY": (Statistics._of_latency, SPENT),
    "QUEUE_GET_NUMS": (Statistics._of_queue_read, COUNT),
    "QUEUE_GET_SIZE": (Statistics._of_queue_read, SIZE),
    "SNDBCK_PUT_NUMS": (Statistics._of_backs, COUNT),
}
