"""Name servers and brokers in processes of their own: clusters that lose a member and get it back, as clients see
it.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqproto import ConsumeStatus, Message, MessageExt
from mqproto.adapters.threaded import Producer, PushConsumer
from mqproto.codec import Command, FrameSplitter, decode, encode_request
from mqproto.wire.bodies import ClusterInfo, ConsumeFromWhere, TopicRoute
from mqproto.wire.codes import RequestCode
from tests.adapters.cli.test_cli import server
from tests.adapters.harness import PATIENCE, Collector

TOPIC = "Orders"
MADE = {
    "topic": TOPIC,
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}
MADE |= {"topicSysFlag": "0", "order": "false"}


def ask(address: str, code: int, fields: dict[str, str] | None = None) -> Command:
    host, _, port = address.rpartition(":")
    splitter = FrameSplitter()
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        sock.sendall(encode_request(code, 1, fields or {}))
        while True:
            frames = splitter.feed(sock.recv(65_536))
            if frames:
                return decode(frames[0])


def brokers(address: str) -> dict[str, list[str]]:
    """Broker names by cluster, as a name server knows them."""
    return ClusterInfo.from_json(ask(address, RequestCode.GET_BROKER_CLUSTER_INFO).body).clusters


class Processes:
    """Servers by name. Ports are given by the system at the first start and kept for the next ones."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._home = home
        self._stack = stack
        self._ports: dict[str, str] = {}
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}

    def start(self, kind: str, name: str, *arguments: str) -> str:
        """The address of a server that has started."""
        port = self._ports.get(name, "0")
        process, line = self._stack.enter_context(server(self._home, kind, "--json", "--port", port, *arguments))
        self.running[name] = process
        assert line, process.stderr.read() if process.stderr else ""
        address: str = json.loads(line)[kind]
        self.addresses[name] = address
        self._ports[name] = address.rpartition(":")[2]
        return address

    def name_server(self, name: str) -> str:
        return self.start("namesrv", name, "--directory", str(self._home / name))

    def broker(self, name: str, namesrv: str, *settings: str) -> str:
        pairs = [f"--set={pair}" for pair in (f"brokerName={name}", "brokerClusterName=shop", *settings)]
        return self.start("broker", name, "-n", namesrv, "--store", str(self._home / name), *pairs)

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.running.pop(name)
        process.send_signal(number)
        process.wait(PATIENCE)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(tmp_path, stack)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_client_sees_a_broker_leave_and_come_back(processes: Processes, number: signal.Signals) -> None:
    namesrv = ";".join(processes.name_server(name) for name in ("ns-1", "ns-2"))
    for name in ("broker-a", "broker-b"):
        assert ask(processes.broker(name, namesrv), RequestCode.UPDATE_AND_CREATE_TOPIC, MADE).code == 0
    for address in namesrv.split(";"):
        assert brokers(address) == {"shop": ["broker-a", "broker-b"]}, "a broker says that it is ready once all know it"
    received = Collector()

    def listener(messages: list[MessageExt]) -> ConsumeStatus:
        received.take(messages)
        return ConsumeStatus.SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("readers", listener, namesrv, consume_from_where=first, poll_name_server_interval=200)
    consumer.subscribe(TOPIC)
    with Producer("shop", namesrv, poll_name_server_interval=200) as producer:
        sent: list[bytes] = []

        def send() -> str:
            body = b"%d" % len(sent)
            result = producer.send(Message(TOPIC, body), timeout_ms=20_000)
            sent.append(body)
            return result.queue.broker_name

        assert {send() for _ in range(20)} == {"broker-a", "broker-b"}
        with consumer:
            processes.end("broker-b", number)
            for address in namesrv.split(";"):
                assert brokers(address) == {"shop": ["broker-a"]}
            assert {send() for _ in range(20)} == {"broker-a"}
            processes.broker("broker-b", namesrv)
            while send() != "broker-b":
                assert len(sent) < 100_000, "the client never found it again"
            received.wait_for_bodies(set(sent))  # some come twice: those whose offsets broker-b did not hear of
    assert set(received.bodies()) == set(sent)


def test_a_cluster_outlives_its_name_servers(processes: Processes) -> None:
    """NSV-03: what they know comes back with the brokers' next words, and sends go on meanwhile.

    Their key/value configuration is on the disk, also after a kill.
    """
    namesrv = ";".join(processes.name_server(name) for name in ("ns-1", "ns-2"))
    processes.broker("broker-a", namesrv, "registerNameServerPeriod=10000")
    first, second = namesrv.split(";")
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC}
    for address in (first, second):
        assert ask(address, RequestCode.PUT_KV_CONFIG, {**key, "value": "broker-a:8"}).code == 0
    with Producer("shop", namesrv) as producer:
        producer.send(Message(TOPIC, b"1"))
        for name in ("ns-1", "ns-2"):
            processes.end(name, signal.SIGKILL)
        assert producer.send(Message(TOPIC, b"2")).queue.broker_name == "broker-a", "clients know the way"
        for name in ("ns-1", "ns-2"):
            processes.name_server(name)
        for address in (first, second):
            assert ask(address, RequestCode.GET_KV_CONFIG, key).fields == {"value": "broker-a:8"}
            assert any(brokers(address) for _ in range(100_000)), "the broker tries again within 8 s"
            route = TopicRoute.from_json(ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).body)
            assert [queues.broker_name for queues in route.queues] == ["broker-a"]
        producer.send(Message(TOPIC, b"3"))


def test_broker_ids_and_a_name_server_that_is_down(processes: Processes) -> None:
    """A broker starts although one of its name servers cannot be reached."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
    alive = processes.name_server("ns-1")
    address = processes.broker("broker-a", f"{nobody};{alive}")
    info = ClusterInfo.from_json(ask(alive, RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.brokers["broker-a"].addresses == {0: address}
    processes.end("broker-a")
    assert brokers(alive) == {}
