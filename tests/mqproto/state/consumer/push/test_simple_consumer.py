"""A push consumer whose application takes messages one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import InvalidSetting
from mqproto.message import MessageExt
from mqproto.state.consumer.push.held_messages import HeldClaim
from mqproto.state.consumer.push.simple_consumer import ClaimExpired, SimpleConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.state.producer.trace import FLUSH_MS
from mqproto.wire import properties as names
from mqproto.wire.bodies import MessageModel, ResetOffsets
from mqproto.wire.codes import RequestCode
from mqproto.wire.names import TRACE_TOPIC
from tests.mqproto.state.consumers import FIRST, File
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import WALL, broker

MINUTE = 60_000


class Application:
    """Takes and settles on the stage."""

    def __init__(self, cluster: Cluster, *topics: str, file: File | None = None, **settings: Any) -> None:
        self.cluster = cluster
        self.stage = cluster.stage
        made = ConsumerSettings(group="g", **{"consume_from_where": FIRST, **settings})
        self.core = SimpleConsumerCore(self.stage.node, made, "face", offset_file=file)
        for topic in topics:
            self.core.subscribe(topic, now=self.stage.now)

    def start(self) -> Application:
        self.stage.begin()
        self.cluster.start(self.core)
        return self

    def take(self) -> MessageExt:
        message = self.maybe()
        assert message is not None
        return message

    def maybe(self) -> MessageExt | None:
        message = self.core.held.take(HeldClaim(), self.stage.now)
        self.stage.settle()
        return message

    def drain(self) -> list[bytes]:
        """Take and acknowledge all that is there."""
        seen: list[bytes] = []
        while (message := self.maybe()) is not None:
            seen.append(message.body)
            assert self.ack(message)
        return seen

    def wait(self, timeout_ms: int | None = None, claim: HeldClaim | None = None) -> Ticket[MessageExt | None]:
        return self.stage.start(self.core.held.receive(claim or HeldClaim(), timeout_ms, self.stage.now))

    def ack(self, message: MessageExt) -> bool:
        counts = self.core.ack(message, self.stage.now)
        self.stage.settle()
        return counts

    def later(self, message: MessageExt, level: int = 0) -> bool:
        counts = self.core.retry_later(message, self.stage.now, level)
        self.stage.settle()
        return counts

    def close(self) -> None:
        self.stage.run(self.core.shutdown(self.stage.now))

    def committed(self, queue_id: int = 0) -> int | None:
        return self.core.offsets().get(queue_of("T", queue_id))


@pytest.fixture
def application(cluster: Cluster) -> Application:
    return Application(cluster, "T").start()


def test_messages_are_taken_one_by_one_and_the_offset_follows_the_acknowledgements(
    cluster: Cluster, application: Application
) -> None:
    cluster.put("T", b"0", b"1", b"2")
    first, second, third = application.take(), application.take(), application.take()
    assert ([first.body, second.body, third.body], application.maybe()) == ([b"0", b"1", b"2"], None)
    assert application.ack(second)
    assert application.committed() == 0
    assert application.ack(first)
    assert application.committed() == 2
    assert application.ack(third)
    assert application.committed() == 3


def test_who_waits_is_served_in_turn(cluster: Cluster, application: Application) -> None:
    one, two = application.wait(), application.wait()
    cluster.put("T", b"0")
    assert (one.settled, two.settled) == (True, False)
    cluster.put("T", b"1", b"2")
    got = [one.result(), two.result()]
    assert [message.body for message in got if message] == [b"0", b"1"]
    assert application.take().body == b"2"


def test_waiting_ends_with_its_time(cluster: Cluster, application: Application) -> None:
    waiting = application.wait(500)
    cluster.stage.advance(499)
    assert not waiting.settled
    cluster.stage.advance(1)
    assert waiting.result() is None
    assert application.core.held.receivers == type(application.core.held.receivers)()
    cluster.put("T", b"0")
    assert application.wait(0).result() is not None
    assert application.wait(0).result() is None


def test_a_wait_that_was_given_up_takes_nothing(cluster: Cluster, application: Application) -> None:
    gone, there = application.wait(), application.wait()
    cluster.stage.node.cancel(gone, cluster.stage.now)
    cluster.put("T", b"0")
    message = there.result()
    assert message is not None
    assert message.body == b"0"


def test_a_message_for_somebody_who_was_interrupted_is_for_the_next(cluster: Cluster, application: Application) -> None:
    claim = HeldClaim()
    interrupted, waiting = application.wait(claim=claim), application.wait()
    cluster.put("T", b"0")
    assert interrupted.settled
    application.core.held.give_back(claim, cluster.stage.now)
    application.core.held.give_back(claim, cluster.stage.now)
    cluster.stage.settle()
    message = waiting.result()
    assert message is not None
    assert message.body == b"0"
    assert application.maybe() is None
    assert application.ack(message)
    application.core.held.give_back(HeldClaim(), cluster.stage.now)
    claim = HeldClaim()
    application.wait(claim=claim)
    cluster.put("T", b"1", b"2")
    application.core.held.give_back(claim, cluster.stage.now)
    assert application.drain() == [b"1", b"2"], "it comes before those that came after it"


def test_the_number_of_messages_that_are_out_is_bounded(cluster: Cluster) -> None:
    application = Application(cluster, "T", consume_thread_min=3).start()
    cluster.put("T", *[b"%d" % n for n in range(9)])
    taken = [application.take() for _ in range(3)]
    assert application.maybe() is None
    application.ack(taken[1])
    assert application.take().body == b"3"
    assert application.maybe() is None


def test_an_acknowledgement_counts_once_and_only_here(cluster: Cluster, application: Application) -> None:
    cluster.put("T", b"0")
    message = application.take()
    assert application.ack(message)
    assert not application.ack(message)
    assert not application.later(message)
    assert not application.ack(MessageExt("T", b"stranger"))
    assert cluster.broker.sent_back == []


def test_what_shall_come_later_goes_back_to_the_broker(cluster: Cluster, application: Application) -> None:
    cluster.put("T", b"0", b"1")
    assert application.later(application.take())
    assert application.later(application.take(), -1)
    assert [one["delayLevel"] for one in cluster.broker.sent_back] == ["0", "-1"]
    assert application.committed() == 2


def test_what_takes_too_long_comes_again_and_its_place_is_free(cluster: Cluster) -> None:
    application = Application(cluster, "T", consume_thread_min=2, consume_timeout=1).start()
    cluster.put("T", *[b"%d" % n for n in range(4)])
    cluster.stage.advance(50_000)
    slow = application.take()
    assert slow.properties[names.CONSUME_START_TIME] == str(WALL + 50_000)
    cluster.advance(59_000)
    assert cluster.broker.sent_back == [], "it was taken late, and what waits here was not begun (CON-08)"
    cluster.advance(1_000)
    assert [(one["offset"], one["delayLevel"]) for one in cluster.broker.sent_back] == [("0", "3")]
    assert not application.ack(slow)
    assert application.drain() == [b"1", b"2", b"3"]
    assert application.committed() == 4
    assert any("was not acknowledged within 1 min and comes again" in line for line in cluster.stage.node.notices)


def test_the_adapter_hears_of_what_took_too_long(cluster: Cluster) -> None:
    application = Application(cluster, "T", consume_timeout=1).start()
    cluster.put("T", b"0", b"1")
    cluster.stage.advance(10)
    claim = HeldClaim()
    message = application.core.held.take(claim, cluster.stage.now)
    taken_at = cluster.stage.now
    cluster.stage.advance(5)
    acknowledged = application.take()
    assert message is not None
    assert (claim.message, claim.queue, claim.taken_at) == (message, queue_of("T"), taken_at)
    assert (application.core.taken_at(message), application.core.taken_at(acknowledged)) == (taken_at, taken_at + 5)
    assert application.ack(acknowledged)
    assert application.core.taken_at(acknowledged) is None
    cluster.stage.advance(MINUTE - 6)
    assert cluster.stage.delivered == []
    cluster.stage.advance(1)
    (action,) = cluster.stage.delivered
    assert isinstance(action, Deliver)
    told = action.task
    assert isinstance(told, ClaimExpired)
    assert (told.group, told.listener, told.message, told.taken_at) == ("g", "face", message, taken_at)
    assert application.core.taken_at(message) is None
    cluster.advance(2 * MINUTE)
    assert len(cluster.stage.delivered) == 1


def test_in_a_namespace_the_queue_of_a_message_is_the_applications() -> None:
    cluster = Cluster("b", namespace="ns")
    cluster.topic("ns%T")
    application = Application(cluster, "T").start()
    cluster.put("ns%T", b"0")
    claim = HeldClaim()
    message = application.core.held.take(claim, cluster.stage.now)
    assert (message, claim.queue) == (claim.message, queue_of("T"))


def test_forgotten_messages_do_not_stop_consumption_for_good(cluster: Cluster) -> None:
    application = Application(cluster, "T", consume_thread_min=1, consume_timeout=1).start()
    cluster.put("T", *[b"%d" % n for n in range(5)])
    for number in range(5):
        assert application.take().body == b"%d" % number
        assert application.maybe() is None
        cluster.advance(2 * MINUTE)
    assert len(cluster.broker.sent_back) == 5
    assert application.core.held.taken == {}


def test_what_was_not_acknowledged_at_the_end_is_not_committed(cluster: Cluster, application: Application) -> None:
    cluster.put("T", b"0", b"1", b"2", b"3")
    first, second = application.take(), application.take()
    application.ack(first)
    waiting = [application.wait(), application.wait(), application.wait()]
    application.close()
    assert [one.result() is None for one in waiting] == [False, False, True]
    assert cluster.broker.offsets[("T", 0)] == 1
    assert not application.ack(second)
    assert application.maybe() is None
    assert application.wait().result() is None
    assert cluster.broker.sent_back == []
    assert cluster.stage.node._tasks == {}


def test_the_end_waits_for_what_is_out_if_it_is_told_to(cluster: Cluster) -> None:
    application = Application(cluster, "T", await_termination_millis_when_shutdown=5_000).start()
    cluster.put("T", b"0", b"1")
    message = application.take()
    end = cluster.stage.start(application.core.shutdown(cluster.stage.now))
    early = end.settled
    assert application.maybe() is None, "what was not taken is not to be had any more"
    assert application.ack(message)
    assert (early, end.settled) == (False, True)
    assert cluster.broker.offsets[("T", 0)] == 1


def test_what_belongs_to_another_member_now_is_not_handed_out(cluster: Cluster, application: Application) -> None:
    cluster.put("T", b"mine")
    cluster.put("T", b"0", b"1", queue_id=1)
    mine, gone = application.take(), application.take()
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    assert application.maybe() is None
    assert not application.ack(gone), "its new owner has it already"
    assert application.ack(mine)
    assert len(application.core._consumption.deliveries.running) == 0


def test_a_reset_waits_for_what_is_out_and_not_for_what_waits_here(cluster: Cluster) -> None:
    application = Application(cluster, "T").start()
    cluster.put("T", b"0", b"1")

    def reset(queue_id: int) -> None:
        body = ResetOffsets({queue_of("T", queue_id): 0}).to_json()
        fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
        cluster.stage.request("b:10911", RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body, oneway=True)

    reset(0)
    assert [application.take().body, application.take().body] == [b"0", b"1"]
    assert application.maybe() is None
    reset(0)
    assert application.maybe() is None
    cluster.advance(10_000)
    assert application.drain() == [b"0", b"1"]


# --- order


def test_in_order_a_queue_goes_on_with_each_acknowledgement(cluster: Cluster) -> None:
    application = Application(cluster, "T", orderly=True).start()
    cluster.put("T", b"0", b"1")
    cluster.put("T", b"other", queue_id=1)
    first, other = application.take(), application.take()
    assert (first.body, other.body, application.maybe()) == (b"0", b"other", None)
    application.ack(first)
    assert application.take().body == b"1"


def test_in_order_a_failure_pauses_its_queue(cluster: Cluster) -> None:
    application = Application(cluster, "T", orderly=True).start()
    cluster.put("T", b"0", b"1")
    assert application.later(application.take())
    assert application.maybe() is None
    cluster.stage.advance(1_000)
    again = application.take()
    assert (again.body, again.reconsume_times) == (b"0", 1)
    assert cluster.broker.sent_back == []


def test_in_order_what_takes_too_long_comes_again_here(cluster: Cluster) -> None:
    application = Application(cluster, "T", orderly=True, consume_timeout=1).start()
    cluster.put("T", b"0", b"1")
    slow = application.take()
    cluster.advance(2 * MINUTE)
    assert application.take() is slow
    assert application.ack(slow)
    assert application.take().body == b"1"


def test_a_queue_that_only_waits_here_is_unlocked_at_once(cluster: Cluster) -> None:
    """After its offset was stored, so that the next owner goes on there."""
    application = Application(cluster, "T", orderly=True).start()
    cluster.put("T", b"0", b"1", queue_id=1)
    application.ack(application.take())
    cluster.broker.others.append("zz@other")
    cluster.stage.request("b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
    codes = cluster.broker.peer.codes()
    assert codes.count(RequestCode.UNLOCK_BATCH_MQ) == 1
    assert codes.index(RequestCode.UPDATE_CONSUMER_OFFSET) < codes.index(RequestCode.UNLOCK_BATCH_MQ)
    assert cluster.broker.offsets[("T", 1)] == 1
    assert application.maybe() is None


# --- broadcasting and operators


def test_broadcasting_keeps_the_place_and_repeats_what_takes_too_long(cluster: Cluster) -> None:
    application = Application(
        cluster, "T", file=File(), message_model=MessageModel.BROADCASTING, consume_timeout=1
    ).start()
    cluster.put("T", b"0", b"1", b"2")
    application.ack(application.take())
    slow = application.take()
    cluster.advance(MINUTE)
    assert application.take().body == b"2"
    assert application.take() is slow
    assert slow.reconsume_times == 1
    assert application.committed() == 1
    application.ack(slow)
    assert application.committed() == 2


def test_a_message_of_an_operator_is_taken_like_any_other(cluster: Cluster, application: Application) -> None:
    replies: list[bytes] = []
    for body in (b"0", b"1", b"2"):
        application.core.consume_directly(
            MessageExt("T", body), "b", lambda answer, now: replies.append(answer), cluster.stage.now
        )
    assert application.ack(application.take())
    assert application.later(application.take())
    application.close()
    assert [b"CR_SUCCESS" in replies[0], b"CR_LATER" in replies[1], b"is closed" in replies[2]] == [True] * 3
    assert cluster.broker.sent_back == []


def test_the_trace_begins_when_a_message_is_taken(cluster: Cluster) -> None:
    """A message that only waits here was not begun, and an operator's is none of the group's."""
    cluster.topic(TRACE_TOPIC, 1)
    cluster.broker.peer.answers[RequestCode.SEND_MESSAGE_V2] = broker().answers[RequestCode.SEND_MESSAGE_V2]
    application = Application(cluster, "T", enable_msg_trace=True).start()

    def told() -> list[tuple[str, int]]:
        cluster.stage.advance(FLUSH_MS)
        texts = (
            b"".join(bytes(request.body) for request in cluster.requests(RequestCode.SEND_MESSAGE_V2))
            .decode()
            .split("\x02")
        )
        records = [text.split("\x01") for text in texts if text]
        return [(record[0], int(record[1])) for record in records if record[0] == "SubBefore"] + [
            (record[0], int(record[3])) for record in records if record[0] == "SubAfter"
        ]

    cluster.put("T", b"0", b"1")
    application.core.consume_directly(MessageExt("T", b"2"), "b", lambda answer, now: None, cluster.stage.now)
    cluster.stage.advance(30_000)
    assert told() == []
    began = cluster.stage.now
    message = application.take()
    cluster.stage.advance(70)
    application.ack(message)
    assert told() == [("SubBefore", WALL + began), ("SubAfter", 70)]
    application.drain()
    assert [kind for kind, _ in told()] == ["SubBefore", "SubBefore", "SubAfter", "SubAfter"]


def test_lists_are_not_for_iteration(cluster: Cluster) -> None:
    with pytest.raises(InvalidSetting, match="messages are taken one by one"):
        Application(cluster, consume_message_batch_max_size=2)


# --- anything at all


ACTS = st.sampled_from(["put", "take", "wait", "cancel", "ack", "later", "time", "member"])


@given(script=st.lists(st.tuples(ACTS, st.integers(0, 5)), max_size=50), orderly=st.booleans())
def test_nothing_is_committed_that_was_not_settled(script: list[tuple[str, int]], orderly: bool) -> None:
    cluster = Cluster("b")
    cluster.topic("T")
    application = Application(cluster, "T", orderly=orderly, consume_thread_min=3, consume_timeout=1).start()
    put = {0: 0, 1: 0}
    settled: dict[int, set[int]] = {0: set(), 1: set()}
    out: list[MessageExt] = []
    waits: list[Ticket[MessageExt | None]] = []
    for act, choice in script:
        if act == "put":
            cluster.put("T", b"x", queue_id=choice % 2)
            put[choice % 2] += 1
        elif act == "take":
            out += [message] if (message := application.maybe()) is not None else []
        elif act == "wait":
            waits.append(application.wait())
        elif act == "cancel" and waits:
            cluster.stage.node.cancel(waits[choice % len(waits)], cluster.stage.now)
        elif act in ("ack", "later") and out:
            message = out.pop(choice % len(out))
            counts = application.ack(message) if act == "ack" else application.later(message)
            if act == "ack" or (counts and not orderly):
                settled[message.queue_id].add(message.queue_offset)
        elif act == "time":
            cluster.advance(choice * 15_000, 5_000)
        elif act == "member":
            cluster.broker.others[:] = ["zz@other"] if choice % 2 else []
            cluster.stage.request(
                "b:10911", RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True
            )
        for one in [one for one in waits if one.settled]:
            waits.remove(one)
            if one.failure is None and (got := one.result()) is not None:
                out.append(got)
        assert len(application.core.held.taken) <= 3
        gone = {(one["originTopic"], int(one["offset"])) for one in cluster.broker.sent_back}
        for queue_id in (0, 1):
            committed = cluster.broker.offsets.get(("T", queue_id), 0)
            for offset in range(committed):
                physical = cluster.broker.queues[("T", queue_id)][offset].physical_offset
                assert offset in settled[queue_id] or ("T", physical) in gone
