"""Sends of producers besides single ones, on every runtime: windows, flush, lists, several brokers, compression."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import (
    Message,
    SendMessageHook,
    SendStatus,
    select_by_hash,
    split_batch,
)
from mqproto.errors import BatchIncomplete, CompressionMissing, InvalidMessage, StateError, TooManyRequests
from tests.adapters.base.hooks.test_send_hooks import ForbiddenError, Refusing, Watching
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Proxy, Runtime


class Beside:
    """Sends that run beside the test: in tasks, greenlets or threads, whatever the runtime has."""

    def __init__(self, runtime: Runtime, producer: Any) -> None:
        self._runtime = runtime
        self._producer = producer
        self._threads: list[threading.Thread] = []
        self.outcomes: SimpleQueue[object] = SimpleQueue()

    def send(self, *arguments: Any, **settings: Any) -> None:
        def run() -> None:
            try:
                self.outcomes.put(self._producer.send(*arguments, **settings))
            except BaseException as error:
                self.outcomes.put(error)

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def join(self) -> list[object]:
        for thread in self._threads:
            thread.join(PATIENCE)
        return [self.outcomes.get(timeout=PATIENCE) for _ in self._threads]


def window(producer: Any) -> tuple[int, int, int]:
    """Messages and bytes in flight, and how many sends wait for room."""
    seen = producer._core.window
    return seen.messages, seen.size, seen.waiting


@pytest.fixture
def mute(runtime: Runtime, mute_cluster: str) -> Iterator[Callable[..., Any]]:
    """Starts producers whose broker never answers."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Any:
            producer = Proxy(runtime, runtime.call(runtime.module.Producer, "mute", mute_cluster, **settings))
            stack.callback(lambda: producer.close(10))
            producer.start()
            return producer

        yield start


# --- window, flush


def test_more_senders_than_room(world: World) -> None:
    producer = world.producer(send_window_messages=2, send_window_bytes=1000)
    beside = Beside(world.runtime, producer)
    for number in range(30):
        beside.send(Message(world.topic, b"%d" % number * 200), timeout_ms=30_000)
    assert {getattr(outcome, "status", outcome) for outcome in beside.join()} == {SendStatus.SEND_OK}
    assert window(producer) == (0, 0, 0)


def test_a_send_without_room_fails_unsent_when_its_budget_is_used_up(
    runtime: Runtime, mute: Callable[..., Any]
) -> None:
    producer = mute(send_window_messages=1)
    beside = Beside(runtime, producer)
    beside.send(Message("topic", b"in flight"), timeout_ms=60_000)
    wait_for(lambda: window(producer)[0] == 1)
    with pytest.raises(TooManyRequests, match=r"no room within \d+ ms: 1 messages"):
        producer.send(Message("topic", b"x"), timeout_ms=20)
    with pytest.raises(TooManyRequests):
        producer.send_oneway(Message("topic", b"x"), timeout_ms=20)
    producer.close(10)
    (outcome,) = beside.join()
    assert isinstance(outcome, StateError)
    assert window(producer) == (0, 0, 0)


def test_submit_holds_its_caller_up_until_there_is_room(runtime: Runtime, mute: Callable[..., Any]) -> None:
    if isinstance(runtime, Anyio):
        pytest.skip("`send` is awaited there")
    producer = mute(send_window_messages=2)
    futures = [producer.submit(Message("topic", b"x"), timeout_ms=60_000) for _ in range(2)]
    late = producer.submit(Message("topic", b"late"), timeout_ms=20)
    assert late.done(), "it came back when the send had room, or was over"
    assert isinstance(runtime.call(late.exception, 0), TooManyRequests)
    assert not any(future.done() for future in futures)
    producer.close(10)
    for future in futures:
        with pytest.raises(StateError):
            runtime.call(future.result, PATIENCE)


def test_an_interrupted_submit_is_given_up(
    runtime: Runtime, mute: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for room has no future, so nothing may go on in its name."""
    if isinstance(runtime, Anyio):
        pytest.skip("`send` is awaited there")
    producer = mute(send_window_messages=1)
    watching = Watching()
    producer.register_send_message_hook(watching)
    producer.submit(Message("topic", b"in flight"), timeout_ms=60_000)
    watching.seen.get()

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(producer._driver, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.submit(Message("topic", b"x"), timeout_ms=60_000)
    assert window(producer) == (1, len(b"in flight"), 0)
    assert isinstance(watching.both().error, KeyboardInterrupt)


@pytest.mark.parametrize("window", [3, 150, 10_000])
def test_a_fast_loop_of_submits(world: World, window: int) -> None:
    if isinstance(world.runtime, Anyio):
        pytest.skip("`send` is awaited there")
    producer = world.producer(send_window_messages=window)
    most = 0
    futures = []
    for number in range(400):
        futures.append(producer.submit(Message(world.topic, b"%d" % number), timeout_ms=30_000))
        most = max(most, producer._core.window.waiting)
    assert most <= 1, "only the caller itself waits"
    assert producer.flush() is True
    assert all(future.done() for future in futures)
    assert len({world.runtime.call(future.result, PATIENCE).msg_id for future in futures}) == 400


def test_flush(world: World) -> None:
    producer = world.producer()
    assert producer.flush() is True
    producer.send_oneway(Message(world.topic, b"x"))
    assert producer.flush(timeout_ms=10_000) is True
    producer.close()
    with pytest.raises(StateError):
        producer.flush()


def test_a_flush_ends_with_its_time(runtime: Runtime, mute: Callable[..., Any]) -> None:
    producer = mute()
    beside = Beside(runtime, producer)
    beside.send(Message("topic", b"in flight"), timeout_ms=60_000)
    wait_for(lambda: window(producer)[0] == 1)
    assert producer.flush(timeout_ms=20) is False
    producer.close(10)
    beside.join()


@pytest.mark.parametrize("shared", [False, True])
def test_closing_lets_sends_end_that_wait_for_room(world: World, shared: bool) -> None:
    """Also where others go on with the client instance that it shared."""
    if isinstance(world.runtime, Anyio):
        pytest.skip("whoever closes there has awaited its sends")
    other = world.producer("other", instance_name="one")
    producer = world.producer(send_window_messages=1, instance_name="one" if shared else "")
    assert (other._node is producer._node) is shared
    producer.send(Message(world.topic, b"makes the topic"))
    futures: list[Any] = []

    def submit_all() -> None:
        futures.extend(producer._target.submit(Message(world.topic, b"%d" % number)) for number in range(20))

    world.runtime.call(submit_all)
    producer.close()
    assert [world.runtime.call(future.result, 0).status for future in futures] == [SendStatus.SEND_OK] * 20
    with pytest.raises(StateError):
        producer.send(Message(world.topic, b"late"))
    assert other.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK


def test_a_cancelled_send_leaves_no_trace(runtime: Runtime, mute: Callable[..., Any]) -> None:
    """Neither the one that waits for the broker, nor the one that waits for room behind it."""
    if not isinstance(runtime, Anyio):
        pytest.skip("nothing is cancelled there")
    import anyio

    producer = mute(send_window_messages=1)
    node = producer._node

    async def cancel_two() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(producer._target.send, Message("topic", b"x"))
            while window(producer)[2] != 1 or not node.calls.earliest():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    runtime.call(cancel_two)
    assert window(producer) == (0, 0, 0)
    assert not node.application_tickets()
    assert all(not any(task.of_application for task in link.calls.values()) for link in node.links.values())


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until another thread has brought something about that announces nothing."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end


# --- several brokers


@pytest.mark.parametrize("avoids", [False, True])
def test_a_broker_that_dies(world: World, avoids: bool) -> None:
    """Every send finds the other one; with fault tolerance only the first has to find out."""
    other = world.start(world.runtime.module.Broker, world.namesrv, settings={"brokerName": "other"})
    admin = world.start(world.runtime.module.Admin, world.namesrv)
    world.runtime.call(admin._target.topics.create, world.topic, cluster="DefaultCluster")
    tries = Tries()
    # A busy machine is as slow as a bad broker: only a failure keeps one off.
    only_failures: dict[str, Any] = {"latency_max": (20_000,), "not_available_duration": (600_000,)}
    producer = world.producer(send_latency_fault_enable=avoids, poll_name_server_interval=86_400_000, **only_failures)
    first = {producer.send(Message(world.topic, b"x")).queue.broker_name for _ in range(16)}
    assert len(first) == 2
    assert "other" in first
    other.close()
    routes = producer._core.routes
    measure = routes.measure

    def measured(broker_name: str, cost_ms: int, now: int, failed: bool) -> None:
        tries.add(broker_name, failed)
        measure(broker_name, cost_ms, now, failed)

    routes.measure = measured
    for _ in range(24):
        assert producer.send(Message(world.topic, b"x"), timeout_ms=30_000).queue.broker_name != "other"
    assert tries.failed["other"] == 1 if avoids else tries.failed["other"] > 1
    assert set(tries.failed) == {"other"}


class Tries:
    """Failed attempts by broker."""

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()

    def add(self, broker_name: str, failed: bool) -> None:
        self.failed[broker_name] += failed
        self.failed += Counter()


# --- lists


def test_a_long_list_goes_out_as_several_requests(world: World) -> None:
    producer = world.producer()
    messages = [Message(world.topic, b"%03d" % number * 100) for number in range(40)]
    results = producer.send_in_batches(messages, max_bytes=4000)
    assert len(results) == len(split_batch(messages, max_bytes=4000)) > 3
    assert sum(len(result.msg_id.split(",")) for result in results) == 40
    collector = world.collect()
    collector.wait(40)
    assert sorted(collector.bodies()) == [message.body for message in messages]
    keyed = producer.send_in_batches(messages, max_bytes=4000, selector=select_by_hash, argument="k")
    assert len({result.queue for result in keyed}) == 1
    assert producer.send_in_batches([]) == []


def test_a_list_that_stops_in_the_middle(world: World) -> None:
    producer = world.producer()
    messages = [Message(world.topic, b"%03d" % number * 100) for number in range(40)]
    hook = Refusing(after=2)
    producer.register_check_forbidden_hook(hook)
    with pytest.raises(BatchIncomplete, match="request 3 of a list of messages failed, ") as caught:
        producer.send_in_batches(messages, max_bytes=4000)
    assert len(caught.value.results) == 2
    gone = sum(len(result.msg_id.split(",")) for result in caught.value.results)
    assert caught.value.left == tuple(messages[gone:])
    assert isinstance(caught.value.cause, ForbiddenError)
    assert isinstance(caught.value.__cause__, ForbiddenError)
    with pytest.raises(InvalidMessage, match="message 0 of the list takes"):
        producer.send_in_batches([Message(world.topic, b"x" * 5000)], max_bytes=4000)


def test_a_batch_in_a_future(world: World) -> None:
    if isinstance(world.runtime, Anyio):
        pytest.skip("`send` is awaited there")
    producer = world.producer()
    parts = split_batch([Message(world.topic, b"x" * 300) for _ in range(20)], max_bytes=2000)
    futures = [producer.submit(part) for part in parts]
    ids = [world.runtime.call(future.result, PATIENCE).msg_id.split(",") for future in futures]
    assert [len(one) for one in ids] == [len(part) for part in parts]


# --- queues


def test_queues_by_hash_and_by_chance(world: World) -> None:
    producer = world.producer()
    message = Message(world.topic, b"x")
    assert len({producer.send(message, selector=select_by_hash, argument=f"{n // 20}").queue for n in range(20)}) == 1
    by_chance = world.runtime.module.select_by_random
    assert len({producer.send(message, selector=by_chance).queue for _ in range(200)}) == 4


@pytest.mark.parametrize("hooked", [False, True])
def test_what_is_no_message(world: World, hooked: bool) -> None:
    """A clear error and nothing else, whoever looks at it first."""
    producer = world.producer()
    if hooked:
        producer.register_send_message_hook(SendMessageHook())
    spoiled = Message(world.topic, b"x")
    spoiled.properties = None  # type: ignore[assignment]
    for what in (None, 7, "text", b"bytes", {"topic": "T"}, [7], [[]], object(), spoiled, [spoiled]):
        with pytest.raises(InvalidMessage):
            producer.send(what)
        with pytest.raises(InvalidMessage):
            producer.send(what, selector=select_by_hash, argument=1)
        with pytest.raises(InvalidMessage):
            producer.send_oneway(what)
        with pytest.raises(InvalidMessage):
            producer.request(what)
        if not isinstance(world.runtime, Anyio):
            assert isinstance(world.runtime.call(producer.submit(what).exception, PATIENCE), InvalidMessage)
    assert window(producer) == (0, 0, 0)


# --- ways of packing


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD"])
def test_bodies_packed_in_newer_ways(world: World, kind: str) -> None:
    producer = world.producer(compress_type=kind)
    body = b"0123456789" * 1000
    producer.send(Message(world.topic, body))
    (message,) = world.collect().wait(1)
    assert message.body == body
    assert message.store_size < 1000


def test_a_way_of_packing_whose_package_is_missing(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(CompressionMissing, match=r"mqproto\[compression\]"):
        runtime.call(runtime.module.Producer, "g", "127.0.0.1:1", compress_type="LZ4")


class Log(logging.Handler):
    """What was logged, for a test to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(record.getMessage())

    def wait_for(self, words: str) -> None:
        while words not in self.lines.get(timeout=PATIENCE):
            pass


def test_a_body_whose_package_is_missing_where_it_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as failed and comes again, so that it is not lost on the way to a consumer that can read it; the log
    says what to do.
    """
    world.producer(compress_type="LZ4").send(Message(world.topic, b"0123456789" * 1000))
    log = Log()
    logger = logging.getLogger("mqproto")
    logger.addHandler(log)
    try:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "lz4.frame", None)
            collector = world.collect()
            log.wait_for("cannot be read: the body is compressed with LZ4: install mqproto[compression]")
        assert collector.wait(1)[0].reconsume_times > 0
    finally:
        logger.removeHandler(log)
