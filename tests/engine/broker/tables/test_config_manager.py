"""When tables are saved (docs/protocol/store.md 10), without a broker."""

from __future__ import annotations

import pytest

from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.settings import BrokerSettings
from mqproto.wire.bodies import GroupConfig
from tests.engine.broker.stubs import WALL, Saves


@pytest.fixture
def saves() -> Saves:
    return Saves()


def groups_of(saves: Saves) -> SubscriptionGroups:
    return SubscriptionGroups(BrokerSettings(), saves.manager)


class TestSavedAtEachChange:
    def test_one_save_runs_and_the_next_holds_all_later_changes(self, saves: Saves) -> None:
        groups, manager = groups_of(saves), saves.manager
        groups.put(GroupConfig("A"), WALL)
        assert (manager.busy, len(manager.jobs)) == (True, 1)
        groups.put(GroupConfig("B"), WALL)
        groups.put(GroupConfig("C"), WALL)
        assert len(manager.jobs) == 1
        assert (manager.changes, manager.saved) == (3, 0)
        assert saves.run_jobs() == 1
        assert (manager.changes, manager.saved) == (3, 1)
        assert saves.run_jobs() == 1
        assert (manager.saved, manager.busy, saves.run_jobs()) == (3, False, 0)
        assert {"A", "B", "C"} <= groups_of(Saves(saves.files)).table.keys()

    def test_a_save_that_fails_is_tried_again(self, saves: Saves) -> None:
        groups, manager = groups_of(saves), saves.manager
        groups.put(GroupConfig("A"), WALL)

        (job,) = manager.jobs
        manager.jobs.clear()
        assert manager.done(job, OSError("no space"))
        assert saves.notices == ["a table was not saved: no space"]
        assert (manager.saved, manager.busy) == (0, False)
        saves.timers.advance(10_000)
        assert saves.run_jobs() == 1
        assert manager.saved == 1

    def test_at_the_end_everything_is_saved(self, saves: Saves) -> None:
        offsets = ConsumerOffsets(BrokerSettings(), saves.manager)
        offsets.commit("G", "T", 0, 7)
        saves.manager.save_all()
        assert ConsumerOffsets(BrokerSettings(), Saves(saves.files).manager).find("G", "T", 0) == 7


class TestSavedInARhythm:
    def test_offsets(self, saves: Saves) -> None:
        offsets = ConsumerOffsets(BrokerSettings(), saves.manager)
        offsets.commit("G", "T", 0, 7)
        assert saves.manager.jobs == []
        assert (saves.manager.changes, saves.manager.saved) == (0, 0), "no answer waits for it"
        saves.timers.advance(4999)
        assert saves.manager.jobs == []
        saves.timers.advance(1)
        assert saves.run_jobs() == 1
        assert ConsumerOffsets(BrokerSettings(), Saves(saves.files).manager).find("G", "T", 0) == 7
