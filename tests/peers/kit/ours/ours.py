"""Probe of our own clients, driven as java/Probe.java is.

    python -m tests.peers.kit.ours.ours ADAPTER OFFSETS COMMAND key=value ...

ADAPTER is threaded, gevent, asyncio or trio, OFFSETS the folder of broadcasting consumers' offsets.

produce  names= topic= [count=1 size= body= tag= keys= delay= queue= shard= mode=sync|async|oneway|batch group=
         compress= props=k:v,k:v]
consume  names= topic= group= [expect=1 seconds=120 model=CLUSTERING|BROADCASTING orderly=false tag=* fail=0 max=
         threads=4 settle=0 work=MILLISECONDS instance= strategy=AVG|AVG_BY_CIRCLE|CONSISTENT_HASH iterate=true]
         with settle= the listeners have ended when it leaves

Both take namespace=, vip= and trace=true.
transact names= topic= [group= count=1 outcome=commit|rollback|unknown|fail check=commit|rollback|unknown
         checks=MESSAGES seconds=120]
request  names= topic= [count=1 seconds=60 group= mode=sync|async ...]
reply    names= topic= group= [expect=1 seconds=120]
pull     names= topic= group= [tag=* kind=TAG|SQL92 max=1000]
offsets  names= topic= group= [time=]
litepull names= topic= group= [expect=1 seconds=120 tag=* kind=TAG|SQL92 model= commit=auto|sync]

Prints one JSON object a line for each result or message and a last one with "done". Exit status 0 when the command
reached what it was asked for, 1 when it did not, 2 on an error. SIGTERM makes a consumer leave.

attend DESCRIPTOR in the place of a command: fork for each command that comes through the socket with this number (see
`forking`).
"""

from __future__ import annotations

import sys

from tests.peers.kit.forking import attend

if sys.argv[1:2] == ["gevent"]:  # as programs for gevent do, before anything else is imported
    from gevent import monkey

    monkey.patch_all()

import gc
import importlib
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import mqproto.adapters.anyio
import mqproto.adapters.threaded
from mqproto.adapters.base.settings.options import ConsumerOptions, ProducerOptions
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from tests.peers.kit.checks import letters
from tests.peers.kit.ours import ours_pulling, ours_requests
from tests.peers.kit.ours.shown import show, show_message, show_result

#: What is imported only when it is used: before the first command, where they are many.
_PRELOADED = {
    "threaded": (),
    "gevent": ("mqproto.adapters.gevent", "gevent.hub", "gevent.threadpool"),
    "asyncio": ("anyio", "asyncio", "anyio._backends._asyncio"),
    "trio": ("anyio", "trio", "anyio._backends._trio"),
}


class Job:
    """One command: its options, and what is the same for every adapter."""

    def __init__(self, adapter: str, offsets: str, options: dict[str, str]) -> None:
        self.adapter, self.offsets, self.options = adapter, offsets, options
        self.left = threading.Event()
        self.received = 0
        self._fail = self.number("fail", 0)
        self._lock = threading.Lock()

    def number(self, name: str, otherwise: int) -> int:
        """An option that is a whole number."""
        return int(self.options.get(name, otherwise))

    def message(self, index: int) -> Message:
        """The message with this index, made as Probe.java makes it."""
        options, size = self.options, self.number("size", 0)
        tags = options.get("tag", "").split(",")
        pairs = [pair.split(":") for pair in options.get("props", "").split(",") if pair]
        return Message(
            options["topic"],
            letters(index, size) if size else f"{options.get('body', 'message')}-{index}".encode(),
            tags=tags[index % len(tags)] or None,
            keys=f"{options['keys']}-{index}" if "keys" in options else (),
            properties={name: value.replace("#", str(index)) for name, value in pairs},
            delay_level=self.number("delay", 0),
        )

    def producer_options(self) -> ProducerOptions:
        """Settings of the producer."""
        found: ProducerOptions = {
            "send_msg_timeout": self.number("timeout", 30_000),
            "poll_name_server_interval": 1000,
            "mq_client_api_timeout": 30_000,
        }
        if "compress" in self.options:
            found["compress_msg_body_over_howmuch"] = self.number("compress", 0)
        if "vip" in self.options:
            found["vip_channel_enabled"] = True
        if "namespace" in self.options:
            found["namespace"] = self.options["namespace"]
        if "trace" in self.options:
            found["enable_msg_trace"] = True
        return found

    def consumer_options(self) -> ConsumerOptions:
        """Settings of the consumer: what is done every so many seconds is done every second, as for the Java client."""
        found: ConsumerOptions = {
            "message_model": MessageModel(self.options.get("model", "CLUSTERING")),
            "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            "consume_thread_min": self.number("threads", 4),
            "mq_client_api_timeout": 30_000,
            "poll_name_server_interval": 1000,
            "heartbeat_broker_interval": 1000,
            "persist_consumer_offset_interval": 1000,
            "local_offset_store_dir": self.offsets,
        }
        if self.options.get("orderly") == "true":
            found["orderly"] = True
        if "max" in self.options:
            found["max_reconsume_times"] = self.number("max", 16)
        if "namespace" in self.options:
            found["namespace"] = self.options["namespace"]
        if "trace" in self.options:
            found["enable_msg_trace"] = True
        if "vip" in self.options:
            found["vip_channel_enabled"] = True
        if "strategy" in self.options:
            found["allocate_message_queue_strategy"] = self.options["strategy"]
        if "instance" in self.options:
            found["instance_name"] = self.options["instance"]
        if "settle" in self.options:
            found["await_termination_millis_when_shutdown"] = 30_000
        return found

    def selector(self) -> tuple[Callable[..., MessageQueue] | None, str]:
        """How to choose queues, if they are to be chosen; the argument comes with each message."""
        if "queue" in self.options:
            wanted = self.number("queue", 0)
            return lambda queues, message, argument: next(
                queue for queue in queues if queue.queue_id == wanted
            ), "queue"
        if "shard" in self.options:
            return lambda queues, message, argument: queues[argument % len(queues)], "shard"
        return None, ""

    def argument(self, index: int) -> int | None:
        """What the selector gets, if there is one."""
        return index % self.number("shard", 1) if {"queue", "shard"} & self.options.keys() else None

    def listen(self, messages: list[MessageExt]) -> ConsumeStatus:
        """The listener."""
        with self._lock:
            self._fail -= 1
            refused = self._fail >= 0
        if refused:
            show(refused=messages[0].msg_id, reconsumeTimes=messages[0].reconsume_times)
            return ConsumeStatus.RECONSUME_LATER
        for message in messages:
            show_message(message, shownAt=time.time_ns() // 1_000_000)
        with self._lock:
            self.received += len(messages)
        return ConsumeStatus.SUCCESS

    def waiting(self, until: float) -> bool:
        """Whether the consumer has to wait on."""
        return self.received < self.number("expect", 1) and not self.left.is_set() and time.monotonic() < until

    def end(self) -> bool:
        """The last line of a consumer, printed when it has closed."""
        reached = self.received >= self.number("expect", 1)
        show(done=reached, received=self.received)
        return reached


# --- threads and greenlets --------------------------------------------------------------------------------------------


def sync_module(adapter: str) -> Any:
    """The adapter's module; both have the same names."""
    return importlib.import_module(f"mqproto.adapters.{adapter}")


def produce(job: Job) -> bool:
    """Send messages."""
    count, mode = job.number("count", 1), job.options.get("mode", "sync")
    selector, _ = job.selector()
    producer: mqproto.adapters.threaded.Producer
    with sync_module(job.adapter).Producer(
        job.options.get("group", "probe-producer"), job.options["names"], **job.producer_options()
    ) as producer:
        if mode == "batch":
            show_result(
                producer.send(
                    [job.message(index) for index in range(count)], selector=selector, argument=job.argument(0)
                )
            )
        elif mode == "async":
            for future in [producer.submit(job.message(index)) for index in range(count)]:
                show_result(future.result())
        elif mode == "oneway":
            for index in range(count):
                producer.send_oneway(job.message(index), selector=selector, argument=job.argument(index))
        else:
            for index in range(count):
                show_result(producer.send(job.message(index), selector=selector, argument=job.argument(index)))
    show(done=True, accepted=count)
    return True


def consume(job: Job) -> bool:
    """Receive messages until `expect` of them have come, or the seconds are over, or SIGTERM came."""
    if job.options.get("iterate") == "true":
        return iterate(job)
    consumer: mqproto.adapters.threaded.PushConsumer

    def listen(messages: list[MessageExt]) -> ConsumeStatus:
        status = job.listen(messages)
        time.sleep(job.number("work", 0) / 1000)
        return status

    consumer = sync_module(job.adapter).PushConsumer(
        job.options["group"], listen, job.options["names"], **job.consumer_options()
    )
    for topic in job.options["topic"].split(","):
        consumer.subscribe(topic, job.options.get("tag", "*"))
    with consumer:
        show(started=True, clientId=consumer.client_id)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            time.sleep(0.005)
        time.sleep(job.number("settle", 0) / 1000)
    return job.end()


def iterate(job: Job) -> bool:
    """The same without a listener."""
    options = job.consumer_options()
    options.pop("await_termination_millis_when_shutdown", None)
    consumer: mqproto.adapters.threaded.SimpleConsumer
    consumer = sync_module(job.adapter).Consumer(
        job.options["group"], job.options["names"], max_unacked=options.pop("consume_thread_min"), **options
    )
    for topic in job.options["topic"].split(","):
        consumer.subscribe(topic, job.options.get("tag", "*"))
    with consumer:
        show(started=True, clientId=consumer.client_id)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            message = consumer.receive(50)
            if message is not None:
                (consumer.ack if job.listen([message]) is ConsumeStatus.SUCCESS else consumer.retry_later)(message)
        time.sleep(job.number("settle", 0) / 1000)
    return job.end()


# --- tasks ------------------------------------------------------------------------------------------------------------


async def produce_async(job: Job) -> bool:
    """Send messages."""
    import anyio

    count, mode = job.number("count", 1), job.options.get("mode", "sync")
    selector, _ = job.selector()
    group, names = job.options.get("group", "probe-producer"), job.options["names"]
    async with mqproto.adapters.anyio.Producer(group, names, **job.producer_options()) as producer:

        async def send(index: int) -> None:
            show_result(await producer.send(job.message(index), selector=selector, argument=job.argument(index)))

        if mode == "batch":
            show_result(
                await producer.send(
                    [job.message(index) for index in range(count)], selector=selector, argument=job.argument(0)
                )
            )
        elif mode == "async":
            async with anyio.create_task_group() as tasks:
                for index in range(count):
                    tasks.start_soon(send, index)
        elif mode == "oneway":
            for index in range(count):
                await producer.send_oneway(job.message(index), selector=selector, argument=job.argument(index))
        else:
            for index in range(count):
                await send(index)
    show(done=True, accepted=count)
    return True


async def consume_async(job: Job) -> bool:
    """Receive messages, as `consume` does; the listener is a coroutine function."""
    import anyio

    if job.options.get("iterate") == "true":
        return await iterate_async(job)

    async def listen(messages: list[MessageExt]) -> ConsumeStatus:
        status = job.listen(messages)
        await anyio.sleep(job.number("work", 0) / 1000)
        return status

    consumer = mqproto.adapters.anyio.PushConsumer(
        job.options["group"], listen, job.options["names"], **job.consumer_options()
    )
    for topic in job.options["topic"].split(","):
        consumer.subscribe(topic, job.options.get("tag", "*"))
    async with consumer:
        show(started=True, clientId=consumer.client_id)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            await anyio.sleep(0.005)
        await anyio.sleep(job.number("settle", 0) / 1000)
    return job.end()


async def iterate_async(job: Job) -> bool:
    """The same without a listener."""
    import anyio

    options = job.consumer_options()
    consumer = mqproto.adapters.anyio.SimpleConsumer(
        job.options["group"], job.options["names"], max_unacked=options.pop("consume_thread_min"), **options
    )
    for topic in job.options["topic"].split(","):
        consumer.subscribe(topic, job.options.get("tag", "*"))
    async with consumer:
        show(started=True, clientId=consumer.client_id)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            message = await consumer.receive(50)
            if message is not None:
                (consumer.ack if job.listen([message]) is ConsumeStatus.SUCCESS else consumer.retry_later)(message)
        await anyio.sleep(job.number("settle", 0) / 1000)
    return job.end()


def main(arguments: list[str]) -> int:
    """Run one command; see the top of the file."""
    adapter, offsets, command, *pairs = arguments
    if command == "attend":
        for module in _PRELOADED[adapter]:
            importlib.import_module(module)
        gc.freeze()
        words = attend(int(pairs[0]))
        return 0 if words is None else main([adapter, offsets, *words])
    job = Job(adapter, offsets, {name: value for name, _, value in (pair.partition("=") for pair in pairs)})

    def leave(_number: int, _frame: FrameType | None) -> None:
        job.left.set()

    signal.signal(signal.SIGTERM, leave)
    try:
        if adapter in ("threaded", "gevent"):
            commands = {"produce": produce, "consume": consume, **ours_requests.COMMANDS, **ours_pulling.COMMANDS}
            return 0 if commands[command](job) else 1
        import anyio

        steps = {"produce": produce_async, "consume": consume_async, **ours_requests.STEPS, **ours_pulling.STEPS}
        return 0 if anyio.run(steps[command], job, backend=adapter) else 1
    except MQError as failure:
        show(error=type(failure).__name__, text=str(failure))
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
