"""Pulls: the request, the reading of its answer, and the loop as a transcript."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.errors import BrokerError, CallExpired, HeaderError, MQError, NoRoute, StateError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.fast_pulls import read_found
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import Subscribed, pull_header, pull_loop, read_answer, reason_of
from mqproto.state.flows.effects import Call, Expired, Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.compression import Compression, deflate
from mqproto.wire.flags import COMPRESSED
from mqproto.wire.record import RecordError, encode_record

QUEUE = MessageQueue("T", "b", 2)


def message(offset: int, body: bytes = b"x", tag: str = "", **others: Any) -> MessageExt:
    found = MessageExt(
        "T", body, queue_id=2, queue_offset=offset, physical_offset=1000 + offset, broker_name="b", **others
    )
    if tag:
        found.properties["TAGS"] = tag
    return found


def answer(
    code: int, next_offset: int, messages: list[MessageExt] | None = None, *, broker_id: int = 0, body: bytes = b""
) -> Command:
    fields = {
        "suggestWhichBrokerId": str(broker_id),
        "nextBeginOffset": str(next_offset),
        "minOffset": "0",
        "maxOffset": "99",
    }
    return Command(code=code, fields=fields, body=b"".join(map(encode_record, messages or [])) + body, flag=1)


def test_the_header_says_what_java_says() -> None:
    """Golden capture consume-retry: the first pull of a queue and one with a commit."""
    queue = ProcessQueue(MessageQueue("Retries", "broker-a", 0), 0)
    subscribed = Subscribed("*", "TAG", 1795979754357)
    first = pull_header("golden-retry", queue, subscribed, batch=32, commit_offset=0, post_subscription=False)
    assert first == {
        "queueId": "0",
        "maxMsgNums": "32",
        "sysFlag": "2",
        "suspendTimeoutMillis": "15000",
        "commitOffset": "0",
        "bname": "broker-a",
        "topic": "Retries",
        "queueOffset": "0",
        "expressionType": "TAG",
        "subVersion": "1795979754357",
        "consumerGroup": "golden-retry",
    }
    later = pull_header("golden-retry", queue, subscribed, batch=32, commit_offset=2, post_subscription=True)
    assert (later["sysFlag"], later["commitOffset"], later["subscription"]) == ("7", "2", "*")
    queue.broker_id = 1
    assert pull_header("g", queue, subscribed, batch=32, commit_offset=2, post_subscription=False)["sysFlag"] == "2", (
        "a slave takes none"
    )
    assert (
        pull_header("g", queue, subscribed, batch=32, commit_offset=None, post_subscription=False)["commitOffset"]
        == "-1"
    )


def test_an_answer_brings_messages_with_the_bounds_of_the_queue() -> None:
    pulled = read_answer(answer(0, 7, [message(5), message(6)], broker_id=1), QUEUE, frozenset(), "b:1")
    assert pulled.messages is not None
    assert [(one.queue_offset, one.broker_name, one.properties) for one in pulled.messages] == [
        (5, "b", {"MIN_OFFSET": "0", "MAX_OFFSET": "99"}),
        (6, "b", {"MIN_OFFSET": "0", "MAX_OFFSET": "99"}),
    ]
    assert (pulled.next_offset, pulled.broker_id) == (7, 1)


def test_tags_are_compared_again() -> None:
    """FLT-01: `Aa` and `BB` have the same hash, so the broker sends both; FLT-03: a blank at the end is another tag."""
    messages = [message(0, tag="BB"), message(1, tag="Aa"), message(2, tag="Aa "), message(3)]
    pulled = read_answer(answer(0, 4, messages), QUEUE, frozenset({"Aa"}), "b:1")
    assert pulled.messages is not None
    assert [one.queue_offset for one in pulled.messages] == [1]
    assert pulled.next_offset == 4


def test_refusals_and_unreadable_headers_are_typed() -> None:
    with pytest.raises(BrokerError, match="b:1 answered code 1: no"):
        read_answer(Command(code=1, flag=1, remark="no"), QUEUE, frozenset(), "b:1")
    with pytest.raises(HeaderError):
        read_answer(Command(code=0, flag=1), QUEUE, frozenset(), "b:1")
    assert read_answer(answer(19, 5), QUEUE, frozenset(), "b:1").messages == []
    assert read_answer(answer(20, 5), QUEUE, frozenset(), "b:1").messages == []
    assert read_answer(answer(21, 5), QUEUE, frozenset(), "b:1").messages is None


def packed(offset: int) -> MessageExt:
    body, sys_flag = deflate(bytes(5000), Compression.ZLIB)
    return message(offset, body, sys_flag=sys_flag)


def spoiled(offset: int) -> MessageExt:
    return message(offset, b"no zlib stream", sys_flag=COMPRESSED)


def test_bodies_arrive_inflated() -> None:
    pulled = read_answer(answer(0, 1, [packed(0)]), QUEUE, frozenset(), "b:1")
    assert pulled.messages is not None
    assert pulled.messages[0].body == bytes(5000)
    assert not pulled.messages[0].sys_flag & COMPRESSED


def test_a_body_that_cannot_be_read_comes_alone_and_marked() -> None:
    """It is neither lost in silence nor does it stop the queue: what came before it first, then it, then what
    follows.
    """
    records = [message(3), spoiled(4), message(5)]
    first = read_answer(answer(0, 6, records), QUEUE, frozenset(), "b:1")
    assert first.messages is not None
    assert ([one.queue_offset for one in first.messages], first.next_offset) == ([3], 4)
    second = read_answer(answer(0, 6, records[1:]), QUEUE, frozenset({"any"}), "b:1")
    assert second.messages is not None
    (mark,) = second.messages
    assert (mark.queue_offset, mark.physical_offset, mark.body, mark.sys_flag) == (4, 1004, b"", COMPRESSED)
    assert reason_of(mark).startswith(": the body is no zlib stream")
    assert reason_of(first.messages[0]) == ""
    assert second.next_offset == 5


def test_a_damaged_record_is_an_error_once_it_comes_first() -> None:
    records = answer(0, 6, [message(3)], body=b"\0" * 50)
    first = read_answer(records, QUEUE, frozenset(), "b:1")
    assert first.messages is not None
    assert ([one.queue_offset for one in first.messages], first.next_offset) == ([3], 4)
    with pytest.raises(RecordError):
        read_answer(answer(0, 6, body=b"\0" * 50), QUEUE, frozenset(), "b:1")


class Host:
    """Consumer and node of a pull loop, scripted."""

    group = "g"
    pull_interval_ms = 0
    pull_timeout_ms = 30_000
    failure_pause_ms = 1_000

    def __init__(self) -> None:
        self.held: Ticket[None] | None = None
        self.subscription: Subscribed | None = Subscribed("*", "TAG", 7)
        self.address: str | MQError = "b:1"
        self.events: list[object] = []
        self.beat: Ticket[None] = Ticket()

    def hold(self, queue: ProcessQueue) -> Ticket[None] | None:
        return self.held

    def subscribed(self, topic: str) -> Subscribed | None:
        return self.subscription

    def pull_address(self, queue: ProcessQueue, now: int) -> Flow[tuple[str | MQError, int]]:
        yield from ()
        return self.address, now

    def pull_fields(self, queue: ProcessQueue, subscribed: Subscribed) -> dict[str, str]:
        return {"queueOffset": str(queue.next_offset)}

    def arrived(self, queue: ProcessQueue, fresh: list[MessageExt], now: int) -> None:
        self.events.append([one.queue_offset for one in fresh])

    def caught_up(self, queue: ProcessQueue) -> None:
        self.events.append(("caught up", queue.next_offset))

    def outside(self, queue: ProcessQueue, next_offset: int, now: int) -> None:
        self.events.append(("outside", next_offset))
        queue.drop()

    def heartbeat(self, now: int) -> Ticket[None]:
        self.events.append("heartbeat")
        return self.beat

    def pull_failed(self, queue: ProcessQueue, error: MQError) -> None:
        self.events.append(type(error))


def pull(offset: int, now: int) -> Call:
    return Call(
        "b:1", RequestCode.PULL_MESSAGE, {"queueOffset": str(offset)}, deadline=now + 30_000, read_answer=read_found
    )


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def queue() -> ProcessQueue:
    queue = ProcessQueue(QUEUE, 0)
    queue.start(5)
    return queue


def test_pulls_follow_one_another_at_once_while_they_bring_something(host: Host, queue: ProcessQueue) -> None:
    loop = pull_loop(queue, host, host, 0)
    assert next(loop) == pull(5, 0)
    assert loop.send((answer(0, 7, [message(5), message(6)]), 3)) == pull(7, 3)
    assert loop.send((answer(19, 7), 15_003)) == pull(7, 15_003)
    assert loop.send((answer(20, 40), 15_004)) == pull(40, 15_004)
    assert host.events == [[5, 6], ("caught up", 7), ("caught up", 40)]


def test_messages_that_the_filter_leaves_out_move_the_queue_on(host: Host, queue: ProcessQueue) -> None:
    """FLT-01: the offset goes on although nothing is left for the listener."""
    host.subscription = Subscribed("Aa", "TAG", 7, frozenset({"Aa"}))
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    assert loop.send((answer(0, 45, [message(5, tag="BB"), message(44, tag="BB")]), 3)) == pull(45, 3)
    assert host.events == [("caught up", 45)]


def test_the_pull_interval_is_kept(host: Host, queue: ProcessQueue) -> None:
    host.pull_interval_ms = 200
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    assert loop.send((answer(0, 6, [message(5)]), 3)) == Sleep(203)
    assert loop.send((None, 203)) == pull(6, 203)


def test_a_broker_that_holds_no_pull_is_not_asked_in_a_tight_loop(host: Host, queue: ProcessQueue) -> None:
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    assert loop.send((answer(19, 5), 1)) == Sleep(50)
    assert loop.send((None, 50)) == pull(5, 50)


def test_a_broker_that_brings_the_same_again_is_not_asked_in_a_tight_loop(host: Host, queue: ProcessQueue) -> None:
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    assert loop.send((answer(0, 5, [message(4)]), 1)) == Sleep(1_001)
    assert host.events == [("caught up", 5)]


def test_the_loop_waits_while_it_is_held(host: Host, queue: ProcessQueue) -> None:
    """CON-06: flow control costs one ticket, no timer, and no depth."""
    ticket: Ticket[None] = Ticket()
    host.held = ticket
    loop = pull_loop(queue, host, host, 0)
    assert next(loop) == Wait(ticket)
    for now in range(20_000):
        assert loop.send((None, now)) == Wait(ticket)
    host.held = None
    assert loop.send((None, 20_000)) == pull(5, 20_000)


@pytest.mark.parametrize(
    ("outcome", "pause", "told"),
    [
        (Command(code=1, flag=1), 1_000, BrokerError),
        (Command(code=2, flag=1), 1_000, BrokerError),
        (Command(code=23, flag=1), 1_000, BrokerError),
        (Command(code=int(ResponseCode.FLOW_CONTROL), flag=1), 20, BrokerError),
        (Command(code=0, flag=1), 1_000, HeaderError),
        (Expired("b:1", 30_000), 1_000, CallExpired),
    ],
)
def test_failures_are_told_and_tried_again(
    host: Host, queue: ProcessQueue, outcome: object, pause: int, told: type[MQError]
) -> None:
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    assert loop.send((outcome, 9)) == Sleep(9 + pause)
    assert loop.send((None, 2_000)) == pull(5, 2_000)
    assert host.events == [told]


def test_a_call_that_the_node_refuses_is_a_failure_like_others(host: Host, queue: ProcessQueue) -> None:
    loop = pull_loop(queue, host, host, 4)
    next(loop)
    assert loop.throw(NoRoute("T")) == Sleep(1_004)
    assert host.events == [NoRoute]


def test_nobody_to_ask_and_nothing_to_ask_for(host: Host, queue: ProcessQueue) -> None:
    host.address = NoRoute("T")
    loop = pull_loop(queue, host, host, 0)
    assert next(loop) == Sleep(1_000)
    host.address = "b:1"
    host.subscription = None
    assert loop.send((None, 1_000)) == Sleep(2_000)
    assert host.events == [NoRoute, StateError]


@pytest.mark.parametrize("code", [24, 25])
def test_an_unknown_subscription_is_announced_at_once(host: Host, queue: ProcessQueue, code: int) -> None:
    """docs/protocol/client.md 8: a heartbeat heals it; only where it does not, the loop slows down and asks for
    another.
    """
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    refusal = Command(code=code, flag=1)
    assert loop.send((refusal, 1)) == Wait(host.beat, 3_001)
    assert loop.send((None, 2)) == pull(5, 2)
    assert host.events == ["heartbeat"]
    assert loop.send((refusal, 3)) == Wait(host.beat, 3_003)
    assert loop.send((None, 4)) == Sleep(1_004)
    assert loop.send((None, 1_004)) == pull(5, 1_004)
    assert host.events == ["heartbeat", "heartbeat", BrokerError]
    assert loop.send((answer(19, 5), 16_004)) == pull(5, 16_004)
    assert loop.send((refusal, 16_005)) == Wait(host.beat, 19_005), "and after an answer it counts as the first again"
    assert loop.send((None, 16_006)) == pull(5, 16_006)


def test_an_offset_outside_the_queue_ends_the_loop(host: Host, queue: ProcessQueue) -> None:
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    with pytest.raises(StopIteration):
        loop.send((answer(21, 172_289), 1))
    assert host.events == [("outside", 172_289)]


@pytest.mark.parametrize("outcome", [answer(0, 6, [message(5)]), Command(code=1, flag=1), answer(21, 9)])
def test_an_answer_for_a_dropped_queue_is_ignored(host: Host, queue: ProcessQueue, outcome: Command) -> None:
    """CON-16."""
    loop = pull_loop(queue, host, host, 0)
    next(loop)
    queue.drop()
    with pytest.raises(StopIteration):
        loop.send((outcome, 1))
    assert host.events == []
    assert len(queue) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 19, 20, 21, 1, 25, 215]), st.integers(0, 60), st.lists(st.integers(0, 60), max_size=4)
        ),
        max_size=30,
    )
)
def test_whatever_a_broker_answers_offsets_rise_and_messages_come_once(
    script: list[tuple[int, int, list[int]]],
) -> None:
    seen: list[int] = []
    host, queue = Host(), ProcessQueue(QUEUE, 0)
    loop = pull_loop(queue, host, host, 0)
    now, offset = 0, 0
    effect: Any = next(loop)
    for code, next_offset, offsets in script:
        while not isinstance(effect, Call):
            now = max(now, effect.until) if isinstance(effect, Sleep) else now + 1
            effect = loop.send((None, now))
        assert int(effect.fields["queueOffset"]) >= offset
        offset = int(effect.fields["queueOffset"])
        now += 1
        try:
            effect = loop.send((answer(code, next_offset, [message(one) for one in offsets]), now))
        except StopIteration:
            assert queue.dropped
            break
        seen += [one for event in host.events if isinstance(event, list) for one in event]
        host.events.clear()
    assert seen == sorted(set(seen))
