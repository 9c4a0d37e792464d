"""Our clients beside the C++ client (PyPI rocketmq) and Apache's Java client, on Apache's 4.9.7 broker, in turn within
one run.

    python benchmarks/client.py [--quick] [--only ROW ...] [--rounds N] [--window 512] [--messages N]
                                [--compiled FOLDER] [--json FILE]

Needs the Java kit of tests/peers for the broker; where the C++ or the Java client cannot be had, its column says so.
Every round of a row is given to one client after the other, never to two at once. One process for each client lives
through all rounds, so that a just-in-time compiler gets warm; idling and memory have one of their own. The figures are
of one machine on one day: only the ratio says something, and no figure makes this program fail.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for tests.peers.kit, which is no part of the distribution

from tests.peers.kit import peers, servers, wire  # noqa: E402

APACHE = "4.9.7"
#: The broker's JVM, as in benchmarks/broker.py; and the Java client's, with both compilers, unlike the kit's programs.
BROKER_JVM = ["-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:SoftRefLRUPolicyMSPerMB=0"]
CLIENT_JVM = [
    "-server",
    "-Xms256m",
    "-Xmx512m",
    "-Drocketmq.client.logUseSlf4j=false",
    "-Drocketmq.client.logLevel=WARN",
]
QUEUES, MANY_QUEUES = 8, 1000
#: How often a peer's client may fail in a round.
TRIES = 3
#: Rows of one round by a process that has done nothing before: what others left in its memory is not theirs.
ALONE = ("idle", "memory")
SEND_TOPIC, FULL_TOPIC, QUICK_TOPIC, WIDE_TOPIC, LONG_TOPIC = (
    "BenchSend",
    "BenchFull",
    "BenchQuick",
    "BenchWide",
    "BenchLong",
)


@dataclass(frozen=True)
class Row:
    """A line of the table: who is compared, which figure of its answers, and the ratio to reach (None: an absolute
    value to stay below).
    """

    name: str
    ours: str
    peer: str
    figure: str
    target: float
    higher_is_better: bool = True


ROWS = [
    Row("sync", "threaded", "cpp", "rate", 1.2),
    Row("pipelined", "asyncio", "cpp", "rate", 2.0),
    Row("pipelined", "asyncio", "java", "rate", 1.0),
    Row("pipelined", "threaded", "cpp", "rate", 2.0),
    Row("pipelined", "threaded", "java", "rate", 1.0),
    Row("consume", "threaded", "cpp", "rate", 1.0),
    Row("consume", "asyncio", "cpp", "rate", 1.0),
    Row("latency", "threaded", "java", "p50_us", 1.0, False),
    Row("latency", "threaded", "java", "p99_us", 1.0, False),
    Row("latency", "asyncio", "java", "p50_us", 1.0, False),
    Row("latency", "asyncio", "java", "p99_us", 1.0, False),
    Row("idle", "threaded", "", "% of a core", 1.0, False),
    Row("idle", "threaded", "", "mb", 60.0, False),
    Row("memory", "threaded", "", "growth_mb", 8.0, False),
]
#: How a client of ours is called where it is the compiled build.
COMPILED = "-compiled"
ROWS += [replace(row, ours=row.ours + COMPILED) for row in ROWS]
OURS = {row.ours for row in ROWS}
#: Who takes part in a row, in the order of each round; compiled ones follow where they are asked for.
SIDES = {
    "sync": ("cpp", "threaded"),
    "pipelined": ("cpp", "java", "asyncio", "threaded"),
    "consume": ("cpp", "threaded", "asyncio"),
    "latency": ("java", "threaded", "asyncio"),
    "idle": ("threaded",),
    "memory": ("threaded",),
}


class Side:
    """One client's process; commands go in as lines, figures come out as JSON (see client_ours.py)."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
        )
        self._steps = 0

    def ask(self, command: str, **pairs: object) -> dict[str, float]:
        """Run a command; its figures, with `cpu` in seconds. Raises PeerFailedError."""
        self._steps += 1
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = cpu_seconds(self._process.pid)
        self._process.stdin.write(
            "\t".join([str(self._steps), command, *(f"{name}={value}" for name, value in pairs.items())]) + "\n"
        )
        self._process.stdin.flush()
        figures: dict[str, float] = {}
        for line in self._process.stdout:
            fields = json.loads(line)
            if "error" in fields:
                raise peers.PeerFailedError(f"{self.name} {command}: {fields['error']}: {fields.get('text')}")
            if "exit" in fields:
                figures.setdefault("cpu", cpu_seconds(self._process.pid) - before)
                return figures
            figures.update(
                (key, value) for key, value in fields.items() if type(value) in (int, float) and key != "step"
            )
        raise peers.PeerFailedError(f"{self.name} ended within {command}")

    def end(self) -> None:
        """Its standard input ends, so it does. Twice is harmless."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Results:
    """Figures by row, side and figure, one for each round; and why a side has none."""

    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def keep(self, row: str, side: str, figures: dict[str, float]) -> None:
        """Note one round."""
        for name, value in figures.items():
            self.values.setdefault(row, {}).setdefault(side, {}).setdefault(name, []).append(value)


class Bench:
    """One run: its options, its broker, the clients' processes."""

    def __init__(self, options: argparse.Namespace, names: str, broker: str, folder: Path, stack: ExitStack) -> None:
        self.quick: bool = options.quick
        self.window: int = options.window
        self.messages: int = options.messages or (20_000 if self.quick else 300_000)
        self.full: int = 20_000 if self.quick else 100_000
        self.names = names
        self.broker = broker
        #: Where the compiled build is; None: it takes no part.
        self.compiled: Path | None = options.compiled
        self.results = Results()
        self._folder = folder
        self._stack = stack
        self._sides: dict[str, Side] = {}
        self._groups = 0

    def side(self, name: str) -> Side:
        """The process of a client, started when it is first asked for."""
        if name not in self._sides:
            self._sides[name] = Side(name, self._command(name))
            self._stack.callback(self._sides[name].end)
        return self._sides[name]

    def _command(self, name: str) -> list[str]:
        if name == "java":
            silent = self._folder / "silent.xml"  # logback's own default prints to stdout, where the figures go
            silent.write_text("<configuration/>\n")
            flags = [
                *CLIENT_JVM,
                f"-Drocketmq.client.logRoot={self._folder}",
                f"-Drocketmq.client.localOffsetStoreDir={self._folder}",
            ]
            flags += [f"-Dlogback.configurationFile={silent}", f"-Drmq.logback.configurationFile={silent}"]
            return peers.java_command(APACHE, "Probe", "serve", flags=flags)
        if name == "cpp":
            return [str(peers.install_cpp()), str(ROOT / "benchmarks" / "client_cpp.py")]
        tree = self.compiled if name.endswith(COMPILED) else ROOT
        return [sys.executable, str(ROOT / "benchmarks" / "client_ours.py"), name.removesuffix(COMPILED), str(tree)]

    def sides(self, row: str) -> list[str]:
        """Who takes part in a row, in the order of each round."""
        added = [side + COMPILED for side in SIDES[row] if side in OURS and self.compiled is not None]
        return [*SIDES[row], *added]

    def group(self, topic: str, queues: int = QUEUES) -> str:
        """A new group that begins at the first message of each queue, whatever its client would do with a group without
        offsets.
        """
        self._groups += 1
        name = f"bench-{self._groups}"
        for queue in range(queues):
            fields = {"consumerGroup": name, "topic": topic, "queueId": str(queue), "commitOffset": "0"}
            wire.ask(self.broker, UPDATE_CONSUMER_OFFSET, fields)
        return name

    def prepare(self, rows: set[str]) -> None:
        """The topics that the rows need."""
        topics = {
            "sync": [SEND_TOPIC],
            "pipelined": [SEND_TOPIC],
            "consume": [FULL_TOPIC],
            "latency": [QUICK_TOPIC + side for side in self.sides("latency")],
            "memory": [LONG_TOPIC],
        }
        for topic in sorted({topic for row in rows for topic in topics.get(row, [])}):
            wire.make_topic(self.names, self.broker, topic, QUEUES)
        if "idle" in rows:
            self._make_wide()
        if "consume" in rows:
            say(f"filling a topic with {self.full:,} messages")
            self.side("threaded").ask("fill", names=self.names, topic=FULL_TOPIC, count=self.full)

    def _make_wide(self) -> None:
        fields = {
            "topic": WIDE_TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(MANY_QUEUES),
            "writeQueueNums": str(MANY_QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
            "order": "false",
        }  # fmt: skip
        wire.ask(self.broker, UPDATE_AND_CREATE_TOPIC, fields)
        wire.wait_route(self.names, WIDE_TOPIC)

    def once(self, row: str, name: str) -> dict[str, float]:
        """One round of a row by one client."""
        side, seconds = self.side(name), 0.7 if self.quick else 3.0
        if row in ("sync", "pipelined"):
            if name == "java":  # it counts messages and not seconds
                return side.ask(
                    "rate",
                    names=self.names,
                    topic=SEND_TOPIC,
                    count=int(25_000 * seconds),
                    mode="async",
                    window=self.window,
                )
            shape = (
                {"threads": 1 if row == "sync" else 16}
                if name == "cpp"
                else {"window": 1 if row == "sync" else self.window}
            )
            return side.ask("rate", names=self.names, topic=SEND_TOPIC, seconds=seconds, **shape)
        if row == "consume":
            return side.ask(
                "consume", names=self.names, topic=FULL_TOPIC, group=self.group(FULL_TOPIC), count=self.full
            )
        if row == "latency":
            count = 300 if self.quick else 2000
            topic, group = QUICK_TOPIC + name, f"latency-{name}"
            return side.ask(
                "latency", names=self.names, topic=topic, group=group, count=count, warm=count // 4, pause=1
            )
        if row == "idle":
            figures = side.ask(
                "idle",
                names=self.names,
                topic=WIDE_TOPIC,
                group="bench-idle",
                settle=8,
                seconds=8 if self.quick else 60,
            )
            return {"% of a core": 100 * figures["cpu"] / figures["seconds"], "mb": figures["mb"]}
        figures = side.ask("memory", names=self.names, topic=LONG_TOPIC, group="bench-memory", count=self.messages)
        return {**figures, "growth_mb": figures["end"] - figures["early"]}

    def sure(self, row: str, name: str) -> dict[str, float]:
        """The same; a process of a peer's that fails is replaced (the C++ client loses routes at times, and does not
        find them again).
        """
        for _ in range(0 if name in OURS else TRIES - 1):
            try:
                return self.once(row, name)
            except peers.PeerFailedError as failure:
                say(f"  once more: {failure}")
                self._sides.pop(name).end()
        return self.once(row, name)

    def run(self, row: str, rounds: int) -> None:
        """All rounds of a row."""
        for name in self.sides(row):
            if row in ALONE and name in self._sides:
                self._sides.pop(name).end()
            try:
                self.side(name)
                if row not in ALONE:
                    self.sure(row, name)  # warm
            except peers.PeerMissingError as missing:
                self.results.missing[name] = str(missing)
            except peers.PeerFailedError as failure:
                if name in OURS:
                    raise
                self.results.missing[name] = f"{row}: {failure}"
        for turn in range(1 if row in ALONE else rounds):
            for name in self.sides(row):
                if name not in self.results.missing:
                    figures = self.sure(row, name)
                    self.results.keep(row, name, figures)
                    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
                    say(f"  {row} {turn + 1}/{rounds} {name}: {shown}")


UPDATE_CONSUMER_OFFSET, UPDATE_AND_CREATE_TOPIC = 15, 17


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


# --- the table
# ----------------------------------------------------------------------------------------------------------


def table(results: Results) -> Iterator[str]:
    """The lines of the table: best (median) of each side, the ratio of both, CPU of ours for each message."""
    head = f"{'row':<10} {'figure':<12} {'ours':>32} {'beside':>32} {'ratio':>12} {'target':>8}"
    yield f"{head}  {'CPU us each: ours, beside':>24}"
    for row in ROWS:
        sides = results.values.get(row.name, {})
        if row.ours not in sides:
            continue
        ours = best_and_median(row, sides[row.ours])
        theirs = best_and_median(row, sides[row.peer]) if row.peer in sides else None
        beside = (
            f"{row.peer} {theirs[0]:,.0f} ({theirs[1]:,.0f})"
            if theirs
            else f"{row.peer}: not here"
            if row.peer
            else "-"
        )
        ratio = f"{ours[0] / theirs[0]:.2f} ({ours[1] / theirs[1]:.2f})" if theirs else "-"
        shape = "{:,.0f} ({:,.0f})" if ours[0] >= 100 else "{:.2f} ({:.2f})"
        target = f"{'>=' if row.higher_is_better else '<='} {row.target:g}"
        cpu = [f"{1e6 * each:.1f}" if (each := cpu_each(sides.get(side, {}))) else "-" for side in (row.ours, row.peer)]
        cells = f"{row.ours + ' ' + shape.format(*ours):>32} {beside:>32} {ratio:>12} {target:>8}"
        yield f"{row.name:<10} {row.figure:<12} {cells}  {', '.join(cpu):>24}"
    for name, why in results.missing.items():
        yield f"{name} did not take part: {why}"


def best_and_median(row: Row, figures: dict[str, list[float]]) -> tuple[float, float]:
    """Of rates the highest is the best, of everything else the lowest."""
    values = figures[row.figure]
    return (max if row.higher_is_better else min)(values), statistics.median(values)


def cpu_each(figures: dict[str, list[float]]) -> float:
    """CPU seconds for each message, the median; 0 where it was not measured."""
    if "cpu" not in figures or "rate" not in figures:
        return 0.0
    return statistics.median(cpu / count for cpu, count in zip(figures["cpu"], figures["count"], strict=True))


@contextmanager
def apache(folder: Path) -> Iterator[tuple[str, str]]:
    """Apache's name server and broker with the settings of their own start scripts but for the heap; their
    addresses.
    """
    names_port, port = servers.free_port(), servers.free_port()
    names, broker = f"127.0.0.1:{names_port}", f"127.0.0.1:{port}"
    settings = {
        "brokerClusterName": "Bench", "brokerName": "bench", "brokerIP1": "127.0.0.1", "diskMaxUsedSpaceRatio": "99",
        # it refuses sends that waited 200 ms, which a busy machine alone can cause
        "waitTimeMillsInSendQueue": "10000",
    }  # fmt: skip
    with ExitStack() as stack:
        homes = folder / "namesrv", folder / "broker"
        for home, command, at in (
            (homes[0], servers.apache_names_command(APACHE, homes[0], names_port), names_port),
            (homes[1], servers.apache_broker_command(APACHE, homes[1], port, names, settings, BROKER_JVM), port),
        ):
            process = servers.spawn(command, home, home.name)
            stack.callback(servers.stop, process)
            servers.wait_port(at, process, home / f"{home.name}.out")
        wire.wait_route(names, "TBW102", 30)
        yield names, broker


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="short rounds and few of them: to see that it works, not for figures"
    )
    parser.add_argument("--only", nargs="+", choices=list(SIDES), help="these rows")
    parser.add_argument("--rounds", type=int, help="rounds of each row (default 5, with --quick 2)")
    parser.add_argument("--window", type=int, default=512, help="sends in flight of the pipelined row (default 512)")
    parser.add_argument(
        "--messages", type=int, help="messages of the memory row (default 300,000; 10,000,000 takes some 15 minutes)"
    )
    parser.add_argument(
        "--compiled",
        type=Path,
        metavar="FOLDER",
        help="a folder that the compiled wheel was installed into: it takes part too",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the broker's data directory goes while it runs (default: a temporary folder)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run and print the table; see the top of the file."""
    options = parse(arguments)
    rows = options.only or list(SIDES)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="mqbench-", dir=options.folder) as name, ExitStack() as stack:
            names, broker = stack.enter_context(apache(Path(name)))
            bench = Bench(options, names, broker, Path(name), stack)
            bench.prepare(set(rows))
            for row in rows:
                bench.run(row, options.rounds or (2 if bench.quick else 5))
            results = bench.results
    except (peers.PeerFailedError, peers.PeerMissingError) as failure:
        print(failure, file=sys.stderr)
        return 1
    print("\n".join(table(results)))
    say(f"took {time.monotonic() - began:.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({"python": sys.version.split()[0], "rows": results.values, "missing": results.missing}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
