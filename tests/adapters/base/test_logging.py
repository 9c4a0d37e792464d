"""Log of clients: below `mqproto`, and never bodies or secrets, however much goes wrong, at every level."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from mqproto import Message, SessionCredentials
from mqproto.errors import MQError
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE
from tests.adapters.io.test_lifecycle import NOWHERE

SECRET = "a-secret-that-nobody-may-read"
BODY = "a body that is nobody's business"


def test_what_goes_wrong_is_told_without_secrets(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    account: Any = {"credentials": SessionCredentials("an-access-key", SECRET)}
    failed = threading.Event()

    def listener(messages: Any, context: Any) -> None:
        failed.set()
        raise RuntimeError("the listener's own")

    producer = world.producer(retry_times_when_send_failed=0, **account)
    producer.send(Message(world.topic, BODY.encode()))
    world.consumer(listener, consume_timeout=1, **account)
    assert failed.wait(PATIENCE)
    lost = world.start(world.runtime.module.Producer, "lost", NOWHERE, **account)
    with pytest.raises(MQError):
        lost.send(Message(world.topic, BODY.encode()), timeout_ms=200)
    world.server.close()
    with pytest.raises(MQError) as failure:
        producer.send(Message(world.topic, BODY.encode()), timeout_ms=200)
    producer.close(100)
    ours = [record for record in caplog.records if not record.name.startswith(("asyncio", "concurrent"))]
    assert ours
    assert {record.name.partition(".")[0] for record in ours} == {"mqproto"}
    told = "\n".join(
        [*(record.getMessage() for record in ours), caplog.text, str(failure.value), repr(producer._target)]
    )
    assert "the listener's own" in told
    for private in (SECRET, BODY):
        assert private not in told
