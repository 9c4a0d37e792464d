"""What a listener's result means, how lists are cut, and the requests that send a message back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, MessageExt
from mqproto.state.consumer.push.concurrent import judge, split
from mqproto.state.consumer.send_back import restore_topic, retry_message, send_back
from mqproto.state.flows.effects import Call, Expired
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode
from mqproto.wire.flags import COMPRESSED
from tests.mqproto.state.by_hand import message, task

SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER


# --- results


@pytest.mark.parametrize(
    ("result", "ack_index", "succeeded", "complaint"),
    [
        (SUCCESS, 2**31 - 1, 3, None),
        (SUCCESS, 2, 3, None),
        (SUCCESS, 0, 1, None),
        (SUCCESS, -1, 0, None),
        (SUCCESS, -9, 0, None),
        (LATER, 2**31 - 1, 0, None),
        (
            ConsumeStatus.COMMIT,
            2**31 - 1,
            0,
            "the listener of group g returned COMMIT, which only ordered consumption knows",
        ),
        (
            ConsumeStatus.ROLLBACK,
            2,
            0,
            "the listener of group g returned ROLLBACK, which only ordered consumption knows",
        ),
        (None, 2**31 - 1, 0, "the listener of group g returned None instead of a ConsumeStatus"),
        (True, 2**31 - 1, 0, "the listener of group g returned True instead of a ConsumeStatus"),
        ("CONSUME_SUCCESS", 2, 0, "the listener of group g returned 'CONSUME_SUCCESS' instead of a ConsumeStatus"),
        (ValueError("no"), 2, 0, "the listener of group g raised ValueError: no"),
        (SystemExit(3), 2, 0, "the listener of group g raised SystemExit: 3"),
        (
            TypeError("takes 0 positional arguments"),
            2,
            0,
            "the listener of group g raised TypeError: takes 0 positional arguments",
        ),
    ],
)
def test_only_success_succeeds(result: object, ack_index: int, succeeded: int, complaint: str | None) -> None:
    """CON-01."""
    verdict = judge(result, task(3, ack_index=ack_index))
    assert (verdict.succeeded, verdict.complaint) == (succeeded, complaint)


def test_lists_are_cut_into_deliveries_and_unreadable_messages_stand_alone() -> None:
    messages = [message(0), message(1), message(2), message(3, sys_flag=COMPRESSED), message(4), message(5)]
    assert [[one.queue_offset for one in chunk] for chunk in split(messages, 2)] == [[0, 1], [2], [3], [4, 5]]
    assert [len(chunk) for chunk in split(messages[:3], 1)] == [1, 1, 1]
    assert split([], 5) == []


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 5))
def test_cutting_loses_and_reorders_nothing(unreadable: list[bool], size: int) -> None:
    messages = [message(n, sys_flag=COMPRESSED if bad else 0) for n, bad in enumerate(unreadable)]
    chunks = split(messages, size)
    assert [one for chunk in chunks for one in chunk] == messages
    assert all(0 < len(chunk) <= size for chunk in chunks)
    assert all(len(chunk) == 1 for chunk in chunks if any(one.sys_flag for one in chunk))


def test_a_retried_message_shows_its_first_topic() -> None:
    """CON-10, and only in the group's own retry topic."""
    for topic, shown in [("%RETRY%g", "T"), ("%RETRY%other", "%RETRY%other"), ("U", "U")]:
        one = MessageExt(topic, b"", {names.RETRY_TOPIC: "T"})
        restore_topic(one, "g")
        assert one.topic == shown
    plain = MessageExt("%RETRY%g", b"")
    restore_topic(plain, "g")
    assert plain.topic == "%RETRY%g"


# --- sending back


def test_the_request_that_sends_back_is_that_of_java() -> None:
    """Golden capture consume-retry."""
    one = MessageExt(
        "Retries",
        b"x",
        {names.UNIQ_KEY: "C00002032ADA4E0E2F2A945445910000"},
        physical_offset=5475,
        broker_name="broker-a",
    )
    flow = send_back(one, "golden-retry", 0, 16, "127.0.0.1:10911", 0)
    fields = {
        "maxReconsumeTimes": "16",
        "offset": "5475",
        "bname": "broker-a",
        "delayLevel": "0",
        "originTopic": "Retries",
        "originMsgId": "C00002032ADA4E0E2F2A945445910000",
        "unitMode": "false",
        "group": "golden-retry",
    }
    assert next(flow) == Call("127.0.0.1:10911", RequestCode.CONSUMER_SEND_MSG_BACK, fields, deadline=5_000)
    with pytest.raises(StopIteration) as stop:
        flow.send((Command(code=0, flag=1), 3))
    assert stop.value.value == 3


@pytest.mark.parametrize("outcome", [Command(code=1, flag=1, remark="no"), Expired("b:1", 5_000)])
def test_a_refusal_to_take_back_is_an_error(outcome: object) -> None:
    flow = send_back(message(0), "g", 0, 16, "b:1", 0)
    next(flow)
    with pytest.raises(MQError):
        flow.send((outcome, 3))


def test_a_message_that_no_broker_takes_back_becomes_a_new_one() -> None:
    """docs/protocol/client.md 4.12."""
    one = message(5, reconsume_times=2, flag=9)
    one.properties = {
        names.UNIQ_KEY: "A" * 32,
        names.TAGS: "x",
        names.TRANSACTION_PREPARED: "true",
        names.MIN_OFFSET: "0",
        names.MAX_OFFSET: "9",
        names.CONSUME_START_TIME: "1",
        names.DELAY: "1",
        "own": "value",
    }
    again = retry_message(one, "g", 16)
    assert (again.topic, again.body, again.flag, again.delay_level) == ("%RETRY%g", b"x", 9, 5)
    assert again.properties == {
        names.UNIQ_KEY: "A" * 32,
        names.TAGS: "x",
        "own": "value",
        names.ORIGIN_MESSAGE_ID: "A" * 32,
        names.RETRY_TOPIC: "T",
        names.RECONSUME_TIME: "3",
        names.MAX_RECONSUME_TIMES: "16",
    }
    assert names.RETRY_TOPIC not in one.properties, "the message itself stays as it is"
    one.properties[names.ORIGIN_MESSAGE_ID] = "first"
    assert retry_message(one, "g", 16).properties[names.ORIGIN_MESSAGE_ID] == "first"
