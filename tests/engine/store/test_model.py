"""The store against the simplest model of one: a list for each queue."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.store import BatchEntry, GetStatus
from tests.engine.store.harness import HOST, Rig, memory_rig, records

TOPICS = st.sampled_from(["A", "B", "%RETRY%g"])
BODIES = st.binary(max_size=700)


class StoreModel(RuleBasedStateMachine):
    """Appends, time, orderly ends, deaths of the process and of the machine in any order.

    `sent` is what was appended. What was flushed must outlive power losses, everything must outlive the death of the process, and nothing
    may ever change or move.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[tuple[bytes, str]]] = {}
        self.count = 0

    @initialize(sync=st.booleans())
    def begin(self, sync: bool) -> None:
        self.sync = sync
        self.rig: Rig = memory_rig(flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH")

    def key(self) -> str:
        self.count += 1
        return f"{self.count:032X}"

    @rule(topic=TOPICS, body=BODIES)
    def send(self, topic: str, body: bytes) -> None:
        key = self.key()
        self.rig.send(topic, body, uniq_key=key)
        self.sent.setdefault(topic, []).append((body, key))

    @rule(topic=TOPICS, bodies=st.lists(BODIES, min_size=1, max_size=5))
    def send_batch(self, topic: str, bodies: list[bytes]) -> None:
        keys = [self.key() for _ in bodies]
        entries = [BatchEntry(body, f"UNIQ_KEY\x01{key}".encode(), 0, 0, key, None) for body, key in zip(bodies, keys, strict=True)]
        self.rig.store.append_batch(self.rig.store.queue(topic, 0), entries, 0, 0, HOST, HOST, 0, self.rig.wall)
        self.sent.setdefault(topic, []).extend(zip(bodies, keys, strict=True))

    @rule(topic=TOPICS, count=st.integers(50, 150))
    def send_many(self, topic: str, count: int) -> None:
        for number in range(count):
            self.send(topic, b"%d" % number)

    @rule(ms=st.sampled_from([0, 1, 500, 1000, 10_000, 60_000]))
    def pass_time(self, ms: int) -> None:
        self.rig.pass_time(ms)

    @rule()
    def run_jobs(self) -> None:
        self.rig.run_jobs()

    @rule()
    def want_flush(self) -> None:
        self.rig.store.want_flush()

    @rule()
    def restart(self) -> None:
        self.rig.reopen()
        assert self.rig.store.recovery.clean
        assert self.rig.store.recovery.notes == []
        self.check_all()

    @rule()
    def kill(self) -> None:
        self.rig.kill()
        self.rig.open()
        self.check_all()

    @rule(seed=st.integers(0, 1000), kept=st.sampled_from([0.0, 0.5, 0.9]))
    def cut_power(self, seed: int, kept: float) -> None:
        store = self.rig.store
        durable: dict[str, int] = {}
        for queue in store.queues():
            places = [store.entry(queue, offset) for offset in range(queue.max_offset)]
            durable[queue.topic] = sum(place is not None and place[0] + place[1] <= store.flushed for place in places)
        rng = random.Random(seed)
        self.rig.cut_power(lambda path, sector: rng.random() < kept)
        self.rig.open()
        for topic, sent in self.sent.items():
            left = self.rig.store.queue(topic, 0).max_offset
            assert durable.get(topic, 0) <= left <= len(sent)
            del sent[left:]
        self.check_all()

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.rig.store.delete_queues(lambda queue: queue.topic == topic)
        self.rig.run_jobs()
        if self.sent.pop(topic, None):
            self.send(topic, b"so that the log knows that the queue began anew")
            self.rig.store.want_flush()
            self.rig.run_jobs()

    @invariant()
    def queues_agree(self) -> None:
        for topic, sent in self.sent.items():
            queue = self.rig.store.queue(topic, 0)
            assert queue.next_offset == len(sent)
            assert queue.max_offset == len(sent) or self.sync
            if sent and queue.max_offset == len(sent):
                result = self.rig.store.get(queue, len(sent) - 1, 1, None)
                assert result.status is GetStatus.FOUND
                assert records(result.views)[0].body == sent[-1][0]

    def check_all(self) -> None:
        """After an opening everything that is left is visible, found by place and by key."""
        for topic, sent in self.sent.items():
            assert self.rig.bodies(topic) == [body for body, _ in sent]
            for offset, (_, key) in enumerate(sent):
                assert self.rig.found(key, topic)[-1:] == [offset]


StoreModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestStoreModel = StoreModel.TestCase
