"""Servers that go away, come back, or break every connection, under clients on every runtime."""

from __future__ import annotations

import gc
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto import Message, SendStatus
from mqproto.errors import MQError, SendFailed
from tests.adapters.conftest import World, register
from tests.adapters.harness import PATIENCE, Anyio, Collector, into, port_of


@contextmanager
def resetting() -> Iterator[str]:
    """The address of something that takes connections, reads a little and resets them."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                link, _ = server.accept()
                with link:
                    if link.recv(65_536) == b"enough":
                        return
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            with socket.create_connection(server.getsockname()) as link:
                link.sendall(b"enough")
                thread.join(PATIENCE)


def all_at_once(world: World, producer: Any, message: Message, count: int) -> list[object]:
    """What became of so many sends, none of which waits for another."""
    outcomes: SimpleQueue[object] = SimpleQueue()
    if not isinstance(world.runtime, Anyio):

        def submit_all() -> None:
            for _ in range(count):
                producer._target.submit(message, timeout_ms=60_000).add_done_callback(
                    lambda future: outcomes.put(future.exception() or future.result())
                )

        world.runtime.call(submit_all)
    else:
        import anyio

        async def send() -> None:
            try:
                outcomes.put(await producer._target.send(message, timeout_ms=60_000))
            except MQError as failure:
                outcomes.put(failure)

        async def send_all() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(send)

        world.runtime.call(send_all)
    found = [outcomes.get(timeout=PATIENCE) for _ in range(count)]
    assert outcomes.empty(), "an outcome was told twice"
    return found


def test_a_broker_that_resets_every_connection(world: World) -> None:
    """COD-11: each of 1,000 sends ends once and with an error, all room of the window is free again, and a healthy
    broker is sent to.
    """
    producer = world.producer(send_window_messages=100)
    with resetting() as broken, register(world.namesrv, broken):
        outcomes = all_at_once(world, producer, Message("topic", b"x"), 1000)
    assert Counter(type(outcome) for outcome in outcomes) == {SendFailed: 1000}
    window = producer._core.window
    assert (window.messages, window.size, window.waiting) == (0, 0, 0)
    assert producer._node.application_tickets() == []
    assert producer.send(Message(world.topic, b"1,001st")).status is SendStatus.SEND_OK


def test_clients_outlive_a_restart_of_the_servers(world: World, tmp_path: Path) -> None:
    """PRO-05: errors while nothing is there, then the same objects go on."""
    make = world.runtime.module.Standalone
    server = world.start(make, store=tmp_path)
    world.namesrv = server.namesrv_address
    ports = {"namesrv_port": port_of(server.namesrv_address), "port": port_of(server.broker_address)}
    producer = world.producer(poll_name_server_interval=200, retry_times_when_send_failed=0)
    producer.send(Message(world.topic, b"before"))
    collector = Collector()
    world.consumer(into(collector), pull_time_delay_millis_when_exception=50)
    collector.wait(1)
    server.close()
    with pytest.raises(MQError):
        producer.send(Message(world.topic, b"nobody there"), timeout_ms=200)
    server = world.start(make, store=tmp_path, **ports)
    sent = None
    while sent is None:  # the whole test has a time-out
        with suppress(MQError):
            sent = producer.send(Message(world.topic, b"after"), timeout_ms=1000)
    collector.wait_for_bodies({b"after"})


class Senders:
    """Threads that share a producer and send until they are stopped; each of them counts what it sees."""

    def __init__(self, producer: Any, topic: str, count: int) -> None:
        self._send: Callable[[], Any] = lambda: producer.send(Message(topic, b"x"), timeout_ms=500)
        self._changed = threading.Condition()
        self._stop = False
        self.sent: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        while not self._stop:
            count = self.sent
            try:
                self._send()
            except MQError:
                count = self.failed
            with self._changed:
                count[number] += 1
                self._changed.notify_all()

    def all_have(self, which: Callable[[], Counter[int]], more: int = 1) -> None:
        """Wait until each thread has seen one more of these."""
        with self._changed:
            goal = {number: which()[number] + more for number in range(len(self._threads))}
            assert self._changed.wait_for(lambda: all(which()[number] >= goal[number] for number in goal), PATIENCE)

    def stop(self) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)


def test_twenty_threads_outlive_a_restart_of_the_servers(world: World, tmp_path: Path) -> None:
    """PRO-05: no thread dies, and none needs another producer."""
    make = world.runtime.module.Standalone
    server = world.start(make, store=tmp_path)
    world.namesrv = server.namesrv_address
    ports = {"namesrv_port": port_of(server.namesrv_address), "port": port_of(server.broker_address)}
    senders = Senders(world.producer(poll_name_server_interval=200), world.topic, 20)
    try:
        senders.all_have(lambda: senders.sent)
        server.close()
        senders.all_have(lambda: senders.failed)
        world.start(make, store=tmp_path, **ports)
        senders.all_have(lambda: senders.sent, 3)
    finally:
        senders.stop()


def test_sends_leave_nothing_behind(world: World) -> None:
    """PRO-07: sends that succeed, fail and are awaited together, and the number of objects stays as it was."""
    producer = world.producer()

    def play(rounds: int) -> None:
        for _ in range(rounds):
            producer.send(Message(world.topic, b"x"))
            producer.send_oneway(Message(world.topic, b"x"))
            with suppress(MQError):
                producer.send(Message(world.topic, b""))
            all_at_once(world, producer, Message(world.topic, b"x"), 10)

    play(10)
    gc.collect()
    before = len(gc.get_objects())
    play(50)
    gc.collect()
    assert len(gc.get_objects()) - before < 300, "50 rounds of 13 sends"
