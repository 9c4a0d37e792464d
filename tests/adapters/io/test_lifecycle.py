"""Begin and end of clients: every kind on every runtime, and nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from mqproto import Message
from mqproto.adapters.threaded import Producer, Standalone
from mqproto.errors import NoNameServer, StateError
from tests.adapters.conftest import World, runtime_without_threads_left
from tests.adapters.harness import PATIENCE, Anyio, Proxy, Runtime, open_runtime
from tests.adapters.kinds import ASKING, KINDS, descriptors, make, nothing_left, use, use_in_task

#: Nobody listens here.
NOWHERE = "127.0.0.1:1"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tidy_world(runtime: Runtime) -> Iterator[World]:
    """A world of which nothing may be left."""
    with open_tidy_world(runtime) as world:
        yield world


@contextmanager
def open_tidy_world(runtime: Runtime) -> Iterator[World]:
    with nothing_left(runtime), ExitStack() as stack:
        world = World(runtime, stack)
        producer = world.producer()
        producer.send(Message(world.topic, b"makes the topic"))
        producer.close()
        yield world


def run_within(runtime: Runtime, client: Proxy, body: Callable[[], Any]) -> None:
    """`with client: body()`, in the way of the runtime."""
    target = client._target

    def plain() -> None:
        with target:
            body()

    async def task() -> None:
        async with target:
            body()

    runtime.call(task if isinstance(runtime, Anyio) else plain)


def forgotten(client: Proxy) -> bool:
    """Whether nobody but the caller knew the client."""
    client._runtime.call(lambda: None)  # whoever runs calls may remember the last one
    reference = weakref.ref(client._target)
    del client._target
    gc.collect()
    return reference() is None


def at_once(count: int, function: Callable[[], Any]) -> list[BaseException | None]:
    """Call it from several threads at once, which on other runtimes means from several greenlets or tasks; how each
    ended.
    """
    outcomes: list[BaseException | None] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:
            outcomes.append(error)
        else:
            outcomes.append(None)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    return outcomes


def test_from_begin_to_end(tidy_world: World, kind: str) -> None:
    """CON-14: what is out of turn has a clear answer, and a closed client is forgotten."""
    world = tidy_world
    client = make(world.runtime, kind, "g", world.namesrv, world.topic)
    with pytest.raises(StateError, match="not started"):
        use(client, kind, world.topic)
    client.start()
    with pytest.raises(StateError, match="started already"):
        client.start()
    use(client, kind, world.topic)
    client.close()
    client.close()
    with pytest.raises(StateError, match="make a new one"):
        client.start()
    with pytest.raises(StateError, match="closed"):
        use(client, kind, world.topic)
    assert forgotten(client)


def test_closed_before_the_start(runtime: Runtime, kind: str) -> None:
    with nothing_left(runtime):
        client = make(runtime, kind, "g", NOWHERE)
        client.close()
        client.close()
        with pytest.raises(StateError, match="make a new one"):
            client.start()
        assert forgotten(client)


def test_dropped_before_the_start(runtime: Runtime, kind: str) -> None:
    with nothing_left(runtime):
        assert forgotten(make(runtime, kind, "g", NOWHERE))


def test_no_name_server(runtime: Runtime, kind: str) -> None:
    """Whoever needs one to start fails, the others start; neither leaves anything."""
    with nothing_left(runtime):
        client = make(runtime, kind, "g", NOWHERE)
        if kind in ASKING:
            with pytest.raises(NoNameServer):
                client.start()
            with pytest.raises(StateError, match="make a new one"):
                client.start()
        else:
            client.start()
        client.close()
        assert forgotten(client)


def test_an_exception_on_the_way(tidy_world: World, kind: str) -> None:
    world = tidy_world
    client = make(world.runtime, kind, "g", world.namesrv, world.topic)

    def fail() -> None:
        raise LookupError("the application's")

    with pytest.raises(LookupError, match="the application's"):
        run_within(world.runtime, client, fail)
    with pytest.raises(StateError, match="closed"):
        use(client, kind, world.topic)


def test_closed_by_several_at_once(tidy_world: World, kind: str) -> None:
    world = tidy_world
    client = make(world.runtime, kind, "g", world.namesrv, world.topic)
    client.start()
    assert at_once(8, client.close) == [None] * 8
    assert forgotten(client)


def test_started_by_several_at_once(tidy_world: World, kind: str) -> None:
    world = tidy_world
    client = make(world.runtime, kind, "g", world.namesrv, world.topic)
    outcomes = at_once(8, client.start)
    assert outcomes.count(None) == 1
    assert all(isinstance(outcome, StateError) for outcome in outcomes if outcome is not None)
    use(client, kind, world.topic)
    client.close()


@pytest.mark.parametrize("asking", ASKING)
def test_closed_while_it_starts(runtime: Runtime, asking: str, silent: str) -> None:
    """Whoever starts it is told that it is closed."""
    with nothing_left(runtime):
        client = make(runtime, asking, "g", silent)
        outcomes: list[BaseException | None] = []
        starting = threading.Thread(target=lambda: outcomes.extend(at_once(1, client.start)))
        starting.start()
        while client._target._instance is None or not client._target._instance.started:
            assert starting.is_alive()
        client.close(200)
        starting.join(PATIENCE)
        assert [type(outcome) for outcome in outcomes] == [StateError]


def test_closed_before_its_instance_has_begun(runtime: Runtime, kind: str) -> None:
    """Somebody closes it when `start` has come half of its way: whoever starts it is told, and ends what has begun."""
    with nothing_left(runtime):
        client = make(runtime, kind, "g", NOWHERE)
        target = client._target
        if isinstance(runtime, Anyio):
            outcomes = runtime.call(_start_and_close, target)
            # none where trio let it come to its end first
            assert {type(outcome) for outcome in outcomes} <= {StateError}
        else:
            prepare = target._prepare

            def close_then_prepare() -> None:
                target.close()
                prepare()

            target._prepare = close_then_prepare
            with pytest.raises(StateError, match="closed"):
                client.start()


async def _start_and_close(target: Any) -> list[BaseException | None]:
    import anyio

    outcomes: list[BaseException | None] = []

    async def start() -> None:
        try:
            await target.start()
        except Exception as error:
            outcomes.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        while not target._lifecycle.running:
            await anyio.lowlevel.checkpoint()
        await target.close()
    return outcomes


POINTS = ("_prepare", "join", "start", "wait", "stop")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ["threaded", "gevent"])
def test_interrupted_on_its_way(name: str, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt (Ctrl-C, a killed greenlet) at the places where a client starts and ends: what has begun by then
    ends.
    """
    with runtime_without_threads_left(name) as runtime, open_tidy_world(runtime) as world:
        instances = runtime.module.PushConsumer._runtime.instances
        client = make(runtime, "PushConsumer", "g", world.namesrv, world.topic)
        if point == "stop":
            client.start()
        with monkeypatch.context() as patch:
            owner: Any = {"_prepare": type(client._target), "join": instances}.get(point, runtime.module.Driver)
            patch.setattr(owner, point, interrupted_after(getattr(owner, point)))
            with pytest.raises(KeyboardInterrupt):
                (client.close if point == "stop" else client.start)()
        with pytest.raises(StateError, match="closed"):
            use(client, "PushConsumer", world.topic)


def interrupted_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, interrupted when it has done its work."""

    def interrupted(*arguments: Any) -> Any:
        function(*arguments)
        raise KeyboardInterrupt

    return interrupted


@pytest.mark.parametrize("cancel", ["scope", "task"])
@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_cancelled_anywhere(name: str, cancel: str, kind: str) -> None:
    """A task that starts a client, uses it and closes it is cancelled after so many steps: nothing is left of it,
    whatever it was at.
    """
    if (name, cancel) == ("trio", "task"):
        pytest.skip("tasks are cancelled by scopes there")
    with runtime_without_threads_left(name) as runtime, open_tidy_world(runtime) as world:
        for steps in STEPS:
            client = make(runtime, kind, "g", world.namesrv, world.topic)
            runtime.call(_cancelled_after, steps, cancel, _whole_life, client._target, kind, world.topic)
            assert client._target._lifecycle.closed, f"after {steps} steps"


#: After how many steps of the event loop a task is cancelled.
STEPS = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 30, 60)


async def _whole_life(target: Any, kind: str, topic: str) -> None:
    async with target:
        for _ in range(3):
            await use_in_task(target, kind, topic)


async def _cancelled_after(steps: int, cancel: str, function: Callable[..., Any], *arguments: Any) -> None:
    import anyio

    if cancel == "task":
        task = asyncio.create_task(function(*arguments))
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return
    async with anyio.create_task_group() as group:
        group.start_soon(function, *arguments)
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


def test_an_event_loop_that_ends_before_its_clients(kind: str) -> None:
    """The loop is closed, not only left: the next client, or a close, finds out and gives back what the dead one
    had.
    """
    with Standalone() as server, Producer("p", server.namesrv_address) as producer:
        producer.send(Message("topic", b"makes the topic"))
        before = descriptors()
        loop = asyncio.new_event_loop()
        left = make(Loop(loop), kind, "g", server.namesrv_address)
        left.start()
        loop.close()
        if kind not in ("PushConsumer", "Consumer"):  # they have nothing to wait for
            with pytest.raises(StateError, match="another event loop"):
                asyncio.run(use_in_task(left._target, kind, "topic"))
        asyncio.run(left._target.close())
        loop = asyncio.new_event_loop()
        second = make(Loop(loop), kind, "g", server.namesrv_address)
        second.start()
        loop.close()
        asyncio.run(_whole_life(make(Loop(loop), kind, "g", server.namesrv_address)._target, kind, "topic"))
        for client in (left, second):
            assert client._target._driver.is_over()
        assert descriptors().count("anon_inode") == before.count("anon_inode"), "a poller is left"


def test_two_event_loops_in_two_threads(kind: str) -> None:
    """Each has clients of its own, also under one name; the wrong loop is told, and can neither use nor close what is
    not its own.
    """
    with Standalone() as server, Producer("p", server.namesrv_address) as producer, ExitStack() as stack:
        producer.send(Message("topic", b"makes the topic"))
        clients = []
        for _ in range(2):
            runtime = stack.enter_context(open_runtime("asyncio"))
            clients.append(make(runtime, kind, "g", server.namesrv_address, instance_name="one"))
            clients[-1].start()
        here, there = clients
        assert here._node is not there._node
        for client in clients:
            use(client, kind, "topic")
        with pytest.raises(StateError, match="another event loop"):
            here._runtime.call(there._target.close)
        use(there, kind, "topic")
        here.close()
        use(there, kind, "topic")
        there.close()


class Loop:
    """An event loop that runs while something is called in it."""

    name = "asyncio"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:

        self._loop = loop
        import mqproto.adapters.anyio

        self.module = mqproto.adapters.anyio

    def call(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        if self._loop.is_closed():
            return function(*arguments, **settings)

        async def run() -> Any:
            result = function(*arguments, **settings)
            return await result if inspect.isawaitable(result) else result

        return self._loop.run_until_complete(run())
