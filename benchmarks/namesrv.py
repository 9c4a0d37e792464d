"""Costs of a name server and of registrations with many topics and brokers: the time that one entry holds the loop.

    PYTHONPATH=. python benchmarks/namesrv.py [--topics N] [--brokers N] [--rounds N] [--json FILE]

Nodes are driven by hand, without sockets: every entry (a read of at most 64 KiB, or a timer) is timed alone, by the CPU
time of the thread. Each row gives the longest entry and the sum of all entries of a request, of the best round. Nothing
here fails by time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mqproto.codec import Command, FrameSplitter, decode, encode
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.settings import BrokerSettings, NamesrvSettings
from mqproto.engine.store import Store, StoreSettings
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.state.node.contract import Dial, Link, Run
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import body_crc

READ = 65_536


@dataclass
class Row:
    """One request: milliseconds of its longest entry and of all, and how many entries there were."""

    name: str
    longest: float = 1e9
    total: float = 1e9
    entries: int = 0

    def note(self, times: list[int]) -> None:
        self.longest = min(self.longest, max(times) / 1e6)
        self.total = min(self.total, sum(times) / 1e6)
        self.entries = len(times)


class Saved:
    """Stand-in for the job that saves the key/value configuration: its text is made before."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self) -> None:
        """Nothing: files are not what is measured."""


class Server:
    """A name server with as many brokers, each with the same topics."""

    def __init__(self, topics: int, brokers: int) -> None:
        self.node = NameServerNode(NamesrvSettings(), save_kv_config=Saved)
        self.names = [f"some-topic-{number:05}" for number in range(topics)]
        self.count = brokers
        self.version = 0
        self.links: dict[int, Link] = {}
        self.opaque = 0
        self.now = 1_000

    def timed(self, entry: Callable[[], object]) -> int:
        begin = time.thread_time_ns()
        entry()
        return time.thread_time_ns() - begin

    def ask(self, link: Link, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> list[int]:
        """Nanoseconds of each entry until the answer is there."""
        self.opaque += 1
        data = encode(Command(code, fields or {}, body, opaque=self.opaque))
        times = [
            self.timed(partial(self.node.received, link, data[at : at + READ], self.now))
            for at in range(0, len(data), READ)
        ]
        while not link.out:
            jobs = [action.job for action in self.node.actions if isinstance(action, Run)]
            self.node.actions.clear()
            for job in jobs:
                times.append(self.timed(partial(self.node.done, job, None, self.now)))
            if not jobs:
                times.append(self.timed(lambda: self.node.timer(self.now)))
        answer = b"".join(map(bytes, self.node.data_to_send(link)))
        link.unsent = 0
        self.node.touched.clear()
        assert len(FrameSplitter().feed(answer)) == 1
        return times

    def link(self) -> Link:
        link = self.node.accept("main", "192.0.2.9:1", "192.0.2.1:9876", self.now)
        assert link is not None
        return link

    def body(self, version: int, compressed: bool = False) -> bytes:
        table = TopicTable(DataVersion(1, version), {name: TopicConfig(name, 8, 8) for name in self.names})
        body = RegisterBrokerBody(table)
        return body.to_compressed() if compressed else body.to_json()

    def register(self, number: int, body: bytes, compressed: bool = False) -> list[int]:
        fields = {
            "brokerName": f"broker-{number:03}",
            "brokerAddr": f"10.0.{number}.1:10911",
            "clusterName": f"cluster-{number % 4}",
            "haServerAddr": f"10.0.{number}.1:10912",
            "brokerId": "0",
            "compressed": str(compressed).lower(),
            "bodyCrc32": str(body_crc(body)),
        }
        if number not in self.links:
            self.links[number] = self.link()
        return self.ask(self.links[number], RequestCode.REGISTER_BROKER, fields, body)

    def lose(self, number: int) -> list[int]:
        link = self.links.pop(number)
        times = [self.timed(lambda: self.node.closed(link, "reset", self.now))]
        while (due := self.node.next_deadline()) is not None and due <= self.now:
            times.append(self.timed(lambda: self.node.timer(self.now)))
        return times


def name_server(topics: int, brokers: int, rounds: int) -> Iterator[Row]:
    server = Server(topics, brokers)
    first, same = server.body(1), Row("103, nothing new")
    alone, more, again = Row("103, the first broker"), Row("103, the last broker"), Row("103, a new version")
    packed, packed_same, lost = (
        Row("103 compressed, a new version"),
        Row("103 compressed, nothing new"),
        Row("a broker's link is lost"),
    )
    alone.note(server.register(0, first))
    for number in range(1, brokers):
        more.note(server.register(number, first))
    for turn in range(rounds):
        same.note(server.register(0, first))
        again.note(server.register(1, server.body(turn + 2)))
        data = server.body(turn + 1000, compressed=True)
        packed.note(server.register(2, data, compressed=True))
        packed_same.note(server.register(2, data, compressed=True))
        lost.note(server.lose(3))
        more.note(server.register(3, first))
    yield from (alone, more, same, again, packed, packed_same, lost)
    client = server.link()
    asked: list[tuple[str, int, dict[str, str]]] = [
        ("105 route of a topic at all brokers", RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": server.names[7]}),
        ("106 cluster", RequestCode.GET_BROKER_CLUSTER_INFO, {}),
        ("206 all topics", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        ("224 topics of a cluster", RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "cluster-1"}),
        ("304 system topics", RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
        ("311 unit topics", RequestCode.GET_UNIT_TOPIC_LIST, {}),
        ("205 wipe write permission", RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-001"}),
        ("327 add write permission", RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-001"}),
        ("216 delete a topic", RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": server.names[9]}),
    ]
    for name in server.names:
        server.node.state.kv.put("ORDER_TOPIC_CONFIG", name, "broker-001:8;broker-002:8")
    asked.append(
        ("219 a namespace with every topic", RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    )
    asked.append(("100 a key more", RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"}))
    for what, code, fields in asked:
        row = Row(what)
        for _ in range(rounds):
            row.note(server.ask(client, code, fields))
        yield row


def broker(topics: int, rounds: int, *, compressed: bool) -> Iterator[Row]:
    """The other end: a broker with as many topics tells a name server."""
    storing = StoreSettings(store_path_root_dir="/store", mapped_file_size_commit_log=1 << 20)
    files = MemoryFiles()
    settings = BrokerSettings(broker_name="broker-a", namesrv_addr="192.0.2.1:9876", compressed_register=compressed)
    node = BrokerNode(settings, Store.open(storing, files, wall=1), host="192.0.2.2", port=10911, files=files)
    for number in range(topics):
        config = TopicConfig(f"some-topic-{number:05}", 8, 8)
        node.topics.table[config.name] = config
    form = "compressed, " if compressed else ""
    changed, same = Row(f"the broker's side: {form}a new version"), Row(f"the broker's side: {form}nothing new")
    node.begin(0)
    (dial,) = [action for action in node.actions if isinstance(action, Dial)]
    link, now, opened = dial.link, 0, False
    for turn in range(2 * rounds):
        if turn % 2 == 0 and opened:
            node.topics.version.next(now)
        now += 1 if not opened else 30_000
        times: list[int] = []
        while not link.out:
            begin = time.thread_time_ns()
            node.timer(now) if opened else node.opened(link, now)
            times.append(time.thread_time_ns() - begin)
            opened = True
        (changed if turn % 2 == 0 else same).note(times)
        frames = FrameSplitter().feed(b"".join(map(bytes, node.data_to_send(link))))
        link.unsent = 0
        node.actions.clear()
        for frame in frames:
            node.received(link, answer_to(frame), now)
    yield from (changed, same)


def answer_to(frame: bytes) -> bytes:
    return encode(Command(0, {}, b"", decode(frame).opaque, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    print(f"{options.topics} topics at each of {options.brokers} brokers\n")
    print(f"{'':44} {'longest ms':>10} {'all ms':>10} {'entries':>8}")
    rows = []
    for part in (
        name_server(options.topics, max(4, options.brokers), options.rounds),
        broker(options.topics, options.rounds, compressed=False),
        broker(options.topics, options.rounds, compressed=True),
    ):
        for row in part:
            rows.append(row)
            print(f"{row.name:44} {row.longest:10.2f} {row.total:10.2f} {row.entries:8}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
