"""Checkpoint: up to which store times log, queues and index are durable (docs/protocol/store.md 7.5)."""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.layout import CHECKPOINT, CHECKPOINT_SIZE

#: Recovery goes this much further back than the checkpoint says.
SAFETY_MS: Final = 3000


class Checkpoint:
    """Three times in memory. A job writes them from time to time, so on disk they are never ahead of the data."""

    __slots__ = ("_saved", "files", "index_time", "log_time", "path", "queue_time")

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self.log_time = 0
        self.queue_time = 0
        self.index_time = 0
        self._saved = (0, 0, 0)

    def load(self) -> None:
        """Read the file, if there is a usable one. One that is too short counts as a new one."""
        if self.files.exists(self.path):
            data = self.files.read(self.path)
            if len(data) >= CHECKPOINT.size:
                self.log_time, self.queue_time, self.index_time = self._saved = CHECKPOINT.unpack_from(data)

    def make(self) -> None:
        """See to it that there is a file, so that its name is durable long before it says anything.

        The caller syncs the folder.
        """
        if not self.files.exists(self.path):
            write_checkpoint(self.files, self.path, self.times)
            self.saved(self.times)

    @property
    def recover_from(self) -> int:
        """Whatever was stored up to this time is complete in log and queues."""
        return max(0, min(self.log_time, self.queue_time) - SAFETY_MS)

    @property
    def times(self) -> tuple[int, int, int]:
        return self.log_time, self.queue_time, self.index_time

    @property
    def changed(self) -> bool:
        """Whether the file says something else."""
        return self.times != self._saved

    def saved(self, times: tuple[int, int, int]) -> None:
        """The file holds these times now."""
        self._saved = times


def write_checkpoint(files: Files, path: str, times: tuple[int, int, int]) -> None:
    """Write the three times and make them durable; nothing else in the file changes. Blocks."""
    file = files.create(path, CHECKPOINT_SIZE)
    try:
        file.write(0, CHECKPOINT.pack(*times))
        file.sync()
    finally:
        file.close()
