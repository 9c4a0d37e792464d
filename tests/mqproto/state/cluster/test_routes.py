"""Routes: the queues and addresses that a client takes from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import QUEUES_MAX, PublishInfo, RouteTable, parse_order, publish_info, template_info
from mqproto.wire.bodies import BrokerData, QueueData, TopicRoute
from tests.mqproto.state.stage import route

TOPIC = "orders"


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


@given(st.permutations(["b=b:1", "a=a:1", "c=c:1"]), st.permutations(["b=b:1", "a=a:1", "c=c:1"]))
def test_the_queue_list_does_not_depend_on_the_order_of_the_route(first: list[str], second: list[str]) -> None:
    """PRO-09, and no change is seen where only the order differs."""
    table = RouteTable()
    assert table.update(TOPIC, route(*first))
    assert names(table.publish(TOPIC).queues) == ["a0", "a1", "b0", "b1", "c0", "c1"]  # type: ignore[union-attr]
    assert names(table.readable(TOPIC) or ()) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert not table.update(TOPIC, route(*second))


def test_only_writable_queues_of_brokers_with_a_master_are_sent_to() -> None:
    mixed = TopicRoute(
        [
            QueueData("a", 3, 2, 6),
            QueueData("b", 1, 9, 4),
            QueueData("c", 9, 1, 2),
            QueueData("d", 1, 1, 6),
            QueueData("e", 1, 1, 6),
        ],
        [
            BrokerData("x", "a", {0: "a:1"}),
            BrokerData("x", "b", {0: "b:1"}),
            BrokerData("x", "c", {0: "c:1"}),
            BrokerData("x", "d", {1: "d:1"}),
        ],
    )
    table = RouteTable()
    table.update(TOPIC, mixed)
    assert names(table.publish(TOPIC).queues) == ["a0", "a1", "c0"]  # type: ignore[union-attr]
    assert names(table.readable(TOPIC) or ()) == ["a0", "a1", "a2", "b0", "d0", "e0"]


def test_absurd_queue_counts_do_not_fill_the_memory() -> None:
    huge = TopicRoute(
        [QueueData("a", 2**31 - 1, 2**31 - 1, 6), QueueData("b", -5, -5, 6)], [BrokerData("x", "a", {0: "a:1"})]
    )
    assert len(publish_info(TOPIC, huge).queues) == QUEUES_MAX


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("broker-a:4;broker-b:2", [("broker-a", 4), ("broker-b", 2)], []),
        ("broker-b:2;broker-a:4;", [("broker-b", 2), ("broker-a", 4)], []),
        ("broker-a", [], ["broker-a"]),
        ("broker-a:", [], ["broker-a:"]),
        ("broker-a:x", [], ["broker-a:x"]),
        ("broker-a:4;;broker-b:-1", [("broker-a", 4)], ["broker-b:-1"]),
        ("broker-a:0;:3;broker-c:²", [], ["broker-a:0", ":3", "broker-c:²"]),
        ("broker-a:99999999999", [], ["broker-a:99999999999"]),
        ("a:b:3", [("a:b", 3)], []),
    ],
)
def test_order_configurations(text: str, good: list[tuple[str, int]], bad: list[str]) -> None:
    """NSV-05: bad parts are left out with a warning."""
    warnings: list[str] = []
    assert parse_order(TOPIC, text, warnings.append) == good
    assert [part for part, warning in zip(bad, warnings, strict=True) if repr(part) in warning] == bad
    assert parse_order(TOPIC, text) == good


def test_order_configuration_makes_the_list_and_its_changes_are_seen() -> None:
    """NSV-05."""
    table = RouteTable()
    assert table.update(TOPIC, route("a=a:1", order="b:2;a:1"))
    info = table.publish(TOPIC)
    assert info is not None
    assert info.ordered
    assert names(info.queues) == ["b0", "b1", "a0"]
    assert not table.update(TOPIC, route("a=a:1", order="b:2;a:1"))
    assert table.update(TOPIC, route("a=a:1", order="b:2;a:2"))
    assert names(table.publish(TOPIC).queues) == ["b0", "b1", "a0", "a1"]  # type: ignore[union-attr]
    assert table.update(TOPIC, route("a=a:1", order="nonsense"))
    assert names(table.publish(TOPIC).queues) == ["a0", "a1"]  # type: ignore[union-attr]


def test_template_of_a_topic_that_does_not_exist() -> None:
    template = route("b=b:1", "a=a:1", queues=8, perm=7)
    assert names(template_info(TOPIC, template, 2).queues) == ["a0", "a1", "b0", "b1"]
    assert len(template_info(TOPIC, template, 100).queues) == 16
    assert template_info(TOPIC, route("a=a:1", perm=4), 4).queues == ()


def test_round_robin_wraps_in_silence() -> None:
    """PRO-01."""
    queues = tuple(MessageQueue(TOPIC, "a", n) for n in range(4))
    info = PublishInfo(queues, turn=2**31 - 2)
    assert [queue.queue_id for _ in range(10) if (queue := info.pick())] == [2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert PublishInfo((), turn=2**31 - 1).pick() is None


def test_a_retry_avoids_the_last_broker_where_there_is_another() -> None:
    info = publish_info(TOPIC, route("a=a:1", "b=b:1"))
    assert names((info.pick("a") or queues_missing(),)) == ["b0"]
    assert names((info.pick("c") or queues_missing(),)) == ["b1"]
    single = publish_info(TOPIC, route("a=a:1"))
    assert [queue.queue_id for _ in range(3) if (queue := single.pick("a"))] == [0, 1, 0]


def queues_missing() -> MessageQueue:
    raise AssertionError("no queue")


def test_the_round_robin_goes_on_when_a_route_changes() -> None:
    table = RouteTable(seed=1)
    table.update(TOPIC, route("a=a:1", queues=4))
    info = table.publish(TOPIC)
    assert info is not None
    assert [queue.queue_id for _ in range(2) if (queue := info.pick())] == [1, 2]
    table.update(TOPIC, route("a=a:1", queues=8))
    info = table.publish(TOPIC)
    assert info is not None
    assert info.pick() == MessageQueue(TOPIC, "a", 3)


def test_addresses_of_brokers() -> None:
    table = RouteTable()
    assert table.master("a") is None
    assert table.reader("a") is None
    assert table.any_address(TOPIC, 0) is None
    table.update(TOPIC, route("a=a:1", "b=b:1", slaves={"a": "a:2"}))
    assert table.master("a") == "a:1"
    assert table.reader("a", 1) == ("a:2", 1)
    assert table.reader("a", 5) == ("a:1", 0)
    assert table.reader("a", 5, only_this=True) is None
    assert table.all_addresses() == ["a:1", "a:2", "b:1"]
    assert table.all_addresses(masters_only=True) == ["a:1", "b:1"]
    assert [table.any_address(TOPIC, turn) for turn in range(3)] == ["a:1", "b:1", "a:1"]
    table.update(
        TOPIC,
        TopicRoute([QueueData("a", 1, 1, 6)], [BrokerData("x", "a", {2: "a:2", 3: "a:3"}), BrokerData("x", "z", {})]),
    )
    assert table.master("a") is None
    assert table.reader("a") == ("a:2", 2)
    assert table.reader("a", 1) == ("a:2", 2), "a missing slave gives the next one"
    assert [table.any_address(TOPIC, turn) for turn in range(2)] == ["a:2", "a:3"]
    assert table.all_addresses(masters_only=True) == ["b:1"], "b stays until the routes are cleaned"


def test_what_no_route_names_is_forgotten() -> None:
    table = RouteTable()
    table.update(TOPIC, route("a=a:1", "b=b:1"))
    table.update("other", route("c=c:1"))
    table.versions |= {"a:1": 407, "b:1": 407, "c:1": 407}
    table.update(TOPIC, route("a=a:9", slaves={"a": "a:8"}))
    table.keep([TOPIC])
    assert table.addresses == {"a": {0: "a:9", 1: "a:8"}}
    assert table.topics() == [TOPIC]
    assert table.versions == {}
    assert table.route("other") is None
    table.addresses["a"][7] = "a:7"
    table.keep([TOPIC])
    assert table.addresses == {"a": {0: "a:9", 1: "a:8"}}
    table.keep([])
    assert table.addresses == {}
    assert table.publish(TOPIC) is None
    assert table.readable(TOPIC) is None
