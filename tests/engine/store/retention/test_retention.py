"""Retention: which files of the log are deleted when."""

from __future__ import annotations

import pytest

from mqproto.engine.store import StoreSettings
from mqproto.errors import InvalidSetting
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig
from tests.engine.store.oldfiles import DAY, HOUR, NOON, NOW, aged, check, fill, log_files, log_path, set_time


class TestAge:
    def test_old_files_go_at_their_hour(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        rig.pass_time(2000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.min_physical == 2 * 4096
        assert rig.store.notices == [
            "2 files of the log are deleted, it begins at offset 8192 now: they are older than 72 hours"
        ]
        check(rig)
        rig.pass_time(60_000)
        assert log_files(rig) == [2, 3, 4], "the third file is not old yet"
        rig.reopen()
        check(rig)
        rig.kill()
        rig.open()
        check(rig)

    def test_at_no_other_hour(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, delete_when=NOON)
        rig.pass_time(3 * HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        rig.pass_time(HOUR)
        assert log_files(rig) == [2, 3, 4]

    def test_the_hour_is_local(self, make_rig: MakeRig) -> None:
        for offset, gone in ((0, False), (4 * HOUR, True), (-20 * HOUR, True), (3 * HOUR, False)):
            rig = make_rig(clean_resource_interval=10_000, delete_when="4;12")
            fill(rig, 3)
            rig.close()
            rig.open(utc_offset_ms=offset)
            set_time(rig, log_path(rig, 0), rig.wall - 4 * DAY)
            rig.pass_time(71_000)
            assert (log_files(rig) == [1, 2]) is gone

    def test_not_in_the_first_minute(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        rig.reopen()
        rig.pass_time(59_000)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        rig.pass_time(2000)
        assert log_files(rig) == [2, 3, 4]

    def test_the_last_file_stays_however_old_it_is(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, file_reserved_time=0, clean_resource_interval=600_000)
        rig.pass_time(DAY)
        assert log_files(rig) == [4]
        check(rig)
        rig.pass_time(3 * DAY)
        assert log_files(rig) == [4]
        check(rig)

    def test_files_of_unknown_age_stay(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(make_rig)
        monkeypatch.setattr(rig.files, "modified", lambda path: None)
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]

    def test_a_file_is_not_younger_than_the_next_one(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        set_time(rig, log_path(rig, 0), rig.wall + 1000 * DAY)
        rig.pass_time(HOUR)
        assert log_files(rig) == [2, 3, 4]

    def test_so_many_at_a_time_with_pauses(self, make_rig: MakeRig) -> None:
        rig = aged(
            make_rig, file_reserved_time=0, delete_file_batch_max=3, delete_commit_log_files_interval=100, files=6
        )
        seen = []
        for _ in range(5):
            rig.pass_time(99)
            seen.append(len(log_files(rig)))
        rig.pass_time(505)
        assert rig.store.min_physical == 3 * 4096, "all of the batch are gone for readers"
        seen = [len(log_files(rig))]
        for _ in range(3):
            rig.pass_time(100)
            seen.append(len(log_files(rig)))
        assert seen == [5, 4, 3, 3]
        rig.pass_time(10_000)
        assert log_files(rig) == [5]

    def test_what_queues_do_not_hold_durably_stays(self, make_rig: MakeRig) -> None:
        rig = make_rig(
            clean_resource_interval=10,
            delete_when=NOW,
            file_reserved_time=0,
            flush_consume_queue_thorough_interval=10 * HOUR,
        )
        rig.send("First")
        rig.pass_time(120_000)
        fill(rig, 4)
        rig.pass_time(70_000)
        assert log_files(rig)[:3] == [0, 1, 2]
        rig.kill()
        rig.open(delete_when=NOON)
        assert rig.store.queue("Topic", 0).next_offset == len(rig.read())

    def test_nothing_is_done_without_interval(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, clean_resource_interval=0)
        rig.settle()
        assert rig.store.next_deadline() is None
        assert log_files(rig) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("hours", ["", ";", "24", "4,5", "-1", "x", "4;25", "²"])
    def test_hours_that_are_none_are_refused(self, hours: str) -> None:
        settings = StoreSettings(delete_when=hours)
        with pytest.raises(InvalidSetting, match="deleteWhen"):
            settings.check_together()

    def test_hours(self) -> None:
        assert StoreSettings(delete_when="04").delete_hours == {4}
        assert StoreSettings(delete_when="4; 16;").delete_hours == {4, 16}


class TestClock:
    """Ages do not follow the wall clock to where it cannot have come from."""

    def test_a_leap_forward_deletes_nothing(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, file_reserved_time=400, clean_resource_interval=600_000)
        rig.pass_time(600_000)
        rig.wall += 4000 * DAY
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        rig.pass_time(250 * HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4], "they have grown older by 250 hours, not by years"
        rig.pass_time(150 * HOUR)
        assert log_files(rig) == [4]

    def test_a_request_takes_the_clock_at_its_word(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, file_reserved_time=400)
        rig.wall += 4000 * DAY
        rig.store.delete_old_files()
        rig.pass_time(1000)
        assert log_files(rig) == [4]

    def test_a_clock_that_goes_back_keeps_files_longer(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig)
        rig.wall -= 1000 * DAY
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]

    def test_a_start_long_after_the_last_message(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, delete_when=";".join(map(str, range(24))))
        rig.close()
        rig.wall += 1000 * DAY
        rig.open()
        rig.pass_time(11 * HOUR)
        assert log_files(rig) == [2, 3, 4], "as old as they were at the last message"
        rig.pass_time(62 * HOUR)
        assert log_files(rig) == [4]


class TestRequests:
    def test_old_files_go_at_once(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, delete_when=NOON)
        rig.store.delete_old_files()
        assert rig.store.next_deadline() == 0
        rig.pass_time(1000)
        assert log_files(rig) == [2, 3, 4]
        check(rig)

    def test_a_request_lasts_for_twenty_rounds(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, delete_when="11")
        rig.store.delete_old_files()
        rig.pass_time(60_000)
        set_time(rig, log_path(rig, 2), rig.wall - 4 * DAY)
        rig.pass_time(10_000)
        assert log_files(rig) == [3, 4]
        rig.pass_time(200_000)
        set_time(rig, log_path(rig, 3), rig.wall - 4 * DAY)
        rig.pass_time(HOUR)
        assert log_files(rig) == [3, 4]

    def test_one_works_where_nothing_is_done_unasked(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, clean_resource_interval=0)
        rig.store.delete_old_files()
        rig.settle()
        assert log_files(rig) == [2, 3, 4]
        check(rig)

    def test_queues_without_messages(self, make_rig: MakeRig) -> None:
        rig = aged(make_rig, files=1, file_reserved_time=0)
        for topic in ("Old", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"):
            rig.send(topic)
        rig.store.queue("New", 0)
        fill(rig, 3)
        assert rig.store.delete_dead_queues() == []
        rig.pass_time(HOUR)
        assert log_files(rig) == [2]
        old = rig.store.queue("Old", 0)
        assert (old.min_offset, old.max_offset) == (1, 1)
        assert rig.store.delete_dead_queues() == [old]
        rig.run_jobs()
        assert not rig.files.exists(old.folder)
        rig.send("Old")
        assert [message.queue_offset for message in rig.read("Old")] == [0]
        rig.kill()
        rig.open()
        assert [message.queue_offset for message in rig.read("Old")] == [0]

    def test_queues_of_unknown_topics(self, rig: Rig) -> None:
        kept = ["A", "%LMQ%light", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"]
        for topic in (*kept, "B", "C"):
            rig.send(topic)
        assert [queue.topic for queue in rig.store.delete_queues_but({"A", "D"})] == ["B", "C"]
        assert sorted(queue.topic for queue in rig.store.queues()) == sorted(kept)
