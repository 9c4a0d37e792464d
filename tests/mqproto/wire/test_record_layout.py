"""Constants of a record's layout agree with the structures."""

from __future__ import annotations

import pytest

from mqproto.wire.flags import BORN_HOST_V6, STORE_HOST_V6
from mqproto.wire.record_layout import (
    HEAD_V4,
    HEADS,
    HOSTS_AT,
    IPV6_EXTRA,
    LENGTH,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    RECORD_FIXED,
    SIZE_MAGIC,
    STORE_TIME_AT,
    STORE_TIME_AT_V6,
)


@pytest.mark.parametrize("sys_flag", [0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6])
def test_places_of_fields(sys_flag: int) -> None:
    born_v6, store_v6 = bool(sys_flag & BORN_HOST_V6), bool(sys_flag & STORE_HOST_V6)
    head = HEADS[born_v6 + 2 * store_v6]
    assert head.size == HEAD_V4.size + IPV6_EXTRA * (born_v6 + store_v6)
    data = head.pack(100, MAGIC_V1, 3, 4, 5, 6, 7, sys_flag, 9, b"", 11, b"", 13, 14, 15)
    assert SIZE_MAGIC.unpack_from(data) == (100, MAGIC_V1)
    assert int.from_bytes(data[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8], "big") == 6
    assert int.from_bytes(data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") == 7
    assert HEADS[data[HOSTS_AT] >> 4 & 3] is head
    time_at = STORE_TIME_AT_V6 if born_v6 else STORE_TIME_AT
    assert int.from_bytes(data[time_at : time_at + 8], "big") == 11


def test_what_every_record_has() -> None:
    """Besides the fields one byte for the length of the topic, two for that of the properties."""
    assert HEAD_V4.size + 1 + LENGTH.size == RECORD_FIXED
