"""Messages by key and by place (docs/protocol/broker.md 2.11)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World


def query(peer: Peer, key: str, **changes: Any) -> Command:
    fields = {"topic": "T", "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1)}
    return peer.ask(12, fields | changes)


@pytest.fixture
def filled(peer: Peer) -> Peer:
    for n in range(5):
        peer.send(body=b"%d" % n, properties=f"KEYS\x01all k{n}\x02UNIQ_KEY\x01u{n}\x02")
    return peer


def test_by_key(filled: Peer) -> None:
    """MSG-14: one hit for each key, and one for the client's id."""
    assert [message.body for message in decode_records(query(filled, "k3").body)] == [b"3"]
    assert sorted(message.body for message in decode_records(query(filled, "all").body)) == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    answer = query(filled, "u2", _UNIQUE_KEY_QUERY="true", maxNum="0")
    assert [message.body for message in decode_records(answer.body)] == [b"2"]
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


def test_nothing(filled: Peer) -> None:
    answer = query(filled, "none")
    assert (answer.code, answer.remark) == (22, "can not find message, maybe time range not correct")
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert query(filled, "all", topic="U").code == 22
    assert query(filled, "all", endTimestamp="5").code == 22


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"maxNum": "2147483647"}, 5),
        ({"maxNum": "2"}, 2),
        ({"maxNum": "0"}, 0),
        ({"maxNum": "-1"}, 0),
        ({"beginTimestamp": "9", "endTimestamp": "5"}, 0),
    ],
)
def test_counts_are_bounded(filled: Peer, changes: dict[str, str], count: int) -> None:
    """ADM-01."""
    answer = query(filled, "all", **changes)
    assert len(decode_records(answer.body)) == count


def test_no_more_than_the_broker_allows() -> None:
    peer = World(store={"max_msgs_num_batch": 3}).connect()
    for _ in range(5):
        peer.send(properties="KEYS\x01all\x02")
    assert len(decode_records(query(peer, "all").body)) == 3


def test_by_place(filled: Peer) -> None:
    (message,) = decode_records(query(filled, "k1").body)
    answer = filled.ask(33, {"offset": str(message.physical_offset)})
    assert decode_records(answer.body) == [message]


@pytest.mark.parametrize("offset", [-1, 1, 1 << 50])
def test_no_message_there(filled: Peer, offset: int) -> None:
    answer = filled.ask(33, {"offset": str(offset)})
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


def test_many_long_messages_of_one_key() -> None:
    """Together they would be longer than any frame."""
    world = World(store={"mapped_file_size_commit_log": 1 << 26, "allocation_window": 1 << 26})
    peer = world.connect()
    for n in range(6):
        peer.send(body=bytes([n]) * (3 << 20), properties="KEYS\x01long\x02")
    answer = query(peer, "long")
    assert [message.body[0] for message in decode_records(answer.body)] == [4, 5]
