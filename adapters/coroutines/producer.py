"""Producers whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, cast

from mqproto.adapters.base.producer import BaseProducer, Messages
from mqproto.adapters.base.settings.options import SendOptions
from mqproto.adapters.coroutines.client import AsyncClient
from mqproto.errors import BatchIncomplete
from mqproto.hooks import CommunicationMode
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.splitting import SPLIT_BYTES


class AsyncProducer(BaseProducer, AsyncClient):
    __doc__ = BaseProducer.__doc__

    async def send(self, message: Messages, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message, or a batch of messages of one topic, and wait until a broker has taken it.

        To `queue`, or to the one that `selector(queues, message, argument)` chooses, in one attempt; else to queues in
        turn, with further attempts. `timeout_ms` (`send_msg_timeout` unless given) is the budget of all of it. Raises
        what `ProducerCore.send` raises: InvalidMessage, InvalidName, BrokerError, NoNameServer, NoRoute, CallExpired,
        SendFailed, TooManyRequests; StateError when it does not run.
        Cancelling gives the send up: whether the broker has taken it is then unknown.
        """
        self._lifecycle.check()
        queue: MessageQueue | None = None
        timeout_ms: int | None = None
        if options:
            queue, timeout_ms = await self._choose(message, options)
        if not self._hooks.any:
            return await self._driver.wait(self._begin_send, message, queue, timeout_ms)
        context = self._hooks.before(message, queue, CommunicationMode.SYNC)
        with self._hooks.around(context):
            context.result = await self._driver.wait(self._begin_send, context.message, queue, timeout_ms)
        return context.result

    async def send_in_batches(
        self, messages: Sequence[Message], *, max_bytes: int = SPLIT_BYTES, **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send messages of one topic as one request after the other, each a batch of at most `max_bytes` bytes; a
        result for each.

        Queue, selector and `timeout_ms` count for each request. Raises InvalidMessage or InvalidName before anything is
        sent, and BatchIncomplete when a request fails: it has the results so far and the messages that are left. To
        send the batches at the same time, `send` those that `mqproto.split_batch` makes in tasks of their own.
        """
        results: list[SendResult] = []
        sent = 0
        for part in self._split(messages, max_bytes):
            try:
                results.append(await self.send(part, **options))
            except Exception as error:  # a hook's own too: the results so far must not get lost
                raise BatchIncomplete(tuple(results), tuple(messages[sent:]), error) from error
            sent += len(part)
        return results

    async def send_oneway(self, message: Message, **options: Unpack[SendOptions]) -> None:
        """Send a message that no broker answers; ends when it is on its way, in one attempt.

        Raises as `send`, but no BrokerError.
        """
        self._lifecycle.check()
        queue: MessageQueue | None = None
        timeout_ms: int | None = None
        if options:
            queue, timeout_ms = await self._choose(message, options)
        if not self._hooks.any:
            await self._driver.wait(self._begin_oneway, message, queue, timeout_ms)
            return
        context = self._hooks.before(message, queue, CommunicationMode.ONEWAY)
        with self._hooks.around(context):
            await self._driver.wait(self._begin_oneway, context.message, queue, timeout_ms)

    async def flush(self, timeout_ms: int | None = None) -> bool:
        """Wait until the sends that have begun by now are over, well or not: at most `timeout_ms`, or as long as their
        own budgets are.

        Whether all of them are over. Closing does the same.
        """
        self._lifecycle.check()
        return await self._driver.wait(self._begin_flush, timeout_ms)

    async def request(self, message: Message, **options: Unpack[SendOptions]) -> MessageExt:
        """Send a message and wait for the reply that somebody gives by `mqproto.reply_to`.

        `timeout_ms` (`send_msg_timeout` unless given) is the budget of both. To `queue`, or to the one that the
        selector chooses, as with `send`. Raises RequestTimeout when the message was sent and no reply came in time;
        else what `send` raises. The reply is a received message: its body and properties are the responder's.
        Cancelling gives the request up.
        """
        self._lifecycle.check()
        queue: MessageQueue | None = None
        timeout_ms: int | None = None
        if options:
            queue, timeout_ms = await self._choose(message, options)
        if not self._hooks.any:
            return await self._driver.wait(self._begin_request, message, queue, timeout_ms)
        context = self._hooks.before(message, queue, CommunicationMode.SYNC)
        with self._hooks.around(context):
            return await self._driver.wait(self._begin_request, cast(Message, context.message), queue, timeout_ms)

    async def _choose(self, message: Messages, options: SendOptions) -> tuple[MessageQueue | None, int | None]:
        """The queue of a send, which the application may choose now, and its time."""
        queue, timeout_ms = options.get("queue"), options.get("timeout_ms")
        if (queue is not None) + (timeout_ms is not None) == len(options):
            return queue, timeout_ms
        selection = self._selection(message, options)
        if selection is None:
            return queue, timeout_ms
        queues = await self._driver.wait(self._begin_queues, selection.topic, selection.timeout_ms)
        return selection.choose(queues), selection.timeout_ms
