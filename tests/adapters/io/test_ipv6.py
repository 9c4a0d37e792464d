"""Servers and clients that talk over IPv6, on every runtime (MSG-06)."""

from __future__ import annotations

import socket
import time

import pytest

from mqproto import Message, MessageQueue
from tests.adapters.conftest import World, register
from tests.adapters.harness import port_of


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture
def world(world: World) -> World:
    world.server = world.start(world.runtime.module.Standalone, host="::1")
    world.namesrv = world.server.namesrv_address
    return world


def test_a_message_there_and_back(world: World) -> None:
    """MSG-06: the last colon splits addresses, hosts of 16 bytes are read, an id of 56 digits leads to its broker."""
    assert world.namesrv.startswith("[::1]:")
    before = int(time.time() * 1000)
    sent = world.producer().send(Message(world.topic, b"hello", keys="k"))
    (received,) = world.collect().wait(1)
    assert len(sent.offset_msg_id) == 56
    assert (received.offset_msg_id, received.msg_id, received.sys_flag & 0x30) == (
        sent.offset_msg_id,
        sent.msg_id,
        0x30,
    )
    assert received.store_host == world.server.broker_address
    assert received.born_host.startswith("[::1]:")
    admin = world.start(world.runtime.module.Admin, world.namesrv)
    call, inner = world.runtime.call, admin._target
    assert call(inner.messages.by_offset_id, sent.offset_msg_id).body == b"hello"
    assert [one.body for one in call(inner.messages.by_key, world.topic, "k")] == [b"hello"]
    assert before <= call(inner.offsets.earliest_time, sent.queue) == received.store_time


def test_an_address_without_brackets(world: World) -> None:
    """MSG-06: some brokers register like that."""
    with register(world.namesrv, f"::1:{port_of(world.server.broker_address)}"):
        sent = world.producer().send(Message("topic", b"x"), queue=MessageQueue("topic", "silent", 0))
    assert sent.queue.broker_name == "silent"
    assert len(sent.offset_msg_id) == 56
