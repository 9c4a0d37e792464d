"""Random scenarios by seed: applications at work while everything fails that may.

A fixed list of seeds, and more on demand by `MQPROTO_SEEDS=1000:3000` in the environment. A seed that fails becomes a
test of its own, better a short one that shows the mistake without a random scenario.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.adapters.simulated import Scenario

ROOT = Path(__file__).parent.parent.parent
#: Chosen so that each fault comes in several of them.
SEEDS = range(20)


def seeds(committed: range) -> range:
    wanted = os.environ.get("MQPROTO_SEEDS", "")
    if not wanted:
        return committed
    first, _, last = wanted.rpartition(":")
    return range(int(first or 0), int(last))


def play(scenario: Scenario) -> None:
    violations = scenario.play()
    assert violations == [], "\n".join([f"seed {scenario.seed}, faults {scenario.faults}", *scenario.log, *violations])


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_scenario_ends_well(seed: int) -> None:
    play(Scenario(seed))


@pytest.mark.parametrize("fault", Scenario.FAULTS)
def test_one_fault(fault: str) -> None:
    play(Scenario(1, steps=30, faults=(fault, "crash broker")))


def test_the_seeds_cover_every_fault_and_setting() -> None:
    scenarios = [Scenario(seed, steps=0) for seed in SEEDS]
    for fault in Scenario.FAULTS:
        assert sum(fault in scenario.faults for scenario in scenarios) >= 5, fault
    assert {scenario.settings["flushDiskType"] for scenario in scenarios} == {"ASYNC_FLUSH", "SYNC_FLUSH"}


def run_of(seed: int) -> str:
    """Everything that two runs of a seed must have in common."""
    scenario = Scenario(seed)
    violations = scenario.play()
    return repr((scenario.faults, scenario.log, violations, scenario.simulator.now, scenario.simulator.digest))


def test_two_runs_of_a_seed_are_the_same_to_the_byte() -> None:
    assert run_of(7) == run_of(7)
    assert run_of(7) != run_of(8)


def test_nothing_depends_on_the_hashes_of_texts() -> None:
    """Another process has other hashes, and so other orders of sets; a seed means the same there."""
    code = "from tests.simulation.test_random_scenarios import run_of; print(run_of(3), run_of(11))"
    runs = {
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
    assert len(runs) == 1
    assert "broker" in runs.pop()
