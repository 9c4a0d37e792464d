"""Our clients against Apache's servers with access control and with TLS in each of its modes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqproto import ConsumeStatus, Message, SendStatus, SessionCredentials
from mqproto.errors import AccessDenied, MQError, NoMessage
from mqproto.wire.bodies import ConsumeFromWhere
from tests.adapters.harness import NAMES, Collector, Runtime, as_listener, open_runtime
from tests.peers.conftest import need
from tests.peers.kit.secured import ADMIN, TRACES, TRUSTING, USER, secured
from tests.peers.kit.servers import Server

PATIENCE_MS = 60_000
RELEASES = ("4.4.0", "4.9.7", "5.3.3")


@pytest.fixture(scope="module", params=RELEASES)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes TLS alone, from those whom it knows."""
    need(f"apache:{request.param}")
    with secured(tmp_path_factory.mktemp("guarded") / "server", request.param, "enforcing", accounts=True) as server:
        yield server


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with open_runtime(request.param) as opened:
        yield opened


class Client:
    """A client of a runtime, started and closed in it."""

    def __init__(self, runtime: Runtime, made: Any) -> None:
        self.runtime = runtime
        self.made = made

    def __enter__(self) -> Client:
        self.runtime.call(self.made.start)
        return self

    def __exit__(self, *failure: object) -> None:
        self.runtime.call(self.made.close)

    def __call__(self, method: str, *arguments: Any, **settings: Any) -> Any:
        return self.runtime.call(getattr(self.made, method), *arguments, **settings)


def producer(runtime: Runtime, server: Server, **options: Any) -> Client:
    settings = {"send_msg_timeout": PATIENCE_MS, "mq_client_api_timeout": PATIENCE_MS, **options}
    return Client(runtime, runtime.call(runtime.module.Producer, "acl-producer", server.names, **settings))


# --- access control, over TLS


def test_who_has_rights_sends_and_consumes(guarded: Server, runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    """ACL-05 too: rights on a topic and a group are enough for messages to come back.

    With a right on it, traces are left.
    """
    options = {**TRUSTING, "credentials": USER, "enable_msg_trace": True}
    collector = Collector()
    mark = f"{runtime.name}-{time.monotonic_ns()}".encode()
    refused: list[str] = []

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        mine = [message for message in messages if message.body.startswith(mark)]
        if mine and not refused:
            refused.append(mine[0].msg_id)
            return ConsumeStatus.RECONSUME_LATER
        collector.take(mine)
        return ConsumeStatus.SUCCESS

    made = runtime.call(
        runtime.module.PushConsumer,
        "acl-group",
        as_listener(runtime, listener),
        guarded.names,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        mq_client_api_timeout=PATIENCE_MS,
        **options,
    )
    made.subscribe("AclTopic")
    with (
        caplog.at_level(logging.WARNING, "mqproto"),
        Client(runtime, made),
        producer(runtime, guarded, **options) as sender,
    ):
        bodies = [mark + b"%d" % index for index in range(4)] + [mark + bytes(range(256)) * 2_000]
        for body in bodies[:-2]:
            assert (
                sender("send", Message("AclTopic", body, tags="tag", keys="key", properties={"colour": "blue"})).status
                is SendStatus.SEND_OK
            )
        traced = sender("send", [Message("AclTopic", bodies[-2])]).msg_id
        sender("send", Message("AclTopic", bodies[-1]))
        sender("send_oneway", Message("AclTopic", mark + b"one-way"))
        messages = collector.wait(len(bodies) + 1)
        assert {message.body for message in messages} == {*bodies, mark + b"one-way"}
        assert [message.reconsume_times for message in messages if message.msg_id in refused] == [1]
    assert not caplog.records, [record.getMessage() for record in caplog.records]
    with Client(
        runtime,
        runtime.call(runtime.module.Admin, guarded.names, **TRUSTING, credentials=ADMIN, timeout_ms=PATIENCE_MS),
    ) as admin:
        kinds: set[bytes] = set()
        until = time.monotonic() + 60
        while kinds != {b"Pub", b"SubBefore", b"SubAfter"}:  # queues follow the log
            assert time.monotonic() < until, kinds
            traces = runtime.call(admin.made.messages.between, TRACES)
            kinds = {
                line.partition(b"\x01")[0]
                for message in traces
                for line in message.body.split(b"\x02")
                if traced.encode() in line
            }


@pytest.mark.parametrize(
    ("account", "topic"),
    [
        (USER, "AclReadOnly"),
        (SessionCredentials(USER.access_key, "not-the-secret"), "AclTopic"),
        (SessionCredentials("NoSuchUser", USER.secret_key), "AclTopic"),
        (None, "AclTopic"),
    ],
    ids=["no right", "wrong secret", "unknown", "unsigned"],
)
def test_who_has_none_is_told_so(
    guarded: Server, runtime: Runtime, account: SessionCredentials | None, topic: str
) -> None:
    """PRO-11: the broker's code and words, at once."""
    options: dict[str, Any] = dict(TRUSTING) if account is None else {**TRUSTING, "credentials": account}
    with producer(runtime, guarded, **options) as sender, pytest.raises(AccessDenied) as caught:
        sender("send", Message(topic, b"refused"))
    assert caught.value.remark
    assert caught.value.code == (16 if guarded.kind.endswith("5.3.3") else 1)
    assert USER.secret_key not in str(caught.value)


def test_the_query_by_unique_key(guarded: Server, runtime: Runtime) -> None:
    """ACL-01: the one field that releases sign differently. Java's own query fails with 4.4."""
    options: dict[str, Any] = {**TRUSTING, "credentials": ADMIN}
    with producer(runtime, guarded, **options) as sender:
        sent = sender("send", Message("AclTopic", b"to be found"))
    with Client(runtime, runtime.call(runtime.module.Admin, guarded.names, **options, timeout_ms=PATIENCE_MS)) as admin:
        found = None
        until = time.monotonic() + 60
        while found is None and time.monotonic() < until:  # the index follows the log
            with suppress(NoMessage):
                found = runtime.call(admin.made.messages.by_unique_id, "AclTopic", sent.msg_id)
    assert found is not None
    assert found.body == b"to be found"


# --- TLS


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_modes_of_servers(tmp_path: Path, release: str, mode: str) -> None:
    """TLS-01: who is refused is refused before anything is stored; a client with TLS gets a clear error from a server
    without, at once.
    """
    need(f"apache:{release}")
    with open_runtime("threaded") as runtime, secured(tmp_path / "server", release, mode) as server:
        fine: dict[str, Any] = {} if mode == "disabled" else dict(TRUSTING)
        with producer(runtime, server, **fine) as sender:
            queue = sender("send", Message("AclTopic", b"before")).queue
            first = sender("send", Message("AclTopic", b"before"), queue=queue).queue_offset
        stored = 0
        for options in ({}, dict(TRUSTING)):
            refused = (mode == "enforcing" and not options) or (mode == "disabled" and bool(options))
            with producer(runtime, server, **options) as sender:
                if not refused:
                    assert sender("send", Message("AclTopic", b"x"), queue=queue).status is SendStatus.SEND_OK
                    stored += 1
                    continue
                with pytest.raises(MQError) as caught:
                    sender("send", Message("AclTopic", b"x"), queue=queue)
            said = str(caught.value)
            assert "closed" in said or "reset" in said, (
                f"the server ends the connection, no time-out of ours does: {said}"
            )
            if options:
                assert "TLS" in said
        with producer(runtime, server, **fine) as sender:
            assert sender("send", Message("AclTopic", b"after"), queue=queue).queue_offset == first + stored + 1


def test_a_broker_that_is_not_trusted(guarded: Server, runtime: Runtime) -> None:
    """The system's authorities do not know the test's."""
    with (
        producer(runtime, guarded, tls=True, credentials=USER) as sender,
        pytest.raises(MQError, match="certificate is not believed"),
    ):
        sender("send", Message("AclTopic", b"x"))
