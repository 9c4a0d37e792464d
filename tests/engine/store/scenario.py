"""A store that lives through a scenario by seed, with a ledger of what was promised, and what has to be true after a
crash.

Jobs run late and in any order, and their ends are told later still. The scenario calls `cut` before every change of a
file and after every step; a test then looks at what a crash would have left.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from mqproto.engine.store import BatchPart, ConfigFile, MemoryFiles, Store
from mqproto.state.node.contract import Job
from tests.engine.store.harness import HOST, Rig

TINY: dict[str, Any] = {
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 20,
    "max_index_num": 60,
    "flush_commit_log_least_pages": 1,
}
QUEUES = (("A", 0), ("A", 1), ("B", 0), ("%RETRY%g", 0))
#: A good deal longer than files of the log are kept.
OLD_MS = 200 * 3_600_000
CONFIG = "/store/config/topics.json"


class Death(BaseException):
    """The machine or the process ends here."""


class Generation:
    """Messages of one queue until it was deleted: body and key of each, and where its record begins and ends."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, str]] = []
        self.begins: list[int] = []
        self.ends: list[int] = []

    def promised(self, flushed: int | None) -> int:
        """How many messages must be there, if only what lies below an offset was made durable."""
        return len(self.messages) if flushed is None else bisect_right(self.ends, flushed)


class History:
    """What happened to one queue.

    While nothing of the last generation is there for sure, those before may come back.
    """

    def __init__(self) -> None:
        self.generations = [Generation()]

    @property
    def last(self) -> Generation:
        return self.generations[-1]

    def recognise(self, first: int, bodies: list[bytes], flushed: int | None, log_start: int) -> Generation | None:
        """The generation that was found, if everything is there that was promised; None for anything else. `first` is
        the offset of the first message; those before must lie before the start of the log.
        """
        end = first + len(bodies)
        for generation in reversed(self.generations):
            promised = generation.promised(flushed)
            is_it = bodies == [body for body, _ in generation.messages[first:end]]
            if (
                is_it
                and promised <= end <= len(generation.messages)
                and first == bisect_left(generation.begins, log_start, 0, end)
            ):
                return generation
            if promised:
                break
        return None


class LateJobs:
    """Runs jobs one at a time when told, in any order, and tells the store of their ends in any other."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self.ended: list[tuple[Job, Exception | None]] = []

    def run_one(self, store: Store, rng: random.Random) -> None:
        self.waiting += store.jobs
        store.jobs.clear()
        if self.waiting:
            job = self.waiting.pop(rng.randrange(len(self.waiting)))
            failure: Exception | None = None
            try:
                job.run()
            except OSError as raised:
                failure = raised
            self.ended.append((job, failure))

    def tell_one(self, rig: Rig, rng: random.Random) -> None:
        if self.ended:
            job, failure = self.ended.pop(rng.randrange(len(self.ended)))
            assert rig.store.done(job, failure, rig.now, rig.wall)

    def finish(self, rig: Rig, rng: random.Random) -> None:
        """Let all jobs end."""
        while self.waiting or self.ended or rig.store.jobs:
            self.run_one(rig.store, rng)
            self.tell_one(rig, rng)


class Scenario:
    """One life of a data directory. Everything follows from the seed."""

    def __init__(self, seed: int, *, sync: bool, cut: Callable[[], None] = lambda: None) -> None:
        self.rng = random.Random(seed)
        self.cut = cut
        self.settings = {**TINY, "flush_disk_type": "SYNC_FLUSH" if sync else "ASYNC_FLUSH"}
        self.histories = {queue: History() for queue in QUEUES}
        self.jobs = LateJobs()
        self.count = 0
        #: Generations of a configuration file that were begun and that were saved.
        self.begun = self.saved = 0
        files = MemoryFiles(forgetful=True)
        files.before_change = self._before_change
        self.files = files
        self.rig = Rig(files, "/store", **self.settings)
        files.clock = self._clock
        self.config = ConfigFile(CONFIG, files)

    def _before_change(self, change: str, path: str) -> None:
        self.cut()

    def _clock(self) -> int:
        return self.rig.wall

    def run(self, steps: int) -> None:
        """Live on for a while, with an orderly end in the middle."""
        actions = {
            self.send: 40, self.send_batch: 8, self.flush: 10, self.run_job: 18, self.tell_job: 14, self.pass_time: 10,
            self.save_config: 3, self.delete_queue: 1, self.grow_old: 2, self.restart: 1, self.kill: 1,
        }  # fmt: skip
        chosen = self.rng.choices(list(actions), list(actions.values()), k=steps)
        chosen[steps // 2] = self.restart
        for action in chosen:
            action()
            self.cut()

    # --- steps ---

    def _key(self) -> str:
        self.count += 1
        return f"{self.count:032X}"

    def _body(self) -> bytes:
        return self.rng.randbytes(self.rng.randrange(self.rng.choice((20, 700))))

    def _note(self, queue: tuple[str, int], body: bytes, key: str, begin: int, end: int) -> None:
        self.histories[queue].last.messages.append((body, key))
        self.histories[queue].last.begins.append(begin)
        self.histories[queue].last.ends.append(end)

    def send(self) -> None:
        self.rig.wall += self.rng.choice((0, 1, 5000))
        queue, body, key = self.rng.choice(QUEUES), self._body(), self._key()
        begin = self.rig.send(queue[0], body, queue[1], uniq_key=key, keys="all" if self.rng.random() < 0.1 else "")
        self._note(queue, body, key, begin, self.rig.store.end)

    def send_batch(self) -> None:
        queue = self.rng.choice(QUEUES)
        messages = [(self._body(), self._key()) for _ in range(self.rng.randint(1, 4))]
        entries = [BatchPart(body, f"UNIQ_KEY\x01{key}".encode(), 0, 0, key, None) for body, key in messages]
        offsets = self.rig.store.writer.append_batch(
            self.rig.store.queue(*queue), entries, 0, 0, HOST, HOST, 0, self.rig.wall
        )
        for (body, key), begin, end in zip(messages, offsets, [*offsets[1:], self.rig.store.end], strict=True):
            self._note(queue, body, key, begin, end)

    def flush(self) -> None:
        self.rig.store.want_flush()

    def run_job(self) -> None:
        self.jobs.run_one(self.rig.store, self.rng)

    def tell_job(self) -> None:
        self.jobs.tell_one(self.rig, self.rng)

    def pass_time(self) -> None:
        ms = self.rng.choice((1, 500, 1000, 10_000, 60_000))
        self.rig.now += ms
        self.rig.wall += ms
        self.rig.store.timer(self.rig.now, self.rig.wall)

    def save_config(self) -> None:
        self.begun += 1
        self.config.save(json.dumps({"generation": self.begun}))
        self.saved = self.begun

    def delete_queue(self) -> None:
        queue = self.rng.choice(QUEUES)
        self.rig.store.delete_queues(lambda each: (each.topic, each.queue_id) == queue)
        self.histories[queue].generations.append(Generation())

    def grow_old(self) -> None:
        """So much time passes that files of the log are old, and are asked to be deleted; all but the last may go."""
        for ms in (60_000, 60_000, OLD_MS):
            self.rig.now += ms
            self.rig.wall += ms
            self.rig.store.timer(self.rig.now, self.rig.wall)
            self.jobs.finish(self.rig, self.rng)
        self.rig.store.delete_old_files()
        for _ in range(self.rng.randrange(8)):
            self.rig.store.timer(self.rig.now, self.rig.wall)
            self.jobs.run_one(self.rig.store, self.rng)
            self.jobs.tell_one(self.rig, self.rng)

    def restart(self) -> None:
        """An orderly end; the jobs that were not begun by then never are."""
        while self.jobs.ended:
            self.jobs.tell_one(self.rig, self.rng)
        self.jobs = LateJobs()
        self.rig.store.close(self.rig.wall)
        self.rig.open()
        assert self.rig.store.recovery.clean
        self.go_on_with(self.rig)

    def kill(self) -> None:
        """The process dies, and everything goes on after the recovery."""
        self.jobs = LateJobs()
        self.files.before_change = lambda change, path: None
        self.files = self.files.process_death()
        self.files.before_change = self._before_change
        self.config = ConfigFile(CONFIG, self.files)
        self.config.load(json.loads)
        self.rig = Rig(self.files, "/store", wall=self.rig.wall, **self.settings)
        self.go_on_with(self.rig)

    def go_on_with(self, rig: Rig, flushed: int | None = None) -> None:
        """The store was opened again: what it serves is what counts from now on."""
        for queue, generation in check_contents(self, rig, flushed).items():
            generations = self.histories[queue].generations
            del generations[generations.index(generation) + 1 :]
            end = rig.store.queue(*queue).max_offset
            del generation.messages[end:], generation.begins[end:], generation.ends[end:]


# --- what has to be true after a crash ---


def check_contents(scenario: Scenario, rig: Rig, flushed: int | None) -> dict[tuple[str, int], Generation]:
    """What an opened store serves is what was sent, in order, and everything that was promised. `flushed`: what was
    durable when power was lost; None: only the process died, or nothing did. Gives what was found in each queue.
    """
    recognised = {}
    log_start = rig.store.min_physical
    assert log_start <= scenario.rig.store.min_physical or rig is scenario.rig
    for (topic, queue_id), history in scenario.histories.items():
        found = rig.bodies(topic, queue_id)
        queue = rig.store.queue(topic, queue_id)
        first = queue.min_offset
        assert (queue.max_offset, queue.next_offset) == (first + len(found), first + len(found))
        generation = history.recognise(first, found, flushed, log_start)
        assert generation is not None, (queue, log_start, history.last.promised(flushed))
        for offset, (_, key) in enumerate(generation.messages[first : queue.max_offset], first):
            assert rig.found(key, topic) == [offset], (topic, key)
        recognised[topic, queue_id] = generation
    return recognised


def check_next(rig: Rig) -> None:
    """The next messages land where they belong, and are there after an orderly end."""
    expected: dict[tuple[str, int], list[bytes]] = {}
    for topic, queue_id in QUEUES:
        expected[topic, queue_id] = [*rig.bodies(topic, queue_id), b"next"]
        rig.send(topic, b"next", queue_id, uniq_key="next")
    rig.store.want_flush()
    rig.reopen()
    assert rig.store.recovery.clean
    for (topic, queue_id), bodies in expected.items():
        assert rig.bodies(topic, queue_id) == bodies
        assert rig.store.queue(topic, queue_id).max_offset - 1 in rig.found("next", topic)


def check_config(scenario: Scenario, files: MemoryFiles) -> None:
    """The table of the last save that ended, or of the one that was under way; and the next save makes good what the
    crash left.
    """
    file = ConfigFile(CONFIG, files)
    found = file.load(json.loads)
    assert (0 if found is None else found["generation"]) in range(scenario.saved, scenario.begun + 1)
    file.save("{}")
