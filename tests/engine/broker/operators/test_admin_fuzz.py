"""Requests of operators with anything in their fields, to slow, silent and lost clients: each is answered once."""

from __future__ import annotations

from random import Random

import pytest

from tests.engine.broker.harness import Peer, World, heartbeat

CODES = (
    *(
        17,
        18,
        21,
        200,
        201,
        202,
        207,
        208,
        215,
        222,
        223,
        225,
        300,
        303,
        305,
        306,
        307,
        308,
        309,
        314,
        315,
        316,
        317,
        321,
        328,
        329,
    ),
    *(343, 345, 351, 352),
)
NAMES = (
    *("topic", "group", "consumerGroup", "clientId", "clientAddr", "timestamp", "isForce", "queueId", "offset"),
    *(
        "index",
        "count",
        "srcGroup",
        "destGroup",
        "offline",
        "compareGroup",
        "filterGroups",
        "groupName",
        "removeOffset",
    ),
    *(
        "msgId",
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicFilterType",
        "topicSysFlag",
        "order",
        "defaultTopic",
        "statsName",
    ),
)
VALUES = (
    *("", "T", "G", "c1", "%RETRY%G", "T@G", "@", "T,G", "TBW102", "SINGLE_TAG", "true", "x", "\0", "😀"),
    *("-1", "0", "1", "3", "65536", "2147483647", "2147483648", "-9223372036854775808", "9223372036854775807"),
    *("C000020200002A9F0000000000000000", "C000020200002A9F00000000000000FF"),
)
BODIES = (
    b"",
    b"{",
    b"{}",
    b"[]",
    b"\xff\0",
    b'{"groupName":"G"}',
    b'{"topicConfigList":[{"topicName":"T"}]}',
    b'{"groupConfigList":[{}]}',
)
KNOWN = {"topic": "T", "group": "G", "consumerGroup": "G", "clientId": "c1"}


class Story:
    """One broker, an operator and a consumer; all chance comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(store={"cold_read_distance": self.random.choice((1, 1 << 30))})
        self.operator = self.world.connect()
        assert self.operator.send("T").code == 0
        self.operator.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"})
        self.client = self.online()
        self.world.hold_jobs = self.random.random() < 0.5
        self.asked: list[int] = []
        self.answered: list[int] = []

    def answers(self) -> list[int]:
        return [one.opaque for one in self.operator.read() if one.is_response]

    def online(self) -> Peer:
        client = self.world.connect()
        client.heartbeat(
            heartbeat("c1"), version=self.random.choice((20, 50, 407)), language=self.random.choice((0, 1, 9))
        )
        return client

    def step(self) -> None:
        choice = self.random.choice
        fields = {name: choice(VALUES) for name in NAMES if self.random.random() < 0.7}
        if self.random.random() < 0.6:
            fields |= KNOWN
        self.operator.tell(choice(CODES), fields, choice(BODIES), language=choice((0, 1)))
        self.asked.append(self.operator.opaque)
        if self.random.random() < 0.3:
            self.world.advance(choice((0, 1, 100, 6000)))
        if self.random.random() < 0.3:
            self.world.run_held()
        for one in self.client.read():
            if not one.is_response and not one.is_oneway and self.random.random() < 0.6:
                self.client.answer(one, choice((0, 1)), body=choice((*BODIES, b'{"messageQueueTable":{}}')))
        if self.random.random() < 0.02:
            self.client.close()
            self.client = self.online()
        self.answered += self.answers()

    def finish(self) -> None:
        """What waits for the disk or for clients gets its time."""
        for _ in range(12):
            while self.world.jobs:
                self.world.run_held()
            self.world.advance(1000)
        self.answered += self.answers()


@pytest.mark.parametrize("seed", range(12))
def test_each_request_is_answered_once(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.step()
    story.finish()
    assert sorted(story.answered) == story.asked
    assert not story.operator.ended()
