"""Commands of our probe (see `ours`) for consumers that are asked: pulls of single queues, polls, offsets."""

from __future__ import annotations

import importlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import mqproto.adapters.anyio
import mqproto.adapters.threaded
from mqproto import MessageExt, MessageQueue, PullResult, PullStatus
from mqproto.adapters.base.settings.options import LitePullOptions, PullConsumerOptions, PullingOptions
from mqproto.wire.bodies import ConsumeFromWhere, MessageModel
from tests.peers.kit.ours.shown import show, show_message

if TYPE_CHECKING:
    from tests.peers.kit.ours.ours import Job

BATCH: Final = 32


def _fill(options: PullingOptions, job: Job) -> None:
    """What is done every so many seconds is done every second, as for the Java client."""
    options["poll_name_server_interval"] = 1000
    options["mq_client_api_timeout"] = 30_000
    options["heartbeat_broker_interval"] = 1000
    options["persist_consumer_offset_interval"] = 1000
    options["local_offset_store_dir"] = job.offsets
    options["message_model"] = MessageModel(job.options.get("model", "CLUSTERING"))
    if "namespace" in job.options:
        options["namespace"] = job.options["namespace"]
    if "instance" in job.options:
        options["instance_name"] = job.options["instance"]


def pull_options(job: Job) -> PullConsumerOptions:
    options: PullConsumerOptions = {}
    _fill(options, job)
    return options


def lite_options(job: Job) -> LitePullOptions:
    options: LitePullOptions = {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "auto_commit_interval_millis": 1000,
        "auto_commit": job.options.get("commit") != "sync",
        "enable_msg_trace": "trace" in job.options,
    }
    _fill(options, job)
    return options


class Walk:
    """Walk through one queue, to its end or to as many messages as are wanted."""

    def __init__(self, job: Job, offset: int) -> None:
        self._job = job
        self.offset = offset
        self._max = job.number("max", 1000)
        self.ended = job.received >= self._max

    @property
    def count(self) -> int:
        return min(BATCH, self._max - self._job.received)

    def take(self, result: PullResult) -> None:
        for message in result.messages:
            show_message(message)
        self._job.received += len(result.messages)
        stuck = result.next_begin_offset == self.offset or result.status in (
            PullStatus.NO_NEW_MSG,
            PullStatus.OFFSET_ILLEGAL,
        )
        if not stuck:
            self.offset = result.next_begin_offset
        self.ended = stuck or self._job.received >= self._max


def show_offsets(queue: MessageQueue, low: int, high: int, committed: int | None, searched: int | None) -> None:
    show(
        broker=queue.broker_name,
        queueId=queue.queue_id,
        min=low,
        max=high,
        committed=-1 if committed is None else committed,
        searched=searched,
    )


class Polls:
    """Orders for a lite pull consumer: what it does with its messages."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.until = time.monotonic() + job.number("seconds", 120)

    def take(self, messages: list[MessageExt]) -> None:
        for message in messages:
            show_message(message)
        self._job.received += len(messages)

    @property
    def going_on(self) -> bool:
        return self._job.waiting(self.until)


# --- threads and greenlets --------------------------------------------------------------------------------------------


def pull(job: Job) -> bool:
    """Pull every queue of a topic from its first message to its end, and store how far that is."""
    consumer: mqproto.adapters.threaded.PullConsumer
    consumer = importlib.import_module(f"mqproto.adapters.{job.adapter}").PullConsumer(
        job.options["group"], job.options["names"], **pull_options(job)
    )
    tag, kind = job.options.get("tag", "*"), job.options.get("kind", "TAG")
    with consumer:
        for queue in consumer.fetch_subscribe_message_queues(job.options["topic"]):
            walk = Walk(job, consumer.min_offset(queue))
            while not walk.ended:
                walk.take(consumer.pull(queue, tag, walk.offset, walk.count, kind=kind))
            consumer.update_consume_offset_to_broker(queue, walk.offset)
    show(done=True, received=job.received)
    return True


def offsets(job: Job) -> bool:
    """Print the offsets of every queue of a topic."""
    consumer: mqproto.adapters.threaded.PullConsumer
    consumer = importlib.import_module(f"mqproto.adapters.{job.adapter}").PullConsumer(
        job.options["group"], job.options["names"], **pull_options(job)
    )
    with consumer:
        for queue in consumer.fetch_subscribe_message_queues(job.options["topic"]):
            searched = consumer.search_offset(queue, job.number("time", 0)) if "time" in job.options else None
            low, high = consumer.min_offset(queue), consumer.max_offset(queue)
            show_offsets(queue, low, high, consumer.fetch_consume_offset(queue, from_store=True), searched)
    show(done=True)
    return True


def lite_pull(job: Job) -> bool:
    """Poll until `expect` messages have come; then commit all of them."""
    consumer: mqproto.adapters.threaded.LitePullConsumer
    consumer = importlib.import_module(f"mqproto.adapters.{job.adapter}").LitePullConsumer(
        job.options["group"], job.options["names"], **lite_options(job)
    )
    consumer.subscribe(job.options["topic"], job.options.get("tag", "*"), job.options.get("kind", "TAG"))
    with consumer:
        show(started=True, clientId=consumer.client_id)
        polls = Polls(job)
        while polls.going_on:
            polls.take(consumer.poll(100))
        consumer.commit_sync()
    return job.end()


# --- tasks ------------------------------------------------------------------------------------------------------------


async def pull_async(job: Job) -> bool:
    tag, kind = job.options.get("tag", "*"), job.options.get("kind", "TAG")
    async with mqproto.adapters.anyio.PullConsumer(
        job.options["group"], job.options["names"], **pull_options(job)
    ) as consumer:
        for queue in await consumer.fetch_subscribe_message_queues(job.options["topic"]):
            walk = Walk(job, await consumer.min_offset(queue))
            while not walk.ended:
                walk.take(await consumer.pull(queue, tag, walk.offset, walk.count, kind=kind))
            await consumer.update_consume_offset_to_broker(queue, walk.offset)
    show(done=True, received=job.received)
    return True


async def offsets_async(job: Job) -> bool:
    async with mqproto.adapters.anyio.PullConsumer(
        job.options["group"], job.options["names"], **pull_options(job)
    ) as consumer:
        for queue in await consumer.fetch_subscribe_message_queues(job.options["topic"]):
            searched = await consumer.search_offset(queue, job.number("time", 0)) if "time" in job.options else None
            low, high = await consumer.min_offset(queue), await consumer.max_offset(queue)
            show_offsets(queue, low, high, await consumer.fetch_consume_offset(queue, from_store=True), searched)
    show(done=True)
    return True


async def lite_pull_async(job: Job) -> bool:
    consumer = mqproto.adapters.anyio.LitePullConsumer(job.options["group"], job.options["names"], **lite_options(job))
    consumer.subscribe(job.options["topic"], job.options.get("tag", "*"), job.options.get("kind", "TAG"))
    async with consumer:
        show(started=True, clientId=consumer.client_id)
        polls = Polls(job)
        while polls.going_on:
            polls.take(await consumer.poll(100))
        await consumer.commit_sync()
    return job.end()


COMMANDS: Final[dict[str, Callable[[Job], bool]]] = {"pull": pull, "offsets": offsets, "litepull": lite_pull}
STEPS: Final[dict[str, Callable[[Job], Awaitable[bool]]]] = {
    "pull": pull_async,
    "offsets": offsets_async,
    "litepull": lite_pull_async,
}
