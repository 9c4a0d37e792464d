"""The property string of a message: `name 0x01 value 0x02 name 0x01 value 0x02 ...` (docs/protocol/wire.md 9), and the
names with a meaning (docs/protocol/wire.md 10).

There is no escaping, so neither byte may occur in a name, nor 0x02 in a value. Releases differ in whether they end the
string with 0x02 and in what they make of odd entries; we write the end mark and read what any of them writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
#: The length of the encoded string is an i16.
ENCODED_MAX: Final = 32767

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

#: Names that the protocol uses: an application must not set them itself (docs/protocol/client.md 3.1).
RESERVED: Final = frozenset(
    {
        KEYS,
        TAGS,
        WAIT,
        DELAY,
        RETRY_TOPIC,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TRANSACTION_PREPARED,
        PRODUCER_GROUP,
        MIN_OFFSET,
        MAX_OFFSET,
        BUYER_ID,
        ORIGIN_MESSAGE_ID,
        TRANSFER_FLAG,
        CORRECTION_FLAG,
        MQ2_FLAG,
        RECONSUME_TIME,
        MSG_REGION,
        TRACE_ON,
        UNIQ_KEY,
        MAX_RECONSUME_TIMES,
        CONSUME_START_TIME,
        TRANSACTION_PREPARED_QUEUE_OFFSET,
        TRANSACTION_CHECK_TIMES,
        INSTANCE_ID,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        TTL,
        ARRIVE_TIME,
        PUSH_REPLY_TIME,
        CLUSTER,
        MSG_TYPE,
        INNER_MULTI_QUEUE_OFFSET,
    }
)


def encode(properties: Mapping[str, str]) -> str:
    """The property string, in the mapping's order, ended by 0x02 when there is any entry."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def encode_bytes(properties: Mapping[str, str]) -> bytes:
    """The property string in UTF-8; what UTF-8 cannot hold (a lone surrogate) becomes `?`, as Java makes it."""
    return encode(properties).encode("utf-8", "replace")


def decode(text: str) -> dict[str, str]:
    """The properties of a string, however it ends; of entries with one name the last counts.

    Entries without a name, without a value or without the mark between are left out; a value goes up to the next 0x02,
    so it may hold 0x01 (docs/protocol/wire.md 9: the rules of 4.9.1 and later).
    """
    found: dict[str, str] = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def decode_bytes(data: bytes | memoryview) -> dict[str, str]:
    """The same from UTF-8; broken sequences are replaced, so that a bad property does not cost the message."""
    return decode(str(data, "utf-8", "replace"))


def join(first: str, second: str) -> str:
    """Two property strings as one, with exactly one 0x02 between them whichever way the first one ends."""
    if not first or not second or first.endswith(VALUE_END):
        return first + second
    return first + VALUE_END + second


def append(text: str, name: str, value: str) -> str:
    """A property string with one more entry."""
    return join(text, f"{name}\x01{value}\x02")
