"""Random stories by seed: applications at work while everything fails that may.

A fixed list of seeds, and more on demand: `MQPROTO_SEEDS=1000:3000 python -m pytest tests/simulation/test_stories.py`.
A seed that fails becomes a test of its own, better a short one that shows the fault without a story.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.adapters.simulated import Scenario

ROOT = Path(__file__).parent.parent.parent
#: Chosen so that each kind of trouble comes in several of them.
SEEDS = range(20)


def seeds(committed: range) -> range:
    wanted = os.environ.get("MQPROTO_SEEDS", "")
    if not wanted:
        return committed
    first, _, last = wanted.rpartition(":")
    return range(int(first or 0), int(last))


def play(story: Scenario) -> None:
    faults = story.play()
    assert faults == [], "\n".join([f"seed {story.seed}, trouble {story.kinds}", *story.log, *faults])


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_story_ends_well(seed: int) -> None:
    play(Scenario(seed))


@pytest.mark.parametrize("kind", Scenario.KINDS)
def test_one_kind_of_trouble(kind: str) -> None:
    play(Scenario(1, steps=30, trouble=(kind, "crash broker")))


def test_the_seeds_cover_every_kind_of_trouble_and_setting() -> None:
    stories = [Scenario(seed, steps=0) for seed in SEEDS]
    for kind in Scenario.KINDS:
        assert sum(kind in story.kinds for story in stories) >= 5, kind
    assert {story.settings["flushDiskType"] for story in stories} == {"ASYNC_FLUSH", "SYNC_FLUSH"}


def tell(seed: int) -> str:
    """Everything that a story is known by."""
    story = Scenario(seed)
    faults = story.play()
    return repr((story.kinds, story.log, faults, story.world.now, story.world.digest))


def test_two_runs_of_a_seed_are_the_same_to_the_byte() -> None:
    assert tell(7) == tell(7)
    assert tell(7) != tell(8)


def test_nothing_depends_on_the_hashes_of_texts() -> None:
    """Another process has other hashes, and so other orders of sets; a seed means the same there."""
    code = "from tests.simulation.test_stories import tell; print(tell(3), tell(11))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2", "3")
    }
    assert len(told) == 1
    assert "broker" in told.pop()
