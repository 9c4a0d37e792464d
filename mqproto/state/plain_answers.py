"""Answers to sends as brokers usually write them, read without taking their headers apart.

Owns: the patterns of those headers. Leaves to others: whose answer it is, and every answer that looks different in any way.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Any, Final, NamedTuple

_HEAD: Final = Struct(">I")
#: The header word of a JSON header is below this: its top byte is 0.
_HEADER_MAX: Final = 1 << 24

_TEXT: Final = r"[ !#-\[\]-~]*"
_ID: Final = rf'"msgId":"(?P<id>{_TEXT})"'
_QUEUE: Final = r'"queueId":"(?P<queue>\d{1,10})"'
_OFFSET: Final = r'"queueOffset":"(?P<offset>\d{1,18})"'
_REGION: Final = rf'"MSG_REGION":"(?P<region>{_TEXT})"'
_TRACE: Final = rf'"TRACE_ON":"(?P<trace>{_TEXT})"'
_TRANSACTION: Final = rf'(?:"transactionId":"(?P<transaction>{_TEXT})",)?'


class Taken(NamedTuple):
    """What the usual answer says, as it is written there."""

    opaque: bytes
    queue: bytes
    offset: bytes
    id: bytes
    region: bytes
    trace: bytes
    transaction: bytes | None


def _pattern(*fields: str) -> tuple[re.Pattern[bytes], tuple[int, ...]]:
    """A header with these fields, and which of its groups are those of `Taken`."""
    text = (
        rf'{{"code":0,"extFields":{{{",".join(fields)}}},"flag":1,"language":"[A-Z]{{1,9}}","opaque":(?P<opaque>\d{{1,9}}),'
        rf'(?:"serializeTypeCurrentRPC":"JSON",)?"version":\d{{1,9}}}}'
    )
    pattern = re.compile(text.encode())
    return pattern, tuple(pattern.groupindex[name] for name in Taken._fields)


#: Headers of the answer to a send, as brokers of 4.x, of 5.x and ours order its fields.
_ANSWERS: Final = (
    _pattern(_QUEUE, _TRACE, _REGION, _TRANSACTION + _ID, _OFFSET),
    _pattern(_QUEUE, _TRANSACTION + _ID, _TRACE, _REGION, _OFFSET),
    _pattern(_TRANSACTION + _ID, _QUEUE, _OFFSET, _REGION, _TRACE),
)


def read_taken(frame: bytes) -> tuple[Any, ...] | None:
    """The fields of `Taken` of the usual answer to a send, in a frame without its length word; None for all others, good or bad.

    A plain tuple: there is one for every message. Not of bytes alone: compiled code would refuse the transaction that is None.
    """
    if len(frame) < 4:
        return None
    size: int = _HEAD.unpack_from(frame)[0]
    if size >= _HEADER_MAX or size + 4 > len(frame):
        return None
    for pattern, groups in _ANSWERS:
        found = pattern.fullmatch(frame, 4, size + 4)
        if found is not None:
            return found.group(*groups)
    return None
