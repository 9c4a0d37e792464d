"""Random stories of clients of every kind, by seed: `ClientScenario`.

More on demand: `MQPROTO_SEEDS=1000:3000 python -m pytest tests/simulation/test_client_stories.py`. A seed that fails
becomes a test of its own, better a short one that shows the fault without a story.
"""

from __future__ import annotations

import pytest

from mqproto.adapters.simulated.client_scenario import ClientScenario
from tests.simulation.test_stories import play, seeds

#: Chosen so that each kind of trouble and each kind of consumer comes in several of them.
SEEDS = range(8, 20)
#: What troubles clients most, one by one, each in a story of its own.
OWN_TROUBLE = [kind for kind in ClientScenario.KINDS if kind not in ClientScenario.__base__.KINDS]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_story_of_clients_ends_well(seed: int) -> None:
    play(ClientScenario(seed, steps=30))


@pytest.mark.parametrize("kind", OWN_TROUBLE)
def test_one_kind_of_trouble_with_brokers_that_die(kind: str) -> None:
    play(ClientScenario(1, steps=15, trouble=(kind, "crash broker")))


def test_the_seeds_cover_every_kind_of_trouble_and_consumer() -> None:
    stories = [ClientScenario(seed, steps=0) for seed in SEEDS]
    for kind in ClientScenario.KINDS:
        assert sum(kind in story.kinds for story in stories) >= 2, kind
    for group in ClientScenario.GROUPS:
        assert sum(group in story.groups for story in stories) >= 2, group
    assert {strategy for story in stories for strategy in story.strategies.values()} == {
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
    }


def test_two_runs_of_a_seed_are_the_same_to_the_byte() -> None:
    def tell(seed: int) -> str:
        story = ClientScenario(seed, steps=15)
        faults = story.play()
        return repr((story.kinds, story.groups, story.log, faults, story.world.now, story.world.digest))

    assert tell(1) == tell(1)
