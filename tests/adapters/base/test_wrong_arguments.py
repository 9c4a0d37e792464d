"""Wrong arguments of methods of clients, on every runtime: each is an error of ours that says what is expected, and
the client goes on.
"""

from __future__ import annotations

from typing import Any

import pytest

from mqproto import Message, MessageQueue, select_by_hash
from mqproto.errors import ClientError, InvalidMessage, InvalidName, InvalidSetting, TooManyRequests
from mqproto.wire.filters.tags import InvalidExpressionError
from tests.adapters.conftest import World
from tests.adapters.harness import Anyio

#: What there is of each method that sends; futures have the error when they are asked.
SENDS = ["send", "send_oneway", "request", "submit", "submit_request"]


@pytest.fixture(params=SENDS)
def send(request: pytest.FixtureRequest, world: World) -> Any:
    """One of the ways to send of a producer, which knows the route already."""
    if isinstance(world.runtime, Anyio) and request.param.startswith("submit"):
        pytest.skip("futures are a matter of plain calls")
    producer = world.producer()
    producer.send(Message(world.topic, b"first"))
    method = getattr(producer, request.param)
    return (
        (lambda *arguments, **more: method(*arguments, **more).result())
        if request.param.startswith("submit")
        else method
    )


def test_wrong_arguments_of_sends(world: World, send: Any) -> None:
    message = Message(world.topic, b"x")
    elsewhere = MessageQueue(world.topic, "nowhere", 0)
    for arguments, text in (
        ({"queue": 3}, "MessageQueue expected"),
        ({"selector": lambda queues, message, argument: 0}, "MessageQueue expected"),
        ({"argument": "order-4711"}, "selector=select_by_hash"),
        ({"queue": elsewhere, "argument": "order-4711"}, "selector=select_by_hash"),
        ({"selector": select_by_hash, "argument": 1, "queue": elsewhere}, "not both"),
    ):
        with pytest.raises(ClientError, match=text):
            send(message, **arguments)


def test_an_option_that_no_send_has(world: World, send: Any) -> None:
    for options in ({"timeout": 3}, {"timeout": 3, "queue": None}, {"timeout": 3, "timeout_ms": 1_000}):
        with pytest.raises(TypeError, match="a send has no option timeout; it has queue, selector"):
            send(Message(world.topic, b"x"), **options)


def test_options_that_say_nothing(world: World) -> None:
    producer = world.producer()
    for send in (producer.send, producer.send_oneway):
        send(Message(world.topic, b"x"), queue=None, selector=None, argument=None, timeout_ms=None)


@pytest.mark.parametrize("selected", [False, True], ids=["plain", "selected"])
@pytest.mark.parametrize("timeout_ms", ["1000", 1.5, float("nan"), True], ids=repr)
def test_what_is_no_time(world: World, send: Any, timeout_ms: Any, selected: bool) -> None:
    choice = {"selector": select_by_hash, "argument": 1} if selected else {}
    with pytest.raises(InvalidSetting, match=r"timeout_ms=.* whole number of milliseconds"):
        send(Message(world.topic, b"x"), timeout_ms=timeout_ms, **choice)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_send_without_time(world: World, timeout_ms: int) -> None:
    """Nothing was sent, and nobody is to blame for not answering."""
    producer, message = world.producer(), Message(world.topic, b"x")
    for send in (
        producer.send,
        producer.send_oneway,
        producer.request,
    ):
        # of a topic that is not known, then of one that is
        with pytest.raises(TooManyRequests, match=f"a budget of {timeout_ms} ms leaves no time"):
            send(message, timeout_ms=timeout_ms)
    producer.send(message)
    choice: dict[str, Any]
    for choice in ({}, {"selector": select_by_hash, "argument": 1}):
        with pytest.raises(TooManyRequests, match=f"a budget of {timeout_ms} ms leaves no time"):
            producer.send(message, timeout_ms=timeout_ms, **choice)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message(None, b"x"), InvalidName),  # type: ignore[arg-type]
        (Message(["topic"], b"x"), InvalidName),  # type: ignore[arg-type]
        (Message("topic", b"x", tags=["a"]), InvalidMessage),  # type: ignore[arg-type]
        (Message("topic", b"x", tags=5), InvalidMessage),  # type: ignore[arg-type]
        (Message("topic", b"x", keys=[5]), InvalidMessage),  # type: ignore[list-item]
    ],
    ids=repr,
)
def test_messages_of_the_wrong_types(world: World, send: Any, message: Message, kind: type[ClientError]) -> None:
    with pytest.raises(kind, match="type"):
        send(message)


def test_wrong_times_of_consumers(world: World) -> None:
    module, producer = world.runtime.module, world.producer()
    producer.send(Message(world.topic, b"first"))
    simple, polled = (
        world.make(getattr(module, kind), f"{kind}-{world.group}", world.namesrv)
        for kind in ("Consumer", "LitePullConsumer")
    )
    for consumer, method in ((simple, "receive"), (polled, "poll")):
        consumer.subscribe(world.topic)
        consumer.start()
        with pytest.raises(InvalidSetting, match="whole number of milliseconds"):
            getattr(consumer, method)("1000")
    with pytest.raises(InvalidSetting, match="whole number of milliseconds"):
        producer.flush(0.5)


@pytest.mark.parametrize("kind", ["Consumer", "LitePullConsumer", "PushConsumer"])
@pytest.mark.parametrize("running", [False, True], ids=["before", "running"])
def test_what_cannot_be_subscribed(world: World, kind: str, running: bool) -> None:
    listener = (print,) if kind == "PushConsumer" else ()
    consumer = world.make(getattr(world.runtime.module, kind), world.group, *listener, world.namesrv)
    if running:
        consumer.subscribe(f"%RETRY%{world.group}")
        consumer.start()
    for arguments, text in (
        ((["a", "b"],), "a text expected"),
        (("a", "sql"), "there are TAG and SQL92"),
        (("a", None), "there are TAG and SQL92"),
        ((None, "SQL92"), "it is blank"),
        ((" ", "SQL92"), "it is blank"),
    ):
        with pytest.raises(InvalidExpressionError, match=text):
            consumer.subscribe(world.topic, *arguments)
