"""Calls that not every system has, each with what keeps the same promise without it (docs/store.md, "Other systems").

Every call is looked for when it is needed, so that a test may take it away. Names that a type checker knows of one
system only are asked for by `getattr`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

fcntl: Any = None
msvcrt: Any = None
with suppress(ImportError):
    import fcntl
with suppress(ImportError):
    import msvcrt

#: What a system or file system answers that does not know a call.
CANNOT: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.ENOTTY})
BINARY: Final[int] = getattr(os, "O_BINARY", 0)
#: `struct flock` of the systems whose layout we know: its form, and where in it kind, length and holder lie.
_FLOCKS: Final = {"Linux": ("hhqqi4x", (0, 3, 4)), "Darwin": ("qqihh", (3, 1, 2))}


def _call(module: Any, name: str) -> Any:
    """A call, or None where it is missing."""
    return getattr(module, name, None)


def _name() -> tuple[str, str]:
    """Name and release of the system; empty where they are unknown."""
    uname = _call(os, "uname")
    if uname is None:
        return "", ""
    found = uname()
    return str(found.sysname), str(found.release)


# --- reading and writing at a place ---


def read_at(fd: int, path: str, start: int, size: int) -> bytes:
    """Bytes at a position of an open file, from any thread; without `pread` through a second opening of the file, which
    has a position of its own.
    """
    pread = _call(os, "pread")
    if pread is not None:
        return bytes(pread(fd, size, start))
    own = os.open(path, os.O_RDONLY | BINARY)
    try:
        os.lseek(own, start, os.SEEK_SET)
        return os.read(own, size)
    finally:
        os.close(own)


def read_cached(fd: int, start: int, size: int) -> bytearray | None:
    """So many bytes if the system has all of them in its cache; None if the disk would have to be waited for, or if it
    cannot tell.
    """
    preadv, no_wait = _call(os, "preadv"), _call(os, "RWF_NOWAIT")
    if preadv is None or no_wait is None:
        return None
    data = bytearray(size)
    try:
        count: int = preadv(fd, [data], start, no_wait)
    except OSError:  # not in the cache, or a file system that cannot tell
        return None
    return data if count == size else None


def write_at(fd: int, path: str, start: int, data: bytes | memoryview) -> int:
    """Write bytes at a position, as `read_at` reads them; gives how many were written."""
    pwrite = _call(os, "pwrite")
    if pwrite is not None:
        return int(pwrite(fd, data, start))
    own = os.open(path, os.O_RDWR | BINARY)
    try:
        os.lseek(own, start, os.SEEK_SET)
        return os.write(own, data)
    finally:
        os.close(own)


# --- space ---


def allocate(fd: int, start: int, size: int) -> bool:
    """Give a range blocks; False where that has to be done by writing. Raises OSError, also for a full disk."""
    posix_fallocate = _call(os, "posix_fallocate")
    if posix_fallocate is None:
        return False
    try:
        posix_fallocate(fd, start, size)
    except OSError as failure:
        if failure.errno in CANNOT:
            return False
        raise
    return True


def next_data(fd: int, start: int, size: int) -> int:
    """The first position that may hold anything but zeros; where holes are not known, every position may."""
    seek_data = _call(os, "SEEK_DATA")
    if seek_data is None:
        return start
    try:
        return os.lseek(fd, start, seek_data)
    except OSError as failure:
        return size if failure.errno == errno.ENXIO else start  # ENXIO: nothing but a hole up to the end


def usage(path: str) -> tuple[int, int] | None:
    """Bytes of a disk in use, and free for us; None if unknown."""
    disk_usage = _call(shutil, "disk_usage")
    if disk_usage is None:
        return None
    try:
        _, used, free = disk_usage(path)
    except OSError:
        return None
    return used, free


def memory() -> int | None:
    """Bytes of memory of the machine; None if unknown."""
    sysconf = _call(os, "sysconf")
    if sysconf is None:
        return None
    try:
        return int(sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError):
        return None


# --- durability ---


def sync_file(fd: int) -> None:
    """Make a file durable: on macOS by the call that also empties the cache of the disk, which `fsync` does not do
    there; elsewhere by `fdatasync`, or `fsync` where that is missing.
    """
    full_sync = _call(fcntl, "F_FULLFSYNC")
    if full_sync is not None:
        try:
            fcntl.fcntl(fd, full_sync)
            return
        except OSError as failure:
            if failure.errno not in CANNOT:
                raise
    sync_data = _call(os, "fdatasync") or os.fsync
    sync_data(fd)


def sync_folder(path: str) -> None:
    """Make names durable, where a folder can be synced (not on Windows, which has a journal of its own)."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(fd)
        full_sync = _call(fcntl, "F_FULLFSYNC")
        if full_sync is not None:
            fcntl.fcntl(fd, full_sync)
    except OSError as failure:
        if failure.errno not in CANNOT:
            raise
    finally:
        os.close(fd)


def sync_of_one_disk() -> Callable[[int], int] | None:
    """The call that makes a whole file system durable, where it reports failures (Linux 5.8 and later)."""
    name, release_text = _name()
    release = re.match(r"(\d+)\.(\d+)", release_text) if name == "Linux" else None
    if release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None
    import ctypes  # takes a while, and few need it

    try:
        found: Callable[[int], int] = ctypes.CDLL(None).syncfs
    except (OSError, AttributeError):
        return None
    return found


def sync_everything() -> None:
    """Have the system write what it holds, where it can be asked to."""
    sync = _call(os, "sync")
    if sync is not None:
        sync()


# --- locks ---


def lock_first_byte(fd: int) -> bool:
    """Lock the first byte of a file against other processes, in the way that Java does; False if another one has it.
    Where there are no such locks everybody gets it.
    """
    try:
        if fcntl is not None:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        elif msvcrt is not None:
            os.lseek(fd, 0, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as failure:
        if failure.errno not in (errno.EDEADLK, errno.EACCES):
            raise
        return False
    return True


def unlock_first_byte(fd: int) -> None:
    """Give the lock back before the file is closed; other systems do that with the closing."""
    if fcntl is None and msvcrt is not None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)


def lock_holder(fd: int) -> int | None:
    """The process that holds the lock of the first byte, 0 if that is unknown; None if none does or we cannot ask."""
    layout = _FLOCKS.get(_name()[0]) if fcntl is not None else None
    if layout is None:
        return None
    form, (kind_at, length_at, owner_at) = layout
    asked = [0, 0, 0, 0, 0]
    asked[kind_at], asked[length_at] = fcntl.F_WRLCK, 1
    found = struct.unpack(form, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(form, *asked)))
    return None if found[kind_at] == fcntl.F_UNLCK else max(int(found[owner_at]), 0)
