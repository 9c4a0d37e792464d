"""Layout of what lies on disk (docs/protocol/store.md 1 to 7): structures, magic numbers and names, shared by the
modules of the store. That of records is in `mqproto.wire.record_layout`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from struct import Struct
from typing import Final

# --- commit log (docs/protocol/store.md 2) ---

#: Magic of a filler, which stands where a size and a magic do (`SIZE_MAGIC`): its size is the rest of the file.
MAGIC_FILLER: Final = 0xCBD43194
#: Room that is kept behind every record for the head of a filler.
FILLER_SIZE: Final = 8
#: A record may be this much longer than the largest body (docs/protocol/store.md 2.7; since 4.9.5).
RECORD_EXTRA: Final = 65_536

# --- consume queue (docs/protocol/store.md 4) ---

#: Physical offset, record size, tags code.
ENTRY: Final = Struct(">qiq")
ENTRY_SIZE: Final = 20
#: The size in entries that stand for messages that were never there.
BLANK_SIZE: Final = 0x7FFFFFFF
BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)
#: The tags code in entries whose messages are gone, between others; position and size are those of the message that
#: follows. Apache's brokers fail over a blank entry whose position is not 0, and pass over the rest of a log file
#: behind one whose position is; this way they give the following message twice, and once to who wants certain tags. No
#: tag's hash, and no address of the extension.
HOLE_CODE: Final = 0x7FFFFFFF_80000000

#: A unit of the extension: its size, tags code, store time, bytes of the bitmap that follows.
UNIT: Final = Struct(">hqqh")
UNIT_SIZE_MAX: Final = 0x7FFF
#: Room that a file keeps behind its last unit for the mark that ends it.
UNIT_END_SIZE: Final = 4

# --- index (docs/protocol/store.md 5) ---

#: First and last store time, first and last physical offset, slots in use, entries + 1.
INDEX_HEAD: Final = Struct(">qqqqii")
#: Key hash, physical offset, seconds since the first store time, previous entry of the slot.
INDEX_ENTRY: Final = Struct(">iqii")
INDEX_SLOT: Final = Struct(">i")

# --- checkpoint (docs/protocol/store.md 7.5) ---

#: Store times up to which log, queues and index are durable. What follows belongs to 5.x and is left alone.
CHECKPOINT: Final = Struct(">qqq")
CHECKPOINT_SIZE: Final = 4096

PAGE_BITS: Final = 12

_EPOCH: Final = datetime(1970, 1, 1)


def offset_name(offset: int) -> str:
    """Name of the file that begins at an offset."""
    return f"{offset:020d}"


def is_offset_name(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdigit()


def index_name(wall: int, utc_offset_ms: int) -> str:
    """Name of an index file made at a wall time: local time as yyyyMMddHHmmssSSS."""
    local = _EPOCH + timedelta(milliseconds=wall + utc_offset_ms)
    return f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}"


def is_index_name(name: str) -> bool:
    return name.isascii() and name.isdigit()
