"""Commands of our probe (see `ours`) that take two: messages in transactions and their checks, requests and their
replies.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import mqproto.adapters.anyio
import mqproto.adapters.threaded
from mqproto import LocalTransactionState, Message, MessageExt, reply_to
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.message import ConsumeStatus
from mqproto.replies import ReplyMessage
from tests.peers.kit.ours.shown import show, show_result

if TYPE_CHECKING:
    from tests.peers.kit.ours.ours import Job

STATES: Final = {
    "commit": LocalTransactionState.COMMIT_MESSAGE,
    "rollback": LocalTransactionState.ROLLBACK_MESSAGE,
    "unknown": LocalTransactionState.UNKNOW,
}


class Books:
    """The listener of a transaction producer."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.asked: set[str] = set()
        outcome = job.options.get("outcome", "commit")
        self.expect = job.number("checks", job.number("count", 1) if outcome == "unknown" else 0)
        self.until = 0.0

    def execute(self, message: Message, argument: Any) -> LocalTransactionState:
        outcome = self._job.options.get("outcome", "commit")
        if outcome == "fail":
            raise RuntimeError("the database is away")
        return STATES[outcome]

    def check(self, message: MessageExt) -> LocalTransactionState:
        show(
            check=message.msg_id,
            transactionId=message.msg_id,
            body=message.body.decode(errors="replace"),
            topic=message.topic,
        )
        self.asked.add(message.msg_id)
        return STATES[self._job.options.get("check", "commit")]

    async def execute_async(self, message: Message, argument: Any) -> LocalTransactionState:
        return self.execute(message, argument)

    async def check_async(self, message: MessageExt) -> LocalTransactionState:
        return self.check(message)

    def waiting(self) -> bool:
        """Whether more questions are to be waited for."""
        self.until = self.until or time.monotonic() + self._job.number("seconds", 120)
        return len(self.asked) < self.expect and not self._job.left.is_set() and time.monotonic() < self.until

    def end(self) -> bool:
        show(done=True, checks=len(self.asked))
        return len(self.asked) >= self.expect


def replier_options(job: Job) -> ConsumerOptions:
    """A consumer that takes one message after the other, as soon as it comes."""
    options = job.consumer_options()
    options["consume_message_batch_max_size"] = 1
    return options


def show_reply(reply: MessageExt) -> None:
    show(reply=reply.body.decode(), correlation=reply.properties.get("CORRELATION_ID"))


def answer_to(message: MessageExt) -> ReplyMessage:
    return reply_to(message, b"reply to " + message.body)


# --- threads and greenlets --------------------------------------------------------------------------------------------


def transact(job: Job) -> bool:
    """Send messages in transactions, then be asked about them."""
    books = Books(job)
    group, names = job.options.get("group", "probe-transactions"), job.options["names"]
    producer: mqproto.adapters.threaded.TransactionProducer
    with importlib.import_module(f"mqproto.adapters.{job.adapter}").TransactionProducer(
        group, books, names, **job.producer_options()
    ) as producer:
        for index in range(job.number("count", 1)):
            show_result(producer.send_in_transaction(job.message(index)))
        while books.waiting():
            time.sleep(0.02)
        time.sleep(0.5)
    return books.end()


def request(job: Job) -> bool:
    """Send requests and print their replies."""
    count, timeout_ms = job.number("count", 1), 1000 * job.number("seconds", 60)
    group, names = job.options.get("group", "probe-producer"), job.options["names"]
    producer: mqproto.adapters.threaded.Producer
    with importlib.import_module(f"mqproto.adapters.{job.adapter}").Producer(
        group, names, **job.producer_options()
    ) as producer:
        if job.options.get("mode") == "async":
            for future in [
                producer.submit_request(job.message(index), timeout_ms=timeout_ms) for index in range(count)
            ]:
                show_reply(future.result())
        else:
            for index in range(count):
                show_reply(producer.request(job.message(index), timeout_ms=timeout_ms))
    show(done=True)
    return True


def reply(job: Job) -> bool:
    """Answer requests until `expect` of them were answered."""
    module = importlib.import_module(f"mqproto.adapters.{job.adapter}")
    producer: mqproto.adapters.threaded.Producer = module.Producer(
        f"{job.options['group']}-replies", job.options["names"], **job.producer_options()
    )

    def listen(messages: list[MessageExt]) -> ConsumeStatus:
        for message in messages:
            producer.send(answer_to(message))
            show(answered=message.msg_id)
            job.received += 1
        return ConsumeStatus.SUCCESS

    consumer: mqproto.adapters.threaded.PushConsumer
    consumer = module.PushConsumer(job.options["group"], listen, job.options["names"], **replier_options(job))
    consumer.subscribe(job.options["topic"])
    with producer, consumer:
        show(started=True)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            time.sleep(0.005)
    return job.end()


# --- tasks ------------------------------------------------------------------------------------------------------------


async def transact_async(job: Job) -> bool:
    """Send messages in transactions, then be asked about them; the listener's methods are coroutine functions."""
    import anyio

    books = Books(job)
    group, names = job.options.get("group", "probe-transactions"), job.options["names"]
    listener = (books.execute_async, books.check_async)
    async with mqproto.adapters.anyio.TransactionProducer(group, listener, names, **job.producer_options()) as producer:
        for index in range(job.number("count", 1)):
            show_result(await producer.send_in_transaction(job.message(index)))
        while books.waiting():
            await anyio.sleep(0.02)
        await anyio.sleep(0.5)
    return books.end()


async def request_async(job: Job) -> bool:
    """Send requests and print their replies."""
    import anyio

    count, timeout_ms = job.number("count", 1), 1000 * job.number("seconds", 60)
    async with mqproto.adapters.anyio.Producer(
        job.options.get("group", "probe-producer"), job.options["names"], **job.producer_options()
    ) as producer:

        async def ask(index: int) -> None:
            show_reply(await producer.request(job.message(index), timeout_ms=timeout_ms))

        if job.options.get("mode") == "async":
            async with anyio.create_task_group() as tasks:
                for index in range(count):
                    tasks.start_soon(ask, index)
        else:
            for index in range(count):
                await ask(index)
    show(done=True)
    return True


async def reply_async(job: Job) -> bool:
    """Answer requests until `expect` of them were answered."""
    import anyio

    producer = mqproto.adapters.anyio.Producer(
        f"{job.options['group']}-replies", job.options["names"], **job.producer_options()
    )

    async def listen(messages: list[MessageExt]) -> ConsumeStatus:
        for message in messages:
            await producer.send(answer_to(message))
            show(answered=message.msg_id)
            job.received += 1
        return ConsumeStatus.SUCCESS

    consumer = mqproto.adapters.anyio.PushConsumer(
        job.options["group"], listen, job.options["names"], **replier_options(job)
    )
    consumer.subscribe(job.options["topic"])
    async with producer, consumer:
        show(started=True)
        until = time.monotonic() + job.number("seconds", 120)
        while job.waiting(until):
            await anyio.sleep(0.005)
    return job.end()


COMMANDS: Final[dict[str, Callable[[Job], bool]]] = {"transact": transact, "request": request, "reply": reply}
STEPS: Final[dict[str, Callable[[Job], Awaitable[bool]]]] = {
    "transact": transact_async,
    "request": request_async,
    "reply": reply_async,
}
