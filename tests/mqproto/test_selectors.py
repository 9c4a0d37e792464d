"""Choosing the queue of a message."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import ClientError
from mqproto.message import Message, MessageQueue
from mqproto.selectors import choose_queue, hash_index, random_selector, select_by_hash
from mqproto.state.cluster.routes import publish_info
from tests.mqproto.state.stage import route

TOPIC = "orders"


@pytest.mark.parametrize(("count", "index"), [(4, 0), (5, 3), (6, 2), (7, 2)])
def test_index_of_the_smallest_hash(count: int, index: int) -> None:
    """PRO-01: Java's hash of this text is -2147483648."""
    assert hash_index("polygenelubricants", count) == index


@pytest.mark.parametrize(
    ("argument", "value"), [(7, 7), (-7, 7), (1 << 32, 1), ((1 << 32) + 5, 4), (-(1 << 40), 256), ("a", 97)]
)
def test_hashes_of_arguments(argument: object, value: int) -> None:
    assert hash_index(argument, 1000) == value


def test_hash_selector_keeps_a_key_in_its_queue_however_the_route_is_ordered() -> None:
    """PRO-09."""
    message = Message(TOPIC, b"x")
    chosen = set()
    for brokers in (("b=b:1", "a=a:1", "c=c:1"), ("c=c:1", "a=a:1", "b=b:1"), ("a=a:1", "b=b:1", "c=c:1")):
        queues = publish_info(TOPIC, route(*brokers, queues=4)).queues
        chosen.add(choose_queue(select_by_hash, queues, message, "k"))
    assert len(chosen) == 1


def test_selectors_that_fail() -> None:
    message = Message(TOPIC, b"x")
    queues = [MessageQueue(TOPIC, "a", 0)]
    with pytest.raises(ClientError, match="no queue"):
        choose_queue(lambda queues, message, argument: None, queues, message, 1)
    with pytest.raises(ClientError, match="ZeroDivisionError"):
        choose_queue(lambda queues, message, argument: queues[1 // 0], queues, message, 1)


def test_a_selector_cannot_damage_the_list() -> None:
    queues = [MessageQueue(TOPIC, "a", 0)]

    def greedy(given: Any, message: Message, argument: object) -> MessageQueue:
        chosen: MessageQueue = given.pop()
        return chosen

    assert choose_queue(greedy, queues, Message(TOPIC, b"x"), 1) == queues[0]
    assert len(queues) == 1


def test_random_queues() -> None:
    queues = [MessageQueue(TOPIC, "a", queue_id) for queue_id in range(5)]
    asked: list[int] = []

    def below(count: int) -> int:
        asked.append(count)
        return 3

    assert choose_queue(random_selector(below), queues, Message(TOPIC, b"x"), None) is queues[3]
    assert asked == [5]


def test_what_the_selectors_of_the_project_refuse() -> None:
    """PRO-01: a topic without queues is a clear error, and so is a hash of nothing."""
    message = Message(TOPIC, b"x")
    for selector in (select_by_hash, random_selector(lambda count: 0)):
        with pytest.raises(ClientError, match="'orders' has no queue"):
            choose_queue(selector, [], message, 1)
    with pytest.raises(ClientError, match="needs an argument"):
        choose_queue(select_by_hash, [MessageQueue(TOPIC, "a", 0)], message, None)
