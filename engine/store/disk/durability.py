"""Durability of bytes and names: of both there is what processes see and what a disk keeps after a loss of power.

A disk keeps what was synced and any part of the rest. Bytes come to it in sectors of 512, in any order; changes of
names in the order in which they were made, and those of one folder at the latest when it is synced. A file whose folder
is lost is lost with it.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Final

from mqproto.engine.store.disk.folders import parent_of

#: Files from this size on lie in lazily filled anonymous maps.
LAZY: Final = 1 << 20
SECTOR: Final = 512


class Content:
    """Bytes of one file. `durable` is what the disk has for sure: a shorter one goes on with zeros."""

    __slots__ = ("_given_up", "data", "durable")

    def __init__(self, size: int) -> None:
        self.data: memoryview = memoryview(mmap.mmap(-1, size) if size >= LAZY else bytearray(size))
        self.durable: bytes = b""
        #: Sectors, by number, that a failed sync gave up, as they were then.
        self._given_up: dict[int, bytes] = {}

    @classmethod
    def of(cls, data: bytes | memoryview, durable: bytes) -> Content:
        """A file that is seen in one way and durable in another."""
        made = cls(len(data))
        made.data[:] = data
        made.durable = durable
        return made

    def copy(self) -> Content:
        """The same bytes, now and on the disk."""
        made = Content.of(self.data, self.durable)
        made._given_up = dict(self._given_up)
        return made

    def lengthen(self, size: int) -> None:
        old = self.data
        self.data = memoryview(mmap.mmap(-1, size) if size >= LAZY else bytearray(size))
        self.data[: len(old)] = old

    def sync(self) -> None:
        """Everything becomes durable, but for sectors that were given up and have not changed since."""
        if not self._given_up:
            self.durable = bytes(self.data)
            return
        given_up = {sector: data for sector, data in self._given_up.items() if self._sector(sector) == data}
        self.durable = self.after_power_loss(lambda sector: sector not in given_up)
        self._given_up = given_up

    def give_up(self) -> None:
        """A sync failed: the system takes for written what was not, and a later sync does not write it either."""
        self._given_up |= {sector: self._sector(sector) for sector in self._unsynced()}

    def after_power_loss(self, survived: Callable[[int], bool]) -> bytes:
        """What the disk has when of the sectors that were not synced those survive for which `survived` says so."""
        found = bytearray(len(self.data))
        found[: len(self.durable)] = self.durable
        for sector in self._unsynced():
            if survived(sector):
                found[sector * SECTOR : (sector + 1) * SECTOR] = self._sector(sector)
        return bytes(found)

    def _sector(self, sector: int) -> bytes:
        return bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])

    def _unsynced(self) -> list[int]:
        """The sectors that are not durable as they are."""
        count = -(-len(self.data) // SECTOR)
        durable = self.durable.ljust(len(self.data), b"\0")
        if durable == self.data:
            return []
        return [
            sector
            for sector in range(count)
            if self._sector(sector) != durable[sector * SECTOR : (sector + 1) * SECTOR]
        ]


#: Stands for the content of every folder.
FOLDER: Final = Content(0)


class Names:
    """Paths and what they lead to. `now` is what processes see, `durable` what the disk has for sure."""

    __slots__ = ("durable", "now", "pending")

    def __init__(self) -> None:
        self.now: dict[str, Content] = {"": FOLDER, ".": FOLDER, "/": FOLDER}
        self.durable: dict[str, Content] = dict(self.now)
        #: Changes that are not durable, in order: path and content, None for a name that is gone.
        self.pending: list[dict[str, Content | None]] = []

    def change(self, change: dict[str, Content | None]) -> None:
        """Change some names in one step."""
        self.pending.append(dict(change))
        for path, content in change.items():
            if content is None:
                del self.now[path]
            else:
                self.now[path] = content

    def move_folder(self, old: str, new: str) -> None:
        """Another name for a folder, in one step. What is in it comes along, as durable as it was."""
        inside = old + "/"
        for names in (self.now, self.durable):
            names.update(
                {new + path[len(old) :]: content for path, content in names.items() if path.startswith(inside)}
            )
        for change in self.pending:
            change.update(
                {new + path[len(old) :]: content for path, content in change.items() if path.startswith(inside)}
            )
        gone = [path for path in self.now if path == old or path.startswith(inside)]
        self.change({**dict.fromkeys(gone), new: FOLDER})

    def replace(self, path: str, content: Content) -> None:
        """Another content under a name, wherever and however durably it is there."""
        old = self.now[path]
        self.now[path] = content
        if self.durable.get(path) is old:
            self.durable[path] = content
        for change in self.pending:
            if change.get(path) is old:
                change[path] = content

    def sync(self, folder: str) -> None:
        """The names in a folder become durable."""
        for change in self.pending:
            for path in [path for path in change if parent_of(path) == folder]:
                if change.pop(path) is None:  # with everything that was in it, unless that is there anew
                    for lost in [each for each in change if each.startswith(path + "/")]:
                        del change[lost]
                        if self.durable.get(lost) is not self.now.get(lost):
                            self.durable.pop(lost, None)
        self.pending = [change for change in self.pending if change]
        for path in [path for path in self.durable if parent_of(path) == folder and path not in self.now]:
            del self.durable[path]
        self.durable |= {path: content for path, content in self.now.items() if parent_of(path) == folder}

    def after_power_loss(self, count: int) -> dict[str, Content]:
        """What the disk has when the first `count` changes survive."""
        found: dict[str, Content | None] = dict(self.durable)
        for change in self.pending[:count]:
            found |= change
        kept: dict[str, Content] = {}
        for path in sorted(found):  # folders come before what they hold
            content = found[path]
            if content is not None and (path in _ROOTS or kept.get(parent_of(path)) is FOLDER):
                kept[path] = content
        return kept

    def copy(self) -> Names:
        """The same names with contents of their own."""
        copies: dict[int, Content] = {id(FOLDER): FOLDER}

        def copy_of(content: Content) -> Content:
            found = copies.get(id(content))
            if found is None:
                found = copies[id(content)] = content.copy()
            return found

        made = Names()
        made.now = {path: copy_of(content) for path, content in self.now.items()}
        made.durable = {path: copy_of(content) for path, content in self.durable.items()}
        made.pending = [
            {path: content and copy_of(content) for path, content in change.items()} for change in self.pending
        ]
        return made


_ROOTS: Final = frozenset({"", ".", "/"})
