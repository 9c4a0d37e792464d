"""A folder that is lost takes everything in it along, however durable that was."""

from __future__ import annotations

import pytest

from mqproto.engine.store import ConfigFile, MemoryFiles
from mqproto.engine.store.disk.folders import make_durable_folder, parent_of
from tests.engine.store.harness import Rig


@pytest.mark.parametrize(("path", "parent"), [("/a/b", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("/", "/")])
def test_parents(path: str, parent: str) -> None:
    assert parent_of(path) == parent


def test_all_that_were_missing_are_durable() -> None:
    files = MemoryFiles(forgetful=True)
    make_durable_folder(files, "/a/b/c")
    assert files.power_loss().is_folder("/a/b/c")


def test_so_is_one_that_somebody_else_left_unsynced() -> None:
    files = MemoryFiles(forgetful=True)
    files.make_folder("/a")
    make_durable_folder(files, "/a")
    assert files.power_loss().is_folder("/a")


def test_data_directory_and_log_wherever_they_are() -> None:
    rig = Rig(
        MemoryFiles(forgetful=True), "/srv/mq/store", store_path_commit_log="/logs/of/mq", flush_disk_type="SYNC_FLUSH"
    )
    bodies = rig.send_many(30)
    rig.store.want_flush()
    rig.run_jobs()
    rig.cut_power()
    rig.open()
    assert rig.bodies() == bodies


def test_configuration() -> None:
    files = MemoryFiles(forgetful=True)
    ConfigFile("/store/config/topics.json", files).save("{}")
    assert files.power_loss().read("/store/config/topics.json") == b"{}"
