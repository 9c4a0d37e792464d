"""Every test that asks for `runtime` runs once for each runtime."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message
from mqproto.codec import FrameSplitter, decode, encode_request
from mqproto.errors import RequestTimeout, SendFailed
from mqproto.wire.bodies import ConsumeFromWhere, DataVersion, RegisterBrokerBody, TopicConfig, TopicTable
from mqproto.wire.codes import RequestCode
from mqproto.wire.hosts import split_address
from tests.adapters.harness import (
    NAMES,
    PATIENCE,
    Collector,
    Proxy,
    Runtime,
    as_listener,
    open_runtime,
    threads_of_ours,
)

#: Failed messages come again soon, so that no test has to wait for long.
QUICK_RETRIES = {"messageDelayLevel": "1s 1s 1s 1s 1s 1s"}

_numbers = itertools.count(1)


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_without_threads_left(request.param) as opened:
        yield opened


@contextmanager
def runtime_without_threads_left(name: str) -> Iterator[Runtime]:
    """A runtime that fails the test when threads of ours outlive it."""
    before = threads_of_ours()
    with open_runtime(name) as opened:
        yield opened
    left = [thread.name for thread in threads_of_ours() - before]
    assert not left, f"threads left behind: {left}"


class World:
    """A standalone server and clients of it, all in one runtime. Everything closes with the test."""

    def __init__(self, runtime: Runtime, stack: ExitStack, settings: Mapping[str, str] = QUICK_RETRIES) -> None:
        self.runtime = runtime
        self._stack = stack
        self.server = self.start(runtime.module.Standalone, settings=settings)
        self.namesrv: str = self.server.namesrv_address
        number = next(_numbers)
        self.topic = f"topic-{number}"
        self.group = f"group-{number}"

    def make(self, factory: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Make something; it closes with the test."""
        made = Proxy(self.runtime, self.runtime.call(factory, *arguments, **settings))
        self._stack.callback(lambda: made.close())
        return made

    def start(self, factory: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        """Make and start something; it closes with the test."""
        made = self.make(factory, *arguments, **settings)
        made.start()
        return made

    def producer(self, group: str = "", **settings: Any) -> Any:
        """A producer that runs, and has time: the machine may be slow."""
        settings = {"send_msg_timeout": 30_000, **settings}
        return self.start(self.runtime.module.Producer, group or f"p-{self.group}", self.namesrv, **settings)

    def consumer(
        self,
        listener: Callable[..., Any],
        expression: str = "*",
        *,
        start: bool = True,
        plain: bool = False,
        **settings: Any,
    ) -> Any:
        """A consumer of the topic that begins at its first message.

        `plain`: the listener is a plain function in every runtime.
        """
        function = listener if plain else as_listener(self.runtime, listener)
        settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, "group": self.group, **settings}
        group = settings.pop("group")
        consumer = self.make(self.runtime.module.PushConsumer, group, function, self.namesrv, **settings)
        consumer.subscribe(self.topic, expression)
        if start:
            consumer.start()
        return consumer

    def ask_in_vain(self, producer: Any, body: bytes) -> RequestTimeout:
        """A request of the topic that nobody answers.

        Where not even the send was done in time, another one gets more.
        """
        for timeout_ms in (300, 3_000, 30_000):
            try:
                producer.request(Message(self.topic, body), timeout_ms=timeout_ms)
            except RequestTimeout as failure:
                return failure
            except SendFailed:
                pass
        raise AssertionError("the request was not even sent")

    def collect(self, **settings: Any) -> Collector:
        """A consumer whose messages all succeed."""
        collector = Collector()

        def listener(messages: Any, context: Any) -> ConsumeStatus:
            collector.take(messages)
            return ConsumeStatus.SUCCESS

        self.consumer(listener, **settings)
        return collector


@pytest.fixture
def world(runtime: Runtime) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(runtime, stack)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def mute_cluster(runtime: Runtime, silent: str) -> Iterator[str]:
    """The address of a name server that knows one broker with one topic, "topic"; the broker never answers."""
    name_server = Proxy(runtime, runtime.call(runtime.module.NameServer))
    name_server.start()
    try:
        with register(name_server.address, silent):
            yield name_server.address
    finally:
        name_server.close()


def register(namesrv: str, broker: str) -> socket.socket:
    """Tell a name server of a broker with one topic. The registration ends with the connection that is returned."""
    table = TopicTable(DataVersion(), {"topic": TopicConfig("topic")})
    fields = {"brokerName": "silent", "brokerAddr": broker, "clusterName": "c", "brokerId": "0", "haServerAddr": broker}
    sock = socket.create_connection(split_address(namesrv), timeout=PATIENCE)
    sock.sendall(encode_request(RequestCode.REGISTER_BROKER, 1, fields, RegisterBrokerBody(table).to_json()))
    answer = decode(FrameSplitter().feed(sock.recv(65_536))[0])
    assert answer.code == 0
    return sock
