"""The store against the simplest model of one: a list for each queue."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mqproto.engine.store import BatchPart, GetStatus, MemoryFiles
from mqproto.wire.ids import java_hash
from tests.engine.store.harness import HOST, Rig, disk_rig, memory_rig, records
from tests.engine.store.scenario import OLD_MS, LateJobs

TOPICS = st.sampled_from(["A", "B", "%RETRY%g"])
TAGS = st.sampled_from(["", "red", "blue"])
BODIES = st.binary(max_size=700)
RANDOMS = st.randoms(use_true_random=False)


class Sent(NamedTuple):
    """One message, and where its record begins."""

    body: bytes
    key: str
    tag: str
    time: int
    place: int


class StoreModel(RuleBasedStateMachine):
    """Appends, reads, time, late jobs, deletions, orderly ends, deaths of the process and of the machine in any order.

    `sent` is what was appended. What was flushed must outlive power losses, everything must outlive the death of the
    process, and nothing may ever change or move. What lies before the beginning of the log is gone.
    """

    folder = ""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[Sent]] = {}
        self.jobs = LateJobs()
        self.count = 0

    @initialize(sync=st.booleans())
    def begin(self, sync: bool) -> None:
        self.sync = sync
        self.rig = self.make(flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH")

    def make(self, **changes: str) -> Rig:
        rig = memory_rig(**changes)
        self.set_clock(rig)
        return rig

    def set_clock(self, rig: Rig) -> None:
        if isinstance(rig.files, MemoryFiles):
            rig.files.clock = lambda: rig.wall

    def key(self) -> str:
        self.count += 1
        return f"{self.count:032X}"

    # --- writing ---

    @rule(topic=TOPICS, body=BODIES, tag=TAGS)
    def send(self, topic: str, body: bytes, tag: str) -> None:
        key = self.key()
        place = self.rig.send(topic, body, uniq_key=key, tags=tag)
        self.sent.setdefault(topic, []).append(Sent(body, key, tag, self.rig.wall, place))

    @rule(topic=TOPICS, bodies=st.lists(BODIES, min_size=1, max_size=5))
    def send_batch(self, topic: str, bodies: list[bytes]) -> None:
        keys = [self.key() for _ in bodies]
        entries = [
            BatchPart(body, f"UNIQ_KEY\x01{key}".encode(), 0, 0, key, None)
            for body, key in zip(bodies, keys, strict=True)
        ]
        places = self.rig.store.writer.append_batch(
            self.rig.store.queue(topic, 0), entries, 0, 0, HOST, HOST, 0, self.rig.wall
        )
        found = [
            Sent(body, key, "", self.rig.wall, place) for body, key, place in zip(bodies, keys, places, strict=True)
        ]
        self.sent.setdefault(topic, []).extend(found)

    @rule(topic=TOPICS, count=st.integers(50, 150))
    def send_many(self, topic: str, count: int) -> None:
        for number in range(count):
            self.send(topic, b"%d" % number, "")

    # --- time and jobs ---

    @rule(ms=st.sampled_from([0, 1, 500, 1000, 10_000, 60_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.pass_time(ms)

    @rule()
    def run_jobs(self) -> None:
        self.rig.run_jobs()

    @rule(rng=RANDOMS)
    def run_a_job(self, rng: random.Random) -> None:
        self.jobs.run_one(self.rig.store, rng)

    @rule(rng=RANDOMS)
    def tell_of_a_job(self, rng: random.Random) -> None:
        self.jobs.tell_one(self.rig, rng)

    @rule()
    def want_flush(self) -> None:
        self.rig.store.want_flush()

    def let_jobs_end(self) -> None:
        self.jobs.finish(self.rig, random.Random(0))

    # --- ends ---

    @rule()
    def restart(self) -> None:
        self.let_jobs_end()
        self.rig.reopen()
        assert self.rig.store.recovery.clean
        assert self.rig.store.recovery.notes == []
        self.check_all()

    @rule()
    def kill(self) -> None:
        self.jobs = LateJobs()
        self.rig.kill()
        self.set_clock(self.rig)
        self.rig.open()
        self.check_all()

    @precondition(lambda self: isinstance(self.rig.files, MemoryFiles))
    @rule(seed=st.integers(0, 1000), kept=st.sampled_from([0.0, 0.5, 0.9]))
    def cut_power(self, seed: int, kept: float) -> None:
        flushed = self.rig.store.flushed
        rng = random.Random(seed)
        self.jobs = LateJobs()
        self.rig.cut_power(lambda path, sector: rng.random() < kept)
        self.set_clock(self.rig)
        self.rig.open()
        for topic, sent in self.sent.items():
            left = self.rig.store.queue(topic, 0).max_offset
            assert sum(message.place < flushed for message in sent) <= left <= len(sent)
            del sent[left:]
        self.check_all()

    # --- deleting ---

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.let_jobs_end()
        self.rig.store.delete_queues(lambda queue: queue.topic == topic)
        self.rig.run_jobs()
        if self.sent.pop(topic, None):
            self.send(topic, b"so that the log knows that the queue began anew", "")
            self.rig.store.want_flush()
            self.rig.run_jobs()

    @rule()
    def delete_old_files(self) -> None:
        self.let_jobs_end()
        self.rig.settle()
        self.rig.now += OLD_MS
        self.rig.wall += OLD_MS
        self.rig.store.delete_old_files()
        self.rig.settle()
        for topic in self.sent:
            assert self.rig.store.queue(topic, 0).min_offset == self.first(topic)

    def first(self, topic: str) -> int:
        """Offset of the first message that the log still has."""
        return sum(message.place < self.rig.store.min_physical for message in self.sent[topic])

    # --- reading ---

    @rule(topic=TOPICS, tag=TAGS)
    def get_with_a_filter(self, topic: str, tag: str) -> None:
        queue = self.rig.store.find_queue(topic, 0)
        if queue is None:
            return
        found: list[bytes] = []
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = self.rig.store.reader.get(queue, offset, 5, frozenset({java_hash(tag)}))
            found += [message.body for message in records(result.views)]
            assert result.next_offset > offset
            offset = result.next_offset
        assert found == [
            message.body
            for message in self.sent.get(topic, [])[queue.min_offset : queue.max_offset]
            if message.tag == tag
        ]

    @rule(topic=TOPICS, place=st.floats(0, 1))
    def get_by_time(self, topic: str, place: float) -> None:
        queue = self.rig.store.find_queue(topic, 0)
        sent = self.sent.get(topic, [])
        if queue is None or not sent:
            return
        time = sent[int(place * (len(sent) - 1))].time
        visible = range(queue.min_offset, queue.max_offset)
        assert self.rig.store.reader.offset_by_time(queue, time) == next(
            (at for at in visible if sent[at].time >= time), queue.max_offset
        )

    @rule(topic=TOPICS, place=st.floats(0, 1))
    def get_by_key(self, topic: str, place: float) -> None:
        queue = self.rig.store.find_queue(topic, 0)
        if queue is not None and queue.min_offset < queue.max_offset:
            offset = queue.min_offset + int(place * (queue.max_offset - 1 - queue.min_offset))
            assert self.rig.found(self.sent[topic][offset].key, topic) == [offset]

    @invariant()
    def queues_agree(self) -> None:
        for topic, sent in self.sent.items():
            queue = self.rig.store.queue(topic, 0)
            assert queue.next_offset == len(sent)
            assert queue.max_offset == len(sent) or self.sync
            if sent and queue.max_offset == len(sent) and sent[-1].place >= self.rig.store.min_physical:
                result = self.rig.store.reader.get(queue, len(sent) - 1, 1, None)
                assert result.status is GetStatus.FOUND
                assert records(result.views)[0].body == sent[-1].body

    def check_all(self) -> None:
        """After an opening everything that is left is visible, found by place and by key."""
        for topic, sent in self.sent.items():
            first = self.first(topic)
            assert self.rig.store.queue(topic, 0).min_offset == first
            assert self.rig.bodies(topic) == [message.body for message in sent[first:]]
            for offset in range(first, len(sent)):
                assert self.rig.found(sent[offset].key, topic)[-1:] == [offset]


class DiskModel(StoreModel):
    """The same over files on a disk."""

    def make(self, **changes: str) -> Rig:
        self.folder = tempfile.mkdtemp(prefix="mqproto-model-")
        return disk_rig(Path(self.folder), **changes)

    def teardown(self) -> None:
        if self.folder:
            self.let_jobs_end()
            self.rig.store.close(self.rig.wall)
            shutil.rmtree(self.folder)


StoreModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
DiskModel.TestCase.settings = settings(max_examples=15, stateful_step_count=30)
TestStoreModel = StoreModel.TestCase
TestDiskModel = DiskModel.TestCase
