"""Data directory, looked at without the lock and without changing a byte: ours or Apache's, whole or damaged, at rest
or in use.

Sizes of files come from the files themselves. A broker may append, roll and delete files meanwhile: what is not there
any more reads as nothing, and `Directory.end` says how far the log went when it was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from mqproto.engine.store.disk.config_files import ConfigFile
from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.views.indexes import IndexView
from mqproto.engine.store.doctor.views.log import LogView, Walk
from mqproto.engine.store.doctor.views.parts import most_common
from mqproto.engine.store.doctor.views.queues import QueueView
from mqproto.engine.store.errors import ConfigDamaged, StoreUnreadable
from mqproto.engine.store.flush.checkpoint import Checkpoint
from mqproto.engine.store.layout import ENTRY_SIZE, is_index_name, is_offset_name
from mqproto.wire.fastjson import loads

#: Bytes of a consume queue file by default.
_USUAL_QUEUE_FILE: Final = 6_000_000
#: Queue files that are looked at for their size.
_SAMPLE: Final = 256
#: A directory that has none of these is none of a store.
_PARTS: Final = ("commitlog", "consumequeue", "checkpoint", "lock", "abort")


@dataclass(frozen=True, slots=True)
class ConfigState:
    """State of a configuration file: its value, or why there is none. `warning`: the backup was read, and why."""

    name: str
    value: Any
    warning: str = ""
    damage: str = ""

    @property
    def version(self) -> int | None:
        """The counter of its data version, if it has one."""
        version = self.value.get("dataVersion") if isinstance(self.value, dict) else None
        counter = version.get("counter") if isinstance(version, dict) else None
        return counter if isinstance(counter, int) else None


class Directory:
    """Data directory, open to be looked at. Make it with `open_directory`."""

    __slots__ = (
        "checkpoint",
        "clean",
        "files",
        "index_pair",
        "log",
        "owner",
        "queue_file_size",
        "queue_size_found",
        "root",
    )

    def __init__(self, files: Files, root: str, commit_log: str, index_pair: tuple[int, int] | None) -> None:
        self.files = files
        self.root = root
        #: Process that holds the lock; 0: one that cannot be named; None: no broker runs.
        self.owner = files.locked_by(f"{root}/lock")
        #: The broker before was stopped in an orderly way.
        self.clean = not files.exists(f"{root}/abort")
        self.log = LogView(files, commit_log or f"{root}/commitlog")
        self.index_pair = index_pair
        self.checkpoint = Checkpoint(files, f"{root}/checkpoint")
        self.checkpoint.load()
        #: Bytes of a queue file: what most of them have; without any, what is usual.
        self.queue_size_found = self._find_queue_file_size()
        self.queue_file_size = self.queue_size_found or _USUAL_QUEUE_FILE

    @property
    def running(self) -> bool:
        """A broker works on the directory."""
        return self.owner is not None

    @property
    def whole(self) -> bool:
        """Nothing may be behind anything: no broker runs, and the last one was stopped in an orderly way."""
        return self.clean and not self.running

    def close(self) -> None:
        self.log.close()

    # --- queues ---

    def queue_names(self) -> Iterator[tuple[str, int]]:
        """Topic and id of all queues, sorted."""
        folder = f"{self.root}/consumequeue"
        for topic in self.files.names(folder):
            names = self.files.names(f"{folder}/{topic}")
            for queue_id in sorted(int(name) for name in names if name.isascii() and name.isdigit()):
                if self.files.is_folder(f"{folder}/{topic}/{queue_id}"):
                    yield topic, queue_id

    def queues(self) -> Iterator[QueueView]:
        """All queues, sorted by topic and id."""
        for topic, queue_id in self.queue_names():
            yield self.queue(topic, queue_id)

    def queue(self, topic: str, queue_id: int) -> QueueView:
        """A queue as its files are now; without any if it is not there."""
        return QueueView(
            self.files, f"{self.root}/consumequeue/{topic}/{queue_id}", topic, queue_id, self.queue_file_size
        )

    def _find_queue_file_size(self) -> int:
        sizes: list[int] = []
        for topic, queue_id in self.queue_names():
            folder = f"{self.root}/consumequeue/{topic}/{queue_id}"
            names = [name for name in self.files.names(folder) if is_offset_name(name)]
            for before, name in pairwise(names):
                sizes.append(int(name) - int(before))
            for name in names[-1:]:
                try:
                    sizes.append(self.files.size(f"{folder}/{name}"))
                except FileNotFoundError:
                    continue
            if len(sizes) >= _SAMPLE:
                break
        return most_common([size for size in sizes if size > 0 and size % ENTRY_SIZE == 0], 0)

    # --- the rest ---

    def end(self) -> int:
        """Where the log ends now: behind the last message that queues know, or the last file's start, a walk finds it.

        Raises OSError.
        """
        log = self.log
        known = log.start
        for part in reversed(log.parts):
            if log.record(part.start) is not None:
                known = part.start
                break
        for queue in self.queues():
            end = queue.end()
            entry = queue.entry(end - 1) if end > queue.first else None
            if entry is not None and known < entry[0] + entry[1] <= log.limit and log.record(entry[0]) is not None:
                known = entry[0] + entry[1]
        walk = Walk(log, False)
        for _ in walk.records(known, log.limit):
            pass
        return walk.end

    def index_names(self) -> tuple[list[str], list[str]]:
        """Names of the index files, oldest first, and of what else lies in their folder."""
        names = self.files.names(f"{self.root}/index")
        return [name for name in names if is_index_name(name)], [name for name in names if not is_index_name(name)]

    def index_files(self) -> Iterator[IndexView]:
        """All index files, oldest first; each is closed when the next one is asked for. Raises OSError."""
        for name in self.index_names()[0]:
            try:
                index = IndexView(self.files, f"{self.root}/index/{name}", self.index_pair)
            except FileNotFoundError:
                continue
            try:
                yield index
            finally:
                index.close()

    def config(self, name: str) -> ConfigState | None:
        """A configuration file by its name, such as `topics.json`; None if there is none."""
        file = ConfigFile(f"{self.root}/config/{name}", self.files)
        try:
            value = file.load(loads)
        except ConfigDamaged as failure:
            return ConfigState(name, None, damage=failure.why)
        return None if value is None else ConfigState(name, value, file.warning)

    def configs(self) -> Iterator[ConfigState]:
        """All configuration files that are JSON."""
        names = {name.removesuffix(".bak") for name in self.files.names(f"{self.root}/config")}
        for name in sorted(name for name in names if name.endswith(".json")):
            state = self.config(name)
            if state is not None:
                yield state

    def topics(self) -> dict[str, Any] | None:
        """The table of topics; None if it cannot be read."""
        state = self.config("topics.json")
        table = state.value.get("topicConfigTable") if state is not None and isinstance(state.value, dict) else None
        return table if isinstance(table, dict) else None


def open_directory(
    files: Files, root: str, *, commit_log: str = "", index_pair: tuple[int, int] | None = None
) -> Directory:
    """Look at a data directory. `commit_log`: the folder of the log, if it does not lie in the root; `index_pair`:
    slots and entries of an index file, if they are not to be found out.

    Raises StoreUnreadable when there is no data directory, or no right to read it. Blocks.
    """
    root = root.rstrip("/") or "/"
    try:
        if not files.exists(root):
            raise StoreUnreadable(root, "there is no such directory")
        if not files.is_folder(root):
            raise StoreUnreadable(root, "it is a file, not a directory")
        if not any(files.exists(f"{root}/{name}") for name in _PARTS) and not commit_log:
            raise StoreUnreadable(root, "it is not a data directory: there is no commitlog in it")
        if commit_log and not files.is_folder(commit_log):
            raise StoreUnreadable(commit_log, "there is no such directory")
        return Directory(files, root, commit_log, index_pair)
    except OSError as failure:
        raise StoreUnreadable(str(failure.filename or root), failure.strerror or str(failure)) from failure
