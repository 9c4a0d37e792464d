"""Replies between clients (docs/protocol/broker.md 2.13)."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from tests.engine.broker.harness import PEER, Peer, World, heartbeat, send_fields

TOPIC = "DefaultCluster_REPLY_TOPIC"
TEXT = "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x017\x02MSG_TYPE\x01reply\x02"


@pytest.fixture
def asker(world: World) -> Peer:
    peer = world.connect("192.0.2.9:1")
    peer.heartbeat(heartbeat("asker", (), ("P",)))
    return peer


def reply(peer: Peer, text: str = TEXT, code: int = 325, **changes: Any) -> None:
    peer.tell(code, send_fields(TOPIC, text, **changes), b"answer")


def pushed(asker: Peer) -> Command:
    (push,) = asker.read()
    assert (push.code, push.is_oneway) == (326, False)
    return push


def test_a_reply_reaches_who_asked(world: World, peer: Peer, asker: Peer) -> None:
    """PRO-10: the body is the responder's."""
    reply(peer)
    push = pushed(asker)
    assert push.body == b"answer"
    assert push.fields["bornHost"] == PEER
    assert push.fields["storeHost"] == "192.0.2.2:10911"
    assert push.fields["topic"] == TOPIC
    assert push.fields["storeTimestamp"] == str(world.wall)
    assert f"PUSH_REPLY_TIME\x01{world.wall}\x02" in push.fields["properties"]
    assert "CORRELATION_ID\x017\x02" in push.fields["properties"]
    assert peer.read() == []
    asker.answer(push)
    (answer,) = peer.read()
    assert (answer.code, answer.remark, answer.fields["queueOffset"]) == (0, None, "0")
    assert [message.body for message in peer.messages(TOPIC)] == [b"answer"]


def test_long_names(peer: Peer, asker: Peer) -> None:
    """Go replies with 324."""
    words = (
        "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
        "reconsumeTimes unitMode batch"
    )
    names = dict(zip("abcdefghijkm", words.split(), strict=True))
    fields = {names[name]: value for name, value in send_fields(TOPIC, TEXT).items() if name in names}
    peer.tell(324, fields, b"answer")
    assert pushed(asker).body == b"answer"


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("CORRELATION_ID\x017\x02", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01nobody\x02", "push reply message fail, channel of <nobody> not found."),
    ],
)
def test_nobody_to_reply_to(peer: Peer, text: str, remark: str) -> None:
    """The reply is stored all the same, and the answer says where."""
    reply(peer, text)
    (answer,) = peer.read()
    assert (answer.code, answer.remark) == (1, remark)
    assert answer.fields["msgId"] != "0"
    assert len(peer.messages(TOPIC)) == 1


def test_who_asked_says_no_or_nothing_or_leaves(world: World, peer: Peer, asker: Peer) -> None:
    reply(peer)
    asker.answer(pushed(asker), 1)
    reply(peer)
    world.advance(10_000)
    reply(peer)
    asker.close()
    answers = peer.read()
    assert [(answer.code, answer.remark) for answer in answers] == [(1, "push reply message to askerfail.")] * 3
    assert len(world.broker.calls) == 0


def test_replies_need_not_be_stored() -> None:
    world = World(store_reply_message_enable=False)
    peer = world.connect()
    reply(peer, "")
    (answer,) = peer.read()
    assert (answer.fields["msgId"], answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0", "0")
    assert peer.messages(TOPIC) == []


def test_a_reply_whose_sender_left_meanwhile(world: World, peer: Peer, asker: Peer) -> None:
    reply(peer)
    peer.close()
    asker.answer(pushed(asker))
    assert peer.read() == []


def test_a_reply_that_cannot_be_stored_was_pushed_all_the_same(peer: Peer, asker: Peer) -> None:
    reply(peer, TEXT + "DELAY\x01x\x02")
    asker.answer(pushed(asker))
    (answer,) = peer.read()
    assert (answer.code, answer.fields["msgId"]) == (0, "0")


def test_topics_are_checked_as_for_a_send(peer: Peer) -> None:
    peer.tell(325, send_fields("a.b", TEXT), b"answer")
    (answer,) = peer.read()
    assert answer.code == 1
