"""Costs of many topics, links and parked pulls in a server: the figures of docs/benchmarks.md, "Limits".

    python benchmarks/limits.py [--only holds names send crowd] [--topics 10000] [--links 10000] [--seconds 30]
                                [--rounds 3]

holds    the longest that one request of each kind keeps the broker's loop busy, with so many topics and groups
names    the same for the name server
send     a send to one topic while 1,000 pulls are parked on other queues, against one while there are none
crowd    memory and CPU of a broker process with so many idle links, and with so many parked pulls

Times are those of the processor, so that other programs on the machine matter little. It fails when a limit is passed.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for parts of the tests, which are no part of the distribution

from mqproto.codec import Command, encode  # noqa: E402
from mqproto.engine.namesrv.node import HANDLERS, NameServerNode  # noqa: E402
from mqproto.engine.settings import NamesrvSettings  # noqa: E402
from mqproto.engine.store import DiskFiles  # noqa: E402
from mqproto.state.node.contract import Run  # noqa: E402
from mqproto.wire.bodies import DataVersion, GroupConfig, RegisterBrokerBody, TopicConfig, TopicTable  # noqa: E402
from mqproto.wire.codes import RequestCode  # noqa: E402
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields  # noqa: E402
from tests.peers.kit import servers  # noqa: E402

HOLD_MAX_MS = 10.0
MEMORY_MAX_KB = 10.0
IDLE_MAX = 1.0
SEND_RATIO_MAX = 1.05
QUEUES = 4
GROUP, TOPIC = "Group", "topic-00007"
#: Sends, pulls and what belongs to them: their cost is that of benchmarks/broker.py.
NO_ADMINISTRATION = {10, 11, 310, 320, 324, 325, 361}

Samples = dict[int, tuple[dict[str, str], bytes]]


class Watch:
    """Watch over the entries of a node, which keeps the longest."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.total = 0.0
        self.entries = 0

    def run(self, entry: Callable[..., object], *arguments: object) -> None:
        """One entry, timed."""
        begun = time.thread_time()
        entry(*arguments)
        took = (time.thread_time() - begun) * 1000
        self.longest = max(self.longest, took)
        self.total += took
        self.entries += 1


# --- the broker's loop
# --------------------------------------------------------------------------------------------------


def world_with(topics: int, folder: str) -> World:
    """A broker with so many topics, each with queues that hold a message, and as many groups; one group has consumed
    all of them.
    """
    sizes = {"store_path_root_dir": folder, "mapped_file_size_commit_log": 1 << 28, "message_index_enable": False}
    world = World(files=cast(Any, DiskFiles()), store=sizes, enable_property_filter=True)
    core = world.broker
    for number in range(topics):
        name = f"topic-{number:05d}"
        core.topics.table[name] = TopicConfig(name, QUEUES, QUEUES)
        core.subscription_groups.table[f"group-{number:05d}"] = GroupConfig(f"group-{number:05d}")
        for queue in range(QUEUES):
            core.offsets.commit(GROUP, name, queue, 1)
    core.subscription_groups.table[GROUP] = GroupConfig(GROUP)
    peer = world.connect()
    for number in range(topics):
        for queue in range(QUEUES):
            peer.feed(peer.frame(310, send_fields(f"topic-{number:05d}", "KEYS\x01key\x02", e=str(queue)), b"body"))
            if queue == 0 and number % 100 == 0:
                peer.read()
    peer.read()
    world.advance(5000)
    return world


def heartbeat(group: str) -> bytes:
    """A consumer of one group with one topic."""
    subscription = (
        f'{{"topic":"{TOPIC}","subString":"*","tagsSet":[],"codeSet":[],"subVersion":1,"classFilterMode":false}}'
    )
    consumer = f'{{"groupName":"{group}","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
    consumer += f'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{subscription}]}}'
    producer = '{"groupName":"Producers"}'
    return f'{{"clientID":"client","producerDataSet":[{producer}],"consumerDataSet":[{consumer}]}}'.encode()


def broker_samples(turn: int, message_id: str) -> Samples:
    """A good request of each administrative kind. Those that change something change something else in each turn."""
    queue = {"topic": TOPIC, "queueId": "0"}
    offset = {"consumerGroup": GROUP, **queue}
    locked = f'{{"topic":"{TOPIC}","brokerName":"broker-a","queueId":0}}'
    locks = f'{{"consumerGroup":"{GROUP}","clientId":"client","mqSet":[{locked}]}}'.encode()
    one = f"topic-{turn + 100:05d}"
    made = {"topic": f"made-{turn}", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    relay = {"consumerGroup": GROUP, "clientId": "client"}
    reset = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
    return {
        12: ({"topic": TOPIC, "key": "key", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}, b""),
        14: (offset, b""),
        15: ({**offset, "commitOffset": "1"}, b""),
        17: ({**made, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}, b""),
        18: ({}, b'{"topicConfigList":[{"topicName":"many-%d"}]}' % turn),
        21: ({}, b""),
        25: ({}, b"brokerPermission=6\n"),
        26: ({}, b""),
        28: ({}, b""),
        29: ({**queue, "timestamp": "0"}, b""),
        30: (queue, b""),
        31: (queue, b""),
        32: (queue, b""),
        33: ({"offset": "0"}, b""),
        34: ({}, heartbeat(f"Consumers-{turn}")),
        35: ({"clientID": "client", "producerGroup": "Producers", "consumerGroup": f"Consumers-{turn}"}, b""),
        36: ({"offset": "0", "group": GROUP, "delayLevel": "0"}, b""),
        37: ({"producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8"}, b""),
        38: ({"consumerGroup": GROUP}, b""),
        41: ({}, locks),
        42: ({}, locks),
        43: ({}, b""),
        45: ({}, b""),
        46: (
            {},
            f'{{"clientId":"c","group":"{GROUP}","subscriptionData":{{"topic":"{TOPIC}","subString":"*"}}}}'.encode(),
        ),
        200: ({}, GroupConfig(f"made-{turn}").to_json()),
        201: ({}, b""),
        202: ({"topic": TOPIC}, b""),
        203: ({"consumerGroup": GROUP}, b""),
        204: ({"producerGroup": "Producers"}, b""),
        207: ({"groupName": f"group-{turn:05d}", "cleanOffset": "true", "removeOffset": "true"}, b""),
        208: ({"consumerGroup": GROUP}, b""),
        215: ({"topic": one}, b""),
        222: (reset, b""),
        223: ({"topic": TOPIC, "group": GROUP, "clientAddr": ""}, b""),
        225: ({}, b'{"groupConfigList":[{"groupName":"many-%d"}]}' % turn),
        300: ({"topic": TOPIC}, b""),
        301: ({"filterServerAddr": "192.0.2.7:1"}, b""),
        303: ({"topic": TOPIC, "group": GROUP}, b""),
        305: ({}, b""),
        306: ({}, b""),
        307: ({**relay, "jstackEnable": "false"}, b""),
        308: ({"compareGroup": GROUP, "topic": TOPIC}, b""),
        309: ({**relay, "msgId": message_id}, b""),
        314: ({"srcGroup": GROUP, "destGroup": f"copy-{turn}"}, b""),
        315: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}, b""),
        316: ({}, b""),
        317: ({"isOrder": "false"}, b""),
        321: ({**queue, "index": "0", "count": "10", "consumerGroup": GROUP}, b""),
        323: ({"msgId": message_id}, b""),
        328: ({}, b""),
        329: ({}, b""),
        343: ({"group": GROUP}, b""),
        345: ({"group": GROUP, "topic": TOPIC}, b""),
        351: ({"topic": TOPIC}, b""),
        352: ({"group": GROUP}, b""),
    }


def follow(world: World, watch: Watch, answered: Callable[[], bool]) -> None:
    """Do what a driver does until an answer is there and nothing is due: jobs at once, timers at their time."""
    broker = world.broker
    while True:
        while broker.actions:
            actions = list(broker.actions)
            broker.actions.clear()
            for action in actions:
                if isinstance(action, Run):
                    action.job.run()
                    watch.run(broker.done, action.job, None, world.now)
        due = broker.next_deadline()
        if due is None or due > (world.now if answered() else world.now + 20_000):
            return
        world.now = max(world.now, due)
        watch.run(broker.timer, world.now)


def holds(options: argparse.Namespace) -> bool:
    """Every administrative request of the broker."""
    with tempfile.TemporaryDirectory() as folder:
        return hold_each(world_with(options.topics, folder), options.rounds)


def hold_each(world: World, rounds: int) -> bool:
    """The longest entry for each kind of request."""
    member = world.connect("192.0.2.8:1")
    member.heartbeat(heartbeat(GROUP))
    message_id = world.connect().send(TOPIC).fields["msgId"]
    gc.collect()
    gc.freeze()  # as the servers do once they have started
    worst: dict[int, Watch] = {}
    codes: dict[int, int] = {}
    names: dict[int, str] = {int(code): code.name for code in RequestCode}
    missing = set(world.broker.handlers) - NO_ADMINISTRATION - set(broker_samples(0, message_id))
    for turn in range(rounds):
        for code, (fields, body) in broker_samples(turn, message_id).items():
            if code not in world.broker.handlers:
                continue
            peer = world.connect()
            watch = Watch()
            watch.run(world.broker.received, peer.link, peer.frame(code, fields, body), world.now)
            follow(world, watch, lambda link=peer.link: bool(link.out))  # type: ignore[misc]
            answers = [answer for answer in peer.read() if answer.is_response]
            codes[code] = answers[0].code if answers else -1
            peer.close()
            member.read()
            if code not in worst or watch.longest < worst[code].longest:
                worst[code] = watch
    show_holds({code: (names.get(code, "?"), codes[code], watch) for code, watch in worst.items()})
    for code in sorted(missing):
        print(f"{code:>5}  no sample")
    return not missing and all(watch.longest <= HOLD_MAX_MS for code, watch in worst.items())


def show_holds(rows: dict[int, tuple[str, int, Watch]]) -> None:
    """The longest first."""
    print(f"{'code':>5}  {'name':<40} {'answer':>6} {'longest ms':>10} {'all ms':>8} {'entries':>8}")
    for code, (name, answer, watch) in sorted(rows.items(), key=lambda row: -row[1][2].longest):
        over = "" if watch.longest <= HOLD_MAX_MS else "   too long"
        shown = "none" if answer < 0 else str(answer)
        print(f"{code:>5}  {name:<40} {shown:>6} {watch.longest:>10.2f} {watch.total:>8.1f} {watch.entries:>8}{over}")


# --- the name server's loop
# ---------------------------------------------------------------------------------------------


def names_samples(turn: int, table: bytes) -> Samples:
    """A good request of each kind; `table` is a broker's registration of all topics."""
    identity = {
        "brokerName": "broker-a",
        "brokerAddr": "192.0.2.2:10911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
    key = {"namespace": "N", "key": f"k{turn}"}
    return {
        100: ({**key, "value": "v"}, b""),
        101: (key, b""),
        219: ({"namespace": "N"}, b""),
        102: (key, b""),
        103: ({**identity, "haServerAddr": "192.0.2.2:10912", "compressed": "false", "bodyCrc32": "0"}, table),
        322: (identity, DataVersion(1, 1).to_json()),
        105: ({"topic": TOPIC}, b""),
        106: ({}, b""),
        205: ({"brokerName": "broker-a"}, b""),
        327: ({"brokerName": "broker-a"}, b""),
        206: ({}, b""),
        224: ({"cluster": "DefaultCluster"}, b""),
        304: ({}, b""),
        311: ({}, b""),
        312: ({}, b""),
        313: ({}, b""),
        217: (
            {"topic": "told"},
            b'{"brokerDatas":[],"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}',
        ),
        901: ({"brokerName": "broker-a", "clusterName": "DefaultCluster"}, b""),
        904: (identity, b""),
        216: ({"topic": f"topic-{turn + 100:05d}"}, b""),
        318: ({}, b"orderMessageEnable=false\n"),
        319: ({}, b""),
        104: (identity, b""),
    }


def names(options: argparse.Namespace) -> bool:
    """Every request of the name server."""
    worst: dict[int, tuple[str, int, Watch]] = {}
    node = NameServerNode(NamesrvSettings())
    now = 1000
    topics = {
        f"topic-{number:05d}": TopicConfig(f"topic-{number:05d}", QUEUES, QUEUES) for number in range(options.topics)
    }
    for turn in range(options.rounds):
        table = RegisterBrokerBody(TopicTable(DataVersion(1, turn + 1), topics)).to_json()
        link = node.accept("main", "192.0.2.2:40000", "192.0.2.1:9876", now)
        assert link is not None
        for code, (fields, body) in names_samples(turn, table).items():
            watch = Watch()
            watch.run(node.received, link, encode(Command(code, fields, body, code)), now)
            while not link.out and (due := node.next_deadline()) is not None and due <= now:
                watch.run(node.timer, now)
            assert link.out, code
            data = b"".join(node.data_to_send(link))
            link.unsent = 0
            answer = int(re.search(rb'"code":(\d+)', data)[1])  # type: ignore[index]
            if code not in worst or watch.longest < worst[code][2].longest:
                worst[code] = RequestCode(code).name, answer, watch
        node.closed(link, "", now)
    show_holds(worst)
    missing = {int(code) for code in HANDLERS} - set(worst)
    for code in sorted(missing):
        print(f"{code:>5}  no sample")
    return not missing and all(watch.longest <= HOLD_MAX_MS for code, (_, _, watch) in worst.items())


# --- sends beside parked pulls
# ------------------------------------------------------------------------------------------


def send_cost(world: World, peer: Peer, frames: int = 2000) -> float:
    """Microseconds of a send of 1 KiB."""
    data = [peer.frame(310, send_fields("Target"), bytes(1024)) for _ in range(frames)]
    broker, link = world.broker, peer.link
    begun = time.thread_time()
    for frame in data:
        broker.received(link, frame, world.now)
        link.out.clear()
        link.unsent = 0
        broker.touched.clear()
    took = time.thread_time() - begun
    world.act()
    return took / frames * 1e6


def send(options: argparse.Namespace) -> bool:
    """Sends to one topic, in turn at a broker with 1,000 parked pulls elsewhere and at one without."""
    peers = []
    for parked in (0, 1000):
        world = World(
            store={"mapped_file_size_commit_log": 1 << 30, "message_index_enable": False}, default_topic_queue_nums=1000
        )
        peer, waiting = world.connect(), world.connect()
        for topic, queues in (("Other", "1000"), ("Target", "4")):
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": queues,
                "writeQueueNums": queues,
                "perm": "6",
            }
            peer.ask(17, {**fields, "topicFilterType": "SINGLE_TAG", "order": "false"})
        for queue in range(parked):
            waiting.feed(waiting.frame(11, pull_fields("Other", queue=queue, sysFlag="6")))
        assert len(world.broker.parked_pulls) == parked
        peers.append((world, peer))
    costs: tuple[list[float], list[float]] = ([], [])
    for _ in range(10 * options.rounds):
        for (world, peer), values in zip(peers, costs, strict=True):
            values.append(send_cost(world, peer))
    ratio = min(costs[1]) / min(costs[0])
    medians = statistics.median(costs[1]) / statistics.median(costs[0])
    print(
        f"a send: {min(costs[0]):.2f} us without parked pulls, {min(costs[1]):.2f} us with 1,000 on other queues; "
        f"ratio {ratio:.3f}, of the medians {medians:.3f}"
    )
    return ratio <= SEND_RATIO_MAX


# --- crowds
# -------------------------------------------------------------------------------------------------------------


def process_figures(pid: int) -> tuple[float, float]:
    """Resident memory in KiB and CPU seconds of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float(found[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connections(port: int, count: int) -> Iterator[socket.socket]:
    """So many connections to a port of this machine."""
    for number in range(count):
        sock = socket.create_connection(("127.0.0.1", port))
        if number % 200 == 199:
            time.sleep(0.05)  # a listener's backlog is bounded
        yield sock


def idle_share(pid: int, seconds: float) -> float:
    """Percent of a core that a process uses once the work of what came before is done."""
    for _ in range(60):
        before = process_figures(pid)[1]
        time.sleep(1)
        if process_figures(pid)[1] - before < IDLE_MAX / 100:
            break
    before = process_figures(pid)[1]
    time.sleep(seconds)
    return 100 * (process_figures(pid)[1] - before) / seconds


def crowd(options: argparse.Namespace) -> bool:
    """A broker process with idle links, then with a parked pull on each of them."""
    count = min(options.links, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"brokerSuspendMaxTimeMillis": "3600000", "serverChannelMaxIdleTimeSeconds": "3600"}
        with servers.ours(Path(folder) / "server", options.adapter, 0, **settings) as server:
            port, pid = int(server.broker.rpartition(":")[2]), server.processes[0].pid
            first = socket.create_connection(("127.0.0.1", port))
            ask(first, encode(Command(310, send_fields("Crowd"), b"hi", 1)))
            alone_share = idle_share(pid, options.seconds)
            alone, _ = process_figures(pid)
            links = list(connections(port, count))
            share = idle_share(pid, options.seconds)
            idle, _ = process_figures(pid)
            print(f"alone: {alone / 1024:.1f} MB, {alone_share:.2f} % of a core")
            per_link = (idle - alone) / count
            print(f"{count} idle links: {per_link:.2f} KB each, {share:.2f} % of a core")
            good = per_link <= MEMORY_MAX_KB and share <= IDLE_MAX
            fields = pull_fields("Crowd", offset=1, sysFlag="6", suspendTimeoutMillis="3600000")
            for number, sock in enumerate(links):
                sock.sendall(encode(Command(11, fields, b"", number)))
            share = idle_share(pid, options.seconds)
            parked, _ = process_figures(pid)
            per_pull = (parked - idle) / count
            print(f"{count} parked pulls on them: {per_pull:.2f} KB each, {share:.2f} % of a core")
            good = good and per_pull <= MEMORY_MAX_KB and share <= IDLE_MAX
            for sock in (first, *links):
                sock.close()
    return good


def ask(sock: socket.socket, frame: bytes) -> None:
    """Send a request and wait for its answer."""
    sock.sendall(frame)
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    sock.recv(size, socket.MSG_WAITALL)


PARTS: dict[str, Callable[[Any], bool]] = {"holds": holds, "names": names, "send": send, "crowd": crowd}


def main(arguments: list[str]) -> int:
    """Run the parts; see the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS))
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--links", type=int, default=10_000, help="bounded by the limit of open files")
    parser.add_argument("--seconds", type=float, default=30, help="how long a crowd is watched")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--adapter", choices=servers.ADAPTERS, default="threaded")
    options = parser.parse_args(arguments)
    failed = []
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            print(f"--- {name}")
            if not part(options):
                failed.append(name)
    if failed:
        print(f"beyond the limits: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
