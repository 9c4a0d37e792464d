"""The error tree: texts that say what happened, codes as Java's client has them."""

from __future__ import annotations

import pytest

from mqproto import errors
from mqproto.errors import (
    Attempt,
    BrokerError,
    CallExpired,
    ClientError,
    CompressionMissing,
    ConnectFailed,
    ConnectionLost,
    HeaderError,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
    RemoteProtocolError,
    SendFailed,
    TooManyRequests,
)
from mqproto.fastjson import JsonError


def test_one_root() -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, MQError), name
    assert issubclass(JsonError, RemoteProtocolError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (HeaderError("queueId", "abc", "is no whole number"), "header field queueId: is no whole number: 'abc'"),
        (HeaderError("topic", None, "is missing"), "header field topic: is missing"),
        (InvalidName("topic", "a b", "has a blank"), "invalid topic 'a b': has a blank"),
        (InvalidSetting("listenPort", "x", "is no number"), "setting listenPort=x: is no number"),
        (NoNameServer(), "no name server address is set"),
        (NoNameServer(("a:1", "b:2"), "refused"), "no name server reachable, tried a:1, b:2: refused"),
        (NoRoute("Orders"), "no route to topic 'Orders': it does not exist, or no broker that holds it is registered"),
        (CompressionMissing("LZ4"), "the body is compressed with LZ4: install mqproto[compression]"),
        (BrokerError(17, "no such topic", "a:1"), "a:1 answered code 17: no such topic"),
        (BrokerError(1, None, "a:1"), "a:1 answered code 1"),
        (ConnectFailed("a:1", "refused"), "cannot connect to a:1: refused"),
        (ConnectionLost("a:1", "closed by the peer"), "connection to a:1 lost: closed by the peer"),
        (CallExpired("a:1", 3000), "no answer from a:1 within 3000 ms"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_texts(error: MQError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (BrokerError(2, "busy", "a:1"), 2),
        (ConnectFailed("a:1", "refused"), 10001),
        (CallExpired("a:1", 3000), 10002),
        (NoRoute("T"), 10003),
        (ConnectionLost("a:1", "reset"), -1),
        (None, -1),
    ],
)
def test_code_of_a_failed_send(cause: MQError | None, code: int) -> None:
    """client.md 3.3: it follows from the last failure."""
    attempts = (Attempt("b-a", "a:1", cause, 12),) if cause else ()
    failed = SendFailed("Orders", attempts, cause)
    assert failed.code == code
    assert failed.cause is cause
    assert isinstance(failed, ClientError)
    assert str(failed).startswith("sending to topic 'Orders' failed: ")
    assert not cause or f"b-a (a:1) after 12 ms: {cause}" in str(failed)


def test_codes_of_client_errors() -> None:
    assert (NoNameServer().code, NoRoute("T").code, InvalidMessage("empty").code, ClientError("x").code) == (10004, 10005, 13, -1)


def test_what_may_succeed_elsewhere() -> None:
    retriable: tuple[type[MQError], ...] = (ConnectFailed, ConnectionLost, CallExpired, TooManyRequests)
    final: tuple[type[MQError], ...] = (RemoteProtocolError, HeaderError, NoRoute, InvalidName)
    assert all(kind.retriable for kind in retriable)
    assert not any(kind.retriable for kind in final)
