"""Layout of a message record: its fields before the body and where they lie, on disk and in the bodies of answers
(docs/protocol/wire.md 7, docs/protocol/store.md 2).

After these fields come the body, the topic with its length, and the properties with theirs.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
#: Of 5.1 and later, for long topics: the length of the topic has two bytes.
MAGIC_V2: Final = 0xDAA320AB
#: The first two fields: size of the record, magic.
SIZE_MAGIC: Final = Struct(">iI")
#: All fields before the body: size, magic, CRC of the body, queue id, flag, queue offset, physical offset, sysFlag,
#: born time, born host, store time, store host, reconsume times, prepared offset, size of the body. By the lengths of
#: the born host and the store host: v4 v4, v6 v4, v4 v6, v6 v6.
HEADS: Final = tuple(Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20))
HEAD_V4: Final = HEADS[0]
#: Length of the properties, and of the topic in version 2.
LENGTH: Final = Struct(">H")
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
#: The byte of the sysFlag that holds the lengths of the hosts, as two bits: `HEADS[byte >> 4 & 3]`.
HOSTS_AT: Final = 39
#: The store time, behind a born host of IPv4 and of IPv6.
STORE_TIME_AT: Final = 56
STORE_TIME_AT_V6: Final = 68
#: Bytes of a record besides body, topic and properties, with IPv4 hosts.
RECORD_FIXED: Final = 91
#: What an IPv6 host has more.
IPV6_EXTRA: Final = 12
