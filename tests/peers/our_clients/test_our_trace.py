"""The message trace of our clients, read by Apache's mqadmin from Apache's servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

import pytest

from mqproto.adapters.threaded import PullConsumer
from tests.peers.kit import wire
from tests.peers.kit.directories.hands import JAVA
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.probes import finish
from tests.peers.kit.secured import TRACES
from tests.peers.kit.steps import consume, find, traced

pytestmark = pairs(
    "ours-threaded @ apache:4.4.0",
    "ours-threaded @ apache:4.9.7",
    "ours-threaded @ apache:5.3.3",
    "ours-gevent @ apache:4.9.7",
    "ours-asyncio @ apache:4.9.7",
    "ours-trio @ apache:4.9.7",
)

#: How mqadmin goes on behind the group: address, time, cost, outcome.
ROW: Final = r" +[0-9a-fA-F:.]+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+ms +success *$"


@pytest.mark.parametrize("mode", ["sync", "batch"])
def test_mqadmin_finds_what_was_sent_and_consumed(pair: Pair, mqadmin: Callable[..., str], mode: str) -> None:
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, group, sender = pair.name("Traced"), pair.name("consuming"), pair.name("sending")
    count = 3
    sent = pair.produce(topic=topic, count=count, tag="TagT", keys="traced", trace=True, group=sender, mode=mode)
    consume(pair, topic, group, count, trace=True)
    for message in sent:
        assert message.msg_id is not None
        rows = rf"^Pub +{sender[:20]}{ROW}", rf"^Sub +{group[:20]}{ROW}"
        text = traced(mqadmin, message.msg_id, *rows)
        assert [len(re.findall(one, text, re.MULTILINE)) for one in rows] == [1, 1], text
    assert find(pair.other(JAVA), "query", topic=TRACES, key="traced-0")


def stored_records(pair: Pair) -> list[list[str]]:
    """The records of all trace messages that the broker has, as fields."""
    found: list[list[str]] = []
    with PullConsumer(pair.name("traces"), pair.server.names, mq_client_api_timeout=30_000) as consumer:
        for queue in consumer.fetch_subscribe_message_queues(TRACES):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, "*", offset)
                offset = result.next_begin_offset
                texts = [text for message in result.messages for text in message.body.decode().split("\x02")]
                found += [text.split("\x01") for text in texts if text]
    return found


def records_of(pair: Pair, group: str, count: int) -> list[list[str]]:
    """What the trace says of a consumer's deliveries, once it is as much."""
    until = time.monotonic() + 60
    while True:
        found = [
            record for record in stored_records(pair) if record[0] in ("SubBefore", "SubAfter") and group in record
        ]
        if len(found) >= count:
            return found
        assert time.monotonic() < until, found


def in_common(record: list[str]) -> list[str]:
    """A record without what differs from one delivery to the next: times, costs, the id of the delivery, the group."""
    changing = {"SubBefore": {1, 3, 4}, "SubAfter": {1, 3, 7, 8}}[record[0]]
    return ["" if index in changing else field for index, field in enumerate(record)]


def test_mqadmin_finds_what_was_polled_and_java_tells_the_same(pair: Pair, mqadmin: Callable[..., str]) -> None:
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, ours, javas = pair.name("Polled"), pair.name("polling"), pair.name("polling-java")
    sent = pair.produce(topic=topic, count=3, tag="TagT", keys="polled")
    pair.run("litepull", topic=topic, group=ours, expect=3, trace=True)
    java = pair.other(JAVA).start("litepull", topic=topic, group=javas, expect=1000, seconds=200, trace=True)
    told, said = records_of(pair, ours, 6), records_of(pair, javas, 6)
    java.stop()  # its trace ends with it, whatever is left of it
    finish(java, status=1)
    assert sorted(map(in_common, told)) == sorted(map(in_common, said))
    for records in (told, said):
        deliveries = {record[5]: record for record in records if record[0] == "SubBefore"}
        for after in (record for record in records if record[0] == "SubAfter"):
            before = deliveries[after[2]]
            assert before[4] == after[1] != ""
            assert int(before[1]) <= int(after[7])
            assert int(after[3]) >= 0
    for message in sent:
        assert message.msg_id is not None
        rows = [rf"^Sub +{group}{ROW}" for group in (ours, javas)]
        text = traced(mqadmin, message.msg_id, *rows)
        assert [len(re.findall(one, text, re.MULTILINE)) for one in rows] == [1, 1], text


def test_the_end_of_a_transaction_does_not_disturb_the_tool(pair: Pair, mqadmin: Callable[..., str]) -> None:
    """mqadmin 4.9.7 reads all records of a trace message and shows those that are about a send or a delivery."""
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, sender = pair.name("TracedHalf"), pair.name("sending")
    outcome = pair.run("transact", topic=topic, count=1, outcome="commit", group=sender, trace=True)
    (msg_id,) = {line["msgId"] for line in outcome.lines if "msgId" in line}
    text = traced(mqadmin, msg_id, rf"^Pub +{sender[:20]} ")
    assert "success" in text
    assert "Exception" not in text
