"""Files in memory, with a disk's ways of losing them.

`process_death` gives what another process would find, `power_loss` what another start of the machine would
(`durability` says what a disk loses). At `before_change` and `before_read` a test lets calls fail, or looks at what
is there in the middle of something.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection

from mqproto.engine.store.disk.durability import FOLDER, LAZY, Content, Names
from mqproto.engine.store.disk.files import File, Lock, ReadFile
from mqproto.engine.store.disk.folders import parent_of


def _no_time() -> int | None:
    """Nobody knows what time it is."""
    return None


def _unhindered(call: str, path: str) -> None:
    """Every call goes well."""


class MemoryFile:
    """Open file in memory."""

    __slots__ = ("_content", "_files", "_path")

    def __init__(self, files: MemoryFiles, content: Content, path: str) -> None:
        self._files = files
        self._content = content
        self._path = path

    @property
    def size(self) -> int:
        return len(self._content.data)

    def view(self) -> memoryview:
        return self._content.data

    def read(self, start: int, size: int) -> bytes:
        self._files.before_read("read", self._path)
        return bytes(self._content.data[start : start + size])

    def read_cached(self, start: int, size: int) -> bytes | None:
        return self.read(start, size) if self._files.cached else None

    def write(self, start: int, data: bytes | memoryview) -> None:
        self._files.before_change("write", self._path)
        self._files.touch(self._path)
        self._content.data[start : start + len(data)] = data

    def allocate(self, start: int, size: int) -> None:
        self._files.before_change("allocate", self._path)
        self._files.take_space(self._path, size)

    def clear(self, start: int, end: int) -> bool:
        self._files.before_change("clear", self._path)
        changed = False
        for at in range(start, end, LAZY):
            stop = min(at + LAZY, end)
            if bytes(self._content.data[at:stop]).count(0) != stop - at:
                self._content.data[at:stop] = bytes(stop - at)
                changed = True
        return changed

    def next_data(self, start: int) -> int:
        return min(start, self.size)

    def sync(self) -> None:
        try:
            self._files.before_change("sync", self._path)
        except OSError:
            if self._files.forgetful:
                self._content.give_up()
            raise
        if not self._files.forgetful or self._content.durable != self._content.data:
            self._files.touch(self._path)  # stands for what was written through a map
        if self._files.forgetful:
            self._content.sync()

    def close(self) -> None:
        """Nothing is held but memory."""


class MemoryLock:
    def __init__(self, files: MemoryFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files.locks.discard(self._path)


class MemoryFiles:
    """File system in memory.

    `forgetful` keeps the durable side as well, which costs a copy of a file at each sync: for tests with small files.
    `space` limits what `allocate` gives out; a file that is removed gives its part back. `capacity`, if it is set too,
    is the size of the disk that `usage` reports.
    """

    def __init__(self, *, forgetful: bool = False, space: int | None = None) -> None:
        self.forgetful = forgetful
        self.space = space
        self.capacity: int | None = None
        #: Whoever owns the time gives it here (wall, ms): the times of files come from it. Without it they are unknown.
        self.clock: Callable[[], int | None] = _no_time
        #: Called before each change, with what is about to happen and to which path. It may raise OSError, or look at
        #: what is there.
        #: Bytes that are written through a view come without it. When it lets a sync fail, the file's bytes are given
        #: up.
        self.before_change: Callable[[str, str], None] = _unhindered
        #: The same for what only reads. Bytes that are read through a view come without it.
        self.before_read: Callable[[str, str], None] = _unhindered
        #: Whether reading counts as possible without waiting (`ReadFile.read_cached`).
        self.cached = False
        self.locks: set[str] = set()
        self._names = Names()
        #: Times of files, also of those that were removed: their names may come back.
        self._modified: dict[str, int | None] = {}
        #: Bytes that `allocate` gave to files.
        self._taken: dict[str, int] = {}
        #: Files that were written before the machine last lost power, and not since.
        self._old: set[str] = set()

    def take_space(self, path: str, size: int) -> None:
        if self.space is not None:
            if size > self.space:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.space -= size
        self._taken[path] = self._taken.get(path, 0) + size
        self.touch(path)

    def touch(self, path: str) -> None:
        """A file was written."""
        self._modified[path] = self.clock()

    def _another(self) -> MemoryFiles:
        """The same disk, without files."""
        made = MemoryFiles(forgetful=self.forgetful, space=self.space)
        made.capacity = self.capacity
        made.clock = self.clock
        made._modified = dict(self._modified)
        made._taken = dict(self._taken)
        return made

    # --- what a crash leaves ---

    def process_death(self) -> MemoryFiles:
        """The files as another process finds them after this one was killed: as they were, and no more durable than
        they were.
        """
        found = self._another()
        found._names = self._names.copy()
        found._old = set(self._old)
        return found

    @property
    def pending_names(self) -> int:
        """How many changes of names are not durable yet."""
        return len(self._names.pending)

    def power_loss(
        self, survived: Callable[[str, int], bool] = lambda path, sector: False, names: int = 0
    ) -> MemoryFiles:
        """The files as they are after the machine lost power: what was synced, and of the rest those sectors (512
        bytes, counted from the start of the file) for which `survived` says so, and the first so many changes of
        `names`: a file system keeps their order.
        """
        found = self._another()
        for path, content in self._names.after_power_loss(names).items():
            if content is not FOLDER:
                data = content.after_power_loss(lambda sector, path=path: survived(path, sector))  # type: ignore[misc]
                content = Content.of(data, data)
                found._old.add(path)
            found._names.now[path] = found._names.durable[path] = content
        return found

    # --- the port ---

    def names(self, folder: str) -> list[str]:
        self.before_read("list", folder)
        folder = folder.rstrip("/") or folder
        return sorted(
            path.rpartition("/")[2] for path in self._names.now if path != folder and parent_of(path) == folder
        )

    def exists(self, path: str) -> bool:
        return path in self._names.now

    def is_folder(self, path: str) -> bool:
        return self._names.now.get(path) is FOLDER

    def size(self, path: str) -> int:
        if self.is_folder(path):
            return 4096  # as many file systems say
        return len(self._content(path).data)

    def modified(self, path: str) -> int | None:
        return self._modified.get(path) if path in self._names.now else None

    def used(self, path: str) -> int:
        return self.size(path)

    def make_folder(self, path: str) -> None:
        if self.is_folder(path):
            return
        self.make_folder(parent_of(path))
        self.before_change("make folder", path)
        self._names.change({path: FOLDER})

    def open(self, path: str) -> File:
        self.before_read("open", path)
        return MemoryFile(self, self._content(path), path)

    def open_to_read(self, path: str) -> ReadFile:
        return self.open(path)

    def create(self, path: str, size: int) -> File:
        content = self._names.now.get(path)
        if content is None:
            if not self.is_folder(parent_of(path)):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.before_change("create", path)
            content = Content(size)
            self._names.change({path: content})
            self.touch(path)
        elif len(content.data) < size:
            self.before_change("lengthen", path)
            content.lengthen(size)
        return MemoryFile(self, content, path)

    def read(self, path: str) -> bytes:
        self.before_read("read", path)
        return bytes(self._content(path).data)

    def write(self, path: str, data: bytes) -> None:
        self.before_change("write", path)
        self._old.discard(path)
        self._put(path, data[: len(data) // 2])
        self.before_change("finish writing", path)
        self._put(path, data)

    def _put(self, path: str, data: bytes) -> None:
        content = Content.of(data, data)
        self.touch(path)
        if path in self._names.now:
            self._names.replace(path, content)
        else:
            self._names.change({path: content})

    def rename(self, old: str, new: str) -> None:
        self.before_change("rename", old)
        if self.is_folder(old):
            self._names.move_folder(old, new)
            return
        self._old.discard(new)
        self._names.change({old: None, new: self._content(old)})
        self._modified[new] = self._modified.pop(old, None)
        self._taken[new] = self._taken.pop(old, 0)

    def remove(self, path: str) -> None:
        self.before_change("remove", path)
        if path in self._names.now:
            self._names.change({path: None})
            taken = self._taken.pop(path, 0)
            if self.space is not None:
                self.space += taken

    def remove_tree(self, path: str) -> None:
        start = path + "/"
        for name in sorted([name for name in self._names.now if name == path or name.startswith(start)], reverse=True):
            self.remove(name)

    def sync_folder(self, path: str) -> None:
        self.before_change("sync folder", path)
        self._names.sync(path.rstrip("/") or path)

    def sync_all(self, paths: Collection[str]) -> bool:
        return False

    def lock(self, path: str) -> Lock | None:
        if path in self.locks:
            return None
        self.locks.add(path)
        if not self.exists(path):
            self.write(path, b"lock")
        return MemoryLock(self, path)

    def locked_by(self, path: str) -> int | None:
        return 0 if path in self.locks else None

    def usage(self, path: str) -> tuple[int, int] | None:
        if self.capacity is None or self.space is None:
            return None
        return self.capacity - self.space, self.space

    def memory(self) -> int | None:
        return None

    def restarted_since(self, path: str) -> bool | None:
        return path in self._old

    def _content(self, path: str) -> Content:
        content = self._names.now.get(path)
        if content is None or content is FOLDER:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return content
