"""Our clients under the loads of benchmarks/client.py; commands are lines on standard input.

    python client_ours.py ADAPTER [FOLDER]

A line is ID, COMMAND and name=value pairs, parted by tabs, as for `serve` of tests/peers/kit/java/Probe.java; each
command prints one JSON object with its figures and one with "exit". ADAPTER is threaded or asyncio, FOLDER where the
packages are if not here. CPU is that of the whole process, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parent.parent))

import mqproto.adapters.threaded as sync_clients
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.message import ConsumeStatus, Message, MessageExt
from mqproto.wire.bodies import ConsumeFromWhere

BODY = 1024
Pairs = dict[str, str]


def resident_mb() -> float:
    """Resident memory of this process in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def body(index: int) -> bytes:
    """A body of 1 KiB that differs from message to message."""
    return b"%020d" % index + bytes(BODY - 20)


class Meter:
    """Meter of what was done in a time, and of the CPU that it took."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._cpu = time.process_time()

    def figures(self, count: int) -> dict[str, float]:
        """The rate so far."""
        took = time.perf_counter() - self.began
        return {"count": count, "seconds": took, "rate": count / took, "cpu": time.process_time() - self._cpu}


class Arrivals:
    """A listener that counts: the rate is that of the messages between the first call and the one that makes the number
    full.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._count = 0
        self._first = 0.0
        self._cpu = 0.0
        self.figures: dict[str, float] = {}
        self.full = threading.Event()

    def listen(self, messages: list[MessageExt]) -> ConsumeStatus:
        """For a pool of threads."""
        size = 0
        for message in messages:
            size += len(message.body)
        with self._lock:
            if not self._count:
                self._first, self._cpu = time.perf_counter(), time.process_time()
            self._count += len(messages)
            if self._count >= self._total and not self.figures:
                took = time.perf_counter() - self._first
                self.figures = {
                    "count": self._count,
                    "rate": self._count / took,
                    "cpu": time.process_time() - self._cpu,
                }
                self.full.set()
        return ConsumeStatus.SUCCESS

    async def listen_async(self, messages: list[MessageExt]) -> ConsumeStatus:
        """For tasks."""
        return self.listen(messages)


class Latencies:
    """A listener that notes when each message arrives; bodies begin with a number that no other run has."""

    def __init__(self, count: int) -> None:
        self.base = time.time_ns()
        self.sent = [0.0] * count
        self._took = [0.0] * count
        self._left = count
        self.full = threading.Event()

    def listen(self, messages: list[MessageExt]) -> ConsumeStatus:
        """For a pool of threads: one message at a time, so nothing needs a lock but the count."""
        now = time.perf_counter()
        for message in messages:
            index = int(message.body[:20]) - self.base
            if 0 <= index < len(self._took) and not self._took[index]:
                self._took[index] = now - self.sent[index]
                self._left -= 1
                if not self._left:
                    self.full.set()
        return ConsumeStatus.SUCCESS

    async def listen_async(self, messages: list[MessageExt]) -> ConsumeStatus:
        """For tasks."""
        return self.listen(messages)

    def figures(self, warm: int) -> dict[str, float]:
        """Percentiles in microseconds, without the first `warm` messages."""
        took = sorted(self._took[warm:])
        return {
            "p50_us": took[len(took) // 2] * 1e6,
            "p99_us": took[len(took) * 99 // 100] * 1e6,
            "max_us": took[-1] * 1e6,
        }


def consumer_options(pairs: Pairs) -> ConsumerOptions:
    """As the C++ client has it: a pool of so many threads, one message a call unless it says otherwise."""
    return {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "consume_thread_min": int(pairs.get("threads", 4)),
        "consume_message_batch_max_size": int(pairs.get("batch", 1)),
    }


# --- threads ----------------------------------------------------------------------------------------------------------


class Threads:
    """Commands over mqproto.adapters.threaded."""

    def __init__(self) -> None:
        self._producer: sync_clients.Producer | None = None

    def producer(self, pairs: Pairs) -> sync_clients.Producer:
        """One for the life of the process."""
        if self._producer is None:
            self._producer = sync_clients.Producer("bench-threaded", pairs["names"], send_msg_timeout=20_000).start()
        return self._producer

    def rate(self, pairs: Pairs) -> dict[str, float]:
        """Sends for some seconds: one after the other, or so many in flight."""
        producer, topic, until, window = (
            self.producer(pairs),
            pairs["topic"],
            float(pairs["seconds"]),
            int(pairs.get("window", 1)),
        )
        meter, count = Meter(), 0
        until += time.perf_counter()
        if window == 1:
            while time.perf_counter() < until:
                producer.send(Message(topic, body(count)))
                count += 1
            return meter.figures(count)
        futures: deque[Any] = deque()
        while time.perf_counter() < until:
            futures.append(producer.submit(Message(topic, body(count + len(futures)))))
            if len(futures) >= window:
                futures.popleft().result()
                count += 1
        for future in futures:
            future.result()
        return meter.figures(count + len(futures))

    def fill(self, pairs: Pairs) -> dict[str, float]:
        """Put a number of messages into a topic, in batches."""
        producer, topic, count, meter = self.producer(pairs), pairs["topic"], int(pairs["count"]), Meter()
        futures: deque[Any] = deque()
        for start in range(0, count, 32):
            futures.append(
                producer.submit([Message(topic, body(index)) for index in range(start, min(count, start + 32))])
            )
            if len(futures) >= 16:
                futures.popleft().result()
        for future in futures:
            future.result()
        return meter.figures(count)

    def consume(self, pairs: Pairs) -> dict[str, float]:
        """Read a topic that is full already."""
        arrivals = Arrivals(int(pairs["count"]))
        consumer = sync_clients.PushConsumer(pairs["group"], arrivals.listen, pairs["names"], **consumer_options(pairs))
        consumer.subscribe(pairs["topic"])
        with consumer:
            arrivals.full.wait(120)
        return arrivals.figures

    def latency(self, pairs: Pairs) -> dict[str, float]:
        """From before the send to the listener, in one process; a pause after each message."""
        count, warm, pause = int(pairs["count"]), int(pairs["warm"]), float(pairs["pause"]) / 1000
        latencies = Latencies(warm + count)
        producer = self.producer(pairs)
        consumer = sync_clients.PushConsumer(pairs["group"], latencies.listen, pairs["names"])
        consumer.subscribe(pairs["topic"])
        with consumer:
            time.sleep(float(pairs.get("settle", 3)))
            for index in range(warm + count):
                latencies.sent[index] = time.perf_counter()
                producer.send(Message(pairs["topic"], body(latencies.base + index)))
                time.sleep(pause)
            latencies.full.wait(20)
        return latencies.figures(warm)

    def memory(self, pairs: Pairs) -> dict[str, float]:
        """Send and receive a number of messages; resident memory after a tenth of them, at the end, and the most in
        between.
        """
        count, window = int(pairs["count"]), 512
        producer, early, most = self.producer(pairs), 0.0, 0.0
        arrivals = Arrivals(count)
        consumer = sync_clients.PushConsumer(
            pairs["group"], arrivals.listen, pairs["names"], consume_message_batch_max_size=32
        )
        consumer.subscribe(pairs["topic"])
        with consumer:
            time.sleep(3)
            futures: deque[Any] = deque()
            for index in range(count):
                futures.append(producer.submit(Message(pairs["topic"], body(index))))
                if len(futures) >= window:
                    futures.popleft().result()
                if index == count // 10:
                    early = resident_mb()
                elif early and index % 10_000 == 0:
                    most = max(most, resident_mb())
            for future in futures:
                future.result()
            arrivals.full.wait(120)
            return {"early": early, "most": most, "end": resident_mb(), "received": arrivals.figures["count"]}

    def idle(self, pairs: Pairs) -> dict[str, float]:
        """A consumer with nothing to do."""
        consumer = sync_clients.PushConsumer(pairs["group"], lambda messages: ConsumeStatus.SUCCESS, pairs["names"])
        consumer.subscribe(pairs["topic"])
        with consumer:
            time.sleep(float(pairs["settle"]))
            meter = Meter()
            time.sleep(float(pairs["seconds"]))
            return {**meter.figures(0), "mb": resident_mb()}


# --- tasks ------------------------------------------------------------------------------------------------------------


class Tasks:
    """Commands over mqproto.adapters.anyio on asyncio; the event loop lives as long as the process."""

    def __init__(self) -> None:
        import mqproto.adapters.anyio

        self._clients = mqproto.adapters.anyio
        self._loop = asyncio.new_event_loop()
        self._producer: mqproto.adapters.anyio.Producer | None = None

    async def _make(self, pairs: Pairs) -> Any:
        if self._producer is None:
            self._producer = self._clients.Producer("bench-asyncio", pairs["names"], send_msg_timeout=20_000)
            await self._producer.start()
        return self._producer

    def rate(self, pairs: Pairs) -> dict[str, float]:
        """Sends for some seconds in `window` tasks."""
        return self._loop.run_until_complete(self._rate(pairs))

    async def _rate(self, pairs: Pairs) -> dict[str, float]:
        producer, topic = await self._make(pairs), pairs["topic"]
        await producer.send(Message(topic, body(0)))
        meter, count = Meter(), 0
        until = time.perf_counter() + float(pairs["seconds"])

        async def work() -> None:
            nonlocal count
            while time.perf_counter() < until:
                await producer.send(Message(topic, body(count)))
                count += 1

        await asyncio.gather(*(work() for _ in range(int(pairs.get("window", 1)))))
        return meter.figures(count)

    def consume(self, pairs: Pairs) -> dict[str, float]:
        """Read a topic that is full already."""
        return self._loop.run_until_complete(self._consume(pairs))

    async def _consume(self, pairs: Pairs) -> dict[str, float]:
        arrivals = Arrivals(int(pairs["count"]))
        consumer = self._clients.PushConsumer(
            pairs["group"], arrivals.listen_async, pairs["names"], **consumer_options(pairs)
        )
        consumer.subscribe(pairs["topic"])
        async with consumer:
            await until_full(arrivals.full, 120)
        return arrivals.figures

    def latency(self, pairs: Pairs) -> dict[str, float]:
        """From before the send to the listener, in one process; a pause after each message."""
        return self._loop.run_until_complete(self._latency(pairs))

    async def _latency(self, pairs: Pairs) -> dict[str, float]:
        count, warm, pause = int(pairs["count"]), int(pairs["warm"]), float(pairs["pause"]) / 1000
        latencies = Latencies(warm + count)
        producer = await self._make(pairs)
        consumer = self._clients.PushConsumer(pairs["group"], latencies.listen_async, pairs["names"])
        consumer.subscribe(pairs["topic"])
        async with consumer:
            await asyncio.sleep(float(pairs.get("settle", 3)))
            for index in range(warm + count):
                latencies.sent[index] = time.perf_counter()
                await producer.send(Message(pairs["topic"], body(latencies.base + index)))
                await asyncio.sleep(pause)
            await until_full(latencies.full, 20)
        return latencies.figures(warm)


async def until_full(event: threading.Event, seconds: float) -> None:
    """Wait for an event of threads in a task."""
    until = time.monotonic() + seconds
    while not event.is_set() and time.monotonic() < until:
        await asyncio.sleep(0.02)


def main(arguments: list[str]) -> int:
    """Serve commands until standard input ends."""
    commands = Threads() if arguments[0] == "threaded" else Tasks()
    for line in sys.stdin:
        step, command, *pairs = line.rstrip("\n").split("\t")
        status = 0
        try:
            figures = getattr(commands, command)(
                {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
            )
            print(json.dumps({"step": step, **figures}), flush=True)
        except Exception as failure:
            print(json.dumps({"step": step, "error": type(failure).__name__, "text": str(failure)}), flush=True)
            status = 2
        print(json.dumps({"step": step, "exit": status}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
