"""A disk that is full, or fails, at any of its calls: messages are refused, and what was acknowledged before and after
is there.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Final

import pytest

from mqproto.engine.store import ConfigFile, MemoryFiles, PutRefused, StoreUnwritable
from tests.engine.store.harness import Rig
from tests.engine.store.scenario import CONFIG, LateJobs, Scenario, check_contents, check_next

STEPS: Final = 70
#: Calls that need room.
GROWING: Final = frozenset({"create", "lengthen", "allocate", "write", "finish writing", "make folder"})


class Faulty(Scenario):
    """A scenario on a disk that fails from one call on, so many times."""

    def __init__(self, seed: int, *, sync: bool, code: int, first: int, times: int) -> None:
        self.armed = False
        self.calls = self.failed = 0
        self._code = code
        self._first = first
        self._times = times
        super().__init__(seed, sync=sync)
        self.armed = True

    def _before_change(self, change: str, path: str) -> None:
        if not self.armed or (self._code == errno.ENOSPC and change not in GROWING):
            return
        self.calls += 1
        if self._first < self.calls <= self._first + self._times:
            self.failed += 1
            raise OSError(self._code, "no more", path)

    def send(self) -> None:
        with suppress(PutRefused):
            super().send()

    def send_batch(self) -> None:
        with suppress(PutRefused):
            super().send_batch()

    def save_config(self) -> None:
        with suppress(OSError):
            super().save_config()

    def restart(self) -> None:
        """A disk that fails while the store ends makes that end a crash."""
        self.jobs.finish(self.rig, self.rng)
        with suppress(StoreUnwritable):
            self.rig.store.close(self.rig.wall)
        self.open_again()

    def kill(self) -> None:
        self.files = self.files.process_death()
        self.files.before_change = self._before_change
        self.open_again()

    def open_again(self) -> None:
        """When a sync has failed the machine is started anew: until then nobody knows what the disk has.

        A full disk is tried again.
        """
        self.jobs = LateJobs()
        flushed = None
        if self._code == errno.EIO:
            flushed = self.rig.store.flushed
            self.files = self.lose_power()
            self.files.clock = self._clock
            self.armed = False
        self.rig.files = self.files
        self.config = ConfigFile(CONFIG, self.files)
        while True:
            with suppress(StoreUnwritable):
                self.rig.open()
                break
        self.armed = True
        self.files.before_change = self._before_change
        self.go_on_with(self.rig, flushed)

    def lose_power(self) -> MemoryFiles:
        chance = self.rng.choice((0.0, 0.5, 1.0))
        return self.files.power_loss(
            lambda path, sector: self.rng.random() < chance, self.rng.randint(0, self.files.pending_names)
        )

    def check(self) -> None:
        """After a power loss everything is there that was acknowledged, and the store works."""
        flushed = self.rig.store.flushed
        rig = Rig(self.lose_power(), "/store", wall=self.rig.wall, **self.settings)
        check_contents(self, rig, flushed)
        check_next(rig)


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize(("code", "times"), [(errno.ENOSPC, 1), (errno.ENOSPC, 20), (errno.EIO, 1), (errno.EIO, 5)])
def test_every_call_may_fail(code: int, times: int, flush: str, request: pytest.FixtureRequest) -> None:
    step = max(1, 5 // request.config.getoption("--proof"))
    failed = 0
    for first in range(0, 1000, step):
        scenario = Faulty(first, sync=flush == "sync", code=code, first=first, times=times)
        try:
            scenario.run(STEPS)
            scenario.check()
        except BaseException as failure:
            failure.add_note(f"call {first}")
            raise
        failed += scenario.failed > 0
        if scenario.calls < first:
            break
    assert failed > 5


def test_a_read_that_fails_at_the_start_is_told() -> None:
    """The start is refused and leaves everything as it was; the next one goes well."""
    rig = Rig(MemoryFiles(forgetful=True), "/store")
    rig.send_many(60)
    rig.settle()
    files = rig.files
    assert isinstance(files, MemoryFiles)
    reads = 0
    fails_at = -1

    def before_read(call: str, path: str) -> None:
        nonlocal reads
        reads += 1
        if reads == fails_at:
            raise OSError(errno.EIO, "no more", path)

    rig.files = found = files.process_death()
    found.before_read = before_read
    rig.open()
    for fails_at in range(1, reads + 1):
        reads = 0
        rig.files = found = files.process_death()
        found.before_read = before_read
        with pytest.raises(StoreUnwritable, match="/store"):
            rig.open()
        fails_at = -1
        rig.open()
        assert len(rig.bodies()) == 60
