"""The waiting faces of servers and clients, for every runtime in which waiting is a plain call (threads, greenlets).

What a runtime brings is its `Kit`; nothing here knows which one it is.
"""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from socket import socket
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, TypeVarTuple

from adapters.clients import ConsumerFace, Messages, ProducerFace, Selection, Submitted, check_target
from adapters.driving import CLOSE_TIMEOUT_MS
from adapters.servers import BrokerFace, NameServerFace, ServerFace, StandaloneFace
from mqproto.errors import StateError
from mqproto.message import Message, MessageQueue, SendResult
from mqproto.state.consumption import ConsumeTask
from mqproto.state.node import Node, Ticket
from mqproto.state.producer import Selector

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")

#: How many callbacks of futures run at a time.
CALLBACKS_AT_A_TIME: Final = 4


class Driver(Protocol):
    """See `adapters.threaded.Driver`."""

    def start(self) -> None: ...
    def stop(self, timeout: float = 10.0) -> bool: ...
    def enter(self, verb: Callable[[*Ts, int], T], *arguments: *Ts) -> T: ...
    def wait(self, verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> T: ...
    def outcome(self, ticket: Ticket[T]) -> T: ...
    def launch(self, wake: Callable[[], None], verb: Callable[[*Ts, int], Ticket[T]], *arguments: *Ts) -> Ticket[T]: ...


class Pool(Protocol):
    """Runs work beside the caller, a limited number at a time."""

    def submit(self, work: Callable[[], object]) -> bool: ...
    def close(self, timeout: float) -> bool: ...


class Kit(Protocol):
    """What a runtime brings."""

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        notices: deque[str] | None,
        name: str,
    ) -> Driver: ...

    def pool(self, name: str, limit: int) -> Pool: ...

    def future(self, pool: Pool) -> OpenFuture[Any]:
        """A future whose callbacks run in the pool."""

    def beside(self, work: Callable[[], T]) -> T:
        """Do something that may block and wait for it, without stopping others."""


class SendFuture(Protocol[T_co]):
    """What `concurrent.futures.Future` and its like have in common. Callbacks get the future and may use the producer."""

    def result(self, timeout: float | None = None) -> T_co: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def done(self) -> bool: ...
    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class OpenFuture(SendFuture[T], Protocol[T]):
    """A future that can be given its outcome."""

    def set_result(self, result: T) -> None: ...
    def set_exception(self, exception: BaseException | None) -> None: ...


class SyncServer(ServerFace):
    """A server that starts and closes by plain calls. `with` does both."""

    _kit: ClassVar[Kit]

    def __init__(self, plan: Callable[[], Sequence[Any]]) -> None:
        super().__init__(plan)
        self._drivers: list[Driver] = []

    def start(self) -> Self:
        """Open and serve; ends when clients can use it. Only once: raises StateError after that."""
        self._life.start()
        atexit.register(self.close)
        try:
            self.opened = self._kit.beside(self._plan)
            self._drivers = [
                self._kit.driver(one.node, one.listeners, None, None, one.notices, f"mqproto-{one.role.replace(' ', '-')}")
                for one in self.opened
            ]
            for driver in self._drivers:
                driver.start()
            for driver, opened in zip(self._drivers, self.opened, strict=True):
                if opened.ready is not None:
                    driver.wait(opened.ready)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Stop in order: connections end, the store is made durable. Twice, or before the start, is harmless."""
        if not self._life.close():
            return
        atexit.unregister(self.close)
        for driver in reversed(self._drivers):  # a broker unregisters at the name server, so that goes last
            driver.stop(timeout_ms / 1000)
        self._kit.beside(self._clean_up)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class SyncNameServer(NameServerFace, SyncServer):
    __doc__ = NameServerFace.__doc__


class SyncBroker(BrokerFace, SyncServer):
    __doc__ = BrokerFace.__doc__


class SyncStandalone(StandaloneFace, SyncServer):
    __doc__ = StandaloneFace.__doc__


class SyncClient:
    """What producers and consumers share: `with` starts and closes."""

    _kit: ClassVar[Kit]

    def start(self) -> Self:
        raise NotImplementedError

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class SyncProducer(ProducerFace, SyncClient):
    __doc__ = ProducerFace.__doc__

    _driver: Driver
    _callbacks: Pool

    def start(self) -> Self:
        """Begin; name servers and brokers are met with the first send. Only once: raises StateError after that."""
        self._life.start()
        self._callbacks = self._kit.pool(f"{self._name()}-callbacks", CALLBACKS_AT_A_TIME)
        self._driver = self._kit.driver(self._node, {}, None, self._node.cancel, self._node.notices, self._name())
        self._driver.start()
        atexit.register(self.close)
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Let sends in flight end, unregister, disconnect: within `timeout_ms`. Twice, or before the start, is harmless."""
        if self._life.close():
            atexit.unregister(self.close)
            deadline = time.monotonic() + timeout_ms / 1000
            self._driver.stop(self._close_within(timeout_ms))
            self._callbacks.close(max(0.0, deadline - time.monotonic()))

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

        To `queue`, or to the one that `selector(queues, message, argument)` chooses, in one attempt; else to queues in turn, with further
        attempts. `timeout_ms` (`send_msg_timeout` unless given) is the budget of all of it. Raises what `ProducerCore.send` raises:
        InvalidMessage, InvalidName, BrokerError, NoNameServer, NoRoute, CallExpired, SendFailed; StateError when it does not run.
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        return self._driver.wait(self._begin_send, message, queue, timeout_ms)

    def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> SendFuture[SendResult]:
        """Send as `send` does, without waiting for the broker: the outcome is in the future. (A selector is waited for.)

        Further attempts follow lost connections only, never an answer (client.md 3.5).
        """
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        future: OpenFuture[SendResult] = self._kit.future(self._callbacks)

        def settle(ticket: Ticket[SendResult]) -> None:
            try:
                result = self._driver.outcome(ticket)
            except Exception as failure:  # the future's holder is told
                future.set_exception(failure)
            else:
                future.set_result(result)

        submitted = Submitted(settle)
        self._driver.launch(submitted.wake, submitted.begin, self._begin_submit, (message, queue, timeout_ms))
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: object = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message that no broker answers; ends when it is on its way, in one attempt. Raises as `send`, but no BrokerError."""
        self._life.check()
        check_target(queue, selector)
        if selector is not None:
            queue, timeout_ms = self._select(message, selector, argument, timeout_ms)
        self._driver.wait(self._begin_oneway, message, queue, timeout_ms)

    def _select(self, message: Messages, selector: Selector, argument: object, timeout_ms: int | None) -> tuple[MessageQueue, int]:
        selection = Selection(self, message, selector, argument, timeout_ms)
        queues = self._driver.wait(self._begin_queues, selection.topic, selection.timeout_ms)
        return selection.choose(queues), selection.timeout_ms


class SyncPushConsumer(ConsumerFace, SyncClient):
    __doc__ = ConsumerFace.__doc__

    _driver: Driver
    _pool: Pool

    def start(self) -> Self:
        """Begin; ends when routes are known and queues are being shared out. Only once.

        Raises StateError after that, NoNameServer and other MQErrors when name servers cannot be reached; the consumer is closed then.
        """
        self._life.start()
        self._pool = self._kit.pool(f"{self._name()}-listener", self._core.settings.consume_thread_min)
        self._driver = self._kit.driver(self._node, {}, self._deliver, self._node.cancel, self._node.notices, self._name())
        atexit.register(self.close)
        try:
            self._driver.start()
            self._driver.wait(self._begin_start)
        except BaseException:
            self.close()
            raise
        return self

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result then does not count.
        """
        if self._life.close():
            atexit.unregister(self.close)
            deadline = time.monotonic() + timeout_ms / 1000
            self._driver.stop(self._close_within(timeout_ms))
            self._pool.close(max(0.0, deadline - time.monotonic()))

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Receive a topic, filtered by tags (`a || b`), or by properties with kind "SQL92". Before or after the start.

        Replaces what was said of the topic before. Raises InvalidName, InvalidExpressionError or StateError.
        """
        if self._life.running:
            self._driver.enter(self._subscribe, topic, expression, kind)
        else:
            self._subscribe(topic, expression, kind, self._before_start())

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic no longer. An unknown one is no error."""
        if self._life.running:
            self._driver.enter(self._unsubscribe, topic)
        else:
            self._unsubscribe(topic, self._before_start())

    def suspend(self) -> None:
        """Fetch no more messages; those that are here are still delivered."""
        self._life.check()
        self._driver.enter(self._core.suspend)

    def resume(self) -> None:
        """Fetch messages again."""
        self._life.check()
        self._driver.enter(self._core.resume)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        self._pool.submit(partial(self._consume, task))

    def _consume(self, task: ConsumeTask) -> None:
        result: object
        with self._listening():
            try:
                result = self._listener(*self._arguments(task))
            except BaseException as error:  # whatever it is, it is the listener's answer (CON-01)
                self._failed(error)
                result = error
        with suppress(StateError):  # closed meanwhile: the messages come again
            self._driver.enter(self._node.consumed, task, result)
