"""Our broker beside Apache's 4.9.7, over the loads of docs/benchmarks.md, in turn within one run.

    python benchmarks/broker.py [--adapter threaded] [--quick] [--only LOAD ...] [--brokers ours apache] [--rounds N]
                                [--json FILE] [--compiled FOLDER]

Needs a C compiler for the load generator (mqload.c); Apache's broker takes part where the Java kit of tests/peers can
be had. Every load is given first to one broker, then to the other, for several rounds, never to both at once, after a
warm-up of both. The figures of one machine on one day: only the ratio says something, and no rate makes this program
fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for tests.peers.kit, which is no part of the distribution

from tests.peers.kit import peers, servers, wire  # noqa: E402

APACHE = "4.9.7"
#: As Apache's own start script has it, but for the size of the heap: 8 GB there.
JVM = ["-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
       "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0"]  # fmt: skip
BODY = 1024
BATCH = 32
#: Messages in the topic that the pull loads read, in 4 queues.
PULL_MESSAGES = 400_000
TOPIC, PULL_TOPIC = "BenchTopic", "BenchPull"


@dataclass(frozen=True)
class Load:
    """One line of the table.

    `target` is the ratio to reach (rates: at least; seconds, memory, CPU: an absolute value, at most).
    """

    name: str
    what: str
    target: float
    connections: int = 0
    window: int = 0
    sync_flush: bool = False


LOADS = [
    Load("send-1x1", "send", 1.3, 1, 1),
    Load("send-16x1", "send", 1.3, 16, 1),
    Load("send-64x1", "send", 0.9, 64, 1),
    Load("send-4x32", "send", 0.9, 4, 32),
    Load("send-64x16", "send", 0.9, 64, 16),
    Load("sync-64x16", "send", 1.0, 64, 16, sync_flush=True),
    Load("pull-1", "pull", 1.0, 1),
    Load("pull-4", "pull", 1.0, 4),
    Load("pull-16", "pull", 1.0, 16),
    Load("start", "seconds", 0.3),
    Load("memory", "MB", 40),
    Load("idle", "% of a core", 1.0),
]


@dataclass
class Result:
    """Figures of one broker under one load, round by round."""

    values: list[float] = field(default_factory=list)
    p99: list[int] = field(default_factory=list)  #: microseconds
    lines: list[str] = field(default_factory=list)  #: what the load generator printed


@dataclass
class Broker:
    """A running broker that loads can be put on."""

    port: int
    pid: int
    rates: dict[str, float] = field(default_factory=dict)  #: of the warm-up, by load
    pull_ready: bool = False


class Bench:
    """One run: its options, its folder, its load generator."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.quick: bool = options.quick
        self.rounds: int = options.rounds or (2 if self.quick else 5)
        self.adapter: str = options.adapter
        #: Where the compiled build is, for the broker "compiled".
        self.compiled: Path | None = options.compiled
        self.folder = folder
        self.mqload = folder / "mqload"
        subprocess.run(["cc", "-O2", "-o", str(self.mqload), str(ROOT / "benchmarks" / "mqload.c")], check=True)
        self.names_port = servers.free_port()
        self._number = 0

    # --- brokers ---

    def command(self, who: str, home: Path, port: int, settings: dict[str, str]) -> list[str]:
        """The command line of a broker with its own defaults but for what makes a fair race: same disk, same flush."""
        values = {"brokerClusterName": "Bench", "brokerName": "bench", "brokerIP1": "127.0.0.1", **settings}
        if who == "apache":
            # it refuses sends that waited 200 ms, which a busy machine alone can cause
            values["waitTimeMillsInSendQueue"] = "10000"
            return servers.apache_broker_command(APACHE, home, port, f"127.0.0.1:{self.names_port}", values, JVM)
        return servers.our_command(self.adapter, home / "store", values, names_port=servers.free_port(), port=port)

    @contextmanager
    def running(self, who: str, settings: dict[str, str]) -> Iterator[tuple[Broker, float]]:
        """A fresh broker and the seconds from exec to its first accepted message."""
        self._number += 1
        home = self.folder / f"{who}-{self._number}"
        home.mkdir()
        port = servers.free_port()
        command = self.command(who, home, port, settings)
        with (home / "out").open("wb") as out:
            began = time.monotonic()
            environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
            where = {"apache": home, "compiled": self.compiled}.get(who, ROOT)
            process = subprocess.Popen(command, cwd=where, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       env=environment)  # fmt: skip
        try:
            try:
                took = wire.first_accepted(f"127.0.0.1:{port}", TOPIC, began + 60) - began
            except TimeoutError as failure:
                raise peers.PeerFailedError(f"{who}: {failure}\n{(home / 'out').read_text()[-2000:]}") from None
            yield Broker(port, process.pid), took
        finally:
            servers.stop(process)
            shutil.rmtree(home)

    # --- loads ---

    def mq(self, arguments: list[str]) -> tuple[float, int, str]:
        """One run of the load generator: rate, p99 in microseconds, and its line.

        It fails when the broker refused more than one in a hundred.
        """
        done = subprocess.run([str(self.mqload), *arguments], capture_output=True, text=True, check=False, timeout=300)
        found = re.search(r": (\d+) \w+/s.* p99 (\d+) .* refused (\d+) of (\d+)", done.stdout)
        if found is None or int(found[3]) * 100 > int(found[4]):
            raise peers.PeerFailedError(f"mqload {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return float(found[1]), int(found[2]), done.stdout.strip()

    def send(self, broker: Broker, load: Load, total: int, topic: str = TOPIC) -> tuple[float, int, str]:
        """A send load of `total` messages."""
        return self.mq(
            ["send", str(broker.port), str(load.connections), str(load.window), str(total), str(BODY), topic, "4"]
        )

    def pull(self, broker: Broker, load: Load) -> tuple[float, int, str]:
        """A pull load: every connection reads one of the four queues."""
        if not broker.pull_ready:
            self.send(broker, Load("fill", "send", 0, 4, 32), PULL_MESSAGES, PULL_TOPIC)
            broker.pull_ready = True
        # four connections with windows end a little uneven
        total = min(load.connections, 8) * PULL_MESSAGES // 4 - 4096
        return self.mq(["pull", str(broker.port), str(load.connections), str(total), str(BATCH), PULL_TOPIC, "4"])

    def once(self, broker: Broker, load: Load) -> tuple[float, int, str]:
        """One timed round, of a length that the warm-up's rate gives."""
        if load.what == "pull":
            return self.pull(broker, load)
        seconds = 0.7 if self.quick else 2.0
        return self.send(broker, load, max(500, int(broker.rates[load.name] * seconds)))

    def warm(self, broker: Broker, loads: list[Load]) -> None:
        """Give every load once, and enough of it for a just-in-time compiler."""
        for load in loads:
            if load.what == "pull":
                for _ in range(1 if self.quick else 3):
                    self.pull(broker, load)
                continue
            total = 1000 * load.connections if load.window == 1 else 100_000
            broker.rates[load.name] = max(
                self.send(broker, load, min(total, 20_000 if self.quick else 100_000))[0] for _ in range(2)
            )

    def race(self, who: list[str], loads: list[Load], sync: bool, results: dict[str, dict[str, Result]]) -> None:
        """Brokers side by side, each under each load in turn."""
        settings = {"flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH"}
        with ExitStack() as stack:
            brokers = {one: stack.enter_context(self.running(one, settings))[0] for one in who}
            for one, broker in brokers.items():
                say(f"warming up {one}{' with sync flush' if sync else ''}")
                self.warm(broker, loads)
            for load in loads:
                for turn in range(self.rounds):
                    for one in who:
                        rate, p99, line = self.once(brokers[one], load)
                        say(f"  {load.name} {turn + 1}/{self.rounds} {one}: {line}")
                        keep(results, load, one, rate, p99, line)

    def at_rest(self, who: list[str], names: set[str], results: dict[str, dict[str, Result]]) -> None:
        """Start, memory and CPU of a broker with nothing to do."""
        for turn in range(self.rounds):
            for one in who:
                with self.running(one, {}) as (broker, took):
                    keep_named(results, "start", one, took)
                    say(f"  start {turn + 1}/{self.rounds} {one}: {took:.3f} s")
                    if turn or not names & {"memory", "idle"}:
                        continue
                    time.sleep(3)  # the work of a start goes on for a while behind the first message
                    before, began = cpu_seconds(broker.pid), time.monotonic()
                    time.sleep(3 if self.quick else 15)
                    share = 100 * (cpu_seconds(broker.pid) - before) / (time.monotonic() - began)
                    keep_named(results, "memory", one, resident_mb(broker.pid))
                    keep_named(results, "idle", one, share)
                    say(f"  at rest {one}: {results['memory'][one].values[0]:.1f} MB, {share:.2f} % of a core")


def keep(
    results: dict[str, dict[str, Result]], load: Load, who: str, value: float, p99: int | None = None, line: str = ""
) -> None:
    """Note one round."""
    result = results.setdefault(load.name, {}).setdefault(who, Result())
    result.values.append(value)
    if p99 is not None:
        result.p99.append(p99)
        result.lines.append(line)


def keep_named(results: dict[str, dict[str, Result]], name: str, who: str, value: float) -> None:
    """The same for a load that is no load."""
    keep(results, next(load for load in LOADS if load.name == name), who, value)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the table
# ----------------------------------------------------------------------------------------------------------


def best_and_median(load: Load, result: Result | None) -> tuple[float, float] | None:
    """Of rates the highest is the best, of everything else the lowest."""
    if result is None:
        return None
    best: Callable[[list[float]], float] = max if load.what in ("send", "pull") else min
    return best(result.values), statistics.median(result.values)


def table(results: dict[str, dict[str, Result]], adapter: str) -> Iterator[str]:
    """The lines of the table: best (median) of each broker, ratio of the bests and of the medians, median p99."""
    head = f"{'load':<11} {'Apache ' + APACHE:>20} {'ours, ' + adapter:>20} {'ratio':>12} {'target':>8}"
    yield f"{head}   {'p99 ms, Apache':>14} {'ours':>6}"
    for load in LOADS:
        row = results.get(load.name)
        if row is not None:
            yield table_line(load, row, "ours")
            if "compiled" in row:
                yield table_line(load, row, "compiled")


def table_line(load: Load, row: dict[str, Result], who: str) -> str:
    """One broker of ours beside Apache's."""
    apache, ours = (best_and_median(load, row.get(one)) for one in ("apache", who))
    shape = "{:,.0f} ({:,.0f})" if load.what in ("send", "pull") else "{:.2f} ({:.2f})"
    cells = [shape.format(*pair) if pair else "-" for pair in (apache, ours)]
    ratio = (
        f"{ours[0] / apache[0]:.2f} ({ours[1] / apache[1]:.2f})" if apache and ours and apache[0] and apache[1] else "-"
    )
    target = f">= {load.target:g}" if load.what in ("send", "pull") else f"<= {load.target:g}"
    late = [
        f"{statistics.median(row[one].p99) / 1000:.1f}" if one in row and row[one].p99 else "-"
        for one in ("apache", who)
    ]
    unit = "" if load.what in ("send", "pull") else f"  {load.what}"
    kind = "  compiled" if who == "compiled" else ""
    rates = f"{load.name:<11} {cells[0]:>20} {cells[1]:>20} {ratio:>12} {target:>8}"
    return f"{rates}   {late[0]:>14} {late[1]:>6}{unit}{kind}"


def as_json(results: dict[str, dict[str, Result]], bench: Bench, who: list[str]) -> dict[str, object]:
    """Everything that was measured."""
    loads = {
        name: {
            one: {"values": result.values, "p99_us": result.p99, "lines": result.lines} for one, result in row.items()
        }
        for name, row in results.items()
    }
    return {
        "python": sys.version.split()[0], "cpus": os.cpu_count(), "adapter": bench.adapter, "apache": APACHE,
        "brokers": who, "rounds": bench.rounds, "quick": bench.quick, "body_bytes": BODY, "loads": loads,
        "targets": {load.name: load.target for load in LOADS},
    }  # fmt: skip


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", choices=servers.ADAPTERS, default="threaded")
    parser.add_argument(
        "--quick", action="store_true", help="short rounds and few of them: to see that it works, not for figures"
    )
    parser.add_argument("--only", nargs="+", choices=[load.name for load in LOADS], help="these loads")
    parser.add_argument(
        "--brokers", nargs="+", choices=["ours", "apache"], help="default: ours, and Apache's where it can be had"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each load (default 5, with --quick 2)")
    parser.add_argument(
        "--compiled",
        type=Path,
        metavar="FOLDER",
        help="a folder that the compiled wheel was installed into: it takes part too",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the data directories go while it runs (default: a temporary folder)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    return parser.parse_args(arguments)


def choose_brokers(asked: list[str] | None) -> list[str]:
    """Apache's broker is left out, with a word, where it cannot be had, unless it was asked for."""
    if asked and "apache" not in asked:
        return asked
    try:
        peers.install_java(APACHE)
    except peers.PeerMissingError as missing:
        if asked:
            raise
        say(f"without Apache's broker: {missing}")
        return ["ours"]
    return asked or ["apache", "ours"]


def main(arguments: list[str]) -> int:
    """Run and print the table; see the top of the file."""
    options = parse(arguments)
    results: dict[str, dict[str, Result]] = {}
    chosen = [load for load in LOADS if not options.only or load.name in options.only]
    try:
        who = choose_brokers(options.brokers) + ([] if options.compiled is None else ["compiled"])
        with tempfile.TemporaryDirectory(prefix="mqbench-", dir=options.folder) as name, ExitStack() as stack:
            bench = Bench(options, Path(name))
            if "apache" in who:
                stack.enter_context(names_server(bench))
            at_rest = {load.name for load in chosen if load.what not in ("send", "pull")}
            if at_rest:
                bench.at_rest(who, at_rest, results)
            for sync in (False, True):
                loads = [load for load in chosen if load.what in ("send", "pull") and load.sync_flush == sync]
                if loads:
                    bench.race(who, loads, sync, results)
    except (peers.PeerFailedError, peers.PeerMissingError) as failure:
        print(failure, file=sys.stderr)
        return 1
    print("\n".join(table(results, bench.adapter)))
    if options.json:
        options.json.write_text(json.dumps(as_json(results, bench, who), indent=1) + "\n")
    return 0


@contextmanager
def names_server(bench: Bench) -> Iterator[None]:
    """Apache's name server, for Apache's broker; ours brings its own."""
    home = bench.folder / "namesrv"
    process = servers.spawn(servers.apache_names_command(APACHE, home, bench.names_port), home, "namesrv")
    try:
        servers.wait_port(bench.names_port, process, home / "namesrv.out")
        yield
    finally:
        servers.stop(process)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
