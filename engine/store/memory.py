"""Files in memory, with a disk's ways of losing them.

A disk keeps what was synced and any part of the rest. So every file here has two contents, the one that processes see and the
one that is durable, and so has the list of names. `process_death` gives what another process would find, `power_loss` what
another start of the machine would.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Final

from engine.store.files import File, Lock

#: Files from this size on lie in lazily filled anonymous maps.
_LAZY: Final = 1 << 20
SECTOR: Final = 512


def _unhindered(change: str, path: str) -> None:
    """Every change goes well."""


class _Content:
    """The bytes of one file."""

    __slots__ = ("data", "durable")

    def __init__(self, size: int) -> None:
        self.data: memoryview = memoryview(mmap.mmap(-1, size) if size >= _LAZY else bytearray(size))
        self.durable: bytes = b""

    def lengthen(self, size: int) -> None:
        old = self.data
        self.data = memoryview(mmap.mmap(-1, size) if size >= _LAZY else bytearray(size))
        self.data[: len(old)] = old


def _copy_of(content: _Content) -> _Content:
    """The same bytes, now and on the disk."""
    copy = _Content(len(content.data))
    copy.data[:] = content.data
    copy.durable = content.durable
    return copy


class MemoryFile:
    """An open file in memory."""

    __slots__ = ("_content", "_files", "_path")

    def __init__(self, files: MemoryFiles, content: _Content, path: str) -> None:
        self._files = files
        self._content = content
        self._path = path

    @property
    def size(self) -> int:
        return len(self._content.data)

    def view(self) -> memoryview:
        return self._content.data

    def read(self, start: int, size: int) -> bytes:
        return bytes(self._content.data[start : start + size])

    def write(self, start: int, data: bytes | memoryview) -> None:
        self._files.before_change("write", self._path)
        self._content.data[start : start + len(data)] = data

    def allocate(self, start: int, size: int) -> None:
        self._files.before_change("allocate", self._path)
        self._files.take_space(size)

    def clear(self, start: int, end: int) -> bool:
        self._files.before_change("clear", self._path)
        changed = False
        for at in range(start, end, _LAZY):
            stop = min(at + _LAZY, end)
            if bytes(self._content.data[at:stop]).count(0) != stop - at:
                self._content.data[at:stop] = bytes(stop - at)
                changed = True
        return changed

    def next_data(self, start: int) -> int:
        return min(start, self.size)

    def sync(self) -> None:
        self._files.before_change("sync", self._path)
        if self._files.forgetful:
            self._content.durable = bytes(self._content.data)

    def close(self) -> None:
        """Nothing is held but memory."""


class MemoryLock:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.locks.discard(self._path)


class MemoryFiles:
    """A file system in memory.

    `forgetful` keeps the durable side as well, which costs a copy of a file at each sync: for tests with small files. `space` limits
    what `allocate` gives out.
    """

    def __init__(self, *, forgetful: bool = False, space: int | None = None) -> None:
        self.forgetful = forgetful
        self.space = space
        #: Called before each change, with what is about to happen and to which path. It may raise OSError, or look at what is there.
        #: Bytes that are written through a view come without it.
        self.before_change: Callable[[str, str], None] = _unhindered
        self.locks: set[str] = set()
        self._now: dict[str, _Content] = {}
        self._durable: dict[str, _Content] = {}
        self._folders: set[str] = {""}
        #: Names that were made and dropped and are not durable, in order: path and content, None for a name that is gone.
        self._pending: list[dict[str, _Content | None]] = []
        #: Files that were written before the machine last lost power, and not since.
        self._old: set[str] = set()

    def take_space(self, size: int) -> None:
        if self.space is not None:
            if size > self.space:
                raise OSError(28, "No space left on device")
            self.space -= size

    # --- what a crash leaves ---

    def process_death(self) -> MemoryFiles:
        """The files as another process finds them after this one was killed: as they were, and no more durable than they were."""
        found = self._copy(self._now, lambda content: bytes(content.data))
        copies: dict[int, _Content] = {}
        for path, content in self._now.items():
            copies[id(content)] = found._now[path]
            found._now[path].durable = content.durable
        found._durable = {path: copies.get(id(content)) or _copy_of(content) for path, content in self._durable.items()}
        for change in self._pending:
            found._pending.append({path: content and (copies.get(id(content)) or _copy_of(content)) for path, content in change.items()})
        found._old = set(self._old)
        return found

    @property
    def pending_names(self) -> int:
        """How many changes of names are not durable yet."""
        return len(self._pending)

    def power_loss(self, survived: Callable[[str, int], bool] = lambda path, sector: False, names: int = 0) -> MemoryFiles:
        """The files as they are after the machine lost power: what was synced, and of the rest those sectors (512 bytes, counted
        from the start of the file) for which `survived` says so, and the first so many changes of `names`: a file system keeps their order.
        """
        durable: dict[str, _Content | None] = dict(self._durable)
        for change in self._pending[:names]:
            durable |= change
        kept = {path: content for path, content in durable.items() if content is not None}
        paths = {id(content): path for path, content in kept.items()}

        def content_of(content: _Content) -> bytes:
            result = bytearray(len(content.data))
            result[: len(content.durable)] = content.durable
            for sector in range(-(-len(result) // SECTOR)):
                at = sector * SECTOR
                new = content.data[at : at + SECTOR]
                if new != result[at : at + SECTOR] and survived(paths[id(content)], sector):
                    result[at : at + SECTOR] = new
            return bytes(result)

        found = self._copy(kept, content_of)
        found._old = set(found._now)
        return found

    def _copy(self, names: dict[str, _Content], content_of: Callable[[_Content], bytes]) -> MemoryFiles:
        found = MemoryFiles(forgetful=self.forgetful, space=self.space)
        found._folders = set(self._folders)
        for path, content in names.items():
            data = content_of(content)
            copy = _Content(len(data))
            copy.data[:] = data
            copy.durable = data
            found._now[path] = found._durable[path] = copy
        return found

    # --- the port ---

    def names(self, folder: str) -> list[str]:
        start = folder.rstrip("/") + "/"
        return sorted({path[len(start) :].partition("/")[0] for path in (*self._now, *self._folders) if path.startswith(start)})

    def exists(self, path: str) -> bool:
        return path in self._now or path in self._folders

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def size(self, path: str) -> int:
        return len(self._content(path).data)

    def make_folder(self, path: str) -> None:
        if path in self._folders:
            return
        self.before_change("make folder", path)
        parts = path.split("/")
        self._folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))

    def open(self, path: str) -> File:
        return MemoryFile(self, self._content(path), path)

    def create(self, path: str, size: int) -> File:
        content = self._now.get(path)
        if content is None:
            if path.rpartition("/")[0] not in self._folders:
                raise FileNotFoundError(path)
            self.before_change("create", path)
            content = self._now[path] = _Content(size)
            self._pending.append({path: content})
        elif len(content.data) < size:
            self.before_change("lengthen", path)
            content.lengthen(size)
        return MemoryFile(self, content, path)

    def read(self, path: str) -> bytes:
        return bytes(self._content(path).data)

    def write(self, path: str, data: bytes) -> None:
        self.before_change("write", path)
        self._old.discard(path)
        self._put(path, data[: len(data) // 2])
        self.before_change("finish writing", path)
        self._put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        content = _Content(len(data))
        content.data[:] = data
        content.durable = data
        old = self._now.get(path)
        self._now[path] = content
        if old is None:
            self._pending.append({path: content})
            return
        if self._durable.get(path) is old:
            self._durable[path] = content  # the same file with another content
        for change in self._pending:
            if change.get(path) is old:
                change[path] = content

    def rename(self, old: str, new: str) -> None:
        self.before_change("rename", old)
        self._old.discard(new)
        self._now[new] = self._now.pop(old)
        self._pending.append({old: None, new: self._now[new]})

    def remove(self, path: str) -> None:
        self.before_change("remove", path)
        if self._now.pop(path, None) is not None:
            self._pending.append({path: None})

    def remove_tree(self, path: str) -> None:
        self.before_change("remove tree", path)
        start = path + "/"
        self._pending.append({name: None for name in self._now if name.startswith(start)})
        self._now = {name: content for name, content in self._now.items() if not name.startswith(start)}
        self._folders = {name for name in self._folders if name != path and not name.startswith(start)}

    def sync_folder(self, path: str) -> None:
        self.before_change("sync folder", path)
        start = path.rstrip("/") + "/"
        for change in self._pending:
            for name in [name for name in change if name.startswith(start) and "/" not in name[len(start) :]]:
                del change[name]
        self._pending = [change for change in self._pending if change]
        for name in [name for name in self._durable if name.startswith(start) and "/" not in name[len(start) :]]:
            if name not in self._now:
                del self._durable[name]
        for name, content in self._now.items():
            if name.startswith(start) and "/" not in name[len(start) :]:
                self._durable[name] = content

    def sync_ahead(self, count: int) -> bool:
        return False

    def lock(self, path: str) -> Lock | None:
        if path in self.locks:
            return None
        self.locks.add(path)
        if path not in self._now:
            self.write(path, b"lock")
        return MemoryLock(self, path)

    def usage(self, path: str) -> tuple[int, int] | None:
        return None

    def memory(self) -> int | None:
        return None

    def restarted_since(self, path: str) -> bool | None:
        return path in self._old

    def _content(self, path: str) -> _Content:
        content = self._now.get(path)
        if content is None:
            raise FileNotFoundError(path)
        return content
