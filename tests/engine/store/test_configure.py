"""Settings of an open store that change: those of retention (docs/protocol/store.md 9.1)."""

from __future__ import annotations

import pytest

from mqproto.engine.store import PutRefused
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import Rig
from tests.engine.store.oldfiles import HOUR, NOON, aged, log_files, usage


def change(rig: Rig, **values: object) -> None:
    for name, value in values.items():
        setattr(rig.store.settings, name, value)
    rig.store.configure()


def test_another_hour(make_rig: MakeRig) -> None:
    rig = aged(make_rig, delete_when=NOON)
    rig.pass_time(70_000)
    assert log_files(rig) == [0, 1, 2, 3, 4]
    change(rig, delete_when="8")
    rig.pass_time(1000)
    assert log_files(rig) == [2, 3, 4]


def test_files_are_kept_for_a_shorter_time(make_rig: MakeRig) -> None:
    rig = aged(make_rig)
    rig.pass_time(70_000)
    assert log_files(rig) == [2, 3, 4]
    change(rig, file_reserved_time=50)
    rig.pass_time(1000)
    assert log_files(rig) == [3, 4]


def test_files_are_kept_for_a_longer_time(make_rig: MakeRig) -> None:
    rig = aged(make_rig)
    change(rig, file_reserved_time=1000)
    rig.pass_time(70_000)
    assert log_files(rig) == [0, 1, 2, 3, 4]


def test_fewer_files_go_in_one_round(make_rig: MakeRig) -> None:
    rig = aged(make_rig, clean_resource_interval=600_000)
    change(rig, delete_file_batch_max=1)
    rig.pass_time(70_000)
    change(rig)
    rig.pass_time(1000)
    assert len(log_files(rig)) == 4


def test_other_marks(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = aged(make_rig, delete_when=NOON, disk_free_files_enough=0, clean_file_forcibly_enable=False)
    usage(rig, monkeypatch, 80)
    change(rig, disk_max_used_space_ratio=90)
    rig.pass_time(70_000)
    assert log_files(rig) == [0, 1, 2, 3, 4]
    change(rig, disk_space_warning_level_ratio=0.5)
    with pytest.raises(PutRefused):
        rig.send()
    assert any("messages are refused" in notice for notice in rig.store.notices)
    change(rig, disk_space_warning_level_ratio=0.9, disk_max_used_space_ratio=75)
    rig.pass_time(1000)
    assert any("messages are taken again" in notice for notice in rig.store.notices)
    assert log_files(rig) == [2, 3, 4]


def test_looks_can_be_switched_off_and_on(make_rig: MakeRig) -> None:
    rig = aged(make_rig)
    change(rig, clean_resource_interval=0)
    rig.pass_time(HOUR // 2)
    assert log_files(rig) == [0, 1, 2, 3, 4]
    change(rig, clean_resource_interval=10_000)
    rig.pass_time(1000)
    assert log_files(rig) == [2, 3, 4]


def test_queue_files_go_with_other_pauses(make_rig: MakeRig) -> None:
    """Files of queues follow those of the log, one in a job and with pauses here."""
    rig = aged(make_rig, flush_consume_queue_thorough_interval=1000, mapped_file_size_consume_queue=20)
    change(rig, delete_file_batch_max=1, delete_consume_queue_files_interval=5000)
    rig.pass_time(6000)
    few = rig.pass_time(20_000).count("RemoveQueueFiles")
    assert 3 <= few <= 5
    change(rig, delete_consume_queue_files_interval=500)
    assert rig.pass_time(5000).count("RemoveQueueFiles") > few
