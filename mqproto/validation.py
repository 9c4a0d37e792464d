"""Checks of a client before it sends anything (docs/protocol/client.md 3.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mqproto.errors import InvalidMessage, InvalidName, InvalidSetting
from mqproto.message import Message, join_keys
from mqproto.replies import ReplyMessage
from mqproto.wire import properties
from mqproto.wire.names import (
    DLQ_PREFIX,
    GROUP_LENGTH_MAX,
    NAMESPACE_MARK,
    RETRY_PREFIX,
    SENDING_FORBIDDEN,
    TOPIC_LENGTH_MAX,
)

MESSAGE_SIZE_MAX: Final = 4 << 20
#: Longest time that a setting may name: a day. Longer ones are slips of a unit.
LONGEST_MS: Final = 86_400_000
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_given(kind: str, name: str) -> None:
    """Raises InvalidName for a blank name: of what there is already, older servers may have given it a name that is not
    allowed now.
    """
    if not name or name.isspace():
        raise InvalidName(kind, name, "it is blank")


def _check_name(kind: str, name: str, length_max: int) -> None:
    if not isinstance(name, str):
        raise InvalidName(kind, repr(name), f"it is of type {type(name).__name__}, not a text")
    check_given(kind, name)
    if len(name) > length_max:
        raise InvalidName(kind, name, f"it is longer than {length_max} characters")
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidName(kind, name, "only letters, digits, '%', '|', '_' and '-' are allowed")


def check_topic(topic: str) -> None:
    """Raises InvalidName unless the topic has 1 to 127 legal characters."""
    _check_name("topic", topic, TOPIC_LENGTH_MAX)


def check_group(group: str) -> None:
    """Raises InvalidName unless the group has 1 to 255 legal characters. For consumers see `check_consumer_group`."""
    _check_name("group", group, GROUP_LENGTH_MAX)


def check_consumer_group(group: str) -> None:
    """The same, and its retry and dead-letter topics must be topics that a broker can hold. Raises InvalidName."""
    check_group(group)
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if len(prefix + group) > TOPIC_LENGTH_MAX:
            raise InvalidName(
                "group", group, f"its topic {prefix}... would be longer than {TOPIC_LENGTH_MAX} characters"
            )


def check_namespace(namespace: str) -> None:
    """Raises InvalidName unless the namespace has legal characters and no `%`, which ends it in names
    (docs/protocol/client.md 1.8).
    """
    _check_name("namespace", namespace, TOPIC_LENGTH_MAX)
    if NAMESPACE_MARK in namespace:
        raise InvalidName("namespace", namespace, f"{NAMESPACE_MARK!r} ends a namespace and may not occur in it")


def check_property(name: str, value: str) -> None:
    """Raises InvalidMessage unless an application may set this property."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessage(f"property {name!r}={value!r}: name and value are texts")
    if not name.strip() or not value.strip():
        raise InvalidMessage(f"property {name!r}={value!r}: neither name nor value may be blank")
    if name in properties.RESERVED:
        raise InvalidMessage(
            f"property {name!r} is used by the system: set it by the attribute of the message, or choose another name"
        )
    _check_marks(name, name)
    _check_marks(name, value)


def check_message(message: Message, size_max: int = MESSAGE_SIZE_MAX) -> None:
    """Raises InvalidName for its topic and InvalidMessage for anything else that a broker would refuse.

    `size_max` limits the body in bytes, before any compression.
    """
    if not isinstance(message, Message):
        raise InvalidMessage(f"a Message expected, not {type(message).__name__}")
    try:
        _check_message(message, size_max)
    except (TypeError, AttributeError) as error:
        raise InvalidMessage(f"an attribute of the message has the wrong type: {error}") from error


def _check_message(message: Message, size_max: int) -> None:
    check_topic(message.topic)
    if message.topic in SENDING_FORBIDDEN:
        raise InvalidName("topic", message.topic, "sending to it is forbidden")
    if not isinstance(message.body, bytes):
        raise InvalidMessage(f"the body is of type {type(message.body).__name__}, not bytes")
    if not message.body:
        raise InvalidMessage("the body is empty")
    if len(message.body) > size_max:
        raise InvalidMessage(f"the body has {len(message.body)} bytes, more than {size_max}")
    if message.delay_level < 0:
        raise InvalidMessage(f"delay level {message.delay_level} is negative")
    if not -(1 << 31) <= message.flag < 1 << 31:
        raise InvalidMessage(f"flag {message.flag} does not fit 32 bits")
    if message.tags is not None and not isinstance(message.tags, str):
        raise InvalidMessage(f"tags is of type {type(message.tags).__name__}, not a text: a message has one tag")
    _check_marks(properties.TAGS, message.tags or "")
    _check_marks(properties.KEYS, join_keys(message.keys))
    for name, value in message.properties.items():
        check_property(name, value)
    size = len(properties.encode_bytes(message.wire_properties()))
    if size > properties.ENCODED_MAX:
        raise InvalidMessage(f"the properties take {size} bytes, more than {properties.ENCODED_MAX}")


def check_batch(messages: Sequence[Message], size_max: int = MESSAGE_SIZE_MAX) -> None:
    """Raises InvalidMessage or InvalidName unless the messages can travel as one batch (docs/protocol/client.md
    3.10).
    """
    if not isinstance(messages, Sequence):
        raise InvalidMessage(f"a Message or a sequence of them expected, not {type(messages).__name__}")
    if not messages:
        raise InvalidMessage("a batch without messages")
    first = messages[0]
    for message in messages:
        check_message(message, size_max)
        if message.delay_level > 0:
            raise InvalidMessage("a message of a batch cannot be delayed")
        if message.topic.startswith(RETRY_PREFIX):
            raise InvalidMessage("a batch cannot go to a retry topic")
        if isinstance(message, ReplyMessage):
            raise InvalidMessage("a reply cannot travel in a batch: nobody would pass it on")
        if message.topic != first.topic:
            raise InvalidMessage(f"a batch has one topic, not {first.topic!r} and {message.topic!r}")
        if message.wait != first.wait:
            raise InvalidMessage("the messages of a batch differ in whether they wait for flush and replication")


def _check_marks(name: str, text: str) -> None:
    if properties.NAME_END in text or properties.VALUE_END in text:
        raise InvalidMessage(f"property {name!r}: the bytes 1 and 2 separate properties and may not occur in them")


def check_range(key: str, value: int, low: int, high: int) -> None:
    """Raises `InvalidSetting` unless `low <= value <= high`."""
    if not low <= value <= high:
        raise InvalidSetting(key, value, f"must lie between {low} and {high}")
