"""The error tree: texts that say what happened, codes as Java's client has them."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

import mqproto
from mqproto import errors
from mqproto.engine.store.errors import PutStatus
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
from mqproto.wire.fastjson import JsonError


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
        (
            NoNameServer(),
            "no name server address is set, neither by the argument namesrv nor by NAMESRV_ADDR in the environment",
        ),
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
    """docs/protocol/client.md 3.3: it follows from the last failure."""
    attempts = (Attempt("b-a", "a:1", cause, 12),) if cause else ()
    failed = SendFailed("Orders", attempts, cause)
    assert failed.code == code
    assert failed.cause is cause
    assert isinstance(failed, ClientError)
    assert str(failed).startswith("sending to topic 'Orders' failed: ")
    assert not cause or f"b-a (a:1) after 12 ms: {cause}" in str(failed)


def test_codes_of_client_errors() -> None:
    assert (NoNameServer().code, NoRoute("T").code, InvalidMessage("empty").code, ClientError("x").code) == (
        10004,
        10005,
        13,
        -1,
    )


def test_what_may_succeed_elsewhere() -> None:
    retriable: tuple[type[MQError], ...] = (ConnectFailed, ConnectionLost, CallExpired, TooManyRequests)
    final: tuple[type[MQError], ...] = (RemoteProtocolError, HeaderError, NoRoute, InvalidName)
    assert all(kind.retriable for kind in retriable)
    assert not any(kind.retriable for kind in final)


def kinds_below(kind: type[MQError]) -> list[type[MQError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in kinds_below(below))]


def load_all() -> None:
    """So that all kinds of errors of the project are known, wherever they are made."""
    for module in pkgutil.walk_packages(mqproto.__path__, "mqproto."):
        importlib.import_module(module.name)


def example(kind: type[MQError]) -> MQError:
    """One with a value for whatever it is made of."""
    if not any("__init__" in vars(base) for base in kind.__mro__ if issubclass(base, MQError)):
        return kind("what happened")
    values: dict[str, Any] = {
        "int": 7,
        "tuple": (),
        "Exception": CallExpired("a:1", 7),
        "PutStatus": PutStatus.MESSAGE_ILLEGAL,
    }
    parameters = [one for one in inspect.signature(kind).parameters.values() if one.default is one.empty]
    return kind(
        *(
            next((value for name, value in values.items() if str(one.annotation).startswith(name)), "text")
            for one in parameters
        )
    )


@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "deep", "pickle"]
)
def test_errors_can_be_copied_and_travel_between_processes(way: Callable[[MQError], MQError]) -> None:
    """Of all kinds, with their text and facts: a pool of processes hands over what its workers raise."""
    load_all()
    kinds = [kind for kind in kinds_below(MQError) if kind.__module__.startswith("mqproto.")]
    assert len(kinds) > 30
    for kind in kinds:
        error = example(kind)
        found = way(error)
        assert type(found) is kind
        assert (str(found), found.args) == (str(error), error.args), kind
        assert found.__dict__.keys() == error.__dict__.keys(), kind
        assert all(str(value) == str(error.__dict__[name]) for name, value in found.__dict__.items()), kind
