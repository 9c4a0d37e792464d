"""The message trace of our clients, read by Apache's mqadmin from Apache's servers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.peers.kit import wire
from tests.peers.kit.hands import JAVA
from tests.peers.kit.pairs import Pair, pairs
from tests.peers.kit.secured import TRACES
from tests.peers.kit.steps import consume, find

pytestmark = pairs(
    "ours-threaded @ apache:4.4.0",
    "ours-threaded @ apache:4.9.7",
    "ours-threaded @ apache:5.3.3",
    "ours-gevent @ apache:4.9.7",
    "ours-asyncio @ apache:4.9.7",
    "ours-trio @ apache:4.9.7",
)


def wait_stored(pair: Pair, key: str, count: int) -> None:
    """Return when so many trace messages can be found by a key."""
    until = time.monotonic() + 60
    while len((outcome := pair.other(JAVA).run("query", topic=TRACES, key=key, status=None)).messages) < count:
        assert time.monotonic() < until, outcome


@pytest.mark.parametrize("mode", ["sync", "batch"])
def test_mqadmin_finds_what_was_sent_and_consumed(pair: Pair, mqadmin: Callable[..., str], mode: str) -> None:
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, group, sender = pair.name("Traced"), pair.name("consuming"), pair.name("sending")
    count = 3
    sent = pair.produce(topic=topic, count=count, tag="TagT", keys="traced", trace=True, group=sender, mode=mode)
    consume(pair, topic, group, count, trace=True)
    row = r" +[0-9a-fA-F:.]+ +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +\d+ms +success *$"
    for message in sent:
        assert message.msg_id is not None
        wait_stored(pair, message.msg_id, 2)
        text = mqadmin("queryMsgTraceById", "-i", message.msg_id)
        assert len(re.findall(rf"^Pub +{sender[:20]}{row}", text, re.MULTILINE)) == 1, text
        assert len(re.findall(rf"^Sub +{group[:20]}{row}", text, re.MULTILINE)) == 1, text
    assert find(pair.other(JAVA), "query", topic=TRACES, key="traced-0")


def test_the_end_of_a_transaction_does_not_disturb_the_tool(pair: Pair, mqadmin: Callable[..., str]) -> None:
    """mqadmin 4.9.7 reads all records of a trace message and shows those that are about a send or a delivery."""
    wire.make_topic(pair.server.names, pair.server.broker, TRACES, 1)
    topic, sender = pair.name("TracedHalf"), pair.name("sending")
    outcome = pair.run("transact", topic=topic, count=1, outcome="commit", group=sender, trace=True)
    (msg_id,) = {line["msgId"] for line in outcome.lines if "msgId" in line}
    wait_stored(pair, msg_id, 1)
    text = mqadmin("queryMsgTraceById", "-i", msg_id)
    assert re.search(rf"^Pub +{sender[:20]} ", text, re.MULTILINE), text
    assert "success" in text
    assert "Exception" not in text
