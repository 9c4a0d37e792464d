"""Extension of the consume queues of a data directory, read without touching it (docs/protocol/store.md 4.5)."""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.doctor.views.parts import most_common
from mqproto.engine.store.layout import UNIT_SIZE_MAX, is_offset_name, offset_name
from mqproto.engine.store.queues.extension import ADDRESS_BASE, Unit, unit_at

#: Bytes of units that are read at a time, and the queues that they are kept for.
_CHUNK: Final = 64 << 10
_KEPT_MAX: Final = 256


class UnitsView:
    """Units of all queues, found by the addresses that queue entries hold."""

    __slots__ = ("_chunks", "_file_sizes", "_files", "_folder")

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._folder = f"{root}/consumequeue_ext"
        self._file_sizes: dict[str, int] = {}
        #: By queue, the position and the bytes that were read last.
        self._chunks: dict[str, tuple[int, bytes]] = {}

    def unit(self, topic: str, queue_id: int, address: int) -> Unit | None:
        """The unit at an address; None if there is none. Raises OSError."""
        folder = f"{self._folder}/{topic}/{queue_id}"
        position = address - ADDRESS_BASE
        start, data = self._chunks.get(folder, (0, b""))
        found = unit_at(data, position - start) if position >= start else None
        if found is None:
            data = self._read(folder, position)
            if len(self._chunks) >= _KEPT_MAX:
                self._chunks.clear()
            self._chunks[folder] = position, data
            found = unit_at(data, 0)
        return None if found is None else found[0]

    def _read(self, folder: str, position: int) -> bytes:
        size = self._file_sizes.get(folder)
        if size is None:
            names = [name for name in self._files.names(folder) if is_offset_name(name)]
            size = self._file_sizes[folder] = most_common([self._files.size(f"{folder}/{name}") for name in names], 0)
        if size <= 0:
            return b""
        at = position % size
        try:
            file = self._files.open_to_read(f"{folder}/{offset_name(position - at)}")
        except FileNotFoundError:
            return b""
        try:
            return file.read(at, min(max(_CHUNK, UNIT_SIZE_MAX), size - at))
        finally:
            file.close()
