"""Which files are deleted when, what readers see of it, and what a nearly full disk does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from engine.store import DiskFiles, GetStatus, MemoryFiles, PutRefused, PutStatus, StoreSettings
from engine.store.ageing import FileTime
from engine.store.commitlog import AllocateLog
from engine.store.flushjobs import WriteQueues
from engine.store.following import RemoveQueueFiles
from engine.store.marks import Marks, used_percent
from mqproto.errors import InvalidSetting
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import START, Rig, memory_rig, records

HOUR = 3_600_000
DAY = 24 * HOUR
GB = 10**9
#: Any hour but the one in which files are deleted: START is at 08:00.
NOON = "12"
NOW = "8"


#: Entries of queues become durable soon, and there is no index.
ROUNDS: dict[str, Any] = {"flush_consume_queue_thorough_interval": 1000, "message_index_enable": False}


class Aged(Protocol):
    def __call__(self, files: int = 5, **settings: Any) -> Rig:
        """A rig whose log has so many files, the last of them written now, each one before 30 hours earlier."""


@pytest.fixture
def aged(make_rig: MakeRig) -> Aged:
    def make(files: int = 5, **settings: Any) -> Rig:
        rig = make_rig(**{"clean_resource_interval": 10_000, "delete_when": NOW, **settings})
        fill(rig, files)
        rig.pass_time(59_000)
        for number in range(files):
            set_time(rig, log_path(rig, number), rig.wall - 30 * HOUR * (files - 1 - number))
        return rig

    return make


def fill(rig: Rig, files: int, topic: str = "Topic") -> None:
    """Send until the log has so many files, and let everything become durable."""
    if isinstance(rig.files, MemoryFiles):
        rig.files.clock = lambda: rig.wall
    number = 0
    while rig.store.end < (files - 1) * 4096 + 1000:
        rig.send(topic, f"{topic}-{number}".encode().ljust(500, b"."), uniq_key=f"{topic}-{number}")
        number += 1
        rig.run_jobs()
    for each in log_files(rig):
        set_time(rig, log_path(rig, each), rig.wall)


def log_path(rig: Rig, number: int) -> str:
    return f"{rig.root}/commitlog/{number * 4096:020d}"


def set_time(rig: Rig, path: str, wall: int) -> None:
    if isinstance(rig.files, MemoryFiles):
        rig.files.clock = lambda: wall
        rig.files.touch(path)
        rig.files.clock = lambda: rig.wall
    else:
        os.utime(path, ns=(wall * 1_000_000, wall * 1_000_000))


def log_files(rig: Rig) -> list[int]:
    """Which files of the log there are, by number."""
    return [int(name) // 4096 for name in rig.files.names(f"{rig.root}/commitlog")]


def usage(rig: Rig, monkeypatch: pytest.MonkeyPatch, percent: int | None, free: int = 100, queues: int | None = None) -> None:
    """Let the disks be so full."""

    def find(path: str) -> tuple[int, int] | None:
        used = percent if queues is None or path.endswith("commitlog") else queues
        return None if used is None else (free * used // (100 - used), free)

    monkeypatch.setattr(rig.files, "usage", find)


def check(rig: Rig, topic: str = "Topic") -> None:
    """What is left is whole: the queue begins with the first message of the log, and every message is read, by key too."""
    queue = rig.store.queue(topic, 0)
    messages = rig.read(topic)
    assert [message.queue_offset for message in messages] == list(range(queue.min_offset, queue.max_offset))
    assert messages[0].physical_offset == rig.store.min_physical
    assert messages[0].body.rstrip(b".") == f"{topic}-{queue.min_offset}".encode()
    assert rig.store.earliest_store_time() == rig.store.earliest_store_time(queue) == messages[0].store_time
    assert rig.store.offset_by_time(queue, 0) == queue.min_offset
    assert rig.found(f"{topic}-{queue.min_offset}") == [queue.min_offset]
    assert rig.found(f"{topic}-{queue.min_offset - 1}") == []


class TestAge:
    def test_old_files_go_at_their_hour(self, aged: Aged) -> None:
        rig = aged()
        rig.pass_time(2000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.min_physical == 2 * 4096
        assert rig.store.notices == ["2 files of the log are deleted, it begins at offset 8192 now: they are older than 72 hours"]
        check(rig)
        rig.pass_time(60_000)
        assert log_files(rig) == [2, 3, 4], "the third file is not old yet"
        rig.reopen()
        check(rig)
        rig.kill()
        rig.open()
        check(rig)

    def test_at_no_other_hour(self, aged: Aged) -> None:
        rig = aged(delete_when=NOON)
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

    def test_not_in_the_first_minute(self, aged: Aged) -> None:
        rig = aged()
        rig.reopen()
        rig.pass_time(59_000)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        rig.pass_time(2000)
        assert log_files(rig) == [2, 3, 4]

    def test_the_last_file_stays_however_old_it_is(self, aged: Aged) -> None:
        rig = aged(file_reserved_time=0, clean_resource_interval=600_000)
        rig.pass_time(DAY)
        assert log_files(rig) == [4]
        check(rig)
        rig.pass_time(3 * DAY)
        assert log_files(rig) == [4]
        check(rig)

    def test_files_of_unknown_age_stay(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged()
        monkeypatch.setattr(rig.files, "modified", lambda path: None)
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]

    def test_a_file_is_not_younger_than_the_next_one(self, aged: Aged) -> None:
        rig = aged()
        set_time(rig, log_path(rig, 0), rig.wall + 1000 * DAY)
        rig.pass_time(HOUR)
        assert log_files(rig) == [2, 3, 4]

    def test_so_many_at_a_time_with_pauses(self, aged: Aged) -> None:
        rig = aged(file_reserved_time=0, delete_file_batch_max=3, delete_commit_log_files_interval=100, files=6)
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
        rig = make_rig(clean_resource_interval=10, delete_when=NOW, file_reserved_time=0, flush_consume_queue_thorough_interval=10 * HOUR)
        rig.send("First")
        rig.pass_time(120_000)
        fill(rig, 4)
        rig.pass_time(70_000)
        assert log_files(rig)[:3] == [0, 1, 2]
        rig.kill()
        rig.open(delete_when=NOON)
        assert rig.store.queue("Topic", 0).next_offset == len(rig.read())

    def test_nothing_is_done_without_interval(self, aged: Aged) -> None:
        rig = aged(clean_resource_interval=0)
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

    def test_a_leap_forward_deletes_nothing(self, aged: Aged) -> None:
        rig = aged(file_reserved_time=400, clean_resource_interval=600_000)
        rig.pass_time(600_000)
        rig.wall += 4000 * DAY
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        rig.pass_time(250 * HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4], "they have grown older by 250 hours, not by years"
        rig.pass_time(150 * HOUR)
        assert log_files(rig) == [4]

    def test_a_request_takes_the_clock_at_its_word(self, aged: Aged) -> None:
        rig = aged(file_reserved_time=400)
        rig.wall += 4000 * DAY
        rig.store.delete_old_files()
        rig.pass_time(1000)
        assert log_files(rig) == [4]

    def test_a_clock_that_goes_back_keeps_files_longer(self, aged: Aged) -> None:
        rig = aged()
        rig.wall -= 1000 * DAY
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]

    def test_a_start_long_after_the_last_message(self, aged: Aged) -> None:
        rig = aged(delete_when=";".join(map(str, range(24))))
        rig.close()
        rig.wall += 1000 * DAY
        rig.open()
        rig.pass_time(11 * HOUR)
        assert log_files(rig) == [2, 3, 4], "as old as they were at the last message"
        rig.pass_time(62 * HOUR)
        assert log_files(rig) == [4]

    def test_file_time(self) -> None:
        reserved = 72 * HOUR
        time = FileTime(reserved, 0)
        assert time.at(0, START) == START
        assert time.at(HOUR, START + HOUR + 30_000) == START + HOUR + 30_000, "clocks are corrected by small steps"
        leap = START + 2 * HOUR + 30_000 + 10 * DAY
        assert time.at(2 * HOUR, leap) == leap - 10 * DAY
        assert time.at(60 * HOUR, leap + 58 * HOUR) == leap - 10 * DAY + 58 * HOUR
        assert time.at(74 * HOUR, leap + 72 * HOUR) == leap + 72 * HOUR, "it stood as long as files are kept"
        assert time.at(75 * HOUR, START) == START, "back is believed at once"
        assert time.at(76 * HOUR, START + HOUR) == START + HOUR
        assert time.at(77 * HOUR, START + 9 * HOUR) == START + 2 * HOUR
        assert time.at(78 * HOUR, START + 3 * HOUR) == START + 3 * HOUR, "a leap that was taken back"
        assert time.at(140 * HOUR, START + 71 * HOUR) == START + 65 * HOUR
        assert time.at(150 * HOUR, START + 81 * HOUR) == START + 75 * HOUR, "the same leap once more is a new one"

    def test_many_leaps_are_remembered_in_bounded_space(self) -> None:
        time = FileTime(72 * HOUR, 0)
        assert time.at(0, START) == START
        for number in range(1, 1000):
            assert time.at(number * 1000, START + number * HOUR) == START + number * 1000
        assert len(time._leaps) == 64
        assert time.at(999_000 + 72 * HOUR, START + 999 * HOUR + 72 * HOUR) == START + (999 + 72) * HOUR


class TestMarks:
    def test_a_pressed_disk_lets_old_files_go_at_any_hour(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(delete_when=NOON)
        usage(rig, monkeypatch, 75)
        rig.pass_time(30_000)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        usage(rig, monkeypatch, 76)
        rig.pass_time(30_000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.writable

    def test_so_does_the_disk_of_the_queues(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(delete_when=NOON)
        usage(rig, monkeypatch, None, queues=80)
        rig.pass_time(30_000)
        assert log_files(rig) == [2, 3, 4]

    def test_a_nearly_full_disk_takes_no_more_than_needed(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(delete_when=NOON, file_reserved_time=10_000)
        monkeypatch.setattr(rig.files, "usage", lambda path: (860_000 - rig.store.min_physical, 140_000 + rig.store.min_physical))
        rig.pass_time(40_000)
        assert log_files(rig) == [0, 1, 2, 3, 4], "140,000 bytes are more than 16 files"
        rig.reopen(disk_free_files_enough=0)
        rig.pass_time(100_000)
        assert log_files(rig) == [3, 4]
        (notice,) = rig.store.notices
        assert re.match("3 files of the log are deleted, it begins at offset 12288 now: the disk of .*commitlog is 86 % full", notice)
        assert rig.store.writable
        check(rig)

    def test_unless_that_is_forbidden(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(clean_file_forcibly_enable=False, delete_when=NOON)
        usage(rig, monkeypatch, 95)
        rig.pass_time(60_000)
        assert log_files(rig) == [2, 3, 4], "old ones go"
        assert not rig.store.writable

    def test_a_full_disk_of_queues_alone_takes_a_batch(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(delete_when=NOON, delete_file_batch_max=2, file_reserved_time=10_000)
        usage(rig, monkeypatch, 10, queues=86)
        rig.pass_time(9000)
        assert log_files(rig) == [2, 3, 4]

    def test_messages_are_refused_above_the_warning_mark(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = make_rig(clean_resource_interval=10_000, allocation_window=4096)
        usage(rig, monkeypatch, 90)
        rig.pass_time(10_000)
        rig.send()
        usage(rig, monkeypatch, 91)
        rig.send()
        rig.pass_time(10_000)
        assert not rig.store.writable
        with pytest.raises(PutRefused, match="is 91 % full with 0 MiB free, and messages are taken up to 90 %") as refused:
            rig.send()
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert len(rig.read()) == 2
        rig.run_jobs()
        rig.pass_time(9000)
        with pytest.raises(PutRefused):
            rig.send()
        assert rig.store.disk_ratios() == (0.91, 0.91)
        (notice,) = rig.store.notices
        assert notice.startswith("messages are refused: the disk of ")
        usage(rig, monkeypatch, 90)
        rig.pass_time(1000)
        rig.send()
        assert rig.store.notices[1:] == ["messages are taken again: the disk has room"]
        assert len(rig.read()) == 3
        usage(rig, monkeypatch, 91)
        rig.reopen()
        assert not rig.store.writable, "known from the start"

    def test_ends_of_jobs_do_not_open_it_again(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = make_rig(clean_resource_interval=10_000, allocation_window=1 << 18, mapped_file_size_commit_log=8 << 20)
        while not any(isinstance(job, AllocateLog) for job in rig.store.jobs):
            rig.store.jobs.clear()
            rig.send(body=bytes(100_000))
        held, rig.store.jobs[:] = list(rig.store.jobs), []
        usage(rig, monkeypatch, 95)
        rig.pass_time(10_000)
        for job in held:
            job.run()
            rig.store.done(job, None, rig.now, rig.wall)
        with pytest.raises(PutRefused):
            rig.send()

    def test_one_full_disk_of_two_never_flickers(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = make_rig(clean_resource_interval=10_000)
        usage(rig, monkeypatch, 10, queues=95)
        for _ in range(5):
            rig.pass_time(10_000)
            assert not rig.store.writable
            with pytest.raises(PutRefused, match=f"disk of {rig.root} is 95 % full"):
                rig.send()

    def test_an_unknown_usage_is_not_full(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(delete_when=NOON)
        usage(rig, monkeypatch, None)
        rig.pass_time(HOUR)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        assert rig.store.disk_ratios() == (-1, -1)
        rig.send()

    def test_ratios_are_rounded_up(self) -> None:
        assert [used_percent(each) for each in (None, (0, 0), (0, 5), (1, 999), (750, 250), (751, 249), (5, 0))] == [
            -1, -1, 0, 1, 75, 76, 100,
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("settings", "used", "free", "taken", "forced"),
        [
            ({"mapped_file_size_commit_log": 1 << 20}, 221 * GB, 19 * GB, True, False),
            ({}, 221 * GB, 19 * GB, True, False),
            ({"mapped_file_size_commit_log": 1 << 20}, 9700 * 10**6, 300 * 10**6, True, False),
            ({}, 9700 * 10**6, 300 * 10**6, False, True),
            ({"disk_free_files_enough": 0}, 221 * GB, 19 * GB, False, True),
            ({"disk_free_files_enough": 0}, 880 * GB, 120 * GB, True, True),
            ({"disk_free_files_enough": 0}, 850 * GB, 150 * GB, True, False),
            ({}, 88 * GB, 12 * GB, True, True),
            ({}, 97 * GB, 3 * GB, False, True),
            ({"disk_free_files_enough": 2}, 97 * GB, 3 * GB, True, False),
        ],
    )
    def test_percentages_count_when_few_bytes_are_free(
        self, settings: dict[str, Any], used: int, free: int, taken: bool, forced: bool
    ) -> None:
        marks = Marks(StoreSettings(**settings))
        marks.looked(((used, free), (used, free)))
        assert (not marks.refusal, marks.forced) == (taken, forced)
        assert marks.pressed

    @pytest.mark.parametrize(
        ("key", "value", "works_like"),
        [
            ("disk_space_warning_level_ratio", 0.5, 0.5),
            ("disk_space_warning_level_ratio", 50.0, 0.5),
            ("disk_space_warning_level_ratio", 0.99, 0.90),
            ("disk_space_warning_level_ratio", 0.1, 0.35),
            ("disk_space_clean_forcibly_ratio", 0.4, 0.4),
            ("disk_space_clean_forcibly_ratio", 99.0, 0.85),
            ("disk_space_clean_forcibly_ratio", 0.0, 0.30),
        ],
    )
    def test_marks_can_be_set_within_the_bounds_of_5(self, key: str, value: float, works_like: float) -> None:
        changes: dict[str, Any] = {"disk_free_files_enough": 0, key: value}
        marks = Marks(StoreSettings(**changes))
        percent = round(works_like * 100)
        for used, over in ((percent, False), (percent + 1, True)):
            marks.looked(((used, 100 - used), None))
            assert (bool(marks.refusal) if "warning" in key else marks.forced) is over

    def test_the_first_mark_can_be_99(self) -> None:
        marks = Marks(StoreSettings(disk_max_used_space_ratio=99))
        marks.looked(((99, 1), (99, 1)))
        assert not marks.pressed
        marks.looked(((100, 0), None))
        assert marks.pressed

    def test_a_disk_in_memory_fills_up_and_is_emptied(self) -> None:
        files = MemoryFiles(forgetful=True, space=40_000)
        files.capacity = 40_000
        rig = Rig(files, "/store", clean_resource_interval=1000, delete_when=NOON, disk_free_files_enough=0, **ROUNDS)
        rig.pass_time(60_000)
        refused = 0
        for number in range(400):
            try:
                rig.send(body=f"Topic-{number - refused}".encode().ljust(500, b"."), uniq_key=f"Topic-{number - refused}")
            except PutRefused:
                refused += 1
            rig.pass_time(1000)
        assert refused < 100
        assert rig.store.min_physical > 20 * 4096
        messages = rig.read()
        assert messages[0].physical_offset == rig.store.min_physical
        assert [message.body.rstrip(b".") for message in messages][-1] == f"Topic-{399 - refused}".encode()


class TestRequests:
    def test_old_files_go_at_once(self, aged: Aged) -> None:
        rig = aged(delete_when=NOON)
        rig.store.delete_old_files()
        assert rig.store.next_deadline() == 0
        rig.pass_time(1000)
        assert log_files(rig) == [2, 3, 4]
        check(rig)

    def test_a_request_lasts_for_twenty_rounds(self, aged: Aged) -> None:
        rig = aged(delete_when="11")
        rig.store.delete_old_files()
        rig.pass_time(60_000)
        set_time(rig, log_path(rig, 2), rig.wall - 4 * DAY)
        rig.pass_time(10_000)
        assert log_files(rig) == [3, 4]
        rig.pass_time(200_000)
        set_time(rig, log_path(rig, 3), rig.wall - 4 * DAY)
        rig.pass_time(HOUR)
        assert log_files(rig) == [3, 4]

    def test_one_works_where_nothing_is_done_unasked(self, aged: Aged) -> None:
        rig = aged(clean_resource_interval=0)
        rig.store.delete_old_files()
        rig.settle()
        assert log_files(rig) == [2, 3, 4]
        check(rig)

    def test_queues_without_messages(self, aged: Aged) -> None:
        rig = aged(files=1, file_reserved_time=0)
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


class TestReaders:
    def test_a_view_outlives_its_file(self, aged: Aged) -> None:
        rig = aged()
        result = rig.store.get(rig.store.queue("Topic", 0), 0, 3, None)
        before = [bytes(view) for view in result.views]
        path = log_path(rig, 0)
        rig.pass_time(1000)
        assert not rig.files.exists(path)
        if isinstance(rig.files, DiskFiles) and Path("/proc/self/maps").exists():
            assert f"{path} (deleted)" in Path("/proc/self/maps").read_text()
        assert [bytes(view) for view in result.views] == before
        assert len(records(result.views)) == 3
        for view in result.views:
            view.release()
        result.views.clear()
        if isinstance(rig.files, DiskFiles) and Path("/proc/self/maps").exists():
            assert f"{path} (deleted)" not in Path("/proc/self/maps").read_text()

    def test_readers_behind_the_beginning(self, aged: Aged) -> None:
        rig = aged()
        queue = rig.store.queue("Topic", 0)
        end = queue.max_offset
        while rig.store.min_physical == 0:
            rig.pass_time(10)
        assert rig.store.record(0) is None
        rig.pass_time(5000)
        result = rig.store.get(queue, 0, 32, None)
        assert (result.status, result.next_offset) == (GetStatus.OFFSET_TOO_SMALL, queue.min_offset)
        assert rig.store.get(queue, end, 32, None).status is GetStatus.OFFSET_OVERFLOW_ONE
        rig.send(body=b"later")
        assert [bytes(message.body) for message in rig.read(start=end)] == [b"later"]

    def test_between_log_and_queues_messages_are_passed_over(self, aged: Aged) -> None:
        rig = aged()
        queue = rig.store.queue("Topic", 0)
        rig.store.timer(rig.now + 1000, rig.wall)
        look = rig.store.jobs.pop()
        look.run()
        rig.store.done(look, None, rig.now + 1000, rig.wall)
        assert (queue.min_offset, rig.store.min_physical) == (0, 2 * 4096)
        result = rig.store.get(queue, 0, 32, None)
        first = records(result.views)[0] if result.views else None
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
        assert first is None or first.physical_offset == 2 * 4096
        assert result.next_offset > 0


class TestFollowing:
    def test_files_of_queues_and_index_follow(self, aged: Aged) -> None:
        rig = aged(files=12, file_reserved_time=30 * 4, max_index_num=10)
        queue_files = [f"consumequeue/Topic/0/{start:020d}" for start in range(0, 2000, 200)]
        before = rig.tree()
        assert set(queue_files[:7]) <= set(before)
        index_before = [path for path in before if path.startswith("index/")]
        assert len(index_before) > 4
        rig.pass_time(HOUR // 2)
        queue = rig.store.queue("Topic", 0)
        assert log_files(rig) == [8, 9, 10, 11]
        assert queue.min_offset == 48
        left = [path for path in rig.tree() if path.startswith("consumequeue/")]
        assert left == [path for path in before if path.startswith("consumequeue/")][4:]
        index_left = [path for path in rig.tree() if path.startswith("index/")]
        assert 0 < len(index_left) < len(index_before)
        assert index_left == index_before[-len(index_left) :]
        check(rig)
        rig.reopen()
        check(rig)

    def test_files_of_the_extension_follow(self, aged: Aged) -> None:
        rig = aged(files=12, file_reserved_time=30 * 4, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=128)
        before = [path for path in rig.tree() if path.startswith("consumequeue_ext/")]
        rig.store.get(rig.store.queue("Topic", 0), 0, 1, frozenset((1,)))  # lets the first one be mapped
        rig.pass_time(HOUR // 2)
        left = [path for path in rig.tree() if path.startswith("consumequeue_ext/")]
        assert left == before[48 // 6 :], "six units lie in a file"
        check(rig)
        rig.reopen()
        check(rig)

    def test_the_last_file_of_a_queue_stays_so_that_its_offsets_go_on(self, aged: Aged) -> None:
        rig = aged(files=1, file_reserved_time=0)
        for _ in range(20):
            rig.send("Idle")
        fill(rig, 4)
        rig.pass_time(HOUR // 2)
        idle = rig.store.queue("Idle", 0)
        assert (idle.min_offset, idle.max_offset) == (20, 20)
        assert rig.files.names(idle.folder) == [f"{200:020d}"]
        assert rig.store.get(idle, 3, 1, None).next_offset == 20
        rig.reopen()
        idle = rig.store.queue("Idle", 0)
        assert (idle.min_offset, idle.max_offset) == (20, 20)
        rig.send("Idle")
        assert [message.queue_offset for message in rig.read("Idle")] == [20]
        rig.kill()
        rig.open()
        assert [message.queue_offset for message in rig.read("Idle")] == [20]

    def test_many_queues_are_gone_through_in_slices(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("engine.store.following._LOOKED_AT", 20)
        monkeypatch.setattr("engine.store.following._READ", 7)
        rig = aged(files=1, file_reserved_time=0)
        for number in range(100):
            rig.send(f"T{number % 10}", b"x" * 50, number // 10)
        fill(rig, 10)
        for number in range(10):
            rig.send(f"T{number % 10}", b"y" * 50, number // 10)
        kinds = rig.pass_time(HOUR // 2)
        assert 15 <= kinds.count("FindMinimums") < 60
        for number in range(100):
            queue = rig.store.queue(f"T{number % 10}", number // 10)
            assert (queue.min_offset, queue.max_offset) == (1, 2 if number < 10 else 1)
        kinds = rig.pass_time(HOUR // 4)
        assert set(kinds) == {"LookAround"}, "nothing was deleted, nothing is gone through"

    def test_a_queue_with_one_message(self, make_rig: MakeRig) -> None:
        rig = make_rig(clean_resource_interval=10, delete_when=NOW, file_reserved_time=0)
        rig.pass_time(120_000)
        fill(rig, 3)
        rig.send("Tail")
        fill(rig, 6)
        rig.pass_time(70_000)
        queue = rig.store.queue("Tail", 0)
        assert (queue.min_offset, queue.max_offset) == (1, 1)
        rig.send("Tail")
        assert [message.queue_offset for message in rig.read("Tail")] == [1]

    def test_a_queue_made_anew_keeps_its_files(self, aged: Aged) -> None:
        rig = aged(files=1, file_reserved_time=0)
        for _ in range(20):
            rig.send("Again")
        fill(rig, 3)
        rig.pass_time(1000)
        while rig.store.find_queue("Again", 0) is not None and rig.store.queue("Again", 0).first == 0:
            due = rig.store.next_deadline()
            assert due is not None
            rig.now = max(rig.now, due)
            rig.store.timer(rig.now, rig.wall)
            rig.run_jobs()
        rig.store.delete_queues(lambda queue: queue.topic == "Again")
        rig.run_jobs()
        rig.send("Again", b"new")
        rig.store.timer(rig.now + 60_000, rig.wall)
        rig.pass_time(HOUR)
        assert [(message.queue_offset, bytes(message.body)) for message in rig.read("Again")] == [(0, b"new")]
        rig.reopen()
        assert [(message.queue_offset, bytes(message.body)) for message in rig.read("Again")] == [(0, b"new")]


class TestFailures:
    def test_a_file_that_cannot_be_removed_is_tried_again(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on Windows, where an open file is not let go."""
        rig = aged()
        remove = rig.files.remove
        tried: list[str] = []

        def refuse(path: str) -> None:
            tried.append(path)
            raise PermissionError(13, "the file is in use", path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(100_000)
        assert tried == [log_path(rig, 0)]
        assert log_files(rig) == [0, 1, 2, 3, 4]
        assert rig.store.min_physical == 2 * 4096, "for readers they are gone"
        rig.send(body=b"goes on")
        rig.pass_time(30_000)
        assert tried == [log_path(rig, 0)] * 2
        monkeypatch.setattr(rig.files, "remove", remove)
        rig.pass_time(119_000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.queue("Topic", 0).min_offset > 0
        assert rig.store.writable

    @pytest.mark.parametrize("restarted", [False, True])
    def test_the_same_with_files_of_queues_and_index(self, aged: Aged, monkeypatch: pytest.MonkeyPatch, restarted: bool) -> None:
        rig = aged(files=12, file_reserved_time=30 * 4, max_index_num=10)
        remove = rig.files.remove

        def refuse(path: str) -> None:
            if "consumequeue" in path or "/index/" in path:
                raise PermissionError(13, "the file is in use", path)
            remove(path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(100_000)
        folder, index = f"{rig.root}/consumequeue/Topic/0", f"{rig.root}/index"
        assert rig.files.names(folder)[0] == f"{0:020d}"
        check(rig)
        if restarted:
            rig.kill()
            monkeypatch.undo()
            rig.open()
            folder, index = f"{rig.root}/consumequeue/Topic/0", f"{rig.root}/index"
            check(rig)
        count = len(rig.files.names(index))
        assert count > 5
        monkeypatch.undo()
        rig.pass_time(1000 if restarted else 121_000)
        assert rig.files.names(folder)[0] == f"{800:020d}"
        assert len(rig.files.names(index)) < count
        check(rig)

    def test_queue_files_are_worked_on_one_by_one(self, rig: Rig) -> None:
        rig.send()
        rig.store.timer(0, rig.wall)
        assert "WriteQueues" in [type(job).__name__ for job in rig.store.jobs]
        job = RemoveQueueFiles(rig.files, [])
        rig.store._flusher.in_turn(job)
        assert job not in rig.store.jobs
        assert rig.run_jobs()[-1] == "RemoveQueueFiles"

    def test_index_files_that_are_not_durable_stay(self, make_rig: MakeRig) -> None:
        rig = make_rig(max_index_num=10)
        fill(rig, 5)
        index = rig.store._index
        assert len(index.full) == 2
        assert index.drop_below(1 << 60) == []
        rig.settle()
        assert len(index.drop_below(1 << 60)) == 2
        assert len(index.index_files) == 1

    def test_without_room_for_entries_of_queues_files_stay(self, aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(job: WriteQueues) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(WriteQueues, "run", full)
        rig = aged()
        rig.pass_time(HOUR // 4)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        monkeypatch.undo()
        rig.pass_time(HOUR // 4)
        assert log_files(rig) == [2, 3, 4]


class TestCrashes:
    """Memory only: it can tell what a crash at some moment would have left."""

    def rig(self, **settings: Any) -> Rig:
        rig = memory_rig(
            **{"clean_resource_interval": 10_000, "delete_when": NOW, "max_index_num": 10, "file_reserved_time": 120, **settings}
        )
        fill(rig, 12)
        rig.send("Rare")
        rig.pass_time(59_000)
        for number in range(9):
            set_time(rig, log_path(rig, number), rig.wall - 10 * DAY)
        return rig

    @pytest.mark.parametrize("ext", [False, True])
    def test_at_every_change_of_a_deletion(self, ext: bool) -> None:
        rig = self.rig(enable_consume_queue_ext=ext, mapped_file_size_consume_queue_ext=128)
        files = rig.files
        assert isinstance(files, MemoryFiles)
        left: list[MemoryFiles] = []

        def crash(change: str, path: str) -> None:
            left.append(files.process_death())
            left.extend(files.power_loss(names=count) for count in range(files.pending_names + 1))

        files.before_change = crash
        rig.pass_time(HOUR // 2)
        files.before_change = lambda change, path: None
        crash("", "")
        assert rig.store.min_physical == 9 * 4096
        last = rig.store.queue("Topic", 0).max_offset
        assert len(left) > 60
        begins = set()
        for found in left:
            begins.add(self.reopened(found, last))
        assert begins == {number * 4096 for number in range(10)}

    def reopened(self, found: MemoryFiles, last: int) -> int:
        """What is there after a crash is whole, goes on, and is deleted from then on as if nothing had been. Gives where the log begins."""
        again = Rig(found, "/store", **{**self.rig_settings, "clean_resource_interval": 0})
        check(again)
        queue = again.store.queue("Topic", 0)
        assert queue.max_offset == last
        begin = again.store.min_physical
        again.send(body=f"Topic-{last}".encode(), uniq_key=f"Topic-{last}")
        again.send("Rare")
        assert again.store.queue("Rare", 0).next_offset == 2
        again.store.delete_old_files()
        again.settle()
        assert again.store.min_physical == 9 * 4096
        check(again)
        again.reopen()
        check(again)
        again.close()
        return begin

    rig_settings: ClassVar[dict[str, Any]] = {"delete_when": NOW, "max_index_num": 10, "file_reserved_time": 120}

    def test_a_file_that_stayed_is_found_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It could not be removed, so queues keep what leads into it."""
        rig = self.rig()

        def refuse(path: str) -> None:
            raise PermissionError(13, "the file is in use", path)

        monkeypatch.setattr(rig.files, "remove", refuse)
        rig.pass_time(HOUR // 2)
        assert rig.store.min_physical == 9 * 4096
        rig.kill()
        rig.open()
        assert rig.store.min_physical == 0
        check(rig)
