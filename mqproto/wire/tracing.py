"""Records of the message trace: sends and consumptions with their outcomes, as Apache's tools read them
(docs/protocol/client.md 3.14, 4.9's form).

A trace message holds records one behind the other, each ended by 0x02, its fields separated by 0x01; a text that is not
there reads `null`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_SEPARATOR: Final = "\x01"
_END: Final = "\x02"
_MARKS: Final = str.maketrans({_SEPARATOR: " ", _END: " "})


class TracedKind(IntEnum):
    """Kind of message that a record is about."""

    NORMAL = 0
    HALF = 1
    #: The end of a transaction.
    COMMIT = 2
    DELAYED = 3


class ConsumeCode(IntEnum):
    """Outcome of a delivery."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Traced:
    """Sent message in a trace record. `keys` is the text of the property."""

    msg_id: str
    tags: str | None
    keys: str | None
    body_size: int
    kind: TracedKind = TracedKind.NORMAL


def published(
    message: Traced,
    begun: int,
    region: str,
    group: str,
    topic: str,
    store_host: str,
    cost_ms: int,
    offset_msg_id: str,
    success: bool,
) -> str:
    """`Pub`: one attempt to send, begun at a wall time, that a broker answered."""
    return _record(
        "Pub",
        str(begun),
        region,
        group,
        topic,
        message.msg_id,
        message.tags,
        message.keys,
        store_host,
        str(message.body_size),
        str(cost_ms),
        str(int(message.kind)),
        offset_msg_id,
        _bool(success),
    )


def consuming(
    begun: int, region: str | None, group: str, request_id: str, msg_id: str, retry_times: int, keys: str | None
) -> str:
    """`SubBefore`: a message goes to a listener. All messages of one call share the request id."""
    return _record("SubBefore", str(begun), region, group, request_id, msg_id, str(retry_times), keys)


def consumed(
    request_id: str,
    msg_id: str,
    cost_ms: int,
    success: bool,
    keys: str | None,
    code: ConsumeCode,
    ended: int,
    group: str,
) -> str:
    """`SubAfter`: the listener has answered. `cost_ms` is its time divided by the number of messages."""
    return _record(
        "SubAfter", request_id, msg_id, str(cost_ms), _bool(success), keys, str(int(code)), str(ended), group
    )


def transaction_ended(
    message: Traced,
    begun: int,
    region: str,
    group: str,
    topic: str,
    store_host: str,
    transaction_id: str | None,
    state: str,
    checked: bool,
) -> str:
    """`EndTransaction`: a verdict goes to the broker, by itself or (`checked`) because it asked."""
    return _record(
        "EndTransaction",
        str(begun),
        region,
        group,
        topic,
        message.msg_id,
        message.tags,
        message.keys,
        store_host,
        str(int(TracedKind.COMMIT)),
        transaction_id,
        state,
        _bool(checked),
    )


def _record(*fields: str | None) -> str:
    return _SEPARATOR.join(["null" if field is None else field.translate(_MARKS) for field in fields]) + _END


def _bool(value: bool) -> str:
    return "true" if value else "false"
