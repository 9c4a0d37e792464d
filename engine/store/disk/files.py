"""Port between the store and a file system.

Owns: what the store asks of files and folders. `mqproto.engine.store.disk.disk` keeps them on a disk,
`mqproto.engine.store.disk.memory` in memory. Paths are texts with `/`. Everything here may block and raises OSError;
the store calls it in jobs, at opening and at closing, and in `append` only when a job came too late.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class ReadFile(Protocol):
    """File that is open for reading only."""

    @property
    def size(self) -> int:
        """Its length."""

    def read(self, start: int, size: int) -> bytes:
        """Bytes at a position; fewer at the end of the file."""

    def read_cached(self, start: int, size: int) -> bytes | bytearray | None:
        """So many bytes, if they can be had without waiting for a disk. None if not, or if the system cannot tell."""

    def next_data(self, start: int) -> int:
        """The first position from `start` on that may hold anything but zeros; the length if there is none."""

    def close(self) -> None:
        """Give the file back."""


class File(ReadFile, Protocol):
    """File of fixed length, open for reading and writing."""

    def view(self) -> memoryview:
        """The whole file, mapped and writable. A slice keeps the map alive after `close`."""

    def write(self, start: int, data: bytes | memoryview) -> None:
        """Put all bytes at a position."""

    def allocate(self, start: int, size: int) -> None:
        """Make sure that writing to this range, through a map too, cannot fail for want of space.

        Its bytes do not change.
        """

    def clear(self, start: int, end: int) -> bool:
        """Make all bytes from `start` up to `end` zero; gives whether any was not."""

    def sync(self) -> None:
        """Make what was written durable, through a map too."""

    def close(self) -> None:
        """Give the file back. Views stay valid."""


class Lock(Protocol):
    """Lock that was got."""

    def release(self) -> None:
        """Let others have it."""


class Files(Protocol):
    """File system."""

    def names(self, folder: str) -> list[str]:
        """What a folder holds, sorted; nothing if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder."""

    def size(self, path: str) -> int:
        """Length of a file; FileNotFoundError if there is none."""

    def modified(self, path: str) -> int | None:
        """Wall time at which a file was last written, in ms, through a map up to a sync late.

        None if unknown, or without file.
        """

    def used(self, path: str) -> int:
        """Bytes that a file really takes on the disk; its length where that is unknown.

        FileNotFoundError if there is none.
        """

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; nothing if it is there."""

    def open(self, path: str) -> File:
        """An existing file."""

    def open_to_read(self, path: str) -> ReadFile:
        """An existing file, of which nothing is changed; the right to read it is enough."""

    def create(self, path: str, size: int) -> File:
        """A file of the given length, sparse and zero where it is new. A shorter one is lengthened."""

    def read(self, path: str) -> bytes:
        """All bytes of a file."""

    def write(self, path: str, data: bytes) -> None:
        """Replace or make a file and make its content durable. Not atomic: write elsewhere and `rename`."""

    def rename(self, old: str, new: str) -> None:
        """Move a file over another, or a folder to a name that is free, atomically."""

    def remove(self, path: str) -> None:
        """Remove a file; nothing if there is none. Where maps keep it alive its blocks come free with the last of them;
        a system that refuses instead (Windows) raises PermissionError.
        """

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it, the last names first; nothing if there is none.

        May end in the middle.
        """

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""

    def sync_all(self, paths: Collection[str]) -> bool:
        """Many files are about to be synced.

        True: they are durable now, and so are all names; False: each of them has to be.
        """

    def lock(self, path: str) -> Lock | None:
        """Lock the first byte of a file against other processes, Java's among them (docs/protocol/store.md 1.1); None
        if it is taken.
        """

    def locked_by(self, path: str) -> int | None:
        """Who holds the lock of a file, without taking it: the id of a process, 0 for one that we cannot name; None if
        nobody does.
        """

    def usage(self, path: str) -> tuple[int, int] | None:
        """Bytes of the disk under a path: in use, and free for us. None if unknown."""

    def memory(self) -> int | None:
        """Bytes of memory of the machine, or of the container if it may use less. None if unknown."""

    def restarted_since(self, path: str) -> bool | None:
        """Whether the machine was started after a file was last written, so that unsynced bytes may be gone.

        None if unknown.
        """
