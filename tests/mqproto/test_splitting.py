"""Cutting lists into batches, against what batches really take."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import InvalidMessage, InvalidName
from mqproto.message import Message
from mqproto.splitting import SPLIT_BYTES, entry_size, split_batch
from mqproto.wire import properties
from mqproto.wire.batch import BatchEntry, encode_batch

TOPIC = "orders"


def travelling(messages: list[Message]) -> int:
    """The size of their batch, with the longest ids that a producer gives."""
    return len(
        encode_batch(
            BatchEntry(one.body, properties.encode_bytes({**one.wire_properties(), "UNIQ_KEY": "A" * 56}))
            for one in messages
        )
    )


messages = st.builds(
    Message,
    st.just(TOPIC),
    st.binary(min_size=1, max_size=300),
    tags=st.none() | st.just("tag"),
    keys=st.lists(st.just("中"), max_size=3),
    properties=st.dictionaries(st.sampled_from(["a", "b"]), st.just("é" * 5)),
)


@given(st.lists(messages, max_size=40), st.integers(600, 2000))
def test_nothing_is_lost_and_no_batch_is_too_large(given: list[Message], max_bytes: int) -> None:
    parts = split_batch(given, max_bytes=max_bytes)
    assert [one for part in parts for one in part] == given
    assert all(parts)
    for part in parts:
        assert travelling(part) == sum(entry_size(one) for one in part) <= max_bytes
    for part, following in pairwise(parts):
        assert travelling([*part, following[0]]) > max_bytes, "a batch ends only where the next message does not fit"


def test_sizes_around_the_limit() -> None:
    one = Message(TOPIC, b"x" * 100)
    size = travelling([one])
    assert split_batch([one] * 4, max_bytes=2 * size) == [[one, one], [one, one]]
    assert split_batch([one] * 4, max_bytes=2 * size - 1) == [[one]] * 4
    assert split_batch([one] * 4) == [[one] * 4], f"up to {SPLIT_BYTES} bytes unless told otherwise"
    assert split_batch([]) == []
    with pytest.raises(
        InvalidMessage, match=f"message 1 of the list takes {size + 1} bytes in a batch, more than {size}"
    ):
        split_batch([one, Message(TOPIC, b"x" * 101)], max_bytes=size)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Message("another", b"x"), "one topic, not 'orders' and 'another'"),
        (Message(TOPIC, b"x", wait=False), "differ in whether they wait"),
        (Message(TOPIC, b"x", delay_level=2), "cannot be delayed"),
        (Message(TOPIC, b""), "empty"),
        (Message(TOPIC, b"x" * 101), "101 bytes, more than 100"),
        ("text", "a Message expected, not str"),
    ],
)
def test_what_cannot_be_in_one_batch(other: Any, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        split_batch([Message(TOPIC, b"x"), other], max_message_size=100)


def test_retry_topics_and_names() -> None:
    with pytest.raises(InvalidMessage, match="retry topic"):
        split_batch([Message("%RETRY%g", b"x")])
    with pytest.raises(InvalidName):
        split_batch([Message("no topic", b"x")])
