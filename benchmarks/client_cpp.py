"""The C++ client (PyPI rocketmq) under the loads of benchmarks/client.py; commands and figures as those of
client_ours.py.

Runs with the interpreter that has the package (tests/peers/kit installs it) and needs nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

os.environ["HOME"] = str(Path(sys.prefix).parent)  # the library makes logs/ there as it loads

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage
from rocketmq.ffi import _CConsumeStatus, _CLogLevel, dll

BODY = 1024
Pairs = dict[str, str]
_producers: list[Producer] = []


def make_message(topic: str, index: int) -> Message:
    """A message of 1 KiB; the wrapper cuts bodies at the first zero byte."""
    message = Message(topic)
    message.set_body(b"%020d" % index + b"x" * (BODY - 20))
    return message


def producer(pairs: Pairs) -> Producer:
    """One for the life of the process."""
    if not _producers:
        made = Producer("bench-cpp", timeout=20_000)
        made.set_namesrv_addr(pairs["names"])
        dll.SetProducerLogLevel(made._handle, _CLogLevel.FATAL)
        made.start()
        _producers.append(made)
    return _producers[0]


def first_send(made: Producer, topic: str) -> None:
    """Send one message; the library forgets routes at times and fails until it has asked for them again."""
    for _ in range(20):
        try:
            made.send_sync(make_message(topic, 0))
        except Exception as failure:
            last = failure
            time.sleep(0.5)
        else:
            return
    raise last


def rate(pairs: Pairs) -> dict[str, float]:
    """Sends for some seconds from so many threads."""
    made, topic, threads = producer(pairs), pairs["topic"], int(pairs.get("threads", 1))
    first_send(made, topic)
    counts = [0] * threads
    failures = 0
    began, cpu = time.perf_counter(), time.process_time()
    until = began + float(pairs["seconds"])

    def work(number: int) -> None:
        nonlocal failures
        while time.perf_counter() < until:
            try:
                made.send_sync(make_message(topic, counts[number]))
            except Exception:  # with many threads it loses the route for moments
                failures += 1
            else:
                counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - began
    return {
        "count": sum(counts),
        "seconds": took,
        "rate": sum(counts) / took,
        "cpu": time.process_time() - cpu,
        "failures": failures,
    }


def consume(pairs: Pairs) -> dict[str, float]:
    """Read a topic that is full already.

    The group needs offsets: without any the library begins at the end of each queue.
    """
    total = int(pairs["count"])
    lock, full = threading.Lock(), threading.Event()
    count, first, cpu = 0, 0.0, 0.0
    figures: dict[str, float] = {}

    def listen(_consumer: int, handle: int) -> int:
        nonlocal count, first, cpu
        size = len(RecvMessage(handle).body)
        with lock:
            if not count:
                first, cpu = time.perf_counter(), time.process_time()
            count += size > 0
            if count >= total and not figures:
                took = time.perf_counter() - first
                figures.update(count=count, rate=count / took, cpu=time.process_time() - cpu)
                full.set()
        return int(_CConsumeStatus.CONSUME_SUCCESS)

    consumer = PushConsumer(pairs["group"])
    consumer.set_namesrv_addr(pairs["names"])
    consumer.set_instance_name(f"bench-{time.monotonic_ns()}")
    consumer.set_thread_count(int(pairs.get("threads", 4)))
    dll.SetPushConsumerLogLevel(consumer._handle, _CLogLevel.FATAL)
    dll.Subscribe(consumer._handle, pairs["topic"].encode(), b"*")
    consumer._register_callback(listen)
    consumer.start()
    full.wait(120)
    consumer.shutdown()
    return figures


def main() -> None:
    """Serve commands until standard input ends."""
    commands = {"rate": rate, "consume": consume}
    for line in sys.stdin:
        step, command, *pairs = line.rstrip("\n").split("\t")
        status = 0
        try:
            figures = commands[command]({name: value for name, _, value in (pair.partition("=") for pair in pairs)})
            print(json.dumps({"step": step, **figures}), flush=True)
        except Exception as failure:
            print(json.dumps({"step": step, "error": type(failure).__name__, "text": str(failure)}), flush=True)
            status = 2
        print(json.dumps({"step": step, "exit": status}), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the library's threads outlive a shutdown and can crash the interpreter's own end
