"""Methods of producers that give futures, for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar, Unpack, cast

from mqproto.adapters.base.producer import Messages, check_choice
from mqproto.adapters.base.settings.options import SendOptions
from mqproto.adapters.sync.producer import SyncProducer
from mqproto.adapters.sync.runtime import CALLBACKS_AT_A_TIME, AnySendFuture, OpenFuture, Pool
from mqproto.errors import StateError
from mqproto.hooks import CommunicationMode
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.state.node.contract import Ticket

T = TypeVar("T")
M = TypeVar("M")
#: Starts a send of a message to a queue, or any, within a budget, and lets the future know what it can wait for.
SendVerb: TypeAlias = Callable[[OpenFuture[T], M, MessageQueue | None, int | None, int], Ticket[T]]


class ProducerFutures(SyncProducer):
    """Producer that can also send without waiting for the outcome."""

    _callbacks: Pool

    def _prepare(self) -> None:
        self._callbacks = self._new_pool("callbacks", CALLBACKS_AT_A_TIME)
        super()._prepare()

    def submit(self, message: Messages, **options: Unpack[SendOptions]) -> AnySendFuture[SendResult]:
        """Send as `send` does, without waiting for the broker: the outcome is in the future, for `add_done_callback`
        too. Callbacks run in a few threads (greenlets) of the producer and may use it. They do not count as in flight:
        slow ones pile up.

        What is waited for is a selector, and room where too much is in flight: a send that finds none within its budget
        has TooManyRequests in its future. Further attempts follow lost connections only, never an answer
        (docs/protocol/client.md 3.5).
        """
        self._lifecycle.check()
        queue: MessageQueue | None = None
        timeout_ms: int | None = None
        if options:
            queue, timeout_ms = self._choose(message, options)
        if self._hooks.any:
            return self._hooked(self._begin_submit, message, queue, timeout_ms)
        return self._launch(self._begin_submit, message, queue, timeout_ms)

    def submit_request(self, message: Message, **options: Unpack[SendOptions]) -> AnySendFuture[MessageExt]:
        """Send as `request` does, without waiting: the reply, or why there is none, is in the future.

        A selector is waited for.
        """
        self._lifecycle.check()
        queue: MessageQueue | None = None
        timeout_ms: int | None = None
        if options:
            queue, timeout_ms = self._choose(message, options)
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
        """Start an operation whose outcome goes to a future; returns when there is room for what it sends."""
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
