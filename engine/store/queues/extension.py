"""Extension of the consume queues (docs/protocol/store.md 4.5): what does not fit the 20 bytes of a queue entry.

For each message a unit is kept: its tags code, its store time and, where the caller has one, the bitmap of the filters
that it passes. The queue entry then holds the unit's address in place of the tags code. Units follow each other in
files of one size; like queue entries they wait in memory (`Units`) until a job writes them, before the entries that
lead to them.

A unit is found by its address alone, and one that is not where the address says is no misfortune: whoever asked has to
look at the message. What must not happen is that an old address leads to the unit of another message, so units are
never put where an address that may still exist could lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.errors import StoreDamaged
from mqproto.engine.store.layout import UNIT, UNIT_END_SIZE, UNIT_SIZE_MAX, is_offset_name, offset_name
from mqproto.engine.store.queues.queue_io import FileWrite
from mqproto.engine.store.settings import StoreSettings

#: Addresses begin here; the highest one lies below every hash of a tag and every time.
ADDRESS_BASE: Final = -(1 << 63)
_ADDRESS_MAX: Final = -0x80000001
_END: Final = b"\xff\xff"


class Unit(NamedTuple):
    """Unit: what is known of one message beside its queue entry.

    `bits`: bitmap of the filters that it passes, empty if there is none.
    """

    tags_code: int
    store_time: int
    bits: bytes


class Units:
    """Units of one queue that are not in files yet: those from position `written` on are in `tail`."""

    __slots__ = ("folder", "tail", "written")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.tail = bytearray()
        #: -1: not known yet.
        self.written = -1

    def picture(self) -> Units:
        """The same as they are now."""
        twin = Units(self.folder)
        twin.written = self.written
        twin.tail = bytearray(self.tail)
        return twin

    def wrote(self, stop: int) -> None:
        """Units below a position are in files now."""
        if stop > self.written >= 0:
            del self.tail[: stop - self.written]
            self.written = stop


def is_address(code: int) -> bool:
    """Whether a queue entry holds, in place of a tags code, the address of a unit."""
    return code <= _ADDRESS_MAX


def unit_at(data: bytes | bytearray | memoryview, at: int) -> tuple[Unit, int] | None:
    """The unit at a position and where it ends; None if there is none."""
    if at + UNIT.size > len(data):
        return None
    size, code, store_time, bits = UNIT.unpack_from(data, at)
    if size < UNIT.size or at + size > len(data) or not 0 <= bits <= size - UNIT.size:
        return None
    return Unit(code, store_time, bytes(data[at + UNIT.size : at + UNIT.size + bits])), at + size


class Extension:
    """Units of all queues."""

    __slots__ = ("_view", "bits_max", "enabled", "file_size", "files", "folder", "present", "waiting")

    def __init__(self, files: Files, settings: StoreSettings, view: Callable[[str], memoryview]) -> None:
        self.files = files
        self.folder = f"{settings.store_path_root_dir}/consumequeue_ext"
        self.file_size = settings.mapped_file_size_consume_queue_ext
        #: Units are written for new messages. Those that there are, are read in any case.
        self.enabled = settings.enable_consume_queue_ext
        #: Longest bitmap, in bytes, that a unit takes.
        self.bits_max = settings.bit_map_length_consume_queue_ext // 8
        #: There are files, or will be.
        self.present = self.enabled
        #: Bytes of units in memory.
        self.waiting = 0
        self._view = view

    def folder_of(self, topic: str, queue_id: int) -> str:
        return f"{self.folder}/{topic}/{queue_id}"

    def path_of(self, units: Units, position: int) -> str:
        """The file that holds a position."""
        return f"{units.folder}/{offset_name(position - position % self.file_size)}"

    # --- writing ---

    def put(self, units: Units, code: int, store_time: int, bits: bytes) -> int:
        """Add a unit; gives its address.

        A bitmap that is longer than configured is left out: its message is filtered without it.
        """
        if len(bits) > self.bits_max:
            bits = b""
        tail = units.tail
        unit = UNIT.pack(UNIT.size + len(bits), code, store_time, len(bits)) + bits
        position = units.written + len(tail)
        rest = self.file_size - position % self.file_size
        if len(unit) > rest - UNIT_END_SIZE:
            tail += _END + bytes(rest - len(_END))
            position += rest
        tail += unit
        self.waiting += len(unit)
        return position + ADDRESS_BASE

    def unwritten(self, units: Units) -> Iterator[FileWrite]:
        """What has to be written so that all units are in files."""
        at, stop = units.written, units.written + len(units.tail)
        while at < stop:
            end = min(stop, at - at % self.file_size + self.file_size)
            data = bytes(units.tail[at - units.written : end - units.written])
            yield FileWrite(self.path_of(units, at), at % self.file_size, data, self.file_size)
            at = end

    def wrote(self, units: Units, stop: int) -> None:
        """Units below a position are in files now."""
        before = len(units.tail)
        units.wrote(stop)
        self.waiting = max(0, self.waiting - before + len(units.tail))

    def drop(self, units: Units) -> None:
        """Forget what is not in files, and where the files end."""
        self.waiting = max(0, self.waiting - len(units.tail))
        units.tail.clear()
        units.written = -1

    # --- reading ---

    def find(
        self, units: Units, address: int, part: Callable[[str, int, int], memoryview] | None = None
    ) -> Unit | None:
        """The unit at an address; None if it is gone.

        `part` reads so many bytes from a position of a file; without it they are mapped.
        """
        position = address - ADDRESS_BASE
        path, at = self.path_of(units, position), position % self.file_size
        if 0 <= units.written <= position:
            found = unit_at(units.tail, position - units.written)
        elif part is None:
            found = unit_at(self._view(path), at)
        else:
            found = unit_at(part(path, at, UNIT.size + self.bits_max), 0) or unit_at(part(path, at, UNIT_SIZE_MAX), 0)
        return None if found is None else found[0]

    # --- opening ---

    def begin(self, units: Units, entries: int, last_code: int | None) -> None:
        """Find where the next unit of a queue goes: behind the one that its last entry leads to. Blocks.

        `entries`: queue offset of the next message; `last_code`: what the last entry holds, None if there is none. If
        the last entry leads to no unit, a file begins that lies above everything that any entry of the queue can lead
        to. Raises StoreDamaged for files of a wrong size.
        """
        starts = self._starts(units)
        if last_code is None:
            units.written = starts[0] if starts else 0
            return
        above = starts[-1] + self.file_size if starts else 0
        if is_address(last_code):
            position = last_code - ADDRESS_BASE
            found = unit_at(self._view(self.path_of(units, position)), position % self.file_size)
            if found is not None:
                units.written = position - position % self.file_size + found[1]
                return
            above = max(above, position - position % self.file_size + self.file_size)
        elif not starts:  # files with the longest units and half empty would end before
            above = -(-entries * 2 * UNIT_SIZE_MAX // self.file_size) * self.file_size
        units.written = above

    def _starts(self, units: Units) -> list[int]:
        """Positions at which the files of a queue begin."""
        names = [name for name in self.files.names(units.folder) if is_offset_name(name)]
        while names and self.files.size(f"{units.folder}/{names[-1]}") == 0:
            names.pop()
        for name in names:
            path = f"{units.folder}/{name}"
            if (size := self.files.size(path)) != self.file_size or int(name) % self.file_size:
                raise StoreDamaged(path, None, (f"it has {size} bytes instead of the configured {self.file_size}",))
        return [int(name) for name in names]

    def cut(self, units: Units) -> Iterator[str]:
        """Make what lies behind the last unit zero, remove the files behind; gives the paths that changed. Blocks."""
        keep = self.path_of(units, units.written)
        for name in self.files.names(units.folder):
            path = f"{units.folder}/{name}"
            if not is_offset_name(name) or path < keep:
                continue
            if path > keep or units.written % self.file_size == 0:
                self.files.remove(path)
                continue
            file = self.files.open(path)
            try:
                if file.clear(units.written % self.file_size, file.size):
                    yield path
            finally:
                file.close()

    # --- deletion ---

    def unused(self, topic: str, queue_id: int, first_code: int) -> list[str]:
        """Files whose units all lie below the address in the first live entry of a queue; none without one. Blocks."""
        if not is_address(first_code):
            return []
        position = first_code - ADDRESS_BASE
        folder = self.folder_of(topic, queue_id)
        names = [name for name in self.files.names(folder) if is_offset_name(name)]
        return [f"{folder}/{name}" for name in names[:-1] if int(name) + self.file_size <= position]
