"""Producers for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar, cast

from mqproto.adapters.base.producer import BaseProducer, Messages, Selection, check_choice
from mqproto.adapters.sync.client import SyncClient
from mqproto.adapters.sync.runtime import CALLBACKS_AT_A_TIME, AnySendFuture, OpenFuture, Pool
from mqproto.errors import BatchIncomplete, StateError
from mqproto.hooks import CommunicationMode
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.selectors import Selector
from mqproto.splitting import SPLIT_BYTES
from mqproto.state.node.contract import Ticket

T = TypeVar("T")
M = TypeVar("M")
#: Starts a send of a message to a queue, or any, within a budget, and lets the future know what it can wait for.
SendVerb: TypeAlias = Callable[[OpenFuture[T], M, MessageQueue | None, int | None, int], Ticket[T]]


class SyncProducer(BaseProducer, SyncClient):
    __doc__ = BaseProducer.__doc__

    _callbacks: Pool

    def _prepare(self) -> None:
        self._callbacks = self._new_pool("callbacks", CALLBACKS_AT_A_TIME)

    def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or a batch of messages of one topic, and wait until a broker has taken it.

        To `queue`, or to the one that `selector(queues, message, argument)` chooses, in one attempt; else to queues in
        turn, with further attempts. `timeout_ms` (`send_msg_timeout` unless given) is the budget of all of it. Raises
        what `ProducerCore.send` raises: InvalidMessage, InvalidName, BrokerError, NoNameServer, NoRoute, CallExpired,
        SendFailed, TooManyRequests; StateError when it does not run.
        """
        self._lifecycle.check()
        if selector is not None or argument is not None:
            queue, timeout_ms = self._select(message, queue, selector, argument, timeout_ms)
        if not self._hooks.any:
            return self._driver.wait(self._begin_send, message, queue, timeout_ms)
        context = self._hooks.before(message, queue, CommunicationMode.SYNC)
        with self._hooks.around(context):
            context.result = self._driver.wait(self._begin_send, context.message, queue, timeout_ms)
        return context.result

    def send_in_batches(
        self,
        messages: Sequence[Message],
        *,
        max_bytes: int = SPLIT_BYTES,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic as one request after the other, each a batch of at most `max_bytes` bytes; a
        result for each.

        Queue, selector and `timeout_ms` count for each request. Raises InvalidMessage or InvalidName before anything is
        sent, and BatchIncomplete when a request fails: it has the results so far and the messages that are left. To
        send the batches at the same time, `submit` those that `mqproto.split_batch` makes.
        """
        results: list[SendResult] = []
        sent = 0
        for part in self._split(messages, max_bytes):
            try:
                results.append(
                    self.send(part, queue=queue, selector=selector, argument=argument, timeout_ms=timeout_ms)
                )
            except Exception as error:  # a hook's own too: the results so far must not get lost
                raise BatchIncomplete(tuple(results), tuple(messages[sent:]), error) from error
            sent += len(part)
        return results

    def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> AnySendFuture[SendResult]:
        """Send as `send` does, without waiting for the broker: the outcome is in the future, for `add_done_callback`
        too. Callbacks run in a few threads (greenlets) of the producer and may use it. They do not count as in flight:
        slow ones pile up.

        What is waited for is a selector, and room where too much is in flight: a send that finds none within its budget
        has TooManyRequests in its future. Further attempts follow lost connections only, never an answer
        (docs/protocol/client.md 3.5).
        """
        self._lifecycle.check()
        if selector is not None or argument is not None:
            queue, timeout_ms = self._select(message, queue, selector, argument, timeout_ms)
        if self._hooks.any:
            return self._hooked(self._begin_submit, message, queue, timeout_ms)
        return self._launch(self._begin_submit, message, queue, timeout_ms)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message that no broker answers; ends when it is on its way, in one attempt.

        Raises as `send`, but no BrokerError.
        """
        self._lifecycle.check()
        if selector is not None or argument is not None:
            queue, timeout_ms = self._select(message, queue, selector, argument, timeout_ms)
        if not self._hooks.any:
            self._driver.wait(self._begin_oneway, message, queue, timeout_ms)
            return
        context = self._hooks.before(message, queue, CommunicationMode.ONEWAY)
        with self._hooks.around(context):
            self._driver.wait(self._begin_oneway, context.message, queue, timeout_ms)

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Wait until the sends that have begun by now are over, well or not: at most `timeout_ms`, or as long as their
        own budgets are.

        Whether all of them are over. Closing does the same.
        """
        self._lifecycle.check()
        return self._driver.wait(self._begin_flush, timeout_ms)

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply that somebody gives by `mqproto.reply_to`.

        `timeout_ms` (`send_msg_timeout` unless given) is the budget of both. To `queue`, or to the one that the
        selector chooses, as with `send`. Raises RequestTimeout when the message was sent and no reply came in time;
        else what `send` raises. The reply is a received message: its body and properties are the responder's.
        """
        self._lifecycle.check()
        if selector is not None or argument is not None:
            queue, timeout_ms = self._select(message, queue, selector, argument, timeout_ms)
        if not self._hooks.any:
            return self._driver.wait(self._begin_request, message, queue, timeout_ms)
        context = self._hooks.before(message, queue, CommunicationMode.SYNC)
        with self._hooks.around(context):
            return self._driver.wait(self._begin_request, cast(Message, context.message), queue, timeout_ms)

    def submit_request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> AnySendFuture[MessageExt]:
        """The same without waiting: the reply, or why there is none, is in the future. (A selector is waited for.)"""
        self._lifecycle.check()
        if selector is not None or argument is not None:
            queue, timeout_ms = self._select(message, queue, selector, argument, timeout_ms)
        if self._hooks.any:
            return self._hooked(self._begin_submitted_request, message, queue, timeout_ms)
        return self._launch(self._begin_submitted_request, message, queue, timeout_ms)

    def _hooked(
        self,
        verb: SendVerb[T, M],
        message: M,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> AnySendFuture[T]:
        """Start a send whose outcome goes to a future, with the hooks around it."""
        context = self._hooks.before(message, queue, CommunicationMode.ASYNC)
        try:
            future = self._launch(verb, cast(M, context.message), queue, timeout_ms)
        except BaseException as error:  # it never began, or was interrupted
            context.error = error
            self._hooks.after(context)
            raise
        future.add_done_callback(partial(self._hooks.after_future, context))
        return future

    def _launch(
        self,
        verb: SendVerb[T, M],
        message: M,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> AnySendFuture[T]:
        """Start an operation whose outcome goes to a future; comes back when there is room for what it sends, or it is
        over.
        """
        driver = self._driver
        future: OpenFuture[T] = self._runtime.future(self._callbacks, driver.outcome)
        ticket = driver.launch(future.ended, verb, (future, message, queue, timeout_ms), True)
        if future.room is not None:
            try:
                with suppress(StateError):  # closed meanwhile: the future is told
                    driver.wait(self._begin_room, future.room)
            except BaseException:  # an interrupt, most likely: the caller gets no future
                driver.give_up(ticket)
                raise
        return future

    def _select(
        self,
        message: Messages,
        queue: MessageQueue | None,
        selector: Selector | None,
        argument: object,
        timeout_ms: int | None,
    ) -> tuple[MessageQueue, int]:
        """The queue that the application has chosen now, and what is left of the time."""
        selection = Selection(self, message, queue, selector, argument, timeout_ms)
        queues = self._driver.wait(self._begin_queues, selection.topic, selection.timeout_ms)
        return selection.choose(queues), selection.timeout_ms

    # Verbs for the driver.

    def _begin_submit(
        self,
        future: OpenFuture[SendResult],
        message: Messages,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        now: int,
    ) -> Ticket[SendResult]:
        core = self._core
        if queue is not None or timeout_ms is not None:
            check_choice(queue, timeout_ms)
        if isinstance(message, Message):
            ticket = future.ticket = self._node.send(core, message, now, queue, timeout_ms, True)
        else:
            flow = core.send_batch_async(message, now, queue=queue, timeout_ms=timeout_ms)
            ticket = future.ticket = self._node.start(flow, now)
        if core.window.line and not ticket.settled:
            future.room = core.window.last()
        return ticket

    def _begin_submitted_request(
        self,
        future: OpenFuture[MessageExt],
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        now: int,
    ) -> Ticket[MessageExt]:
        ticket = future.ticket = self._begin_request(message, queue, timeout_ms, now)
        if self._core.window.line and not ticket.settled:
            future.room = self._core.window.last()
        return ticket
