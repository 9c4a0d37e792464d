"""Watermarks: what full and nearly full disks do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mqproto.engine.store import MemoryFiles, PutRefused, PutStatus, StoreSettings
from mqproto.engine.store.log.commit_log import AllocateLog
from mqproto.engine.store.retention.watermarks import Watermarks, used_percent
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig
from tests.engine.store.oldfiles import HOUR, NOON, ROUNDS, aged, check, log_files, usage

GB = 10**9


class TestMarks:
    def test_a_pressed_disk_lets_old_files_go_at_any_hour(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = aged(make_rig, delete_when=NOON)
        usage(rig, monkeypatch, 75)
        rig.pass_time(30_000)
        assert log_files(rig) == [0, 1, 2, 3, 4]
        usage(rig, monkeypatch, 76)
        rig.pass_time(30_000)
        assert log_files(rig) == [2, 3, 4]
        assert rig.store.writer.writable

    def test_so_does_the_disk_of_the_queues(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(make_rig, delete_when=NOON)
        usage(rig, monkeypatch, None, queues=80)
        rig.pass_time(30_000)
        assert log_files(rig) == [2, 3, 4]

    def test_a_nearly_full_disk_takes_no_more_than_needed(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = aged(make_rig, delete_when=NOON, file_reserved_time=10_000)
        monkeypatch.setattr(
            rig.files, "usage", lambda path: (860_000 - rig.store.min_physical, 140_000 + rig.store.min_physical)
        )
        rig.pass_time(40_000)
        assert log_files(rig) == [0, 1, 2, 3, 4], "140,000 bytes are more than 16 files"
        rig.reopen(disk_free_files_enough=0)
        rig.pass_time(100_000)
        assert log_files(rig) == [3, 4]
        (notice,) = rig.store.notices
        assert re.match(
            "3 files of the log are deleted, it begins at offset 12288 now: the disk of .*commitlog is 86 % full",
            notice,
        )
        assert rig.store.writer.writable
        check(rig)

    def test_unless_that_is_forbidden(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = aged(make_rig, clean_file_forcibly_enable=False, delete_when=NOON)
        usage(rig, monkeypatch, 95)
        rig.pass_time(60_000)
        assert log_files(rig) == [2, 3, 4], "old ones go"
        assert not rig.store.writer.writable

    def test_a_full_disk_of_queues_alone_takes_a_batch(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = aged(make_rig, delete_when=NOON, delete_file_batch_max=2, file_reserved_time=10_000)
        usage(rig, monkeypatch, 10, queues=86)
        rig.pass_time(9000)
        assert log_files(rig) == [2, 3, 4]

    def test_messages_are_refused_above_the_warning_mark(
        self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = make_rig(clean_resource_interval=10_000, allocation_window=4096)
        usage(rig, monkeypatch, 90)
        rig.pass_time(10_000)
        rig.send()
        usage(rig, monkeypatch, 91)
        rig.send()
        rig.pass_time(10_000)
        assert not rig.store.writer.writable
        with pytest.raises(
            PutRefused, match="is 91 % full with 0 MiB free, and messages are taken up to 90 %"
        ) as refused:
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
        assert not rig.store.writer.writable, "known from the start"

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
            assert not rig.store.writer.writable
            with pytest.raises(PutRefused, match=f"disk of {rig.root} is 95 % full"):
                rig.send()

    def test_an_unknown_usage_is_not_full(self, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
        """STO-05."""
        rig = aged(make_rig, delete_when=NOON)
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
            ({}, 140 * GB, 10 * GB, True, True),
            ({}, 140 * GB, 8 * GB, False, True),
            ({"disk_free_files_enough": 2}, 97 * GB, 3 * GB, True, False),
        ],
    )
    def test_percentages_count_when_few_bytes_are_free(
        self, settings: dict[str, Any], used: int, free: int, taken: bool, forced: bool
    ) -> None:
        """STO-05: 240 GB that are 92 % full; 300 MB for a broker with small files."""
        watermarks = Watermarks(StoreSettings(**settings))
        watermarks.looked(((used, free), (used, free)))
        assert (not watermarks.refusal, watermarks.forced) == (taken, forced)
        assert watermarks.pressed

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
    def test_watermarks_can_be_set_within_the_bounds_of_5(self, key: str, value: float, works_like: float) -> None:
        changes: dict[str, Any] = {"disk_free_files_enough": 0, key: value}
        watermarks = Watermarks(StoreSettings(**changes))
        percent = round(works_like * 100)
        for used, over in ((percent, False), (percent + 1, True)):
            watermarks.looked(((used, 100 - used), None))
            assert (bool(watermarks.refusal) if "warning" in key else watermarks.forced) is over

    def test_the_first_mark_can_be_99(self) -> None:
        """STO-05."""
        watermarks = Watermarks(StoreSettings(disk_max_used_space_ratio=99))
        watermarks.looked(((99, 1), (99, 1)))
        assert not watermarks.pressed
        watermarks.looked(((100, 0), None))
        assert watermarks.pressed

    def test_a_disk_in_memory_fills_up_and_is_emptied(self) -> None:
        files = MemoryFiles(forgetful=True, space=40_000)
        files.capacity = 40_000
        rig = Rig(files, "/store", clean_resource_interval=1000, delete_when=NOON, disk_free_files_enough=0, **ROUNDS)
        rig.pass_time(60_000)
        refused = 0
        for number in range(400):
            try:
                rig.send(
                    body=f"Topic-{number - refused}".encode().ljust(500, b"."), uniq_key=f"Topic-{number - refused}"
                )
            except PutRefused:
                refused += 1
            rig.pass_time(1000)
        assert refused < 100
        assert rig.store.min_physical > 20 * 4096
        messages = rig.read()
        assert messages[0].physical_offset == rig.store.min_physical
        assert [message.body.rstrip(b".") for message in messages][-1] == f"Topic-{399 - refused}".encode()
