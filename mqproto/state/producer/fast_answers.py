"""Answers to sends as brokers usually write them, read without taking their headers apart.

Owns: the patterns of those headers.
Leaves to others: whose answer it is (`ClientNode`), and every answer that looks different in any way (`send_request`).
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from mqproto.codec import json_header_end
from mqproto.state.producer.send_request import DEFAULT_REGION

_TEXT: Final = r"[ !#-\[\]-~]*"
_ID: Final = rf'"msgId":"(?P<id>{_TEXT})"'
_QUEUE: Final = r'"queueId":"(?P<queue>\d{1,10})"'
_OFFSET: Final = r'"queueOffset":"(?P<offset>\d{1,18})"'
_REGION: Final = rf'"MSG_REGION":"(?P<region>{_TEXT})"'
_TRACE: Final = rf'"TRACE_ON":"(?P<trace>{_TEXT})"'
_TRANSACTION: Final = rf'"transactionId":"(?P<transaction>{_TEXT})"'
_MAYBE_TRANSACTION: Final = f"(?:{_TRANSACTION},)?"


class SendAnswer(NamedTuple):
    """Fields of the usual answer to a send."""

    opaque: int
    queue_id: int
    offset: int
    offset_msg_id: str
    region: str
    trace_on: bool
    transaction_id: str | None


def _pattern(
    *fields: str, language: str = "[A-Z]{1,9}", serialize_type: str = '(?:"serializeTypeCurrentRPC":"JSON",)?'
) -> re.Pattern[bytes]:
    """A header with these fields."""
    text = (
        rf'{{"code":0,"extFields":{{{",".join(fields)}}},"flag":1,"language":"{language}","opaque":(?P<opaque>\d{{1,10}}),'
        rf'{serialize_type}"version":\d{{1,9}}}}'
    )
    return re.compile(text.encode())


def _usual(*fields: str) -> re.Pattern[bytes]:
    """The same from a broker that traces and has no region of its own.

    Of the fields it finds but those that vary, in half the time.
    """
    fixed = {_REGION: f'"MSG_REGION":"{DEFAULT_REGION}"', _TRACE: '"TRACE_ON":"true"'}
    return _pattern(
        *(fixed.get(field, field) for field in fields),
        language="JAVA",
        serialize_type='"serializeTypeCurrentRPC":"JSON",',
    )


#: Headers of the answer to a send, as brokers of 4.x and of 5.x usually write them.
_USUAL_4: Final = _usual(_QUEUE, _TRACE, _REGION, _ID, _OFFSET)
_USUAL_5: Final = _usual(_QUEUE, _TRANSACTION, _ID, _TRACE, _REGION, _OFFSET)
#: As brokers of 4.x, of 5.x and ours order its fields, whatever these say.
_OTHERS: Final = (
    _pattern(_QUEUE, _TRACE, _REGION, _MAYBE_TRANSACTION + _ID, _OFFSET),
    _pattern(_QUEUE, _MAYBE_TRANSACTION + _ID, _TRACE, _REGION, _OFFSET),
    _pattern(_MAYBE_TRANSACTION + _ID, _QUEUE, _OFFSET, _REGION, _TRACE),
)


def read_send_answer(frame: bytes) -> tuple[Any, ...] | None:
    """The fields of `SendAnswer` of the usual answer to a send, in a frame without its length word; None for all
    others, good or bad.

    A tuple and no `SendAnswer`: there is one for every message.
    """
    end = json_header_end(frame)
    if not end:
        return None
    found = _USUAL_4.fullmatch(frame, 4, end)
    if found is not None:
        queue, msg_id, offset, opaque = found.groups()
        return int(opaque), int(queue), int(offset), msg_id.decode(), DEFAULT_REGION, True, None
    found = _USUAL_5.fullmatch(frame, 4, end)
    if found is not None:
        queue, transaction, msg_id, offset, opaque = found.groups()
        return int(opaque), int(queue), int(offset), msg_id.decode(), DEFAULT_REGION, True, transaction.decode()
    for pattern in _OTHERS:
        found = pattern.fullmatch(frame, 4, end)
        if found is not None:
            return _send_answer(found)
    return None


def _send_answer(found: re.Match[bytes]) -> tuple[Any, ...]:
    transaction = found["transaction"]
    return (
        int(found["opaque"]),
        int(found["queue"]),
        int(found["offset"]),
        found["id"].decode(),
        found["region"].decode() or DEFAULT_REGION,
        found["trace"] != b"false",
        None if transaction is None else transaction.decode(),
    )
