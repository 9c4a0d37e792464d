"""Producers beside a consumer that reads old messages from disk.

    python benchmarks/coldread.py [--quick] [--megabytes N] ...

A broker in a process of its own gets old messages in many queues, and is started anew over them, with the page cache
dropped. Then producers send while consumers read a few of these queues from the beginning; the cache of the old files
is dropped again and again meanwhile. The messages of one queue lie scattered in the log, so nearly each one has to come
from the disk. The same with reads on the loop, through the maps (`coldReadDistance=0`), with the old messages in the
cache, and without consumers, in turn for several rounds. Printed are the producers' rate and latencies (median of the
rounds, in brackets the worst) and how fast the consumers were.

Needs a C compiler for the load generator (mqload.c), and Linux for dropping the cache. The figures belong to one
machine on one day; how much there is to see depends on its disk. What only the processor's time costs shows in the rows
with the messages in the cache.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for tests.peers.kit, which is no part of the distribution

from tests.peers.kit import peers, servers, wire  # noqa: E402

BODY = 1024
#: Queues of the old topic, and how many of them consumers read, one each.
OLD_QUEUES, CONSUMERS = 64, 8
OLD, NEW = "Old", "New"
#: The log's files are small, so that those of old messages are left alone by the sends.
FILE_SIZE = 64 << 20
#: Everything that is older than a few megabytes is far back.
DISTANCE = 4 << 20


@dataclass(frozen=True)
class Case:
    """One row. `distance`: the setting; `cold`: the page cache is dropped."""

    name: str
    reads: bool
    cold: bool
    distance: int


CASES = [
    Case("no consumer", False, True, DISTANCE),
    Case("from disk, in jobs", True, True, DISTANCE),
    Case("from disk, on the loop", True, True, 0),
    Case("from the cache, in jobs", True, False, DISTANCE),
    Case("from the cache, on the loop", True, False, 0),
]


@dataclass
class Result:
    """Measurements, round by round; times in microseconds."""

    rates: list[int] = field(default_factory=list)
    p99: list[int] = field(default_factory=list)
    p999: list[int] = field(default_factory=list)
    megabytes_a_second: list[float] = field(default_factory=list)


class Bench:
    """A data directory with old messages, and what is done to it."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.store = folder / "store"
        self.mqload = folder / "mqload"
        subprocess.run(["cc", "-O2", "-o", str(self.mqload), str(ROOT / "benchmarks" / "mqload.c")], check=True)
        self.old_files: list[Path] = []
        self.old_messages = options.megabytes * 1_000_000 // (BODY + 250)

    @contextmanager
    def broker(self, distance: int) -> Iterator[int]:
        """A broker over the directory; its port."""
        settings = {
            "mappedFileSizeCommitLog": str(FILE_SIZE),
            "coldReadDistance": str(distance),
            "brokerIP1": "127.0.0.1",
        }
        settings["defaultTopicQueueNums"] = str(OLD_QUEUES)
        port = servers.free_port()
        command = servers.our_command(
            self.options.adapter, self.store, settings, names_port=servers.free_port(), port=port
        )
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wire.first_accepted(f"127.0.0.1:{port}", NEW, time.monotonic() + 60)
            yield port
        finally:
            servers.stop(process)

    def load(self, *arguments: object) -> subprocess.Popen[str]:
        """Start the load generator."""
        return subprocess.Popen([str(self.mqload), *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    def fill(self) -> None:
        """Store the old messages."""
        with self.broker(DISTANCE) as port:
            line = finish(self.load("send", port, OLD_QUEUES, 1, self.old_messages, BODY, OLD, OLD_QUEUES))
            say(f"{self.options.megabytes} MB of old messages stored: {line}")
        files = sorted((self.store / "commitlog").iterdir())
        self.old_files = [path for path in files[:-1] if path.stat().st_size] + sorted(
            (self.store / "consumequeue" / OLD).glob("*/*")
        )

    def drop(self) -> None:
        """Have the system forget the old files, as far as nobody maps them."""
        for path in self.old_files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def warm(self) -> None:
        for path in self.old_files:
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass

    def resident(self) -> float:
        """Part of the old files of the log that is in the cache, by samples."""
        found: list[bool] = []
        buffer = bytearray(1)
        for path in self.old_files:
            if path.parent.name != "commitlog":
                continue
            with path.open("rb", buffering=0) as file:
                for at in range(0, path.stat().st_size, 1 << 21):
                    try:
                        found.append(os.preadv(file.fileno(), [buffer], at, os.RWF_NOWAIT) == 1)
                    except BlockingIOError:
                        found.append(False)
        return statistics.mean(found)

    def measure(self, case: Case, result: Result) -> None:
        """One round of one case."""
        os.sync()
        if case.cold:
            self.drop()
        else:
            self.warm()
        resident = self.resident()
        stop = threading.Event()

        def keep_dropping() -> None:
            while not stop.wait(0.2):
                self.drop()

        with self.broker(case.distance) as port:
            sender = self.load("send", port, 16, 1, 2000, BODY, NEW, 4)  # to warm up
            rate, _, _ = figures(finish(sender))
            dropping = threading.Thread(target=keep_dropping)
            if case.cold:
                dropping.start()
            reader = self.load("pull", port, CONSUMERS, self.old_messages, 32, OLD, OLD_QUEUES) if case.reads else None
            share = 0.5 if case.reads else 1.0
            sender = self.load("send", port, 16, 1, max(1000, int(rate * share * self.options.seconds)), BODY, NEW, 4)
            line = finish(sender)
            early = reader is not None and reader.poll() is not None
            reader_line = finish(reader) if reader is not None else ""
            stop.set()
            if case.cold:
                dropping.join()
        rate, p99, p999 = figures(line)
        result.rates.append(rate)
        result.p99.append(p99)
        result.p999.append(p999)
        speed = re.search(r" ([\d.]+) MB/s", reader_line)
        if speed is not None:
            result.megabytes_a_second.append(float(speed[1]))
        note = "  (the consumers were done before the producers: take more megabytes)" if early else ""
        say(f"  {case.name}: {resident:.0%} in the cache; {line}; {reader_line or 'no consumer'}{note}")


def finish(process: subprocess.Popen[str]) -> str:
    """The line of a load generator that has ended."""
    out = process.communicate(timeout=600)[0].strip()
    if process.returncode:
        raise peers.PeerFailedError(f"{process.args!r} failed: {out}")
    return out


def figures(line: str) -> tuple[int, int, int]:
    """Rate, p99 and p99.9."""
    found = re.search(r": (\d+) \w+/s.* p99 (\d+) p99.9 (\d+)", line)
    assert found is not None, line
    return int(found[1]), int(found[2]), int(found[3])


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)


def table(results: dict[Case, Result]) -> Iterator[str]:
    """Medians of the rounds, in brackets the worst."""
    yield f"{'16 producers, beside them':<30} {'sends/s':>16} {'p99 ms':>14} {'p99.9 ms':>16} {'consumers MB/s':>15}"
    for case, result in results.items():
        p99, p999 = ([each / 1000 for each in values] for values in (result.p99, result.p999))
        speed = f"{statistics.median(result.megabytes_a_second):.1f}" if result.megabytes_a_second else "-"
        yield (
            f"{case.name:<30} {f'{statistics.median(result.rates):,.0f} ({min(result.rates):,})':>16} "
            f"{f'{statistics.median(p99):.1f} ({max(p99):.1f})':>14} "
            f"{f'{statistics.median(p999):.1f} ({max(p999):.1f})':>16} {speed:>15}"
        )


def main(arguments: list[str]) -> int:
    """Run and print the table; see the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", choices=servers.ADAPTERS, default="threaded")
    parser.add_argument("--megabytes", type=int, default=600, help="old messages (default 600)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long producers send in a round, about")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works, not for figures")
    parser.add_argument(
        "--folder", type=Path, help="where the data directory goes while it runs (default: a temporary folder)"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.megabytes, options.rounds, options.seconds = 100, 1, 0.5
    folder = Path(tempfile.mkdtemp(prefix="mqcold-", dir=options.folder))
    results = {case: Result() for case in CASES}
    try:
        bench = Bench(options, folder)
        bench.fill()
        for turn in range(options.rounds):
            say(f"round {turn + 1}/{options.rounds}")
            for case, result in results.items():
                bench.measure(case, result)
    finally:
        shutil.rmtree(folder)
    print("\n".join(table(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
