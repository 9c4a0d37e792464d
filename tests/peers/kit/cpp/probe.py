"""Probe of the C++ client (PyPI rocketmq 0.4.4, which bundles librocketmq), driven as java/Probe.java is for Java.

COMMAND key=value ... prints one JSON object a line for each result or message and a last one with "done". Exit status 0
when the command reached what it was asked for, 1 when it did not, 2 on an error. Names of fields are those of
Probe.java; what the library does not tell is left out: of a send the queue and the offset id, of a message sysFlag,
flag, hosts, CRC and user properties that `props=` does not name. Bodies are C strings to the wrapper: it cuts them at
the first zero byte, sending and receiving.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from ctypes import c_int, c_void_p
from pathlib import Path
from typing import Any

os.environ["HOME"] = str(Path(sys.prefix).parent)  # the library makes logs/ and its offset files there as it loads

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage, SendResult
from rocketmq.consts import MessageProperty
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import MessageModel, _CConsumeStatus, _CLogLevel, dll

HELP = """\
produce  names= topic= [count=1 size= body= tag= keys= delay= queue= shard= mode=sync|async|oneway|orderly|batch
         group= ak= sk= compress= timeout= props=k:v,k:v]
consume  names= topic= group= [expect=1 seconds=120 model=CLUSTERING|BROADCASTING orderly=false tag=* fail=0
         threads=4 settle=0 instance= props=k,k]
         a group without offsets starts at the end of each queue: the library has no other place to begin; one refusal
         (fail=) sends back all messages that the pull brought, whatever the batch size
pull     names= topic= group= [tag=* max=1000 seconds=120 props=k,k]
         every queue from offset 0; the library commits nothing
rate     names= topic= [count=100000 size=1024 threads=1 mode=sync|oneway]
transact, request, reply, sql=: not offered by this library"""

NOT_OFFERED = ("transact", "request", "reply", "query", "view", "offsets", "litepull", "latency")

options: dict[str, str] = {}
_printing = threading.Lock()


class NotOfferedError(Exception):
    """The library has no such command."""


def need(name: str) -> str:
    """An option that must be there."""
    if name not in options:
        raise ValueError(f"missing {name}=")
    return options[name]


def number(name: str, otherwise: int) -> int:
    """An option that is a whole number."""
    return int(options.get(name, otherwise))


def show(**fields: object) -> None:
    """Print one JSON object, whole, from any thread."""
    with _printing:
        print(json.dumps(fields), flush=True)


def text(value: bytes) -> str:
    """What the library gives as bytes, for JSON."""
    return value.decode(errors="replace")


def show_result(result: SendResult) -> None:
    """Print what a send was answered."""
    status = "SEND_OK" if result.status.name == "OK" else result.status.name
    show(status=status, msgId=result.msg_id, queueOffset=result.offset)


def show_message(message: RecvMessage) -> None:
    """Print a received message; its handle is valid only inside the callback that brought it."""
    body: bytes = message.body or b""
    names = [*(known.value for known in MessageProperty), *filter(None, options.get("props", "").split(","))]
    properties = {name: text(value) for name in names if (value := message.get_property(name))}
    show(
        topic=message.topic,
        queueId=message.queue_id,
        queueOffset=message.queue_offset,
        physicalOffset=message.commit_log_offset,
        msgId=message.id,
        tags=text(message.tags) or None,
        keys=text(message.keys) or None,
        reconsumeTimes=message.reconsume_times,
        bornTimestamp=message.born_timestamp,
        storeTimestamp=message.store_timestamp,
        storeSize=message.store_size,
        preparedTransactionOffset=message.prepared_transaction_offset,
        size=len(body),
        sha1=hashlib.sha1(body).hexdigest(),
        body="" if len(body) > 256 else text(body),
        properties=properties,
    )


# --- messages and clients ---


def make_message(index: int) -> Message:
    """The message with this index, made as Probe.java makes it."""
    size, turn = number("size", 0), index % 26
    letters = "abcdefghijklmnopqrstuvwxyz"
    body = (
        ((letters[turn:] + letters[:turn]) * (size // 26 + 1))[:size]
        if size
        else f"{options.get('body', 'message')}-{index}"
    )
    message = Message(need("topic"))
    message.set_body(body)
    if "tag" in options:
        tags = options["tag"].split(",")  # tag=a,b gives messages the tags a, b, a, b ...
        message.set_tags(tags[index % len(tags)])
    if "keys" in options:
        message.set_keys(f"{options['keys']}-{index}")
    if "delay" in options:
        message.set_delay_time_level(number("delay", 0))
    for pair in filter(None, options.get("props", "").split(",")):
        key, value = pair.split(":")
        message.set_property(key, value.replace("#", str(index)))
    return message


def set_up(client: Any, kind: str) -> None:
    """Name server, credentials and silence, the same for every kind of client."""
    client.set_namesrv_addr(need("names"))
    if "ak" in options:
        client.set_session_credentials(options["ak"], need("sk"), "")
    ffi_check(getattr(dll, f"Set{kind}LogLevel")(client._handle, _CLogLevel.FATAL))


def start_producer() -> Producer:
    """A started producer."""
    producer = Producer(options.get("group", "probe-producer"), timeout=number("timeout", 10000))
    set_up(producer, "Producer")
    if "compress" in options:
        # exported, but not declared by the wrapper
        dll.SetProducerCompressMsgBodyOverHowmuch.argtypes = [c_void_p, c_int]
        dll.SetProducerCompressMsgBodyOverHowmuch(producer._handle, number("compress", 4096))
    producer.start()
    return producer


# --- commands ---


def produce() -> bool:
    """Send count messages."""
    count, mode, shards = number("count", 1), options.get("mode", "sync"), number("shard", 1)
    producer = start_producer()
    accepted = 0

    if mode == "batch":
        show_result(producer.send_batch([make_message(index) for index in range(count)]))
        accepted = count
    elif mode == "async":
        accepted = send_async(producer, count)
    elif mode in ("sync", "oneway", "orderly"):
        chosen = mode == "orderly" or "queue" in options or "shard" in options
        for index in range(count):
            message = make_message(index)
            place = number("queue", index % shards)  # the wrapper takes it modulo the number of queues
            if mode != "oneway":
                show_result(producer.send_orderly(message, place) if chosen else producer.send_sync(message))
            elif chosen:
                producer.send_oneway_orderly(message, place)
            else:
                producer.send_oneway(message)
            accepted += 1
        if mode == "oneway":
            time.sleep(0.5)
    else:
        raise ValueError(f"no such mode: {mode}")
    producer.shutdown()
    show(done=True, accepted=accepted)
    return accepted == count


def send_async(producer: Producer, count: int) -> int:
    """Send with callbacks and wait for them; returns how many succeeded."""
    ended = threading.Semaphore(0)
    accepted: list[SendResult] = []

    def success(result: SendResult) -> None:
        show_result(result)
        accepted.append(result)
        ended.release()

    def failure(reason: Exception) -> None:
        show(failed=str(reason))
        ended.release()

    for index in range(count):
        producer.send_async(make_message(index), success, failure)
    until = time.monotonic() + 60
    for _ in range(count):
        if not ended.acquire(timeout=max(0.0, until - time.monotonic())):
            break
    return len(accepted)


def consume() -> bool:
    """Receive messages until expect of them have come or the seconds are over."""
    expect, fail = number("expect", 1), number("fail", 0)
    seen = threading.Semaphore(0)
    lock = threading.Lock()
    consumer = PushConsumer(
        need("group"),
        orderly=options.get("orderly") == "true",
        message_model=MessageModel[options.get("model", "CLUSTERING")],
    )
    set_up(consumer, "PushConsumer")
    consumer.set_instance_name(options.get("instance", f"probe-{time.monotonic_ns()}"))
    consumer.set_thread_count(number("threads", 4))

    def listen(_consumer: int, handle: int) -> int:
        nonlocal fail
        message = RecvMessage(handle)
        with lock:
            refused, fail = fail > 0, fail - 1
        if refused:
            show(refused=message.id, reconsumeTimes=message.reconsume_times)
            return int(_CConsumeStatus.RECONSUME_LATER)
        show_message(message)
        seen.release()
        return int(_CConsumeStatus.CONSUME_SUCCESS)

    for topic in need("topic").split(","):
        ffi_check(dll.Subscribe(consumer._handle, topic.encode(), options.get("tag", "*").encode()))
    # PushConsumer.subscribe answers CONSUME_SUCCESS for a callback that raised, so a refusal would be lost: register
    # our own.
    consumer._register_callback(listen)
    consumer.start()
    show(started=True)
    until = time.monotonic() + number("seconds", 120)
    received = 0
    while received < expect and seen.acquire(timeout=max(0.0, until - time.monotonic())):
        received += 1
    done = received >= expect
    time.sleep(number("settle", 0) / 1000)
    while seen.acquire(blocking=False):
        received += 1
    consumer.shutdown()
    show(done=done, received=received)
    return done


def pull() -> bool:
    """Print what every queue holds, from offset 0."""
    left, received = number("max", 1000), 0
    consumer = PullConsumer(need("group"))
    set_up(consumer, "PullConsumer")
    consumer.start()
    watch = threading.Timer(number("seconds", 120), give_up)
    watch.start()
    messages: Iterator[RecvMessage] = consumer.pull(need("topic"), options.get("tag", "*"), min(32, left))
    for message in messages:
        show_message(message)
        received += 1
        if received == left:
            break
    watch.cancel()
    consumer.shutdown()
    show(done=True, received=received)
    return True


def give_up() -> None:
    """End a pull that gets nowhere: when the broker refuses it, the wrapper asks again and again without a pause."""
    show(error="Timeout", text="the pull did not end in time")
    os._exit(2)


def rate() -> bool:
    """Messages a second of count sends, shared out over threads."""
    options.setdefault("size", "1024")
    count, threads, mode = number("count", 100000), number("threads", 1), options.get("mode", "sync")
    producer = start_producer()
    send = {"sync": producer.send_sync, "oneway": producer.send_oneway}[mode]
    for index in range(min(2000, count)):
        producer.send_sync(make_message(index))
    indexes = iter(range(count))
    failures: list[Exception] = []

    def work() -> None:
        for index in indexes:
            try:
                send(make_message(index))
            except Exception as failure:
                failures.append(failure)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begin
    producer.shutdown()
    if failures:
        show(failed=str(failures[0]))
    show(
        done=True,
        mode=mode,
        threads=threads,
        count=count,
        seconds=seconds,
        rate=round(count / seconds),
        failures=len(failures),
    )
    return not failures


def main(arguments: list[str]) -> int:
    """Run one command; see the top of the file."""
    if not arguments:
        print(HELP)
        return 2
    options.update((name, value) for name, _, value in (argument.partition("=") for argument in arguments[1:]))
    commands = {"produce": produce, "consume": consume, "pull": pull, "rate": rate}
    try:
        if arguments[0] in NOT_OFFERED or "sql" in options:
            raise NotOfferedError("not offered by this library")
        if arguments[0] not in commands:
            raise ValueError(f"no such command: {arguments[0]}")
        return 0 if commands[arguments[0]]() else 1
    except Exception as failure:
        show(error=type(failure).__name__, text=str(failure))
        return 2


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the library's threads outlive a shutdown and can crash the interpreter's own end
