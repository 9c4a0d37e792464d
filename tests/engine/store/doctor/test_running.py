"""Looking while somebody writes: what a broker appends, rolls or deletes meanwhile is no finding."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from mqproto.engine.store import MemoryFiles
from mqproto.engine.store.disk.files import ReadFile
from mqproto.engine.store.doctor import Check, Report, check, inspect, open_directory
from mqproto.engine.store.doctor.checks import check as check_module
from tests.engine.store.doctor.test_check import fill
from tests.engine.store.harness import Rig


@pytest.fixture
def rig() -> Rig:
    """A store that runs, with messages in several files."""
    rig = Rig(MemoryFiles(), "/store")
    fill(rig, 30)
    rig.settle()
    return rig


def checked_while(rig: Rig, monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], None]) -> Report:
    """A check during which something happens, with every few records."""
    monkeypatch.setattr(check_module, "_STEP", 500)
    found = Check(open_directory(rig.files, rig.root))
    for number, _ in enumerate(found.run()):
        happens(number)
    return found.report


def test_a_broker_that_appends_and_rolls(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    end = rig.store.end

    def happens(number: int) -> None:
        fill(rig, 2)
        rig.settle() if number % 2 else rig.run_jobs()

    report = checked_while(rig, monkeypatch, happens)
    assert (report.findings, report.end) == ([], end)
    assert report.records == 180
    assert rig.store.end > end + 8192


def test_a_broker_that_deletes_old_files(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def happens(number: int) -> None:
        if number == 0:
            for start in (0, 4096, 8192):
                rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
            for queue in ("Orders/0", "Orders/1", "Half/0"):
                rig.files.remove(f"{rig.root}/consumequeue/{queue}/{0:020d}")

    report = checked_while(rig, monkeypatch, happens)
    assert report.findings == []
    assert any("deleted" in note for note in report.notes)


def test_a_record_that_is_just_being_written(rig: Rig) -> None:
    while rig.store.end % 4096 > 3500:
        rig.send()
    end = rig.store.end
    rig.send(body=b"x" * 300)
    whole = rig.log(end - end % 4096)[end % 4096 : end % 4096 + 400]
    for cut in (4, 50, 340):
        rig.set_log(end % 4096, whole[:cut] + bytes(400 - cut), end - end % 4096)
        report = check(rig.files, rig.root)
        assert (report.findings, report.end) == ([], end)


def test_inspecting_what_is_deleted_meanwhile(rig: Rig) -> None:
    directory = open_directory(rig.files, rig.root)
    rig.files.remove(f"{rig.root}/commitlog/{0:020d}")
    rig.files.remove_tree(f"{rig.root}/consumequeue/Orders/0")
    found = inspect(directory)
    assert found.log.size.files == len(directory.log.parts) - 1
    assert found.log.end == rig.store.end


class Worn(MemoryFiles):
    """A disk that cannot read one file any more."""

    bad = ""

    def open_to_read(self, path: str) -> ReadFile:
        file = super().open_to_read(path)
        return _Unreadable(path) if path == self.bad else file


class _Unreadable:
    size = 4096

    def __init__(self, path: str) -> None:
        self._path = path

    def read_cached(self, start: int, size: int) -> bytes | None:
        return None

    def read(self, start: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error", self._path)

    def next_data(self, start: int) -> int:
        return start

    def close(self) -> None:
        """Nothing is held."""


def test_a_file_of_the_log_that_cannot_be_read_is_found_and_passed() -> None:
    files = Worn()
    rig = Rig(files, "/store")
    fill(rig, 30)
    rig.close()
    files.bad = f"{rig.root}/commitlog/{8192:020d}"
    report = check(files, rig.root)
    finding = report.findings[0]
    assert (finding.path, finding.offset) == (files.bad, 8192)
    assert "Input/output error" in finding.what
    assert report.records > 100
    assert report.end > 12288
