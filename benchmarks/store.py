"""Costs of one message in the store.

    PYTHONPATH=. python benchmarks/store.py [--messages N] [--filler BYTES] [--topics N] [--sync] [--folder DIR]

Messages of 1 KiB with a unique id go through `Writer.append`: log record, queue entry, index entry. Printed are
microseconds of CPU for each message: of the appends alone (the quickest and the middle of many rounds), and with the
jobs, which a broker runs beside its loop. Then the same with many topics, and what a pull of 32 costs. Figures of one
machine mean little; their ratios do.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

from mqproto.engine.store import Queue, Store, StoreSettings

BODY = bytes(range(256)) * 4
ROUND = 2000
HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
IDS_HEAD = "C0A8000900002A9F18B4AAC2"


def unique_ids(count: int, start: int = 0) -> list[str]:
    """Ids as one producer makes them: time and counter move, the head stays for a minute."""
    return [
        f"{IDS_HEAD[:20]}{0x1A0 + (n >> 24):04X}{(n >> 8) & 0xFFFF:04X}{n & 0xFFFF:04X}"
        for n in range(start, start + count)
    ]


class Bench:
    """A store in a folder of its own, whose jobs run where the benchmark says."""

    def __init__(self, folder: str, settings: StoreSettings) -> None:
        settings.store_path_root_dir = folder
        self.store = Store.open(settings, wall=1_800_000_000_000)
        self.wall = 1_800_000_000_000
        self.now = 0
        self.stored = 0

    def run_jobs(self) -> None:
        """Let the store do what is due, and all that follows from it."""
        self.now += 1000
        self.store.timer(self.now, self.wall)
        while self.store.jobs:
            jobs, self.store.jobs[:] = list(self.store.jobs), []
            for job in jobs:
                job.run()
                self.store.done(job, None, self.now, self.wall)

    def fill(self, queues: list[Queue], rounds: int, body: bytes = BODY) -> tuple[list[float], float]:
        """CPU of each round of appends, in microseconds a message; and of everything, jobs included."""
        append = self.store.writer.append
        took: list[float] = []
        jobs = 0.0
        for _ in range(rounds):
            self.wall += 20
            wall = self.wall
            ids = unique_ids(ROUND, self.stored)
            properties = [
                b"UNIQ_KEY\x01" + each.encode() + b"\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster" for each in ids
            ]
            chosen = [queues[(self.stored + n) % len(queues)] for n in range(ROUND)]
            start = time.process_time()
            for queue, unique_id, text in zip(chosen, ids, properties, strict=True):
                append(queue, body, text, 0, 0, wall, HOST, HOST, 0, 0, 2598942, unique_id, None, wall)
            took.append((time.process_time() - start) / ROUND * 1e6)
            self.stored += ROUND
            start = time.process_time()
            self.run_jobs()
            jobs += time.process_time() - start
        return took, statistics.mean(took) + jobs / (rounds * ROUND) * 1e6


def show(label: str, took: list[float], whole: float) -> float:
    print(
        f"{label:<40} best {min(took):6.2f}   middle {statistics.median(took):6.2f}   with all jobs {whole:6.2f} us",
        flush=True,
    )
    return statistics.median(took)


def best_of(count: int, action: Callable[[], object]) -> float:
    """Microseconds of the quickest of many calls in a row."""
    best = float("inf")
    for _ in range(count):
        start = time.perf_counter()
        for _ in range(200):
            action()
        best = min(best, (time.perf_counter() - start) / 200 * 1e6)
    return best


def stores(arguments: argparse.Namespace) -> Iterator[Bench]:
    """New stores in a scratch folder, one after another."""
    while True:
        folder = tempfile.mkdtemp(prefix="mqproto-store-", dir=arguments.folder)
        bench = Bench(folder, StoreSettings(flush_disk_type="SYNC_FLUSH" if arguments.sync else "ASYNC_FLUSH"))
        try:
            yield bench
        finally:
            bench.store.close(bench.wall)
            shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument(
        "--filler", type=int, default=len(BODY), help="bytes of the bodies between, where the disk is small"
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--folder", help="where the scratch folder goes")
    arguments = parser.parse_args()
    fresh = stores(arguments)

    bench = next(fresh)
    queue = bench.store.queue("TopicTest", 0)
    few = show("one queue, nothing stored", *bench.fill([queue], 50))
    if arguments.messages >= 200_000 + ROUND:
        bench.fill([queue], (arguments.messages - 200_000) // ROUND, BODY[: arguments.filler])
    many = show(f"one queue, {bench.stored:,} stored", *bench.fill([queue], 50))
    store, last = bench.store, queue.max_offset
    for label, codes in (("all", None), ("by tag", frozenset({2598942}))):
        for place, offset in (("newest", last - 32), ("oldest", 0)):
            cost = best_of(20, lambda offset=offset, codes=codes: store.reader.get(queue, offset, 32, codes))  # type: ignore[misc]
            print(f"{f'get 32, {label}, {place}':<40} best {cost:6.2f} us", flush=True)

    bench = next(fresh)
    queues = [bench.store.queue(f"Topic{number}", 0) for number in range(arguments.topics)]
    spread = show(f"{arguments.topics:,} topics", *bench.fill(queues, 250))
    fresh.close()  # type: ignore[attr-defined]
    print(f"ratios of the middle values: stored {many / few:.2f}, topics {spread / few:.2f}")


if __name__ == "__main__":
    main()
