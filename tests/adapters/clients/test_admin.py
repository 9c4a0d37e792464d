"""Admin clients against a broker, on every runtime."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message, MessageQueue
from mqproto.errors import (
    BrokerError,
    ClientError,
    InvalidName,
    MQError,
    NoClients,
    NoCluster,
    NoMessage,
    NoRoute,
)
from mqproto.state.admin import TrackType
from mqproto.wire.bodies import GroupConfig
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Collector

CLUSTER = "DefaultCluster"


class Operator:
    """An admin client of the world's runtime: `operator(admin.topics.names)` calls and waits."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.proxy = world.start(world.runtime.module.Admin, world.namesrv, **settings)
        admin = self.proxy._target
        self.topics, self.groups, self.offsets = admin.topics, admin.groups, admin.offsets
        self.messages, self.brokers, self.name_servers = admin.messages, admin.brokers, admin.name_servers
        self.traffic = admin.traffic
        self.broker: str = world.server.broker_address

    def __call__(self, operation: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        return self.world.runtime.call(operation, *arguments, **settings)

    def name_of_broker(self) -> str:
        (name,) = self(self.brokers.clusters).brokers
        return str(name)


@pytest.fixture
def operator(world: World) -> Operator:
    return Operator(world)


def queues(world: World, operator: Operator, count: int = 4) -> list[MessageQueue]:
    return [MessageQueue(world.topic, operator.name_of_broker(), queue_id) for queue_id in range(count)]


def member(world: World) -> tuple[Any, Collector]:
    """A consumer of the topic, and what it has received."""
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    return world.consumer(listener), collector


# --- topics -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_topic(world: World, operator: Operator) -> None:
    topics = operator.topics
    with pytest.raises(NoRoute):
        operator(topics.route, world.topic)
    assert operator(topics.create, world.topic, cluster=CLUSTER, read_queues=3, write_queues=2) == [operator.broker]
    (queue,) = operator(topics.route, world.topic).queues
    assert (queue.read_queues, queue.write_queues, queue.perm) == (3, 2, 6)
    assert operator(topics.clusters, world.topic) == [CLUSTER]
    assert world.topic in operator(topics.names)
    assert world.topic in operator(topics.of_cluster, CLUSTER)
    assert {CLUSTER, "TBW102"} <= set(operator(topics.system))
    operator(topics.update_perm, world.topic, 4, broker=operator.broker)
    config = operator(topics.config, world.topic, operator.broker)
    assert (config.perm, config.read_queues, config.write_queues) == (4, 3, 2)
    operator(topics.create, world.topic, broker=operator.broker, read_queues=5, write_queues=5)
    assert len(operator(topics.stats, world.topic)) == 5
    operator(topics.delete, world.topic, CLUSTER)
    with pytest.raises(NoRoute):
        operator(topics.route, world.topic)
    with pytest.raises(NoRoute):
        operator(topics.config, world.topic, operator.broker)
    assert operator(topics.clean_unused) == [operator.broker]


def test_what_is_refused(world: World, operator: Operator) -> None:
    with pytest.raises(InvalidName):
        operator(operator.topics.create, "bad^name", cluster=CLUSTER)
    with pytest.raises(NoCluster) as unknown:
        operator(operator.topics.create, world.topic, cluster="elsewhere")
    assert unknown.value.known == (CLUSTER,)
    with pytest.raises(ClientError, match="one of them"):
        operator(operator.topics.create, world.topic)
    with pytest.raises(BrokerError, match="system"):
        operator(operator.topics.create, "TBW102", broker=operator.broker)
    with pytest.raises(TypeError):
        operator(operator.topics.create)


def test_the_order_of_a_topic(world: World, operator: Operator) -> None:
    topics, name = operator.topics, operator.name_of_broker()
    assert operator(topics.order, world.topic) is None
    operator(topics.create, world.topic, cluster=CLUSTER, write_queues=2, read_queues=2, order=True)
    assert operator(topics.order, world.topic) == f"{name}:2"
    operator(topics.set_order, world.topic, f"{name}:1;other:3")
    operator(topics.create, world.topic, broker=operator.broker, write_queues=4, order=True)
    assert operator(topics.order, world.topic) == f"{name}:4;other:3"
    operator(topics.delete_order, world.topic)
    assert operator(topics.order, world.topic) is None


# --- groups -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_group(world: World, operator: Operator) -> None:
    groups = operator.groups
    assert operator(groups.config, world.group) == {}
    wanted = GroupConfig(world.group, retry_max_times=3, consume_broadcast_enable=False)
    assert operator(groups.create, wanted, cluster=CLUSTER) == [operator.broker]
    assert operator(groups.config, world.group) == {operator.broker: wanted}
    assert world.group in operator(groups.configs, operator.broker)
    operator(groups.delete, world.group, cluster=CLUSTER, remove_offsets=True)
    assert operator(groups.config, world.group) == {}
    with pytest.raises(NoClients):
        operator(groups.connection, world.group)
    with pytest.raises(NoClients):
        operator(groups.progress, world.group)


def test_members_and_how_far_they_are(world: World, operator: Operator) -> None:
    """COD-13: the running info of a consumer can be read."""
    groups = operator.groups
    producer = world.producer()
    for number in range(6):
        producer.send(Message(world.topic, b"%d" % number))
    consumer, collector = member(world)
    collector.wait(6)
    connection = operator(groups.connection, world.group)
    assert [one.client_id for one in connection.connections] == [consumer.client_id]
    assert {topic: one.expression for topic, one in connection.subscriptions.items()}[world.topic] == "*"
    info = operator(groups.running_info, world.group, consumer.client_id)
    assert {queue.queue_id for queue in info.queues if queue.topic == world.topic} == {0, 1, 2, 3}
    check = operator(groups.check, world.group)
    assert (list(check.members), check.silent, check.same_subscriptions, check.held_twice) == (
        [consumer.client_id],
        {},
        True,
        {},
    )
    with pytest.raises(BrokerError, match="not online"):
        operator(groups.running_info, world.group, "nobody@nowhere")
    assert world.group in operator(operator.topics.consumers, world.topic)
    assert [one.client_id for one in operator(groups.producers, f"p-{world.group}", world.topic)] == [
        producer.client_id
    ]
    assert f"p-{world.group}" in operator(groups.all_producers, operator.broker)
    consumer.close()  # commits
    progress = operator(groups.progress, world.group)
    assert sum(one.consumer_offset for one in progress.queues if one.queue.topic == world.topic) == 6
    assert progress.lag == 0
    summary = next(one for one in operator(groups.overview) if one.group == world.group)
    assert (summary.members, summary.lag) == (0, 0)
    assert world.group in operator(groups.names)


def test_questions_while_the_consumer_comes_and_goes(world: World, operator: Operator) -> None:
    """ADM-03: an answer or a clean error each time."""
    world.producer().send(Message(world.topic, b"x"))
    stop = threading.Event()
    outcomes: list[object] = []

    def ask() -> None:
        while not stop.is_set():
            try:
                outcomes.append(operator(operator.groups.check, world.group))
            except MQError as failure:
                outcomes.append(failure)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for _ in range(4):
            world.consumer(lambda messages, context: ConsumeStatus.SUCCESS).close()
    finally:
        stop.set()
        asker.join(PATIENCE)
    assert not asker.is_alive()
    assert outcomes
    assert all(not isinstance(one, Exception) or isinstance(one, NoClients | BrokerError) for one in outcomes), outcomes


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_offsets_of_a_group_that_is_away(world: World, operator: Operator) -> None:
    offsets = operator.offsets
    producer = world.producer()
    operator(operator.topics.create, world.topic, cluster=CLUSTER, read_queues=2, write_queues=2)
    first, second = queues(world, operator, 2)
    for number in range(3):
        producer.send(Message(world.topic, b"%d" % number), queue=first)
    assert [operator(offsets.minimum, first), operator(offsets.maximum, first), operator(offsets.maximum, second)] == [
        0,
        3,
        0,
    ]
    assert operator(offsets.earliest_time, first) > 0
    assert operator(offsets.at_time, first, 0) == 0
    assert operator(offsets.committed, world.group, first) == 0  # nothing of the queue is gone
    operator(operator.groups.create, GroupConfig(world.group), cluster=CLUSTER)
    operator(offsets.commit, world.group, first, 1)
    assert operator(offsets.committed, world.group, first) == 1
    with pytest.raises(NoClients):  # nobody has consumed, so there is no retry topic
        operator(offsets.clone, world.group, f"{world.group}-other", world.topic)
    consumer, collector = member(world)
    collector.wait(2)
    consumer.close()
    reset = operator(offsets.skip, world.group, world.topic)
    assert (reset.offsets, reset.told, reset.committed) == ({first: 3, second: 0}, (), (operator.broker,))
    reset = operator(offsets.reset_by_time, world.group, world.topic, 0)
    assert reset.offsets == {first: 0, second: 0}
    assert operator(offsets.committed, world.group, first) == 0
    reset = operator(offsets.reset_by_time, world.group, world.topic, None, force=False)
    assert reset.offsets == {first: 0, second: 0}
    operator(offsets.commit, world.group, first, 2)
    operator(operator.groups.create, GroupConfig(f"{world.group}-other"), cluster=CLUSTER)
    assert operator(offsets.clone, world.group, f"{world.group}-other", world.topic) == {first: 2, second: 0}
    assert operator(offsets.committed, f"{world.group}-other", first) == 2
    spans = operator(offsets.time_spans, world.group, world.topic)
    assert [span.queue for span in spans] == [first, second]


def test_a_group_that_is_online_goes_back(world: World, operator: Operator) -> None:
    world.producer().send(Message(world.topic, b"again"))
    consumer, collector = member(world)
    collector.wait(1)
    members = operator(operator.offsets.of_members, world.group, world.topic)
    assert list(members) == [consumer.client_id]
    for queue in queues(world, operator):  # a broker resets only groups that have committed something
        operator(operator.offsets.commit, world.group, queue, 0)
    reset = operator(operator.offsets.reset_by_time, world.group, world.topic, 0)
    assert (reset.told, reset.committed) == ((operator.broker,), ())
    assert set(reset.offsets.values()) == {0}
    collector.wait(2)
    assert collector.bodies() == [b"again", b"again"]


# --- messages ---------------------------------------------------------------------------------------------------------


def test_finding_messages(world: World, operator: Operator) -> None:
    """MSG-14: each key of a message finds it, and a key with a blank is two."""
    messages = operator.messages
    producer = world.producer()
    sent = producer.send(Message(world.topic, b"one" * 5000, tags="a", keys=["k1", "k2"]))
    other = producer.send(Message(world.topic, b"two", tags="b", keys=["has space"]), queue=sent.queue)
    for found in (
        operator(messages.by_offset_id, sent.offset_msg_id),
        operator(messages.by_unique_id, world.topic, sent.msg_id),
        operator(messages.by_id, world.topic, sent.msg_id),
        operator(messages.by_id, world.topic, sent.offset_msg_id),
        operator(messages.at, sent.queue, sent.queue_offset),
    ):
        assert (found.msg_id, found.offset_msg_id, found.body, found.tags) == (
            sent.msg_id,
            sent.offset_msg_id,
            b"one" * 5000,
            "a",
        )
    for key, hit in (("k1", sent), ("k2", sent), ("has", other), ("space", other)):
        assert [one.msg_id for one in operator(messages.by_key, world.topic, key)] == [hit.msg_id]
    with pytest.raises(ClientError, match="blank"):
        operator(messages.by_key, world.topic, "has space")
    assert operator(messages.by_key, world.topic, "k3") == []
    assert [one.msg_id for one in operator(messages.between, world.topic)] == [sent.msg_id, other.msg_id]
    assert [one.msg_id for one in operator(messages.between, world.topic, tags="b")] == [other.msg_id]
    assert operator(messages.between, world.topic, 1 << 42) == []
    assert len(operator(messages.in_queue, sent.queue, limit=1)) == 1
    dump = operator(messages.entries, operator.broker, sent.queue, 0, 10)
    assert [one.physical_offset for one in dump.entries] == [
        operator(messages.at, sent.queue, number).physical_offset for number in range(2)
    ]
    with pytest.raises(NoMessage):
        operator(messages.at, sent.queue, 99)
    with pytest.raises(NoMessage):
        operator(messages.by_unique_id, world.topic, "0" * 32)
    with pytest.raises(NoMessage):
        operator(messages.by_offset_id, sent.offset_msg_id[:16] + "00000000000FFFFF")
    with pytest.raises(NoMessage):
        operator(messages.by_offset_id, "no id at all")


def test_dead_letters_that_nobody_may_read(world: World, operator: Operator) -> None:
    """ADM-06: old brokers made such topics write-only; their permission can be changed."""
    dead = f"%DLQ%{world.group}"
    operator(operator.topics.create, dead, broker=operator.broker, read_queues=1, write_queues=1, perm=2)
    queue = MessageQueue(dead, operator.name_of_broker(), 0)
    world.producer().send(Message(dead, b"dead"), queue=queue)
    for look, *arguments in ((operator.messages.at, queue, 0), (operator.messages.between, dead)):
        with pytest.raises(BrokerError) as closed:
            operator(look, *arguments)
        assert closed.value.code == 16
    operator(operator.topics.update_perm, dead, 6, broker=operator.broker)
    assert [one.body for one in operator(operator.messages.between, dead)] == [b"dead"]


def test_what_became_of_a_message(world: World, operator: Operator) -> None:
    messages = operator.messages
    sent = world.producer().send(Message(world.topic, b"x", tags="a"))
    found = operator(messages.by_offset_id, sent.offset_msg_id)
    assert operator(messages.tracks, found) == []
    consumer, collector = member(world)
    collector.wait(1)
    operator(operator.offsets.commit, world.group, sent.queue, sent.queue_offset + 1)
    assert [(one.group, one.type) for one in operator(messages.tracks, found)] == [(world.group, TrackType.CONSUMED)]
    result = operator(messages.push, world.group, consumer.client_id, found)
    assert str(result.result) == "CR_SUCCESS"
    collector.wait(2)
    with pytest.raises(BrokerError):
        operator(messages.push, world.group, "nobody@nowhere", found)
    consumer.close()
    assert [one.type for one in operator(messages.tracks, found)] == [TrackType.NOT_ONLINE]


# --- servers ----------------------------------------------------------------------------------------------------------


def test_brokers(world: World, operator: Operator) -> None:
    brokers = operator.brokers
    info = operator(brokers.clusters)
    assert [broker.addresses for broker in info.brokers.values()] == [{0: operator.broker}]
    runtime = operator(brokers.runtime, operator.broker)
    assert runtime.boot_time is not None
    assert runtime.version is not None
    assert operator(brokers.all_runtimes).keys() == {operator.broker}
    changed = operator(brokers.update_config, {"fileReservedTime": "71"}, broker=operator.broker)
    assert changed == {operator.broker: {"fileReservedTime": "71"}}
    assert operator(brokers.config, operator.broker)["fileReservedTime"] == "71"
    with pytest.raises(BrokerError, match="noSuchKey"):
        operator(brokers.update_config, {"noSuchKey": "1"}, broker=operator.broker)
    world.producer().send(Message(world.topic, b"counted"))
    assert operator(brokers.stats, operator.broker, "TOPIC_PUT_NUMS", world.topic) is not None
    assert operator(brokers.stats, operator.broker, "TOPIC_PUT_NUMS", "no-such-topic") is None
    assert operator(brokers.consume_stats, operator.broker).total_diff >= 0
    assert operator(brokers.clean_expired_queues, cluster=CLUSTER) == [operator.broker]
    assert operator(brokers.delete_expired_logs, broker=operator.broker) == [operator.broker]


def test_traffic(world: World, operator: Operator) -> None:
    world.producer().send(Message(world.topic, b"x"))
    traffic = operator(operator.traffic.of_topic, world.topic)
    assert (traffic.topic, traffic.day, traffic.groups) == (world.topic, traffic.day, ())
    assert world.topic in [one.topic for one in operator(operator.traffic.of_all)]


def test_name_servers(world: World, operator: Operator) -> None:
    servers = operator.name_servers
    assert operator(servers.value, "space", "key") is None
    assert operator(servers.values, "space") == {}
    operator(servers.put_value, "space", "key", "value")
    assert operator(servers.value, "space", "key") == "value"
    assert operator(servers.values, "space") == {"key": "value"}
    operator(servers.delete_value, "space", "key")
    assert operator(servers.value, "space", "key") is None
    assert operator(servers.configs).keys() == {world.namesrv}
    assert operator(servers.update_config, {"clusterTest": "false"}) == {world.namesrv: {"clusterTest": "false"}}
    operator(operator.topics.create, world.topic, cluster=CLUSTER)
    name = operator.name_of_broker()
    assert operator(servers.wipe_write_perm, name)[world.namesrv] > 0
    assert [one.perm for one in operator(operator.topics.route, world.topic).queues] == [4]
    assert operator(servers.add_write_perm, name)[world.namesrv] > 0
    assert [one.perm for one in operator(operator.topics.route, world.topic).queues] == [6]


# --- several servers --------------------------------------------------------------------------------------------------


# --- life -------------------------------------------------------------------------------------------------------------


def test_many_at_once(world: World, operator: Operator) -> None:
    outcomes: list[Any] = []

    def ask() -> None:
        outcomes.extend(operator(operator.brokers.runtime, operator.broker).address for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert outcomes == [operator.broker] * 80


def test_methods_tell_what_they_are(world: World, operator: Operator) -> None:
    method = operator.topics.create
    assert list(inspect.signature(method).parameters)[:3] == ["topic", "broker", "cluster"]
    assert "Create a topic" in method.__doc__
    assert "Create a topic" in type(operator.topics).create.__doc__


def test_help_shows_the_result_and_not_how_it_comes_about(operator: Operator) -> None:
    signature = inspect.signature(operator.topics.create)
    assert signature.return_annotation == "list[str]"
    assert list(signature.parameters)[:3] == ["topic", "broker", "cluster"]
    assert "broker of an address" in (inspect.getdoc(operator.topics.create) or "")
