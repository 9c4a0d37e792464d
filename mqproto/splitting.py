"""Batches that brokers take, cut from a long list of messages (docs/protocol/client.md 3.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.errors import InvalidMessage
from mqproto.message import Message
from mqproto.validation import MESSAGE_SIZE_MAX, check_batch
from mqproto.wire import properties
from mqproto.wire.batch import ENTRY_OVERHEAD

#: What a batch should stay below, so that a broker's other producers do not wait for long.
SPLIT_BYTES: Final = 1 << 20
#: An id that the send will add, in its longer form (an IPv6 address).
_ID_SIZE: Final = len(f"{properties.UNIQ_KEY}\x01\x02") + 56


def split_batch(
    messages: Sequence[Message], *, max_bytes: int = SPLIT_BYTES, max_message_size: int = MESSAGE_SIZE_MAX
) -> list[list[Message]]:
    """The messages in the same order, in lists whose batches have at most `max_bytes` bytes as they travel.

    No messages make no lists. Raises InvalidMessage and InvalidName, naming what is wrong, for messages that cannot be
    in one batch (different topics or `wait`, delays, retry topics), for a body of more than `max_message_size` bytes,
    and for a message that is larger than `max_bytes` alone.
    """
    if not messages:
        return []
    check_batch(messages, max_message_size)
    parts: list[list[Message]] = []
    room = -1
    for index, message in enumerate(messages):
        size = entry_size(message)
        if size > max_bytes:
            raise InvalidMessage(f"message {index} of the list takes {size} bytes in a batch, more than {max_bytes}")
        if size > room:
            parts.append([])
            room = max_bytes
        parts[-1].append(message)
        room -= size
    return parts


def entry_size(message: Message) -> int:
    """How many bytes a message takes in a batch at most: body, properties and the id that it gets, and what goes around
    them.
    """
    values = message.wire_properties()
    id_size = 0 if properties.UNIQ_KEY in values else _ID_SIZE
    return ENTRY_OVERHEAD + len(message.body) + len(properties.encode_bytes(values)) + id_size
