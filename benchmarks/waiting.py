"""Costs of what waits in a broker: delayed messages and half messages. docs/benchmarks.md, "What waits".

    python benchmarks/waiting.py [--delayed 1000000] [--stored 200000] [--open 10000]

delayed  so many messages on the longest levels: what one more costs, what a delivery costs beside them,
         and how fast all come once they are due
halves   so many half messages, of which so many are open: what a round of checks costs,
         and the reading of op messages after a crash

Times are those of the processor. The longest of the entries is how long others wait for the broker's loop. The store is
in memory.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for parts of the tests, which are no part of the distribution

from mqproto.engine.broker.sends.message_writer import NewMessage  # noqa: E402
from tests.engine.broker.halfway import Producer  # noqa: E402
from tests.engine.broker.harness import World  # noqa: E402

STORE: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 26,
    "mapped_file_size_consume_queue": 6_000_000,
    "message_index_enable": False,
}
BODY = bytes(100)


def entries(world: World) -> list[float]:
    """Let everything happen that is due now; milliseconds of each entry."""
    took = []
    while (due := world.broker.next_deadline()) is not None and due <= world.now:
        begun = time.thread_time()
        world.broker.timer(world.now)
        took.append((time.thread_time() - begun) * 1000)
        world.act()
    return took


def show(what: str, took: list[float], count: int) -> None:
    print(
        f"{what}: {sum(took) * 1000 / max(1, count):.1f} us each, {len(took)} entries, "
        f"longest {max(took, default=0.0):.1f} ms",
        flush=True,
    )


def new_message(world: World, properties: dict[str, str]) -> NewMessage:
    return NewMessage("T", 0, BODY, properties, born_time=world.wall, born_host=bytes(8), store_host=bytes(8))


def delayed(count: int) -> None:
    """Messages that wait."""
    world = World(store=STORE)
    message_writer = world.broker.send_requests.message_writer
    levels = len(message_writer.delays)
    begun = time.thread_time()
    for n in range(count):
        message_writer.put(new_message(world, {"DELAY": str(levels - n % 5)}))
    print(f"{count} delayed messages: {(time.thread_time() - begun) * 1e6 / count:.1f} us to put one", flush=True)
    gc.freeze()
    took = []
    for _ in range(100):
        message_writer.put(new_message(world, {"DELAY": "1"}))
        world.act()
        world.now += 1000
        took += entries(world)
    queue = world.store.queue("T", 0)
    show("a delivery while the others wait", took, 100)
    before = queue.next_offset
    world.now += 2 * max(message_writer.delays)
    show("all that is left", entries(world), queue.next_offset - before)


def halves(stored: int, left: int) -> None:
    """Transactions that nobody ends."""
    world = World(store=STORE)
    world.advance(0)
    producer = Producer(world)
    transactions = world.broker.transactions
    for n in range(stored):
        half = transactions.prepare(new_message(world, {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": f"{n:032d}"}))
        if n * left // stored == (n + 1) * left // stored:
            transactions.mark_done(half.queue_offset)
            transactions.half_messages.settle(half.queue_offset)
            transactions.changed()
    later = World(files=world.files.process_death(), now=world.now, store=STORE)
    gc.freeze()
    begun = time.thread_time()
    entries(later)
    assert later.broker.transactions.half_messages.open == left
    took_us = (time.thread_time() - begun) * 1e6 / (stored - left)
    print(
        f"{stored} half messages, {left} open: {took_us:.1f} us for each op message after a crash, "
        "with the jobs that read",
        flush=True,
    )
    del later
    world.now += world.broker.settings.transaction_check_interval
    took = entries(world)
    show("a round", took, len(producer.asked()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delayed", type=int, default=1_000_000)
    parser.add_argument("--stored", type=int, default=200_000)
    parser.add_argument("--open", type=int, default=10_000)
    options = parser.parse_args()
    delayed(options.delayed // 100)
    delayed(options.delayed)
    halves(options.stored // 20, options.open // 20)
    halves(options.stored, options.open // 20)
    halves(options.stored, options.open)


if __name__ == "__main__":
    main()
