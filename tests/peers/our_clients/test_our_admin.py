"""Our admin client, over every adapter, against Apache's servers: what it says is what Apache's mqadmin prints of the
same server.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from mqproto import MessageQueue
from mqproto.adapters.threaded import LitePullConsumer
from mqproto.errors import (
    BrokerError,
    CallExpired,
    InvalidSetting,
    NoClients,
    NoMessage,
    NoRoute,
    PartlyFailed,
)
from mqproto.state.admin import TrackType
from mqproto.wire.bodies import GroupConfig, TopicRoute
from mqproto.wire.flags import PERM_WRITE
from tests.adapters.harness import Runtime, open_runtime
from tests.mqproto.state.admin import shown
from tests.peers.conftest import Servers, need
from tests.peers.kit import probes, wire
from tests.peers.kit.checks import Sent, sent_by
from tests.peers.kit.mqadmin.mqadmin import VERSION, Mqadmin, Tool
from tests.peers.kit.probes import Clients, finish, wait_for
from tests.peers.kit.servers import Server

CLUSTER = "DefaultCluster"
BROKER_NAME = "broker-a"
PAIRS = [
    "threaded @ apache:4.4.0",
    "threaded @ apache:4.9.7",
    "threaded @ apache:5.3.3",
    "gevent @ apache:4.9.7",
    "asyncio @ apache:4.9.7",
    "trio @ apache:4.9.7",
]
_numbers = itertools.count(1)


@dataclass
class Operator:
    """A server, Apache's tool and our admin client beside it, and Java's clients."""

    server: Server
    tool: Mqadmin
    runtime: Runtime
    admin: Any
    java: probes.Client

    def __call__(self, operation: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        return self.runtime.call(operation, *arguments, **settings)

    @property
    def release(self) -> str:
        return self.server.kind.partition(":")[2]

    def name(self, stem: str) -> str:
        return f"{stem}-{os.getpid()}-{next(_numbers)}"

    def topic(self, stem: str, queues: int = 4) -> str:
        """An empty topic that our client has made and the name server tells of."""
        topic = self.name(stem)
        assert self(self.admin.topics.create, topic, cluster=CLUSTER, read_queues=queues, write_queues=queues) == [
            self.server.broker
        ]
        self.until(lambda: self.quietly(NoRoute, self.admin.topics.route, topic))
        return topic

    def quietly(self, error: type[Exception], operation: Callable[..., Any], *arguments: Any) -> Any:
        """What an operation gives, None for an error that may come."""
        try:
            return self(operation, *arguments)
        except error:
            return None

    def until(self, look: Callable[[], Any], said: Callable[[], str] = lambda: "it never came") -> Any:
        """What is there once it is there: Apache's servers tell each other some things only after they have
        answered.
        """
        end = time.monotonic() + 60
        while not (found := look()):
            assert time.monotonic() < end, said()
            time.sleep(0.05)
        return found

    def agree(self, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        """Both say the same of all that the server knows, once what the test before this one has ended is gone."""
        said: list[Any] = []

        def look() -> bool:
            said[:] = ours(), theirs()
            return bool(said[0] == said[1])

        self.until(look, lambda: f"ours says {said[0]}, theirs {said[1]}")

    def produce(self, topic: str, **options: Any) -> list[Sent]:
        """Messages of Java's client, once the broker has put them into their queues, which is a moment after it took
        them.
        """
        before = self.stored(topic)
        options = {"topic": topic, "count": 4, "shard": 4, "tag": "TagA", "keys": "key", **options}
        sent = sent_by(probes.run(self.java, "produce", names=self.server.names, **options), options)
        self.until(lambda: self.stored(topic) == before + len(sent))
        return sent

    def stored(self, topic: str) -> int:
        """How many messages the queues of a topic have seen."""
        return sum(one.max_offset for one in self(self.admin.topics.stats, topic).values())

    @contextmanager
    def consumer(self, topic: str, group: str, count: int) -> Iterator[str]:
        """A Java consumer that has consumed and committed `count` messages; its client id."""
        options = {
            "topic": topic,
            "group": group,
            "instance": self.name("member"),
            "expect": 1_000_000,
            "seconds": 300,
            "settle": 0,
        }
        running = self.java.start("consume", names=self.server.names, **options)
        try:
            wait_for(running, "started")
            for _ in range(count):
                wait_for(running, "body")
            self.until(lambda: self.committed(topic, group) == count)
            (connection,) = self(self.admin.groups.connection, group).connections
            yield connection.client_id
        finally:
            running.stop()
            finish(running, status=1)
        self.until(lambda: self.quietly(NoClients, self.admin.groups.connection, group) is None)

    def committed(self, topic: str, group: str) -> int:
        progress = self.quietly(NoClients, self.admin.groups.progress, group)
        return (
            sum(one.consumer_offset for one in progress.queues if one.queue.topic == topic)
            if progress is not None
            else -1
        )


@pytest.fixture(params=PAIRS, ids=[name.replace(" ", "") for name in PAIRS])
def operator(request: pytest.FixtureRequest, servers: Servers, clients: Clients, tool: Tool) -> Iterator[Operator]:
    runtime_name, _, kind = request.param.partition(" @ ")
    need(f"java-{VERSION}")
    need(kind)
    with open_runtime(runtime_name) as runtime:
        server = servers[kind]
        admin = runtime.call(runtime.module.Admin, server.names, timeout_ms=60_000)
        runtime.call(admin.start)
        try:
            yield Operator(server, Mqadmin(tool, server), runtime, admin, clients[f"java-{VERSION}"])
        finally:
            runtime.call(admin.close)


def test_topics(operator: Operator) -> None:
    topics = operator.admin.topics
    topic = operator.topic("Made", 3)
    operator.produce(topic)
    operator.agree(
        lambda: shown.topic_status(operator(topics.stats, topic)),
        lambda: shown.printed_topic_status(operator.tool.run("topicStatus", "-t", topic)),
    )
    assert operator(topics.route, topic) == TopicRoute.from_json(operator.tool.run("topicRoute", "-t", topic))
    operator.agree(lambda: set(operator(topics.names)), lambda: shown.printed_names(operator.tool.run("topicList")))
    assert operator.tool.run("topicClusterList", "-t", topic).split() == operator(topics.clusters, topic) == [CLUSTER]
    assert topic in operator(topics.of_cluster, CLUSTER)
    assert {CLUSTER, BROKER_NAME, "TBW102"} <= set(operator(topics.system))
    operator(topics.update_perm, topic, 4, cluster=CLUSTER)
    operator.until(lambda: operator(topics.route, topic).queues[0].perm == 4)
    config = operator(topics.config, topic, operator.server.broker)
    assert (config.perm, config.read_queues, config.write_queues) == (4, 3, 3)
    operator(topics.set_order, topic, f"{BROKER_NAME}:3")
    assert f"orderConf=[{BROKER_NAME}:3]" in operator.tool.run("updateOrderConf", "-t", topic, "-m", "get")
    operator(topics.delete_order, topic)
    assert operator(topics.order, topic) is None
    operator(topics.delete, topic, CLUSTER)
    operator.until(lambda: operator.quietly(NoRoute, topics.route, topic) is None)
    assert operator(topics.clean_unused, broker=operator.server.broker) == [operator.server.broker]


def test_messages(operator: Operator) -> None:
    messages = operator.admin.messages
    topic = operator.topic("Found")
    sent = operator.produce(topic, body="hello", props="color:red")
    for one in sent:  # keys and ids are found once the broker has dispatched what it has acknowledged
        operator.until(partial(operator.quietly, NoMessage, messages.by_unique_id, topic, one.msg_id))
    first = operator(messages.by_unique_id, topic, sent[0].msg_id)
    key = ["queryMsgByKey", "-t", topic, "-k", "key-2"]
    assert shown.hits(operator(messages.by_key, topic, "key-2")) == shown.printed_hits(operator.tool.run(*key)) != set()
    by_id = shown.printed_message(operator.tool.run("queryMsgById", "-i", first.offset_msg_id))
    assert shown.message(operator(messages.by_offset_id, first.offset_msg_id)) == by_id
    assert shown.message(operator(messages.by_id, topic, first.offset_msg_id)) == by_id
    assert shown.message(first) == shown.printed_message(
        operator.tool.run("queryMsgByUniqueKey", "-t", topic, "-i", first.msg_id)
    )
    queue = MessageQueue(topic, BROKER_NAME, 1)
    at = ["queryMsgByOffset", "-t", topic, "-b", BROKER_NAME, "-i", "1", "-o", "0"]
    assert shown.message(operator(messages.at, queue, 0)) == shown.printed_message(operator.tool.run(*at))
    assert [one.msg_id for one in operator(messages.between, topic)] == [
        one.msg_id for one in sorted(sent, key=lambda one: one.queue_id or 0)
    ]
    assert [one.body for one in operator(messages.between, topic, tags="TagA || TagZ", limit=2)] == [
        sent[0].body,
        sent[1].body,
    ]
    assert operator(messages.between, topic, tags="TagZ") == []
    now = operator(messages.at, queue, 0).store_time
    assert [one.msg_id for one in operator(messages.in_queue, queue, now, now + 1)] == [sent[1].msg_id]
    with pytest.raises(NoMessage):
        operator(messages.at, queue, 7)
    with pytest.raises(NoMessage):
        operator(messages.by_offset_id, first.offset_msg_id[:16] + f"{1 << 20:016X}")
    with pytest.raises(NoMessage):
        operator(messages.by_unique_id, topic, "F" * 32)
    assert operator(messages.by_key, topic, "no-such-key") == []
    entries = operator(messages.entries, operator.server.broker, queue, 0, 3)
    printed = operator.tool.run("queryCq", "-t", topic, "-q", "1", "-i", "0", "-c", "3", "-b", operator.server.broker)
    assert shown.entries(entries) == shown.printed_entries(printed)
    assert len(entries.entries) == (0 if operator.release == "4.4.0" else 1)
    assert operator(messages.tracks, first) == []


def test_a_group_that_is_online(operator: Operator) -> None:
    groups, offsets, messages = operator.admin.groups, operator.admin.offsets, operator.admin.messages
    topic, group = operator.topic("Online"), operator.name("online")
    operator(groups.create, GroupConfig(group, retry_max_times=3), cluster=CLUSTER)
    assert operator(groups.config, group)[operator.server.broker].retry_max_times == 3
    sent = operator.produce(topic)
    with operator.consumer(topic, group, 4) as client_id:
        operator.agree(
            lambda: shown.connection(operator(groups.connection, group)),
            lambda: shown.printed_connection(operator.tool.run("consumerConnection", "-g", group)),
        )
        operator.agree(
            lambda: shown.progress(operator(groups.progress, group)),
            lambda: shown.printed_progress(operator.tool.run("consumerProgress", "-g", group)),
        )
        operator.agree(
            lambda: shown.summaries(operator(groups.overview)),
            lambda: shown.printed_summaries(operator.tool.run("consumerProgress")),
        )
        info = operator(groups.running_info, group, client_id, stack=True)
        assert {queue.queue_id for queue in info.queues if queue.topic == topic} == {0, 1, 2, 3}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "consume" in (info.stack or "").lower()
        assert operator(groups.check, group).same_subscriptions
        with pytest.raises(BrokerError):
            operator(groups.running_info, group, "nobody@nowhere")
        assert group in operator(operator.admin.topics.consumers, topic)
        operator.agree(
            lambda: shown.traffic([operator(operator.admin.traffic.of_topic, topic)]),
            lambda: shown.printed_traffic(operator.tool.run("statsAll", "-t", topic)),
        )
        message = operator.until(partial(operator.quietly, NoMessage, messages.by_unique_id, topic, sent[0].msg_id))
        printed = operator.tool.run("queryMsgById", "-i", message.offset_msg_id)
        assert shown.tracks([one for one in operator(messages.tracks, message) if one.group == group]) == {
            (group, TrackType.CONSUMED.value)
        }
        assert (group, TrackType.CONSUMED.value) in shown.printed_tracks(printed)
        assert operator(messages.push, group, client_id, message).result == "CR_SUCCESS"
        assert list(operator(offsets.of_members, group, topic)) == [client_id]
        assert len(operator(offsets.time_spans, group, topic)) == 4
        reset = operator(offsets.reset_by_time, group, topic, 0)
        assert set(reset.offsets.values()) == {0}
        printed = operator.tool.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        assert shown.reset(reset) == shown.printed_reset(printed)
        assert reset.told == (operator.server.broker,)
    assert [one.type for one in operator(messages.tracks, message) if one.group == group] == [TrackType.NOT_ONLINE]
    with pytest.raises(NoClients):
        operator(groups.connection, group)


def test_a_group_that_pulls(operator: Operator) -> None:
    """It is in the table of all groups too, as what it is."""
    topic, group, overview = operator.topic("Pulled"), operator.name("pulling"), operator.admin.groups.overview
    consumer = LitePullConsumer(group, operator.server.names)
    consumer.subscribe(topic)
    with consumer:
        operator.until(lambda: any(row[0] == group and row[3] == "PULL" for row in shown.summaries(operator(overview))))
        operator.agree(
            lambda: shown.summaries(operator(overview)),
            lambda: shown.printed_summaries(operator.tool.run("consumerProgress")),
        )


def test_a_group_that_is_away(operator: Operator) -> None:
    groups, offsets = operator.admin.groups, operator.admin.offsets
    topic, group, other = operator.topic("Away"), operator.name("away"), operator.name("other")
    operator.produce(topic)
    with operator.consumer(topic, group, 4):
        pass
    operator.produce(topic, count=8)
    assert operator(groups.progress, group, topic).lag == 8
    assert shown.printed_lag(operator.tool.run("consumerProgress", "-g", group)) == 8
    queue = MessageQueue(topic, BROKER_NAME, 2)
    operator(offsets.commit, group, queue, 2)
    assert operator(offsets.committed, group, queue) == 2
    assert operator(groups.progress, group, topic).lag == 7
    back = operator(offsets.reset_by_time, group, topic, 0)
    assert set(back.offsets.values()) == {0}
    # A release of 5.x stores it at the broker whoever is online; the others say that nobody is.
    assert (back.told or back.committed) == (operator.server.broker,)
    assert operator(offsets.skip, group, topic).offsets == {
        MessageQueue(topic, BROKER_NAME, queue): 3 for queue in range(4)
    }
    assert operator(groups.progress, group, topic).lag == 0
    stays = operator(offsets.reset_by_time, group, topic, None, force=False)
    assert set(stays.offsets.values()) == {3}
    assert [
        operator(offsets.minimum, queue),
        operator(offsets.maximum, queue),
        operator(offsets.at_time, queue, 0),
    ] == [0, 3, 0]
    assert (
        0
        < operator(offsets.earliest_time, queue)
        <= operator(operator.admin.topics.stats, topic)[queue].last_update_timestamp
    )
    if operator.release == "5.3.3":
        with pytest.raises(PartlyFailed) as failed:
            operator(offsets.clone, group, other, topic)
        assert failed.value.code == 26
    operator(groups.create, GroupConfig(other), cluster=CLUSTER)
    cloned = operator(offsets.clone, group, other, topic)
    assert cloned == {MessageQueue(topic, BROKER_NAME, number): 3 for number in range(4)}
    assert operator(offsets.committed, other, queue) == 3
    operator(groups.delete, other, cluster=CLUSTER, remove_offsets=True)
    assert other not in operator(groups.configs, operator.server.broker)
    with pytest.raises(NoClients):
        operator(groups.progress, other)


def test_brokers(operator: Operator) -> None:
    brokers, broker = operator.admin.brokers, operator.server.broker
    operator.agree(
        lambda: shown.cluster(operator(brokers.clusters), operator(brokers.all_runtimes)),
        lambda: shown.printed_cluster(operator.tool.run("clusterList")),
    )
    runtime = operator(brokers.runtime, broker)
    assert runtime.version == f"V{operator.release.replace('.', '_')}"
    assert {key.strip() for key in runtime.values} == shown.printed_runtime(
        operator.tool.run("brokerStatus", "-b", broker)
    ).keys()
    assert (runtime.boot_time or 0) > 1_500_000_000_000
    config = operator(brokers.config, broker)
    printed = shown.pairs(operator.tool.run("getBrokerConfig", "-b", broker), "  =  ")
    assert config.keys() == printed.keys()
    assert {key for key in config if config[key].strip() != printed[key]} <= {"startAcceptSendRequestTimeStamp"}
    assert operator(brokers.update_config, {"fileReservedTime": "71"}, cluster=CLUSTER) == {
        broker: {"fileReservedTime": "71"}
    }
    assert operator(brokers.update_config, {"fileReservedTime": "72"}, broker=broker) == {
        broker: {"fileReservedTime": "72"}
    }
    with pytest.raises(InvalidSetting, match="noSuchKey"):
        operator(brokers.update_config, {"noSuchKey": "1"}, broker=broker)
    topic = operator.topic("Counted")
    operator.produce(topic)
    assert operator(brokers.stats, broker, "TOPIC_PUT_NUMS", topic) is not None
    assert operator(brokers.stats, broker, "TOPIC_PUT_NUMS", "no-such-topic") is None
    operator.agree(
        lambda: shown.consume_stats(operator(brokers.consume_stats, broker)),
        lambda: shown.printed_consume_stats(operator.tool.run("brokerConsumeStats", "-b", broker)),
    )
    assert operator(brokers.clean_expired_queues, cluster=CLUSTER) == [broker]
    if operator.release == "4.4.0":
        return
    assert operator(brokers.delete_expired_logs, broker=broker) == [broker]
    assert isinstance(operator(operator.admin.groups.all_producers, broker), dict)


def test_name_servers(operator: Operator) -> None:
    servers, names = operator.admin.name_servers, operator.server.names
    space = operator.name("space")
    assert operator(servers.value, space, "key") is None
    operator(servers.put_value, space, "key", "a value")
    assert operator(servers.value, space, "key") == "a value"
    assert operator(servers.values, space) == {"key": "a value"}
    operator.tool.run("deleteKvConfig", "-s", space, "-k", "key")
    assert operator(servers.value, space, "key") is None
    (config,) = operator(servers.configs).values()
    assert config.keys() == shown.pairs(operator.tool.run("getNamesrvConfig"), "  =  ").keys()
    assert operator(servers.update_config, {"clusterTest": "false"}) == {names: {"clusterTest": "false"}}
    topic = operator.topic("Closed")
    try:
        for _ in range(5):  # a registration of the broker's in between brings the permission back
            assert operator(servers.wipe_write_perm, BROKER_NAME)[names] > 0
            if (perm := operator(operator.admin.topics.route, topic).queues[0].perm) == 4:
                break
        assert perm == 4
    finally:
        if operator.release == "4.4.0":
            # does not know 327; a topic that a send makes brings all of them back, one of an admin only itself
            wire.make_topic(names, operator.server.broker, operator.name("Opens"), 4)
        else:
            assert operator(servers.add_write_perm, BROKER_NAME)[names] > 0
    for restored in (topic, "TBW102"):
        assert operator(operator.admin.topics.route, restored).queues[0].perm & PERM_WRITE


@pytest.mark.not_with("apache:4.9.7", "it knows the requests")
@pytest.mark.not_with("apache:5.3.3", "it knows the requests")
def test_what_an_old_server_does_not_answer(operator: Operator) -> None:
    admin = operator.runtime.call(operator.runtime.module.Admin, operator.server.names, timeout_ms=3000)
    operator.runtime.call(admin.start)
    try:
        with pytest.raises(CallExpired):
            operator(admin.groups.all_producers, operator.server.broker)
        with pytest.raises(PartlyFailed, match="no answer"):
            operator(admin.name_servers.add_write_perm, BROKER_NAME)
    finally:
        operator.runtime.call(admin.close)
