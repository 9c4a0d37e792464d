"""Random scenarios of clients of every kind, by seed: `ClientScenario`.

More on demand: docs/simulation.md. A seed that fails becomes a test of its own, better a short one that shows the
mistake without a random scenario.
"""

from __future__ import annotations

import pytest

from mqproto.adapters.simulated.client_scenario import ClientScenario
from tests.simulation.test_random_scenarios import play, seeds

#: Chosen so that each fault and each kind of consumer comes in several of them.
SEEDS = range(8, 20)
#: The faults that hurt clients most, each in a scenario of its own.
OWN_FAULTS = [fault for fault in ClientScenario.FAULTS if fault not in ClientScenario.__base__.FAULTS]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_scenario_of_clients_ends_well(seed: int) -> None:
    play(ClientScenario(seed, steps=30))


@pytest.mark.parametrize("fault", OWN_FAULTS)
def test_one_fault_with_brokers_that_die(fault: str) -> None:
    play(ClientScenario(1, steps=15, faults=(fault, "crash broker")))


def test_the_seeds_cover_every_fault_and_consumer() -> None:
    scenarios = [ClientScenario(seed, steps=0) for seed in SEEDS]
    for fault in ClientScenario.FAULTS:
        assert sum(fault in scenario.faults for scenario in scenarios) >= 2, fault
    for group in ClientScenario.GROUPS:
        assert sum(group in scenario.groups for scenario in scenarios) >= 2, group
    assert {strategy for scenario in scenarios for strategy in scenario.strategies.values()} == {
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
    }


def test_two_runs_of_a_seed_are_the_same_to_the_byte() -> None:
    def run_of(seed: int) -> str:
        scenario = ClientScenario(seed, steps=15)
        violations = scenario.play()
        return repr(
            (
                scenario.faults,
                scenario.groups,
                scenario.log,
                violations,
                scenario.simulator.now,
                scenario.simulator.digest,
            )
        )

    assert run_of(1) == run_of(1)
