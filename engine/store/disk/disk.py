"""Files on a disk.

What systems do differently is in `mqproto.engine.store.disk.system`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar, Final

from mqproto.engine.store.disk import system
from mqproto.engine.store.disk.files import File, Lock, ReadFile
from mqproto.engine.store.disk.memory_limit import memory_limit

_CHUNK: Final = 1 << 20
#: From so many files on it is quicker to sync everything first.
_MANY: Final = 64
_ZEROS: Final = bytes(_CHUNK)


class DiskFile:
    """Open file. Its map is made at the first `view`."""

    __slots__ = ("_fd", "_size", "_view", "path")

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self._fd = fd
        self._size = size
        self._view: memoryview | None = None

    @property
    def size(self) -> int:
        return self._size

    def view(self) -> memoryview:
        if self._view is None:
            self._view = memoryview(mmap.mmap(self._fd, self._size))
        return self._view

    def read(self, start: int, size: int) -> bytes:
        return system.read_at(self._fd, self.path, start, size)

    def read_cached(self, start: int, size: int) -> bytearray | None:
        return system.read_cached(self._fd, start, size)

    def write(self, start: int, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            written = system.write_at(self._fd, self.path, start, rest)
            start += written
            rest = rest[written:]

    def allocate(self, start: int, size: int) -> None:
        if not system.allocate(self._fd, start, size):
            self._allocate_by_writing(start, start + size)

    def _allocate_by_writing(self, start: int, end: int) -> None:
        """Write every byte of the range again: blocks that are written cannot be missing later."""
        for at in range(start, end, _CHUNK):
            stop = min(at + _CHUNK, end)
            self.write(at, self.read(at, stop - at))

    def clear(self, start: int, end: int) -> bool:
        changed = False
        at = self.next_data(start)
        while at < end:
            stop = min(at + _CHUNK, end)
            data = self.read(at, stop - at)
            if data.count(0) != len(data):
                self.write(at, _ZEROS[: stop - at])
                changed = True
            at = self.next_data(stop)
        return changed

    def next_data(self, start: int) -> int:
        return self._size if start >= self._size else system.next_data(self._fd, start, self._size)

    def sync(self) -> None:
        system.sync_file(self._fd)

    def close(self) -> None:
        self._view = None
        fd, self._fd = self._fd, -1  # first: nobody may use the number once it is another file's
        if fd >= 0:
            os.close(fd)


class DiskLock:
    """Lock of a data directory.

    POSIX record locks do not exclude their own process, so it has a list of its own.
    """

    held: ClassVar[set[str]] = set()

    def __init__(self, name: str, fd: int, end_watch: Callable[[], None]) -> None:
        self._name = name
        self._fd = fd
        self._end_watch = end_watch

    def release(self) -> None:
        if self._fd >= 0:
            system.unlock_first_byte(self._fd)
            os.close(self._fd)  # any close of the file in this process ends the record lock
            self._fd = -1
            self._end_watch()
            DiskLock.held.discard(self._name)


def _on_one_disk(fd: int, *paths: str) -> bool:
    device = os.fstat(fd).st_dev
    try:
        return all(Path(path).stat().st_dev == device for path in paths)
    except OSError:
        return False


class DiskFiles:
    """File system of the machine."""

    def __init__(self) -> None:
        #: Folders, with a slash behind, whose file systems are watched for failures.
        self._watches: dict[str, int] = {}

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:  # a third of the time of Path: there may be ten thousands of folders
                return sorted([entry.name for entry in entries])
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def is_folder(self, path: str) -> bool:
        return Path(path).is_dir()

    def size(self, path: str) -> int:
        return os.stat(path).st_size  # noqa: PTH116 - quicker, and asked of every queue file

    def modified(self, path: str) -> int | None:
        try:
            return Path(path).stat().st_mtime_ns // 1_000_000
        except OSError:
            return None

    def used(self, path: str) -> int:
        found = Path(path).stat()
        blocks: int | None = getattr(found, "st_blocks", None)
        return found.st_size if blocks is None else 512 * blocks

    def make_folder(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def open(self, path: str) -> File:
        fd = os.open(path, os.O_RDWR | system.BINARY)
        return DiskFile(path, fd, os.fstat(fd).st_size)

    def open_to_read(self, path: str) -> ReadFile:
        fd = os.open(path, os.O_RDONLY | system.BINARY)
        return DiskFile(path, fd, os.fstat(fd).st_size)

    def create(self, path: str, size: int) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | system.BINARY, 0o644)
        try:
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
        except BaseException:
            os.close(fd)
            raise
        return DiskFile(path, fd, size)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | system.BINARY, 0o644)
        try:
            DiskFile(path, fd, len(data)).write(0, data)
            system.sync_file(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        folder = Path(path)
        if not folder.is_dir() or folder.is_symlink():
            folder.unlink(missing_ok=True)
            return
        for name in reversed(self.names(path)):
            self.remove_tree(f"{path}/{name}")
        folder.rmdir()

    def sync_folder(self, path: str) -> None:
        system.sync_folder(path)

    def sync_all(self, paths: Collection[str]) -> bool:
        """Each sync of a file waits for the disk on its own; one of the whole file system waits once. It reports every
        failure since the lock was taken, from Linux 5.8 on. Otherwise, and after a failure, which may be somebody
        else's, each file has to be asked; those find most of their work done.
        """
        if len(paths) < _MANY:
            return False
        sync_disk = system.sync_of_one_disk()
        for root, watch in self._watches.items():
            if (
                sync_disk is not None
                and all(path.startswith(root) for path in paths)
                and _on_one_disk(watch, min(paths), max(paths))
            ):
                return sync_disk(watch) == 0
        system.sync_everything()
        return False

    def lock(self, path: str) -> Lock | None:
        name = str(Path(path).resolve())
        if name in DiskLock.held:
            return None
        fd = os.open(path, os.O_RDWR | os.O_CREAT | system.BINARY, 0o644)
        try:
            if not system.lock_first_byte(fd):
                os.close(fd)
                return None
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, b"lock")
        except BaseException:
            os.close(fd)
            raise
        DiskLock.held.add(name)
        return DiskLock(name, fd, self._watch(path.rpartition("/")[0] + "/"))

    def _watch(self, root: str) -> Callable[[], None]:
        """Keep a folder open, so that no failure of its disk is missed. Gives how that ends."""
        try:
            watch = os.open(root, os.O_RDONLY)
        except OSError:  # Windows opens no folders
            return lambda: None
        self._watches[root] = watch

        def end() -> None:
            self._watches.pop(root, None)
            os.close(watch)

        return end

    def locked_by(self, path: str) -> int | None:
        """Our own locks are in the list: closing the file here would end them. Where we cannot ask, nobody is seen."""
        if str(Path(path).resolve()) in DiskLock.held:
            return os.getpid()
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return system.lock_holder(fd)
        finally:
            os.close(fd)

    def usage(self, path: str) -> tuple[int, int] | None:
        return system.usage(path)

    def memory(self) -> int | None:
        size = system.memory()
        if size is None:
            return None
        return min(size, memory_limit(text_of) or size)

    def restarted_since(self, path: str) -> bool | None:
        """By the kernel's note of when it was started; both times come from the same clock."""
        try:
            written = Path(path).stat().st_mtime
            lines = Path("/proc/stat").read_text("ascii").splitlines()
        except OSError:
            return None
        for line in lines:
            if line.startswith("btime "):
                return written < int(line.split()[1])
        return None


def text_of(path: str) -> str | None:
    """What a file of the system says; None if it is not there."""
    try:
        return Path(path).read_text("ascii", "replace")
    except OSError:
        return None
