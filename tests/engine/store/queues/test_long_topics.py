"""Records of version 2, whose topic has a length of two bytes: 5.x writes them for long retry topics
(docs/protocol/store.md 2.2).
"""

from __future__ import annotations

import struct
from zlib import crc32

import pytest

from mqproto.engine.store import PutRefused, PutStatus
from mqproto.wire.record import decode_record
from tests.engine.store.harness import HOST, START, Rig

LONG = "%RETRY%" + "g" * 200


def record(offset: int, queue_offset: int, body: bytes) -> bytes:
    topic, properties = LONG.encode(), b"UNIQ_KEY\x01key-%d" % queue_offset
    size = 92 + len(body) + len(topic) + len(properties)
    head = struct.pack(
        ">iIiiiqqiq8sq8siqi",
        size,
        0xDAA320AB,
        crc32(body) & 0x7FFFFFFF,
        0,
        0,
        queue_offset,
        offset,
        0,
        START,
        HOST,
        START,
        HOST,
        0,
        0,
        len(body),
    )
    return b"".join((head, body, struct.pack(">H", len(topic)), topic, struct.pack(">H", len(properties)), properties))


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_they_are_scanned_served_and_indexed(rig: Rig, ending: str) -> None:
    rig.send_many(3)
    rig.close() if ending == "clean" else rig.kill()
    end = rig.log().rstrip(b"\0").rfind(b"Topic-2") + len(b"Topic-2")
    for number in range(4):
        data = record(end, number, b"retry %d" % number)
        rig.set_log(end, data)
        end += len(data)
    rig.open()
    for _ in range(2):
        assert rig.store.end == end
        assert rig.bodies(LONG) == [b"retry 0", b"retry 1", b"retry 2", b"retry 3"]
        assert rig.found("key-2", LONG) == [2]
        (view,) = rig.store.reader.query(LONG, "key-3", 32, 0, 1 << 62).views
        assert decode_record(view).topic == LONG
        assert len(rig.read()) == 3
        rig.reopen()
    rig.kill()
    rig.open()
    assert len(rig.read(LONG)) == 4
    with pytest.raises(PutRefused, match="too long") as refused:
        rig.send(LONG)
    assert refused.value.status is PutStatus.MESSAGE_ILLEGAL
    rig.send(body=b"next")
    assert len(rig.read()) == 4


def test_unknown_version_is_damage_and_not_the_end(rig: Rig) -> None:
    """Nobody may take messages of a later version for free space."""
    rig.send_many(3)
    end = rig.store.end
    rig.send_many(2, "Later")
    rig.close()
    rig.set_log(end + 7, b"\xac")
    with pytest.raises(Exception, match=f"at offset {end}.*a good record follows"):
        rig.open()
