"""Session of an operator with mqadmin, from an empty broker on: the text of every command, by the name of its step.

It follows the recorded session step by step (tests/golden/captures/4.9.7/admin-*.txt), and differs where that one left
something to chance: the queue of a message is given where Apache's client draws one, and the consumer's offsets are
waited for. Steps that were not recorded there have their text in tests/golden/mqadmin.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.peers.kit import probes, wire
from tests.peers.kit.mqadmin.mqadmin import VERSION, Mqadmin
from tests.peers.kit.mqadmin.printed import comparable
from tests.peers.kit.probes import Clients, finish, wait_for
from tests.peers.kit.servers import Server

#: Recorded, but no part of the session: the tool's own help and complaints, which end it, and what was no command.
LEFT_OUT = {"unknown-option", "missing-option", "help", "produce"}
#: Addresses of the recorded name server and broker, and their folder.
RECORDED_AT = ("127.0.0.1:9876", "127.0.0.1:10911", "/tmp/golden/run/4.9.7-admin")
CLUSTER = "DefaultCluster"
TOPIC = "AdminTopic"
GROUP = "admin-group"
AN_HOUR = 3_600_000
#: Settings of the broker that the recorded texts show.
SETTINGS = {
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "sendMessageThreadPoolNums": "2",
    "enablePropertyFilter": "true",
}


class MqadminSession:
    """Session with one server."""

    def __init__(self, tool: Mqadmin, clients: Clients) -> None:
        self.tool = tool
        self.server: Server = tool.server
        self.broker = tool.server.broker
        self.java = clients["java-4.9.7"]
        self.texts: dict[str, str] = {}

    def one(self, name: str, *words: str) -> str:
        """One step."""
        text = self.texts[name] = self.tool.run(*words)
        return text

    def run(self) -> dict[str, str]:
        """All of it."""
        self.topics()
        self.sending()
        ids = self.produced()
        self.groups()
        self.finding(*ids)
        with self.clients():
            self.watching(ids[0])
            self.resetting()
        self.offline()
        self.brokers()
        self.files()
        self.ending(ids[0])
        return self.texts

    def topics(self) -> None:
        one, broker = self.one, self.broker
        one("updateTopic", "updateTopic", "-b", broker, "-t", TOPIC, "-r", "4", "-w", "4", "-p", "6")
        one("updateTopic-order", "updateTopic", "-c", CLUSTER, "-t", "AdminOrder", "-r", "2", "-w", "2", "-o", "true")
        one("updateTopic-bad-name", "updateTopic", "-b", broker, "-t", "bad^name")
        one("updateTopicPerm", "updateTopicPerm", "-b", broker, "-t", TOPIC, "-p", "4")
        one("updateTopicPerm-cluster", "updateTopicPerm", "-c", CLUSTER, "-t", TOPIC, "-p", "6")
        one("updateTopicPerm-same", "updateTopicPerm", "-b", broker, "-t", TOPIC, "-p", "6")
        one("updateTopicPerm-stranger", "updateTopicPerm", "-b", "127.0.0.1:9", "-t", TOPIC, "-p", "2")
        one("updateOrderConf-put", "updateOrderConf", "-t", "AdminOrder", "-m", "put", "-v", "broker-a:2")
        one("updateOrderConf-get", "updateOrderConf", "-t", "AdminOrder", "-m", "get")
        one("topicRoute-order", "topicRoute", "-t", "AdminOrder")
        one("updateOrderConf-delete", "updateOrderConf", "-t", "AdminOrder", "-m", "delete")
        one("updateOrderConf-none", "updateOrderConf", "-t", "AdminOrder", "-m", "get")
        one("topicRoute", "topicRoute", "-t", TOPIC)
        one("topicRoute-none", "topicRoute", "-t", "NoSuchTopic")
        one("topicRoute-list", "topicRoute", "-t", TOPIC, "-l")
        one("topicStatus-empty", "topicStatus", "-t", TOPIC)
        one("topicStatus-none", "topicStatus", "-t", "NoSuchTopic")

    def sending(self) -> None:
        one = self.one
        hello = ["-p", "hello from the tool", "-k", "tool-key", "-c", "TagTool"]
        # the recorded one went there by chance
        one("sendMessage", "sendMessage", "-t", TOPIC, *hello, "-b", "broker-a", "-i", "2")
        one(
            "sendMessage-queue",
            "sendMessage",
            "-t",
            TOPIC,
            "-p",
            "hello queue 1",
            "-k",
            "tool-key",
            "-b",
            "broker-a",
            "-i",
            "1",
        )
        one("checkMsgSendRT", "checkMsgSendRT", "-t", TOPIC, "-a", "4", "-s", "16")
        one("sendMsgStatus", "sendMsgStatus", "-b", "broker-a", "-s", "16", "-c", "3")

    def produced(self) -> tuple[str, str]:
        """Four messages; the broker's id of the first and the client's of the second."""
        options: dict[str, Any] = {
            "count": 4,
            "shard": 4,
            "tag": "TagA",
            "keys": "admin",
            "props": "color:red",
            "group": "admin-producer",
        }
        sent = probes.run(self.java, "produce", names=self.server.names, topic=TOPIC, **options).sent
        return sent[0]["offsetMsgId"], sent[1]["msgId"]

    def groups(self) -> None:
        one, broker = self.one, self.broker
        one(
            "updateSubGroup",
            "updateSubGroup",
            "-b",
            broker,
            "-g",
            GROUP,
            "-r",
            "5",
            "-q",
            "1",
            "-d",
            "true",
            "-m",
            "true",
        )
        one("updateSubGroup-cluster", "updateSubGroup", "-c", CLUSTER, "-g", "admin-other")

    def finding(self, offset_id: str, unique_id: str) -> None:
        one, broker = self.one, self.broker
        one("topicStatus", "topicStatus", "-t", TOPIC)
        one("topicClusterList", "topicClusterList", "-t", TOPIC)
        one("topicList", "topicList")
        one("queryMsgById", "queryMsgById", "-i", offset_id)
        one("queryMsgById-bad", "queryMsgById", "-i", offset_id[:16] + "00000000000FFFFF")
        one("queryMsgByKey", "queryMsgByKey", "-t", TOPIC, "-k", "tool-key")
        one("queryMsgByKey-none", "queryMsgByKey", "-t", TOPIC, "-k", "no-such-key")
        one("queryMsgByUniqueKey", "queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id)
        one("queryMsgByUniqueKey-all", "queryMsgByUniqueKey", "-t", TOPIC, "-i", unique_id, "-a")
        one("queryMsgByOffset", "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "0")
        one("printMsg", "printMsg", "-t", TOPIC, "-d", "true")
        one("printMsg-tag", "printMsg", "-t", TOPIC, "-d", "true", "-s", "TagTool")
        by_queue = ["printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true"]
        one("printMsgByQueue", *by_queue, "-f", "true")
        one("printMsgByQueue-future", *by_queue, "-b", "2100-01-01#00:00:00:000")
        one("consumeMessage", "consumeMessage", "-t", TOPIC, "-c", "3")
        one("consumeMessage-queue", "consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "0", "-c", "2")
        one("queryCq", "queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-c", "3", "-b", broker)
        one(
            "queryCq-group",
            "queryCq",
            "-t",
            TOPIC,
            "-q",
            "1",
            "-i",
            "0",
            "-c",
            "1",
            "-b",
            broker,
            "-g",
            "no-such-group",
        )
        one("queryCq-beyond", "queryCq", "-t", TOPIC, "-q", "1", "-i", "99", "-c", "1", "-b", broker)
        one("allocateMQ", "allocateMQ", "-t", TOPIC, "-i", "192.0.2.11,192.0.2.12,192.0.2.13")

    @contextmanager
    def clients(self) -> Iterator[None]:
        """A consumer of the group and an idle producer, while the context lasts; all messages are consumed and
        committed when it begins.
        """
        options = {"names": self.server.names, "topic": TOPIC}
        consumer = self.java.start(
            "consume",
            group=GROUP,
            expect=1_000_000,
            seconds=300,
            instance="admin-consumer",
            settle=0,
            threads=4,
            **options,
        )
        wait_for(consumer, "started")
        idle = self.java.start(
            "produce",
            group="admin-idle",
            queue=2,
            body="idle",
            keys="idle",
            tag="TagIdle",
            instance="idle",
            stay=300,
            **options,
        )
        wait_for(idle, "staying")
        for _ in range(11):
            wait_for(consumer, "body")
        self.settled(11)
        until = time.monotonic() + 60  # an idle producer is known by its heartbeats alone
        while "@idle" not in (said := self.tool.run("producerConnection", "-g", "admin-idle", "-t", TOPIC)):
            assert time.monotonic() < until, said
        try:
            yield
        finally:
            for client in (consumer, idle):
                client.stop()
            finish(consumer, status=1)
            finish(idle)

    def settled(self, count: int) -> None:
        """Return when the group has committed `count` messages."""
        queues, until = wire.queues_of(self.server.names, TOPIC), time.monotonic() + 60
        while True:
            committed = [wire.committed(self.broker, GROUP, TOPIC, queue_id) for queue_id in queues]
            if sum(max(0, offset) for offset in committed) == count:
                return
            assert time.monotonic() < until, committed

    def watching(self, offset_id: str) -> None:
        one, broker = self.one, self.broker
        connection = one("consumerConnection", "consumerConnection", "-g", GROUP)
        client = next(
            (word for word in connection.split() if word.endswith("@admin-consumer")), "nobody@admin-consumer"
        )
        one("consumerConnection-b", "consumerConnection", "-g", GROUP, "-b", broker)
        one("consumerConnection-none", "consumerConnection", "-g", "no-such-group")
        one("producerConnection", "producerConnection", "-g", "admin-idle", "-t", TOPIC)
        one("producerConnection-none", "producerConnection", "-g", "no-such-group", "-t", TOPIC)
        one("producer", "producer", "-b", broker)
        one("getConsumerConfig", "getConsumerConfig", "-g", GROUP)
        one("topicList-c", "topicList", "-c")
        one("consumerProgress", "consumerProgress")
        one("consumerProgress-g", "consumerProgress", "-g", GROUP)
        one("consumerProgress-s", "consumerProgress", "-g", GROUP, "-s", "true")
        one("consumerProgress-none", "consumerProgress", "-g", "no-such-group")
        one("consumerStatus", "consumerStatus", "-g", GROUP)
        one("consumerStatus-i", "consumerStatus", "-g", GROUP, "-i", client)
        one("consumerStatus-s", "consumerStatus", "-g", GROUP, "-i", client, "-s")
        one("consumerStatus-stranger", "consumerStatus", "-g", GROUP, "-i", "nobody@nowhere")
        one("brokerConsumeStats", "brokerConsumeStats", "-b", broker)
        one("statsAll", "statsAll")
        one("statsAll-t", "statsAll", "-t", TOPIC)
        one("queryMsgById-tracked", "queryMsgById", "-i", offset_id)
        one("queryMsgById-push", "queryMsgById", "-i", offset_id, "-g", GROUP, "-d", client)
        one("queryMsgById-push-stranger", "queryMsgById", "-i", offset_id, "-g", GROUP, "-d", "nobody@nowhere")

    def resetting(self) -> None:
        # What was recorded sent a message again here, to queue 1 by chance; a new one of the same size takes its place.
        options: dict[str, Any] = {"queue": 1, "tag": "TagA", "keys": "admin", "props": "color:red"}
        probes.run(self.java, "produce", names=self.server.names, topic=TOPIC, **options)
        self.settled(12)
        by_time = ["resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s"]
        self.one("resetOffsetByTime", *by_time, str(int(time.time() * 1000) - AN_HOUR))
        self.one("resetOffsetByTime-now", *by_time, "now")
        self.one("skipAccumulatedMessage", "skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)

    def offline(self) -> None:
        one = self.one
        hour_ago = str(int(time.time() * 1000) - AN_HOUR)
        one("resetOffsetByTime-offline", "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", hour_ago)
        one("cloneGroupOffset", "cloneGroupOffset", "-s", GROUP, "-d", "admin-clone", "-t", TOPIC, "-o", "true")
        one("consumerProgress-offline", "consumerProgress", "-g", GROUP)
        one("consumerProgress-clone", "consumerProgress", "-g", "admin-clone")
        one("resetOffsetByTime-gentle", "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now", "-f", "false")
        one("skipAccumulatedMessage-offline", "skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        one("consumerProgress-skipped", "consumerProgress", "-g", GROUP)

    def brokers(self) -> None:
        one, broker = self.one, self.broker
        one("clusterList", "clusterList")
        one("clusterList-m", "clusterList", "-m")
        one("brokerStatus", "brokerStatus", "-b", broker)
        one("brokerStatus-c", "brokerStatus", "-c", CLUSTER)
        one("getBrokerConfig", "getBrokerConfig", "-b", broker)
        one("getBrokerConfig-c", "getBrokerConfig", "-c", CLUSTER)
        one("updateBrokerConfig", "updateBrokerConfig", "-b", broker, "-k", "fileReservedTime", "-v", "71")
        one("updateBrokerConfig-cluster", "updateBrokerConfig", "-c", CLUSTER, "-k", "fileReservedTime", "-v", "71")
        one("updateBrokerConfig-unknown", "updateBrokerConfig", "-b", broker, "-k", "noSuchKey", "-v", "1")
        self.texts["updateBrokerConfig-read-back"] = "\n".join(
            line
            for line in self.tool.run("getBrokerConfig", "-b", broker).splitlines()
            if line.startswith(("fileReserved", "noSuch"))
        )
        one("getNamesrvConfig", "getNamesrvConfig")
        one("updateNamesrvConfig", "updateNamesrvConfig", "-k", "clusterTest", "-v", "false")
        one("updateKvConfig", "updateKvConfig", "-s", "GoldenSpace", "-k", "golden-key", "-v", "golden value")
        one("deleteKvConfig", "deleteKvConfig", "-s", "GoldenSpace", "-k", "golden-key")

    def files(self) -> None:
        one, broker, folder = self.one, self.broker, self.tool.folder
        for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
            one(command, command, "-b", broker)
            one(f"{command}-c", command, "-c", CLUSTER)
        for command in ("Configs", "Metadata", "Metrics"):
            said = one(f"export{command}", f"export{command}", "-c", CLUSTER, "-f", str(folder))
            self.texts[f"export{command}"] = said.replace(str(folder), "FOLDER")
            file = folder / f"{command.lower()}.json"
            self.texts[f"export-{command.lower()}.json"] = file.read_text() if file.exists() else ""
        one("exportMetadata-topics", "exportMetadata", "-b", broker, "-t", "-s", "-f", str(folder))
        self.texts["export-topic.json"] = (
            (folder / "topic.json").read_text() if (folder / "topic.json").exists() else ""
        )
        self.texts["exportMetadata-topics"] = self.texts["exportMetadata-topics"].replace(str(folder), "FOLDER")

        one("exportMetadata-groups", "exportMetadata", "-b", broker, "-g", "-f", str(folder))
        file = folder / "subscriptionGroup.json"
        self.texts["export-groups.json"] = file.read_text() if file.exists() else ""

    def ending(self, offset_id: str) -> None:
        one, broker = self.one, self.broker
        one("queryMsgById-resend", "queryMsgById", "-i", offset_id, "-s", "true")
        one("queryMsgByOffset-beyond", "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "99")
        one("deleteSubGroup", "deleteSubGroup", "-b", broker, "-g", "admin-clone")
        one("deleteSubGroup-c", "deleteSubGroup", "-c", CLUSTER, "-g", "admin-other")
        one("deleteSubGroup-offsets", "deleteSubGroup", "-b", broker, "-g", GROUP, "-r", "true")
        one("consumerProgress-deleted", "consumerProgress", "-g", GROUP)
        one("deleteTopic", "deleteTopic", "-c", CLUSTER, "-t", "AdminOrder")
        one("topicRoute-deleted", "topicRoute", "-t", "AdminOrder")
        one("deleteTopic-none", "deleteTopic", "-c", CLUSTER, "-t", "NoSuchTopic")
        one(
            "updateTopic-unit",
            "updateTopic",
            "-b",
            broker,
            "-t",
            "AdminUnit",
            "-r",
            "3",
            "-w",
            "2",
            "-u",
            "true",
            "-s",
            "true",
        )
        one("topicRoute-unit", "topicRoute", "-t", "AdminUnit")
        every = ["-s", "false", "-m", "true", "-d", "true", "-q", "2", "-r", "3", "-i", "0", "-w", "1", "-a", "false"]
        one("updateSubGroup-options", "updateSubGroup", "-b", broker, "-g", "admin-options", *every)
        one("getConsumerConfig-options", "getConsumerConfig", "-g", "admin-options")
        one("getConsumerConfig-none", "getConsumerConfig", "-g", "no-such-group")
        one("queryMsgTraceById-none", "queryMsgTraceById", "-i", "7F00000100002A9F0000000000000000")
        for _ in range(5):  # a registration of the broker's in between brings the permission back
            one("wipeWritePerm", "wipeWritePerm", "-b", "broker-a")
            if '"perm":6' not in one("topicRoute-wiped", "topicRoute", "-t", TOPIC):
                break
        one("addWritePerm", "addWritePerm", "-b", "broker-a")
        one("topicRoute-added", "topicRoute", "-t", TOPIC)
        one("wipeWritePerm-stranger", "wipeWritePerm", "-b", "no-such-broker")
        by_tool = ["-p", "traced by the tool", "-k", "tool", "-b", "broker-a", "-i", "0"]
        one("sendMessage-trace", "sendMessage", "-t", TOPIC, *by_tool, "-m", "true")
        one("unknown-command", "noSuchCommand")
        one("unknown-cluster", "brokerStatus", "-c", "NoSuchCluster")
        self.texts["clusterRT"] = self.tool.endless(2, "clusterRT", "-a", "2", "-s", "16", "-i", "1")


def recorded(root: Path) -> dict[str, str]:
    """What Apache's server made the tool print, by step and as it is compared; `root` is the folder of the golden
    data.
    """
    texts = {path.stem: path.read_text().strip() for path in (root / "mqadmin").glob("*.txt")}
    for path in (root / "captures" / VERSION).glob("admin-*.txt"):
        name = path.name.removeprefix("admin-").removesuffix(".txt")
        text = path.read_text()
        if text.startswith("$ "):  # the command
            text = text.partition("\n")[2]
        if name not in LEFT_OUT:
            texts[name] = comparable(name, text, *RECORDED_AT)
    return texts


def record(texts: dict[str, str], server: Server, root: Path) -> list[str]:
    """Keep the steps that the captures do not have; returns their names."""
    known = {
        path.name.removeprefix("admin-").removesuffix(".txt")
        for path in (root / "captures" / VERSION).glob("admin-*.txt")
    }
    new = sorted(texts.keys() - known)
    for name in new:
        (root / "mqadmin" / f"{name}.txt").write_text(
            comparable(name, texts[name], server.names, server.broker, str(server.home)) + "\n"
        )
    return new
