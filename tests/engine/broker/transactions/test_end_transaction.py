"""Half messages and their ends (docs/protocol/broker.md 2.9)."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.message import MessageExt
from tests.engine.broker.harness import HOST, Peer, World

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TEXT = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TAGS\x01a\x02UNIQ_KEY\x01u\x02WAIT\x01true\x02"


def prepare(peer: Peer, text: str = TEXT) -> Command:
    answer = peer.send(body=b"half", properties=text, e="2", f="4", h="9")
    assert answer.code == 0
    return answer


def end(half: Command, how: int, **changes: str) -> dict[str, str]:
    offset = int(half.fields["msgId"][-16:], 16)
    fields = {"producerGroup": "PG", "tranStateTableOffset": half.fields["queueOffset"], "commitLogOffset": str(offset)}
    return (
        fields
        | {"commitOrRollback": str(how), "fromTransactionCheck": "false", "msgId": "u", "transactionId": "u"}
        | changes
    )


def test_a_half_is_put_aside(peer: Peer) -> None:
    half = prepare(peer)
    assert (half.fields["queueId"], half.fields["queueOffset"]) == ("2", "0")
    assert peer.messages(queue=2) == []
    (message,) = peer.messages(HALF)
    assert (message.body, message.sys_flag, message.tags) == (b"half", 0, "a")
    wanted = {"REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "PG", "TRAN_MSG": "true", "CLUSTER": "DefaultCluster"}
    assert {name: message.properties[name] for name in wanted} == wanted
    assert prepare(peer).fields["queueOffset"] == "1"


def test_commit(world: World, peer: Peer) -> None:
    half = prepare(peer)
    peer.tell(37, end(half, 8), flag=2)
    assert peer.read() == []
    (message,) = peer.messages(queue=2)
    assert (message.body, message.flag, message.sys_flag, message.tags, message.msg_id) == (b"half", 9, 8, "a", "u")
    assert message.prepared_offset == int(half.fields["msgId"][-16:], 16)
    assert (message.born_time, message.born_host) == (1699999999000, "192.0.2.3:40000")
    (done,) = peer.messages(OP)
    assert (done.body, done.tags, done.queue_id) == (b"0", "d", 0)


def test_rollback(peer: Peer) -> None:
    prepare(peer)
    half = prepare(peer)
    assert peer.ask(37, end(half, 12)).code == 0
    assert peer.messages(queue=2) == []
    assert [message.body for message in peer.messages(OP)] == [b"1"]


def test_who_does_not_know_gets_no_answer_and_changes_nothing(peer: Peer) -> None:
    half = prepare(peer)
    peer.tell(37, end(half, 0))
    assert peer.read() == []
    assert peer.messages(OP) == []


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"commitOrRollback": "4"}, "commitOrRollback field wrong: 4"),
        ({"commitLogOffset": "1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"producerGroup": "other"}, "The producer group wrong"),
        ({"tranStateTableOffset": "7"}, "The transaction state table offset wrong"),
    ],
)
def test_what_does_not_agree(peer: Peer, changes: dict[str, str], remark: str) -> None:
    half = prepare(peer)
    answer = peer.ask(37, end(half, 8, **changes))
    assert (answer.code, answer.remark) == (1, remark)
    assert peer.messages(queue=2) == []


@pytest.mark.parametrize(
    "field", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId"]
)
@pytest.mark.parametrize("value", [None, "", "x", "-1", "9" * 30, "1.5"])
def test_each_bad_field(world: World, peer: Peer, field: str, value: str | None) -> None:
    """An error answer, the link lives, nothing changes. The id is a text, and any will do."""
    half = prepare(peer)
    fields = end(half, 8)
    if value is None:
        del fields[field]
    else:
        fields[field] = value
    before = world.store.end
    answer = peer.ask(37, fields)
    if field == "msgId" and value is not None:
        assert answer.code == 0
    else:
        assert (answer.code, world.store.end) == (1, before)
        assert peer.ask(37, end(half, 8)).code == 0
    assert len(peer.messages(queue=2)) == 1


def test_a_message_that_is_no_half_cannot_be_committed(peer: Peer) -> None:
    plain = peer.send(properties="PGROUP\x01PG\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02")
    answer = peer.ask(37, end(plain, 8))
    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")


def test_a_half_that_was_to_be_delayed_is_not(world: World, peer: Peer) -> None:
    """It would come out of the schedule topic as a half of nothing."""
    half = prepare(peer, TEXT + "DELAY\x013\x02")
    assert len(peer.messages(HALF)) == 1
    peer.ask(37, end(half, 8))
    assert len(peer.messages(queue=2)) == 1


def test_a_failed_message_of_an_old_consumer_is_no_half(world: World, peer: Peer) -> None:
    """Before 4.6.1 a consumer that sends a failed message itself sends TRAN_MSG along."""
    assert peer.send("%RETRY%G", properties=TEXT + "DELAY\x013\x02", j="1", l="16").code == 0
    assert peer.messages(HALF) == []
    world.advance(10_000)
    assert len(peer.messages("%RETRY%G")) == 1


def test_halves_may_be_forbidden() -> None:
    peer = World(reject_transaction_message=True).connect()
    answer = peer.send(properties=TEXT)
    assert (answer.code, answer.remark) == (16, f"the broker[{HOST}] sending transaction message is forbidden")


def test_a_commit_waits_for_the_disk_under_sync_flush() -> None:
    world = World(store={"flush_disk_type": "SYNC_FLUSH"})
    peer = world.connect()
    half = prepare(peer)
    world.hold_jobs = True
    peer.tell(37, end(half, 8))
    assert peer.read() == []
    while world.jobs:
        world.run_held()
    assert [answer.code for answer in peer.read()] == [0]


def test_a_waiting_pull_gets_what_was_committed(world: World, peer: Peer) -> None:
    half = prepare(peer)
    reader = world.connect()
    reader.tell(
        11,
        {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "2",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "a",
        },
    )
    peer.ask(37, end(half, 8))
    (answer,) = reader.read()
    assert answer.code == 0


def test_hidden_records_are_no_messages(peer: Peer) -> None:
    """A prepared message without TRAN_MSG has no place in a queue."""
    assert peer.send(f="4").fields["queueOffset"] == "0"
    assert peer.send().fields["queueOffset"] == "0"
    messages: list[MessageExt] = peer.messages()
    assert [message.sys_flag for message in messages] == [0]
