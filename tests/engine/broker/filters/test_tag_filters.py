"""Pulls that filter by tags: what the broker makes of expressions, hashes and what clients say of them (cases FLT)."""

from __future__ import annotations

import json

import pytest

from mqproto.codec import Command
from mqproto.wire.ids import java_hash
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields


def heartbeat(expression: str, version: int = 5, codes: tuple[int, ...] = ()) -> bytes:
    wanted = {
        "topic": "T",
        "subString": expression,
        "subVersion": version,
        "expressionType": "TAG",
        "codeSet": list(codes),
    }
    consumer = {
        "groupName": "G",
        "consumeType": 1,
        "messageModel": 1,
        "consumeFromWhere": 0,
        "subscriptionDataSet": [wanted],
    }
    return json.dumps({"clientID": "c1", "consumerDataSet": [consumer]}).encode()


def subscribed(offset: int = 0, version: int = 5, sys_flag: int = 0) -> dict[str, str]:
    return pull_fields(offset=offset, sysFlag=str(sys_flag), subscription="-", subVersion=str(version))


def send_tags(peer: Peer, *tags: str) -> None:
    for tag in tags:
        assert peer.send(properties=f"TAGS\x01{tag}\x02" if tag else "").code == 0


def tags_of(answer: Command) -> list[str | None]:
    assert answer.code == 0, answer
    return [message.tags for message in decode_records(answer.body)]


def test_tags_with_one_hash_are_for_the_consumer_to_tell_apart(peer: Peer) -> None:
    """FLT-01: it gets both, and the place to go on."""
    assert java_hash("Aa") == java_hash("BB")
    send_tags(peer, *["BB"] * 40)
    answer = peer.pull(subscription="Aa")
    assert tags_of(answer) == ["BB"] * 32
    assert answer.fields["nextBeginOffset"] == "32"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("TagA||TagB", ["TagA", "TagB"]),
        (" TagA || TagB ", ["TagA", "TagB"]),
        ("TagA||", ["TagA"]),
        ("*", ["TagA", "TagB", "TagA ", "TagA|TagB", "*", None]),
        ("", ["TagA", "TagB", "TagA ", "TagA|TagB", "*", None]),
        (" * ", ["*"]),
        ("TagA|TagB", ["TagA|TagB"]),
        ("||".join(f"tag-{number}" for number in range(200)) + "||TagB", ["TagB"]),
    ],
)
@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_expressions(peer: Peer, expression: str, expected: list[str | None], by_heartbeat: bool) -> None:
    """FLT-03."""
    send_tags(peer, "TagA", "TagB", "TagA ", "TagA|TagB", "*", "")
    if by_heartbeat:
        peer.heartbeat(heartbeat(expression))
        assert tags_of(peer.ask(11, subscribed())) == expected
    else:
        assert tags_of(peer.ask(11, pull_fields() | {"subscription": expression})) == expected


@pytest.mark.parametrize("expression", ["||", " ", " || "])
@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_expressions_that_name_nothing(peer: Peer, expression: str, by_heartbeat: bool) -> None:
    """FLT-03: refused rather than matching nothing."""
    send_tags(peer, "a")
    if by_heartbeat:
        peer.heartbeat(heartbeat(expression))
    answer = peer.ask(11, subscribed()) if by_heartbeat else peer.pull(subscription=expression)
    assert (answer.code, answer.remark) == (23, "parse the consumer's subscription failed")


def test_codes_that_a_client_worked_out_are_not_believed(peer: Peer) -> None:
    """The C++ client's hash is another one for what is no ASCII."""
    send_tags(peer, "标签", "other")
    peer.heartbeat(heartbeat("标签", codes=(1, java_hash("other"))))
    assert tags_of(peer.ask(11, subscribed())) == ["标签"]


def test_the_expression_that_counts_is_the_newest(peer: Peer) -> None:
    send_tags(peer, "a", "b")
    peer.heartbeat(heartbeat("a", 5))
    peer.heartbeat(heartbeat("b", 4))
    assert tags_of(peer.ask(11, subscribed(version=5))) == ["a"]
    peer.heartbeat(heartbeat("b", 6))
    assert tags_of(peer.ask(11, subscribed(version=5))) == ["b"]
    assert peer.ask(11, subscribed(version=7)).code == 25


def test_a_rare_tag_takes_a_pull_for_800_messages(peer: Peer) -> None:
    for _ in range(5):
        peer.feed(b"".join(peer.frame(310, send_fields(properties="TAGS\x01often\x02"), b"x") for _ in range(200)))
        peer.read()
    send_tags(peer, "rare")
    steps = []
    answer = peer.pull(subscription="rare")
    while answer.code == 20:
        steps.append(int(answer.fields["nextBeginOffset"]))
        answer = peer.pull(offset=steps[-1], subscription="rare")
    # A read ends with the file of the queue, too.
    assert (steps, tags_of(answer), answer.fields["nextBeginOffset"]) == ([800, 1000], ["rare"], "1001")


def test_who_waits_for_many_tags_is_woken_by_them_alone(world: World, peer: Peer) -> None:
    send_tags(peer, "a")
    peer.heartbeat(heartbeat("||".join(f"tag-{number}" for number in range(400))))
    waiter = world.connect()
    waiter.tell(11, subscribed(1, sys_flag=2))
    send_tags(peer, "a", "tag-400", "")
    assert waiter.read() == []
    send_tags(peer, "tag-399")
    assert tags_of(waiter.read()[0]) == ["tag-399"]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_pull_that_waits_does_not_pass_over_what_was_subscribed_meanwhile(
    world: World, peer: Peer, arrives: bool
) -> None:
    """CON-12, from the broker's side: what matches neither is passed over, what came after the change is left for the
    next pull.
    """
    send_tags(peer, "first")
    peer.heartbeat(heartbeat("TagA"))
    peer.tell(11, subscribed(offset=1, sys_flag=2) | {"suspendTimeoutMillis": "5000"})
    other = world.connect()
    send_tags(other, "TagB")
    assert peer.read() == []
    peer.heartbeat(heartbeat("TagA || TagB", 6))
    assert peer.read() == []
    if arrives:
        send_tags(other, "TagB")
    world.advance(5_000)
    (answer,) = peer.read()
    assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "2")
    if arrives:
        assert tags_of(peer.ask(11, subscribed(offset=2, version=6))) == ["TagB"]
