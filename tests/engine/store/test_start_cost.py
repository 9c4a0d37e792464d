"""A start reads the end of the log, however long that is: bytes are counted at the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles
from mqproto.engine.store.disk.files import File
from tests.engine.store.harness import Rig

FILE = 64 << 10


class CountedFile:
    """Counts what is read. What is read through a map cannot be seen, so a map counts as a whole."""

    def __init__(self, files: CountingFiles, file: File) -> None:
        self._files = files
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def view(self) -> memoryview:
        self._files.bytes += self._file.size
        return self._file.view()

    def read(self, start: int, size: int) -> bytes:
        found = self._file.read(start, size)
        self._files.bytes += len(found)
        return found

    def write(self, start: int, data: bytes | memoryview) -> None:
        self._file.write(start, data)

    def allocate(self, start: int, size: int) -> None:
        self._file.allocate(start, size)

    def clear(self, start: int, end: int) -> bool:
        return self._file.clear(start, end)

    def next_data(self, start: int) -> int:
        return self._file.next_data(start)

    def sync(self) -> None:
        self._file.sync()

    def read_cached(self, start: int, size: int) -> bytes | bytearray | None:
        return self._file.read_cached(start, size)

    def close(self) -> None:
        self._file.close()


class CountingFiles(DiskFiles):
    bytes = 0

    def open(self, path: str) -> File:
        return CountedFile(self, super().open(path))


def bytes_of_a_start(folder: Path, count: int, ending: str, *, manifest: bool = True) -> int:
    """Of a log of so many files, each with few large messages."""
    files = CountingFiles()
    rig = Rig(
        files,
        str(folder / f"{count}-{ending}-{manifest}" / "store"),
        mapped_file_size_commit_log=FILE,
        allocation_window=4096,
    )
    while rig.store.end < count * FILE:
        rig.wall += 1000
        rig.send(body=bytes(20_000), uniq_key=f"key-{rig.store.end}")
        rig.run_jobs()
    rig.settle()
    rig.wall += 10_000
    rig.send_many(5)
    rig.close() if ending == "clean" else rig.kill()
    if not manifest:
        rig.files.remove(f"{rig.root}/manifest")
    files.bytes = 0
    rig.open()
    found = files.bytes
    assert len(rig.store._log.log_files) > count - 1
    rig.close()
    return found


@pytest.mark.parametrize(("ending", "manifest"), [("clean", True), ("clean", False), ("killed", True)])
def test_cost_of_a_start_does_not_grow_with_the_log(tmp_path: Path, ending: str, manifest: bool) -> None:
    short = bytes_of_a_start(tmp_path, 10, ending, manifest=manifest)
    long = bytes_of_a_start(tmp_path, 200, ending, manifest=manifest)
    assert long < short + 2 * FILE
    assert long < 10 * FILE
