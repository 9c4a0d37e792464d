"""Embedded servers: ports, directories, life, and peers that do not keep to the protocol."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mqproto import Message
from mqproto.adapters.io.sockets import ListenFailed, PortTaken, close_listeners
from mqproto.adapters.servers.server_setup import BrokerOptions
from mqproto.codec import FrameSplitter, decode, encode_request
from mqproto.engine.store import StoreError, StoreLocked
from mqproto.errors import InvalidSetting, StateError
from mqproto.wire.codes import RequestCode, ResponseCode
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Proxy, Runtime


@pytest.fixture
def make(runtime: Runtime) -> Iterator[Any]:
    """Makes servers by the name of their class; they are closed with the test."""
    with ExitStack() as stack:

        def make_server(kind: str, *arguments: Any, **settings: Any) -> Any:
            server = Proxy(runtime, runtime.call(getattr(runtime.module, kind), *arguments, **settings))
            stack.callback(lambda: server.close())
            return server

        yield make_server


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


# --- life


def test_a_standalone_server_tells_where_it_is(make: Any) -> None:
    server = make("Standalone")
    with pytest.raises(StateError, match="not started"):
        server.runtime_address = server.namesrv_address
    server.start()
    assert server.namesrv_address.startswith("127.0.0.1:")
    assert server.broker_address.startswith("127.0.0.1:")
    assert (server.directory / "lock").exists() or any(server.directory.iterdir())
    fast = connect(f"127.0.0.1:{port_of(server.broker_address) - 2}")
    fast.close()
    directory: Path = server.directory
    server.close()
    server.close()
    assert not directory.exists()
    with pytest.raises(StateError, match="make a new one"):
        server.start()


def test_closing_before_the_start_is_harmless(make: Any) -> None:
    server = make("Standalone")
    server.close()
    with pytest.raises(StateError):
        server.start()


def test_a_broker_registers_at_a_name_server_that_is_elsewhere(make: Any) -> None:
    name_server = make("NameServer")
    name_server.start()
    broker = make("Broker", name_server.address, settings={"brokerName": "elsewhere"})
    broker.start()
    with connect(name_server.address) as sock:
        sock.sendall(encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 1, {}))
        answer = decode(FrameSplitter().feed(sock.recv(65_536))[0])
    assert broker.address.encode() in bytes(answer.body)
    assert b"elsewhere" in bytes(answer.body)


def test_a_broker_starts_without_a_name_server_that_answers(make: Any) -> None:
    broker = make("Broker", "127.0.0.1:1")
    broker.start()
    connect(broker.address).close()


def test_what_was_sent_is_there_after_a_restart(runtime: Runtime, make: Any, tmp_path: Path) -> None:
    for expected in range(3):
        server = make("Standalone", store=tmp_path)
        server.start()
        producer = Proxy(runtime, runtime.call(runtime.module.Producer, "p", server.namesrv_address))
        producer.start()
        queue = producer.send(Message("kept", b"x"), selector=lambda queues, message, argument: queues[0])
        producer.close()
        server.close()
        assert queue.queue_offset == expected


def ask(address: str, code: RequestCode, fields: dict[str, str]) -> Any:
    with connect(address) as sock:
        sock.sendall(encode_request(code, 1, fields))
        return decode(FrameSplitter().feed(sock.recv(65_536))[0])


def test_a_name_server_keeps_its_configuration_in_a_directory(make: Any, tmp_path: Path) -> None:
    for backup in ("", ".bak"):
        server = make("NameServer", directory=tmp_path)
        server.start()
        fields = {"namespace": "ns", "key": "k", "value": "v"}
        if not backup:
            for value in ("v", "w"):
                assert ask(server.address, RequestCode.PUT_KV_CONFIG, {**fields, "value": value}).code == 0
        else:
            assert ask(server.address, RequestCode.GET_KV_CONFIG, fields).fields["value"] == "w"
        server.close()
    (tmp_path / "kvConfig.json").write_text("{damaged")
    server = make("NameServer", directory=tmp_path)
    server.start()
    assert ask(server.address, RequestCode.GET_KV_CONFIG, fields).fields["value"] == "v"
    server.close()
    (tmp_path / "kvConfig.json.bak").write_text("{damaged")
    with pytest.raises(InvalidSetting, match=r"kvConfig\.json"):
        make("NameServer", directory=tmp_path).start()


# --- what keeps a server from starting


def test_a_port_that_is_taken(make: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for server in (
            make("NameServer", port=port),
            make("Broker", port=port),
            make("Broker", port=port + 2),
            make("Standalone", namesrv_port=port),
            make("Standalone", port=port),
        ):
            with pytest.raises(PortTaken) as caught:
                server.start()
            assert caught.value.port == port
            assert str(port) in str(caught.value)
    for server in (make("NameServer", port=port), make("Broker", port=port)):
        server.start()  # nothing was left open
        server.close()


def test_an_address_of_another_machine(make: Any) -> None:
    with pytest.raises(ListenFailed, match=r"192\.0\.2\.1"):
        make("NameServer", host="192.0.2.1").start()


@pytest.mark.parametrize(
    "settings", [{"brokerName": ""}, {"listenPort": "70000"}, {"flushDiskType": "NEVER"}, {"brokerNam": "x"}]
)
def test_a_setting_that_cannot_be(make: Any, settings: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting):
        make("Broker", settings=settings).start()


def test_a_directory_that_another_broker_has(make: Any, tmp_path: Path) -> None:
    make("Broker", store=tmp_path).start()
    with pytest.raises(StoreLocked):
        make("Broker", store=tmp_path).start()


def test_a_broker_whose_driver_gave_up_holds_no_directory(tmp_path: Path) -> None:
    for _ in range(2):
        opened = BrokerOptions(store=tmp_path).open()
        close_listeners(opened.listeners)
        opened.clean_up()
        opened.clean_up()


def test_a_directory_that_is_none(make: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        make("Broker", store=tmp_path / "file").start()


# --- peers that break the rules (COD-03)


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "remote desktop": bytes.fromhex("0300002f2ae00000000000436f6f6b69653a206d737473686173683d0d0a"),
    "tls": bytes.fromhex("16030100f1010000ed0303"),
    "two gigabytes": struct.pack(">i", 2**31 - 1),
    "negative": struct.pack(">i", -1),
    "one too long": struct.pack(">i", 16_777_213),
    "header longer than the frame": struct.pack(">iii", 8, 100, 0),
    "no header": struct.pack(">ii", 10, 6) + b"{nope}",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_ends_its_own_link_and_no_other(world: World, garbage: bytes) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"before"))
    for address in (world.server.namesrv_address, world.server.broker_address):
        with connect(address) as sock:
            sock.sendall(garbage)
            with suppress(ConnectionError):
                assert sock.recv(65_536) == b""
    producer.send(Message(world.topic, b"after"))


def test_half_a_frame_waits_and_disturbs_nobody(world: World) -> None:
    request = encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 7, {})
    producer = world.producer()
    with connect(world.server.namesrv_address) as sock, connect(world.server.broker_address) as other:
        other.sendall(struct.pack(">i", 16_777_212))  # the longest that is allowed: waited for
        sock.sendall(request[:11])
        producer.send(Message(world.topic, b"meanwhile"))
        for byte in request[11:]:
            sock.sendall(bytes([byte]))
        assert decode(FrameSplitter().feed(sock.recv(65_536))[0]).opaque == 7


def test_a_peer_that_reads_nothing_holds_up_nobody(world: World) -> None:
    producer = world.producer()
    body = bytes(range(256)) * 256  # 64 KiB
    sent = [
        producer.send(Message(world.topic, body), selector=lambda queues, message, argument: queues[0])
        for _ in range(8)
    ]
    queue = sent[0].queue
    fields = {
        "consumerGroup": "slow",
        "topic": world.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(sent[0].queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    count = 400  # some 100 MB of answers
    with connect(world.server.broker_address) as slow:
        requests = b"".join(encode_request(RequestCode.PULL_MESSAGE, number, fields) for number in range(1, count + 1))
        asking = threading.Thread(target=slow.sendall, args=(requests,))
        asking.start()
        for number in range(20):
            producer.send(Message(world.topic, b"%d" % number), selector=lambda queues, message, argument: queues[1])
        splitter = FrameSplitter()
        opaques: list[int] = []
        while len(opaques) < count:
            data = slow.recv(1 << 20)
            assert data
            for frame in splitter.feed(data):
                answer = decode(frame)
                assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY), answer.remark
                opaques.append(answer.opaque)
        asking.join(PATIENCE)
    assert opaques == list(range(1, count + 1))


# --- rest


def test_an_idle_server_sleeps(world: World) -> None:
    producer = world.producer()
    producer.send(Message(world.topic, b"x"))
    producer.close()
    drivers = world.server._drivers
    with connect(world.server.broker_address) as sock:
        sock.settimeout(2.0)
        with pytest.raises(TimeoutError):
            sock.recv(1)  # two seconds in which the flush and whatever else a message sets off come to their end
        before = [driver.turns for driver in drivers]
        sock.settimeout(1.0)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert sum(driver.turns for driver in drivers) - sum(before) <= 2
