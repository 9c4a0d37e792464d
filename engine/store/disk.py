"""Files on a disk.

Where a system lacks a call, the same promise is kept another way: without `posix_fallocate` zeros are written, without `fdatasync`
the whole file is synced, where a folder cannot be synced (Windows) renames are durable when the system pleases, without record
locks only stores of this process exclude each other.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar, Final

from engine.store.files import File, Lock, ReadFile
from engine.store.memorylimit import memory_limit

try:
    import fcntl
except ImportError:  # Windows
    _HAS_RECORD_LOCKS = False
else:
    _HAS_RECORD_LOCKS = True

#: What a file system answers that cannot allocate ahead.
_CANNOT: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})
_CHUNK: Final = 1 << 20
#: From so many files on it is quicker to sync everything first.
_MANY: Final = 64
_ZEROS: Final = bytes(_CHUNK)
#: `struct flock` of the systems whose layout we know: its form, and where in it kind, length and holder lie.
_FLOCKS: Final = {"Linux": ("hhqqi4x", (0, 3, 4)), "Darwin": ("qqihh", (3, 1, 2))}


class DiskFile:
    """An open file. Its map is made at the first `view`."""

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
        return os.pread(self._fd, size, start)

    def write(self, start: int, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, start)
            start += written
            rest = rest[written:]

    def allocate(self, start: int, size: int) -> None:
        allocate: object = getattr(os, "posix_fallocate", None)
        if callable(allocate):
            try:
                allocate(self._fd, start, size)
                return
            except OSError as failure:
                if failure.errno not in _CANNOT:
                    raise
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
        if start >= self._size:
            return self._size
        seek_data: int | None = getattr(os, "SEEK_DATA", None)
        if seek_data is None:
            return start
        try:
            return os.lseek(self._fd, start, seek_data)
        except OSError as failure:
            if failure.errno == errno.ENXIO:  # nothing but a hole up to the end
                return self._size
            return start

    def sync(self) -> None:
        sync_data = getattr(os, "fdatasync", os.fsync)
        sync_data(self._fd)

    def close(self) -> None:
        self._view = None
        fd, self._fd = self._fd, -1  # first: nobody may use the number once it is another file's
        if fd >= 0:
            os.close(fd)


class DiskLock:
    """The lock of a data directory. POSIX record locks do not exclude their own process, so it has a list of its own."""

    held: ClassVar[set[str]] = set()

    def __init__(self, name: str, fd: int, end_watch: Callable[[], None]) -> None:
        self._name = name
        self._fd = fd
        self._end_watch = end_watch

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # any close of the file in this process ends the record lock
            self._fd = -1
            self._end_watch()
            DiskLock.held.discard(self._name)


def _sync_system() -> Callable[[int], int] | None:
    """The call that makes a whole file system durable, where it tells of failures (Linux 5.8 and later)."""
    system = os.uname() if hasattr(os, "uname") else None
    release = re.match(r"(\d+)\.(\d+)", system.release) if system is not None and system.sysname == "Linux" else None
    if release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    import ctypes

    try:
        found: Callable[[int], int] = ctypes.CDLL(None).syncfs
    except (OSError, AttributeError):
        return None
    return found


def _on_one_disk(fd: int, *paths: str) -> bool:
    device = os.fstat(fd).st_dev
    try:
        return all(Path(path).stat().st_dev == device for path in paths)
    except OSError:
        return False


class DiskFiles:
    """The file system of the machine."""

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
        fd = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        return DiskFile(path, fd, os.fstat(fd).st_size)

    def open_to_read(self, path: str) -> ReadFile:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        return DiskFile(path, fd, os.fstat(fd).st_size)

    def create(self, path: str, size: int) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
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
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o644)
        try:
            DiskFile(path, fd, len(data)).write(0, data)
            os.fsync(fd)
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
        try:
            fd = os.open(path, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders
            return
        try:
            os.fsync(fd)
        except OSError as failure:
            if failure.errno not in _CANNOT:
                raise
        finally:
            os.close(fd)

    def sync_all(self, paths: Collection[str]) -> bool:
        """Each sync of a file waits for the disk on its own; one of the whole file system waits once. It tells of every failure since the
        lock was taken, from Linux 5.8 on. Otherwise, and after a failure, which may be somebody else's, each file has to be asked; those
        find most of their work done."""
        if len(paths) < _MANY:
            return False
        sync_system = _sync_system()
        for root, watch in self._watches.items():
            if sync_system is not None and all(path.startswith(root) for path in paths) and _on_one_disk(watch, min(paths), max(paths)):
                return sync_system(watch) == 0
        sync_everything: object = getattr(os, "sync", None)
        if callable(sync_everything):
            sync_everything()
        return False

    def lock(self, path: str) -> Lock | None:
        name = str(Path(path).resolve())
        if name in DiskLock.held:
            return None
        fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        try:
            if _HAS_RECORD_LOCKS:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, b"lock", 0)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return None
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
        layout = _FLOCKS.get(os.uname().sysname) if _HAS_RECORD_LOCKS else None
        if layout is None:
            return None
        form, (kind_at, length_at, owner_at) = layout
        asked = [0, 0, 0, 0, 0]
        asked[kind_at], asked[length_at] = fcntl.F_WRLCK, 1
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            found = struct.unpack(form, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(form, *asked)))
        finally:
            os.close(fd)
        return None if found[kind_at] == fcntl.F_UNLCK else max(int(found[owner_at]), 0)

    def usage(self, path: str) -> tuple[int, int] | None:
        try:
            found = os.statvfs(path)
        except (OSError, AttributeError):
            return None
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize

    def memory(self) -> int | None:
        try:
            size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
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
