"""The store keeps its word wherever it is cut off: by the death of the process, by a power loss, and again while it
recovers.

A scenario by seed runs over files in memory; before each change of a file and after each step a crash is tried out on a
copy. Under SYNC_FLUSH and ASYNC_FLUSH what was made durable must outlive a power loss, and everything must outlive the
death of the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from mqproto.engine.store import MemoryFiles
from mqproto.engine.store.doctor import check
from tests.engine.store.harness import Rig
from tests.engine.store.scenario import QUEUES, TINY, Death, Scenario, check_config, check_contents, check_next

STEPS: Final = 150
#: Sectors of a page: a page of a map is written in one go by some disks, in parts by others.
PAGE: Final = 8


def survivors(rng: random.Random) -> Callable[[str, int], bool]:
    """Which unsynced sectors survive: none, all, or by chance, each for itself or page by page."""
    chance = rng.choice((0.0, 0.3, 0.7, 1.0))
    pages = rng.choice((1, PAGE))
    seed = rng.random()
    return lambda path, sector: random.Random(f"{seed} {path} {sector // pages}").random() < chance


def lose_power(files: MemoryFiles, rng: random.Random) -> MemoryFiles:
    return files.power_loss(survivors(rng), rng.choice((0, rng.randint(0, files.pending_names), files.pending_names)))


class Cuts:
    """Tries out crashes in a scenario: one kind at each cut, all kinds in turn."""

    def __init__(self, seed: int, *, sync: bool) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.count = 0
        #: The storage is first there when the scenario has begun.
        self.scenario: Scenario | None = None
        self.scenario = Scenario(seed, sync=sync, cut=self.cut)

    def cut(self) -> None:
        if self.scenario is None:
            return
        self.count += 1
        power = self.rng.random() < 0.7
        again = self.rng.random() < 0.3
        try:
            self.crash(self.scenario, power, again)
        except BaseException as failure:
            failure.add_note(f"seed {self.seed}, cut {self.count}, power {power}, again {again}")
            raise

    def crash(self, scenario: Scenario, power: bool, again: bool) -> None:
        rng = random.Random(f"{self.seed} {self.count}")
        files = lose_power(scenario.files, rng) if power else scenario.files.process_death()
        flushed = scenario.rig.store.flushed if power else None
        for _ in range(2 if again else 0):
            files = self.crash_in_recovery(scenario, files, rng)
        rig = Rig(files, "/store", wall=scenario.rig.wall, **scenario.settings)
        check_contents(scenario, rig, flushed)
        check_next(rig)
        check_config(scenario, files)
        rig.close()
        report = check(files, "/store", index_pair=(TINY["max_hash_slot_num"], TINY["max_index_num"]))
        assert report.clean, [str(finding) for finding in report.findings]
        self.lose_power_after_an_orderly_end(rig, files, rng)

    def lose_power_after_an_orderly_end(self, rig: Rig, files: MemoryFiles, rng: random.Random) -> None:
        """What a recovery removed does not come back, whatever the disk did with it."""
        rig.open()
        served = {queue: rig.bodies(*queue) for queue in QUEUES}
        rig.close()
        rig.files = lose_power(files, rng)
        rig.open()
        assert rig.store.recovery.clean
        assert {queue: rig.bodies(*queue) for queue in QUEUES} == served
        assert all(
            rig.store.queue(topic, queue_id).max_offset - 1 in rig.found("next", topic) for topic, queue_id in QUEUES
        )
        rig.close()

    def crash_in_recovery(self, scenario: Scenario, files: MemoryFiles, rng: random.Random) -> MemoryFiles:
        """Open the directory and crash before one of the changes that this makes, in the way of the first crash."""
        left = rng.randrange(30)

        def before_change(change: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Death

        files.before_change = before_change
        with suppress(Death):
            Rig(files, "/store", wall=scenario.rig.wall, **scenario.settings)
        lost_power = files.restarted_since("/store/lock")
        return lose_power(files, rng) if lost_power else files.process_death()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(2 * metafunc.config.getoption("--proof")))


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_a_crash_at_every_cut(seed: int, flush: str) -> None:
    cuts = Cuts(seed, sync=flush == "sync")
    assert cuts.scenario is not None
    cuts.scenario.run(STEPS)
    assert cuts.count > 2 * STEPS
