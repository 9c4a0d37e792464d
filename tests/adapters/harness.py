"""One way for tests to use every runtime: plain synchronous code that calls into the runtime and waits for the
outcome.
"""

from __future__ import annotations

import inspect
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

from mqproto import ConsumeStatus, MessageExt
from mqproto.adapters.io.pollers import SelectorPoller
from mqproto.message import ConsumeContext

NAMES = ("threaded", "gevent", "asyncio", "trio")
#: The same as systems without epoll have it: the driver waits in select().
PORTABLE = ("threaded/select", "gevent/selectors", "asyncio/select", "trio/select")
PATIENCE = 60.0  # what a test waits for comes long before; this only ends a test that has failed


class Runtime(Protocol):
    """`call` runs a function (or awaits a coroutine function) inside the runtime.

    `module` is the package under test.
    """

    @property
    def name(self) -> str: ...
    @property
    def module(self) -> Any: ...

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any: ...


class Proxy:
    """An object of the runtime: methods run inside it, attributes are read as they are."""

    def __init__(self, runtime: Runtime, target: Any) -> None:
        self._runtime = runtime
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return value
        return lambda *arguments, **settings: self._runtime.call(value, *arguments, **settings)


class Threaded:
    name = "threaded"

    def __init__(self) -> None:
        import mqproto.adapters.threaded

        self.module = mqproto.adapters.threaded

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        return function(*arguments, **settings)


class Gevent:
    """A thread with a hub of its own, so that the test may use blocking sockets beside it."""

    name = "gevent"

    def __init__(self) -> None:
        import mqproto.adapters.gevent

        self.module = mqproto.adapters.gevent
        self._requests: deque[tuple[Future[Any], Callable[[], Any]] | None] = deque()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="test-gevent", daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE)

    def _run(self, ready: threading.Event) -> None:
        import gevent
        import gevent.event

        asked = gevent.event.Event()
        self._asked = gevent.get_hub().loop.async_()
        self._asked.start(asked.set)
        ready.set()
        while True:
            asked.wait()
            asked.clear()
            while self._requests:
                request = self._requests.popleft()
                if request is None:
                    self._asked.close()
                    gevent.get_hub().destroy(destroy_loop=True)
                    return
                gevent.spawn(self._answer, *request)

    def _answer(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            future.set_result(work())
        except BaseException as failure:
            future.set_exception(failure)

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        future: Future[Any] = Future()
        self._requests.append((future, lambda: function(*arguments, **settings)))
        self._asked.send()
        return future.result(PATIENCE)

    def close(self) -> None:
        self._requests.append(None)
        self._asked.send()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Anyio:
    def __init__(self, name: str, portal: Any) -> None:

        self.name = name
        import mqproto.adapters.anyio

        self.module = mqproto.adapters.anyio
        self._portal = portal

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        async def run() -> Any:
            result = function(*arguments, **settings)
            return await result if inspect.isawaitable(result) else result

        return self._portal.call(run)


class Portable:
    """A runtime whose drivers do not wait in epoll."""

    def __init__(self, runtime: Runtime, make_selector: Callable[[], selectors.BaseSelector]) -> None:
        self.name = runtime.name
        self.call = runtime.call
        real = runtime.module.Driver
        self.module = SimpleNamespace(
            Driver=lambda *arguments, **settings: real(*arguments, poller=SelectorPoller(make_selector()), **settings)
        )


@contextmanager
def open_runtime(name: str) -> Iterator[Runtime]:
    """A runtime by its name; everything that it started must be closed before its end."""
    name, _, poller = name.partition("/")
    with open_plain(name) as runtime:
        if poller == "selectors":
            import gevent.selectors

            yield Portable(runtime, gevent.selectors.DefaultSelector)
        elif poller:
            yield Portable(runtime, selectors.SelectSelector)
        else:
            yield runtime


@contextmanager
def open_plain(name: str) -> Iterator[Runtime]:
    if name == "threaded":
        yield Threaded()
    elif name == "gevent":
        runtime = Gevent()
        try:
            yield runtime
        finally:
            runtime.close()
    else:
        from anyio.from_thread import start_blocking_portal

        with start_blocking_portal(name) as portal:
            yield Anyio(name, portal)


def wait_until(condition: Callable[[], bool], changed: threading.Condition) -> None:
    """Wait for something that another thread announces by `changed`."""
    with changed:
        assert changed.wait_for(condition, PATIENCE)


class Collector:
    """What listeners received, in a form that tests can wait for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.messages: list[MessageExt] = []

    def take(self, messages: Sequence[MessageExt]) -> None:
        with self.changed:
            self.messages += messages
            self.changed.notify_all()

    def bodies(self) -> list[bytes]:
        with self.changed:
            return [message.body for message in self.messages]

    def wait(self, count: int) -> list[MessageExt]:
        """The messages, once there are so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.messages) >= count, PATIENCE), (
                f"{len(self.messages)} of {count} messages came"
            )
            return list(self.messages)

    def wait_for_bodies(self, wanted: set[bytes]) -> None:
        """Until a message with each of these bodies has come; some may come twice."""
        with self.changed:
            came = self.changed.wait_for(lambda: wanted <= {message.body for message in self.messages}, PATIENCE)
            assert came, f"never came: {wanted - {message.body for message in self.messages}}"


def as_listener(runtime: Runtime, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in the form that the runtime prefers: a coroutine function for tasks."""
    if not isinstance(runtime, Anyio):
        return function

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> Any:
        return function(messages, context)

    return listener


def as_coroutine(runtime: Runtime, function: Callable[..., Any]) -> Callable[..., Any]:
    """Any function in the form that the runtime prefers: a coroutine function for tasks."""
    if not isinstance(runtime, Anyio):
        return function

    async def coroutine(*arguments: Any) -> Any:
        return function(*arguments)

    return coroutine


def holder(runtime: Runtime, event: threading.Event) -> Callable[[], None]:
    """A function for a plain listener: waits for an event of the test in the way of the runtime."""
    if runtime.name != "gevent":
        return lambda: check(event.wait(PATIENCE))

    def hold() -> None:
        import gevent

        while not event.is_set():
            gevent.sleep(0.001)

    return hold


def threads_of_ours() -> set[threading.Thread]:
    """Those that run now. What ran before a test is the fault of another one."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("mqproto")}


def check(truth: bool) -> None:
    assert truth


def into(collector: Collector) -> Callable[..., ConsumeStatus]:
    """A listener whose messages all succeed."""

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        collector.take(messages)
        return ConsumeStatus.SUCCESS

    return listener


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
