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
from pathlib import Path
from typing import Any

import pytest

from mqproto import MessageQueue
from mqproto.acl import SessionCredentials
from mqproto.adapters.threaded import Admin, LitePullConsumer
from mqproto.errors import (
    AccessDenied,
    BrokerError,
    CallExpired,
    InvalidSetting,
    NoClients,
    NoMessage,
    NoRoute,
    PartlyFailed,
)
from mqproto.state.admin import Account, TrackType
from mqproto.wire.bodies import GroupConfig, TopicRoute
from mqproto.wire.flags import PERM_WRITE
from tests.adapters.harness import Runtime, open_runtime
from tests.mqproto.state.admin import shown
from tests.peers.conftest import Servers, need
from tests.peers.kit import probes, wire
from tests.peers.kit.checks import Sent, sent_by
from tests.peers.kit.mqadmin import VERSION, Mqadmin, Tool
from tests.peers.kit.probes import Clients, finish, wait_for
from tests.peers.kit.servers import Server, serve

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
class Desk:
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
def desk(request: pytest.FixtureRequest, servers: Servers, clients: Clients, tool: Tool) -> Iterator[Desk]:
    runtime_name, _, kind = request.param.partition(" @ ")
    need(f"java-{VERSION}")
    need(kind)
    with open_runtime(runtime_name) as runtime:
        server = servers[kind]
        admin = runtime.call(runtime.module.Admin, server.names, timeout_ms=60_000)
        runtime.call(admin.start)
        try:
            yield Desk(server, Mqadmin(tool, server), runtime, admin, clients[f"java-{VERSION}"])
        finally:
            runtime.call(admin.close)


def test_topics(desk: Desk) -> None:
    topics = desk.admin.topics
    topic = desk.topic("Made", 3)
    desk.produce(topic)
    desk.agree(
        lambda: shown.topic_status(desk(topics.stats, topic)),
        lambda: shown.printed_topic_status(desk.tool.run("topicStatus", "-t", topic)),
    )
    assert desk(topics.route, topic) == TopicRoute.from_json(desk.tool.run("topicRoute", "-t", topic))
    desk.agree(lambda: set(desk(topics.names)), lambda: shown.printed_names(desk.tool.run("topicList")))
    assert desk.tool.run("topicClusterList", "-t", topic).split() == desk(topics.clusters, topic) == [CLUSTER]
    assert topic in desk(topics.of_cluster, CLUSTER)
    assert {CLUSTER, BROKER_NAME, "TBW102"} <= set(desk(topics.system))
    desk(topics.update_perm, topic, 4, cluster=CLUSTER)
    desk.until(lambda: desk(topics.route, topic).queues[0].perm == 4)
    config = desk(topics.config, topic, desk.server.broker)
    assert (config.perm, config.read_queues, config.write_queues) == (4, 3, 3)
    desk(topics.set_order, topic, f"{BROKER_NAME}:3")
    assert f"orderConf=[{BROKER_NAME}:3]" in desk.tool.run("updateOrderConf", "-t", topic, "-m", "get")
    desk(topics.delete_order, topic)
    assert desk(topics.order, topic) is None
    desk(topics.delete, topic, CLUSTER)
    desk.until(lambda: desk.quietly(NoRoute, topics.route, topic) is None)
    assert desk(topics.clean_unused, broker=desk.server.broker) == [desk.server.broker]


def test_messages(desk: Desk) -> None:
    messages = desk.admin.messages
    topic = desk.topic("Found")
    sent = desk.produce(topic, body="hello", props="color:red")
    for one in sent:  # keys and ids are found once the broker has dispatched what it has acknowledged
        desk.until(partial(desk.quietly, NoMessage, messages.by_unique_id, topic, one.msg_id))
    first = desk(messages.by_unique_id, topic, sent[0].msg_id)
    key = ["queryMsgByKey", "-t", topic, "-k", "key-2"]
    assert shown.hits(desk(messages.by_key, topic, "key-2")) == shown.printed_hits(desk.tool.run(*key)) != set()
    by_id = shown.printed_message(desk.tool.run("queryMsgById", "-i", first.offset_msg_id))
    assert shown.message(desk(messages.by_offset_id, first.offset_msg_id)) == by_id
    assert shown.message(desk(messages.by_id, topic, first.offset_msg_id)) == by_id
    assert shown.message(first) == shown.printed_message(
        desk.tool.run("queryMsgByUniqueKey", "-t", topic, "-i", first.msg_id)
    )
    queue = MessageQueue(topic, BROKER_NAME, 1)
    at = ["queryMsgByOffset", "-t", topic, "-b", BROKER_NAME, "-i", "1", "-o", "0"]
    assert shown.message(desk(messages.at, queue, 0)) == shown.printed_message(desk.tool.run(*at))
    assert [one.msg_id for one in desk(messages.between, topic)] == [
        one.msg_id for one in sorted(sent, key=lambda one: one.queue_id or 0)
    ]
    assert [one.body for one in desk(messages.between, topic, tags="TagA || TagZ", limit=2)] == [
        sent[0].body,
        sent[1].body,
    ]
    assert desk(messages.between, topic, tags="TagZ") == []
    now = desk(messages.at, queue, 0).store_time
    assert [one.msg_id for one in desk(messages.in_queue, queue, now, now + 1)] == [sent[1].msg_id]
    with pytest.raises(NoMessage):
        desk(messages.at, queue, 7)
    with pytest.raises(NoMessage):
        desk(messages.by_offset_id, first.offset_msg_id[:16] + f"{1 << 20:016X}")
    with pytest.raises(NoMessage):
        desk(messages.by_unique_id, topic, "F" * 32)
    assert desk(messages.by_key, topic, "no-such-key") == []
    entries = desk(messages.entries, desk.server.broker, queue, 0, 3)
    printed = desk.tool.run("queryCq", "-t", topic, "-q", "1", "-i", "0", "-c", "3", "-b", desk.server.broker)
    assert shown.entries(entries) == shown.printed_entries(printed)
    assert len(entries.entries) == (0 if desk.release == "4.4.0" else 1)
    assert desk(messages.tracks, first) == []


def test_a_group_that_is_online(desk: Desk) -> None:
    groups, offsets, messages = desk.admin.groups, desk.admin.offsets, desk.admin.messages
    topic, group = desk.topic("Online"), desk.name("online")
    desk(groups.create, GroupConfig(group, retry_max_times=3), cluster=CLUSTER)
    assert desk(groups.config, group)[desk.server.broker].retry_max_times == 3
    sent = desk.produce(topic)
    with desk.consumer(topic, group, 4) as client_id:
        desk.agree(
            lambda: shown.connection(desk(groups.connection, group)),
            lambda: shown.printed_connection(desk.tool.run("consumerConnection", "-g", group)),
        )
        desk.agree(
            lambda: shown.progress(desk(groups.progress, group)),
            lambda: shown.printed_progress(desk.tool.run("consumerProgress", "-g", group)),
        )
        desk.agree(
            lambda: shown.summaries(desk(groups.overview)),
            lambda: shown.printed_summaries(desk.tool.run("consumerProgress")),
        )
        info = desk(groups.running_info, group, client_id, stack=True)
        assert {queue.queue_id for queue in info.queues if queue.topic == topic} == {0, 1, 2, 3}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "consume" in (info.stack or "").lower()
        assert desk(groups.check, group).same_subscriptions
        with pytest.raises(BrokerError):
            desk(groups.running_info, group, "nobody@nowhere")
        assert group in desk(desk.admin.topics.consumers, topic)
        desk.agree(
            lambda: shown.traffic([desk(desk.admin.traffic.of_topic, topic)]),
            lambda: shown.printed_traffic(desk.tool.run("statsAll", "-t", topic)),
        )
        message = desk.until(partial(desk.quietly, NoMessage, messages.by_unique_id, topic, sent[0].msg_id))
        printed = desk.tool.run("queryMsgById", "-i", message.offset_msg_id)
        assert shown.tracks([one for one in desk(messages.tracks, message) if one.group == group]) == {
            (group, TrackType.CONSUMED.value)
        }
        assert (group, TrackType.CONSUMED.value) in shown.printed_tracks(printed)
        assert desk(messages.push, group, client_id, message).result == "CR_SUCCESS"
        assert list(desk(offsets.of_members, group, topic)) == [client_id]
        assert len(desk(offsets.time_spans, group, topic)) == 4
        reset = desk(offsets.reset_by_time, group, topic, 0)
        assert set(reset.offsets.values()) == {0}
        printed = desk.tool.run("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        assert shown.reset(reset) == shown.printed_reset(printed)
        assert reset.told == (desk.server.broker,)
    assert [one.type for one in desk(messages.tracks, message) if one.group == group] == [TrackType.NOT_ONLINE]
    with pytest.raises(NoClients):
        desk(groups.connection, group)


def test_a_group_that_pulls(desk: Desk) -> None:
    """It is in the table of all groups too, as what it is."""
    topic, group, overview = desk.topic("Pulled"), desk.name("pulling"), desk.admin.groups.overview
    consumer = LitePullConsumer(group, desk.server.names)
    consumer.subscribe(topic)
    with consumer:
        desk.until(lambda: any(row[0] == group and row[3] == "PULL" for row in shown.summaries(desk(overview))))
        desk.agree(
            lambda: shown.summaries(desk(overview)), lambda: shown.printed_summaries(desk.tool.run("consumerProgress"))
        )


def test_a_group_that_is_away(desk: Desk) -> None:
    groups, offsets = desk.admin.groups, desk.admin.offsets
    topic, group, other = desk.topic("Away"), desk.name("away"), desk.name("other")
    desk.produce(topic)
    with desk.consumer(topic, group, 4):
        pass
    desk.produce(topic, count=8)
    assert desk(groups.progress, group, topic).lag == 8
    assert shown.printed_lag(desk.tool.run("consumerProgress", "-g", group)) == 8
    queue = MessageQueue(topic, BROKER_NAME, 2)
    desk(offsets.commit, group, queue, 2)
    assert desk(offsets.committed, group, queue) == 2
    assert desk(groups.progress, group, topic).lag == 7
    back = desk(offsets.reset_by_time, group, topic, 0)
    assert set(back.offsets.values()) == {0}
    # A release of 5.x stores it at the broker whoever is online; the others say that nobody is.
    assert (back.told or back.committed) == (desk.server.broker,)
    assert desk(offsets.skip, group, topic).offsets == {
        MessageQueue(topic, BROKER_NAME, queue): 3 for queue in range(4)
    }
    assert desk(groups.progress, group, topic).lag == 0
    stays = desk(offsets.reset_by_time, group, topic, None, force=False)
    assert set(stays.offsets.values()) == {3}
    assert [desk(offsets.minimum, queue), desk(offsets.maximum, queue), desk(offsets.at_time, queue, 0)] == [0, 3, 0]
    assert 0 < desk(offsets.earliest_time, queue) <= desk(desk.admin.topics.stats, topic)[queue].last_update_timestamp
    if desk.release == "5.3.3":
        with pytest.raises(PartlyFailed) as failed:
            desk(offsets.clone, group, other, topic)
        assert failed.value.code == 26
    desk(groups.create, GroupConfig(other), cluster=CLUSTER)
    cloned = desk(offsets.clone, group, other, topic)
    assert cloned == {MessageQueue(topic, BROKER_NAME, number): 3 for number in range(4)}
    assert desk(offsets.committed, other, queue) == 3
    desk(groups.delete, other, cluster=CLUSTER, remove_offsets=True)
    assert other not in desk(groups.configs, desk.server.broker)
    with pytest.raises(NoClients):
        desk(groups.progress, other)


def test_brokers(desk: Desk) -> None:
    brokers, broker = desk.admin.brokers, desk.server.broker
    desk.agree(
        lambda: shown.cluster(desk(brokers.clusters), desk(brokers.all_runtimes)),
        lambda: shown.printed_cluster(desk.tool.run("clusterList")),
    )
    runtime = desk(brokers.runtime, broker)
    assert runtime.version == f"V{desk.release.replace('.', '_')}"
    assert {key.strip() for key in runtime.values} == shown.printed_runtime(
        desk.tool.run("brokerStatus", "-b", broker)
    ).keys()
    assert (runtime.boot_time or 0) > 1_500_000_000_000
    config = desk(brokers.config, broker)
    printed = shown.pairs(desk.tool.run("getBrokerConfig", "-b", broker), "  =  ")
    assert config.keys() == printed.keys()
    assert {key for key in config if config[key].strip() != printed[key]} <= {"startAcceptSendRequestTimeStamp"}
    assert desk(brokers.update_config, {"fileReservedTime": "71"}, cluster=CLUSTER) == {
        broker: {"fileReservedTime": "71"}
    }
    assert desk(brokers.update_config, {"fileReservedTime": "72"}, broker=broker) == {
        broker: {"fileReservedTime": "72"}
    }
    with pytest.raises(InvalidSetting, match="noSuchKey"):
        desk(brokers.update_config, {"noSuchKey": "1"}, broker=broker)
    topic = desk.topic("Counted")
    desk.produce(topic)
    assert desk(brokers.stats, broker, "TOPIC_PUT_NUMS", topic) is not None
    assert desk(brokers.stats, broker, "TOPIC_PUT_NUMS", "no-such-topic") is None
    desk.agree(
        lambda: shown.consume_stats(desk(brokers.consume_stats, broker)),
        lambda: shown.printed_consume_stats(desk.tool.run("brokerConsumeStats", "-b", broker)),
    )
    assert desk(brokers.clean_expired_queues, cluster=CLUSTER) == [broker]
    if desk.release == "4.4.0":
        return
    assert desk(brokers.delete_expired_logs, broker=broker) == [broker]
    assert isinstance(desk(desk.admin.groups.all_producers, broker), dict)


def test_name_servers(desk: Desk) -> None:
    servers, names = desk.admin.name_servers, desk.server.names
    space = desk.name("space")
    assert desk(servers.value, space, "key") is None
    desk(servers.put_value, space, "key", "a value")
    assert desk(servers.value, space, "key") == "a value"
    assert desk(servers.values, space) == {"key": "a value"}
    desk.tool.run("deleteKvConfig", "-s", space, "-k", "key")
    assert desk(servers.value, space, "key") is None
    (config,) = desk(servers.configs).values()
    assert config.keys() == shown.pairs(desk.tool.run("getNamesrvConfig"), "  =  ").keys()
    assert desk(servers.update_config, {"clusterTest": "false"}) == {names: {"clusterTest": "false"}}
    topic = desk.topic("Closed")
    try:
        for _ in range(5):  # a registration of the broker's in between brings the permission back
            assert desk(servers.wipe_write_perm, BROKER_NAME)[names] > 0
            if (perm := desk(desk.admin.topics.route, topic).queues[0].perm) == 4:
                break
        assert perm == 4
    finally:
        if (
            desk.release == "4.4.0"
        ):  # does not know 327; a topic that a send makes brings all of them back, one of an admin only itself
            wire.make_topic(names, desk.server.broker, desk.name("Opens"), 4)
        else:
            assert desk(servers.add_write_perm, BROKER_NAME)[names] > 0
    for restored in (topic, "TBW102"):
        assert desk(desk.admin.topics.route, restored).queues[0].perm & PERM_WRITE


@pytest.mark.not_with("apache:4.9.7", "it knows the requests")
@pytest.mark.not_with("apache:5.3.3", "it knows the requests")
def test_what_an_old_server_does_not_answer(desk: Desk) -> None:
    admin = desk.runtime.call(desk.runtime.module.Admin, desk.server.names, timeout_ms=3000)
    desk.runtime.call(admin.start)
    try:
        with pytest.raises(CallExpired):
            desk(admin.groups.all_producers, desk.server.broker)
        with pytest.raises(PartlyFailed, match="no answer"):
            desk(admin.name_servers.add_write_perm, BROKER_NAME)
    finally:
        desk.runtime.call(admin.close)


ACCOUNTS = """\
accounts:
- accessKey: OperatorKey
  secretKey: operator-secret
  admin: true
"""


@contextmanager
def guarded(home: Path, version: str) -> Iterator[Server]:
    """Apache's broker with access control and one account."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    with serve(f"apache:{version}", home, 0, aclEnable="true") as server:
        yield server


@contextmanager
def operator(server: Server, access_key: str, secret_key: str) -> Iterator[Admin]:
    with Admin(server.names, credentials=SessionCredentials(access_key, secret_key), timeout_ms=60_000) as admin:
        yield admin


def test_accounts(tmp_path: Path) -> None:
    """Of 4.9.7; 4.4.0 has no such requests, 5.3.3 others."""
    need("apache:4.9.7")
    with guarded(tmp_path, "4.9.7") as server, operator(server, "OperatorKey", "operator-secret") as admin:
        before = admin.access.version(server.broker)
        assert (before.broker_name, before.cluster) == (BROKER_NAME, CLUSTER)
        with operator(server, "SecondKey", "second-secret") as second:
            with pytest.raises(AccessDenied, match="No acl config"):
                second.topics.create("Guarded", broker=server.broker)
            account = Account(
                "SecondKey", "second-secret", default_topic_perm="DENY", topic_perms={"Guarded": "PUB|SUB"}
            )
            assert admin.access.put_account(account, cluster=CLUSTER) == [server.broker]
            with pytest.raises(AccessDenied, match="Need admin permission"):
                _when_known(lambda: second.topics.create("Guarded", broker=server.broker))
            admin.topics.create("Guarded", broker=server.broker)
            wire.wait_route(server.names, "Guarded")
            assert second.messages.between("Guarded") == []
            admin.access.put_account(Account("SecondKey", "second-secret", admin=True), broker=server.broker)
            _when(lambda: second.topics.create("Guarded", broker=server.broker), "Need admin permission")
        assert admin.access.set_white_addresses(["10.10.10.*"], broker=server.broker) == [server.broker]
        assert admin.access.version(server.broker) != before
        admin.access.delete_account("SecondKey", cluster=CLUSTER)
        with pytest.raises(PartlyFailed) as failed:
            admin.access.delete_account("SecondKey", cluster=CLUSTER)
        assert failed.value.code == 210


def _when_known(operation: Callable[[], object]) -> None:
    _when(operation, "No acl config")


def _when(operation: Callable[[], object], refusal: str) -> None:
    """Try until the broker has read its files again: it refuses with these words until then."""
    end = time.monotonic() + 60
    while True:
        try:
            operation()
            return
        except AccessDenied as denied:
            if refusal not in str(denied):
                raise
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
