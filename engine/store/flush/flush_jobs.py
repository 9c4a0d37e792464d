"""Jobs that make the store durable: what they are given, and what they do beside the loop."""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import File, Files
from mqproto.engine.store.disk.folders import parent_of
from mqproto.engine.store.flush.checkpoint import Checkpoint, write_checkpoint
from mqproto.engine.store.index.index_file import IndexFile
from mqproto.engine.store.queues.extension import Units
from mqproto.engine.store.queues.queue import Queue
from mqproto.engine.store.queues.queue_io import FileWrite, sync_queue_files, write_out


class FlushLog:
    """Job: make the log durable below `end`."""

    __slots__ = ("end", "files", "folder", "log_files", "time")

    def __init__(self, files: Files, log_files: list[File], folder: str, end: int, time: int) -> None:
        self.files = files
        self.log_files = log_files
        #: Where file names have to become durable too; empty: nowhere.
        self.folder = folder
        self.end = end
        #: Store time of the last record below `end`.
        self.time = time

    def run(self) -> None:
        for file in self.log_files:
            file.sync()
        if self.folder:
            self.files.sync_folder(self.folder)


class WriteQueues:
    """Job: write queue entries to their files. The last one of a round also makes files and full index files durable,
    if it is thorough, and then writes the checkpoint.
    """

    __slots__ = (
        "checkpoint_path",
        "files",
        "full",
        "index_files",
        "last",
        "made",
        "settled",
        "stops",
        "sync",
        "times",
        "unit_stops",
        "writes",
    )

    def __init__(self, files: Files, checkpoint: Checkpoint) -> None:
        self.files = files
        self.checkpoint_path = checkpoint.path
        self.times = checkpoint.times
        self.writes: list[FileWrite] = []
        #: Which entries of which queue are in files then: all below.
        self.stops: list[tuple[Queue, int]] = []
        #: The same of their units.
        self.unit_stops: list[tuple[Units, int]] = []
        #: Files to make durable, and which of them are new.
        self.sync: set[str] = set()
        self.made: set[str] = set()
        self.last = False
        self.index_files: list[File] = []
        #: Which of those were full when the job began: the one that was not may become it meanwhile, with entries that
        #: the job misses.
        self.full: list[IndexFile] = []
        #: Messages below have durable entries then.
        self.settled = 0

    def run(self) -> None:
        for write in self.writes:
            write_out(self.files, write)
        if not self.last:
            return
        for file in self.index_files:
            file.sync()
        sync_queue_files(self.files, self.sync, self.made)
        write_checkpoint(self.files, self.checkpoint_path, self.times)


#: What the folder of a deleted queue is called until it is gone: its name, and this behind it.
DELETED: Final = ".deleted"


class RemoveQueues:
    """Job: remove the folders of deleted queues.

    Each gets a name first that is no queue's: when we die on the way a queue is there as a whole or not at all. One
    that had lost only its last files would give their places out again.
    """

    __slots__ = ("files", "folders")

    def __init__(self, files: Files, folders: list[str]) -> None:
        self.files = files
        self.folders = folders

    def run(self) -> None:
        files = self.files
        named = [folder if folder.endswith(DELETED) else folder + DELETED for folder in self.folders]
        topics = {parent_of(folder) for folder in self.folders}
        for folder, deleted in zip(self.folders, named, strict=True):
            if folder != deleted and files.exists(folder):
                files.remove_tree(deleted)
                files.rename(folder, deleted)
        for topic in sorted(topics):
            if files.exists(topic):
                files.sync_folder(topic)
        for deleted in named:
            files.remove_tree(deleted)
        changed = set()
        for topic in topics:
            if self.files.exists(topic):
                if self.files.names(topic):
                    changed.add(topic)
                else:
                    self.files.remove_tree(topic)
                    changed.add(parent_of(topic))
        for folder in sorted(changed):
            self.files.sync_folder(folder)
