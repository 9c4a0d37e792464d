"""Dials with TLS on every driver: handshakes in pieces, what is not believed, peers that speak something else."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import pytest

from mqproto.adapters.base.settings.client_settings import tls_options
from mqproto.adapters.base.settings.tls_settings import tls_client
from mqproto.adapters.io.sockets import listen, port_of
from mqproto.state.node.contract import Dial, Link
from tests.adapters.conftest import runtime_without_threads_left
from tests.adapters.harness import NAMES, PATIENCE, PORTABLE, Proxy, Runtime, wait_until
from tests.adapters.tls_peers import MemoryPeer, certificate, plain_relay, server_context, tls_relay
from tests.adapters.toys import Caller, Echo

TRUSTING: dict[str, Any] = {"tls_client_trust_cert_path": certificate("authority")}


class SecureCaller(Caller):
    """Dials with TLS; keeps what comes."""

    def dial_securely(self, address: str, timeout: int, now: int) -> Link:
        link = Link(address)
        self.links.add(link)
        self.actions.append(Dial(link, timeout, tls=True))
        return link

    def received(self, link: Link, data: bytes, now: int) -> None:
        with self.changed:
            self.arrived += data
            self.changed.notify_all()


class Place:
    """Drivers of one runtime and relays, closed with the test."""

    def __init__(self, runtime: Runtime, stack: ExitStack) -> None:
        self.runtime = runtime
        self.stack = stack
        self.node = SecureCaller()

    def echo(self) -> str:
        """A plain server that sends back what it gets; its address."""
        listener = listen("127.0.0.1", 0, "toy")
        self._drive(Echo(), {"main": listener}, None)
        return f"127.0.0.1:{port_of(listener)}"

    def secure_echo(self, context: ssl.SSLContext | None = None) -> str:
        relay = tls_relay(self.echo(), context or server_context())
        self.stack.callback(relay.close)
        return relay.address

    def caller(self, **options: Any) -> Any:
        return self._drive(self.node, {}, tls_client(tls_options({"tls": True, **options})))

    def _drive(self, node: Any, listeners: Any, tls: Any) -> Any:
        made = self.runtime.call(self.runtime.module.Driver, node, listeners)
        made.tls = tls
        driver = Proxy(self.runtime, made)
        self.stack.callback(driver.stop, PATIENCE)
        driver.start()
        return driver

    def dial(self, address: str, timeout: int = 60_000, **options: Any) -> tuple[Any, Link]:
        driver = self.caller(**options)
        return driver, driver.enter(self.node.dial_securely, address, timeout)

    def heard(self, what: str) -> str:
        def found() -> list[str]:
            return [line for line in self.node.log if line.startswith(what)]

        wait_until(lambda: bool(found()), self.node.changed)
        return found()[0]

    def arrived(self, size: int) -> bytes:
        wait_until(
            lambda: len(self.node.arrived) >= size or any(line.startswith("closed") for line in self.node.log),
            self.node.changed,
        )
        return bytes(self.node.arrived)

    def write(self, driver: Any, data: bytes) -> None:
        driver.enter(self.node.write_all, data)


@pytest.fixture(params=[*NAMES, *PORTABLE])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with runtime_without_threads_left(request.param) as runtime, ExitStack() as stack:
        yield Place(runtime, stack)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_much_both_ways(place: Place, version: ssl.TLSVersion) -> None:
    driver, _ = place.dial(place.secure_echo(server_context(version=version)), **TRUSTING)
    place.heard("opened")
    data = bytes(range(256)) * 16_384  # 4 MiB, more than every buffer between
    place.write(driver, b"small")
    place.write(driver, data)
    place.write(driver, b"behind")
    assert place.arrived(len(data) + 11) == b"small" + data + b"behind"


def test_a_name_is_looked_up_and_believed(place: Place) -> None:
    address = place.secure_echo()
    driver, _ = place.dial(f"localhost:{address.rpartition(':')[2]}", **TRUSTING)
    place.heard("opened")
    place.write(driver, b"x")
    assert place.arrived(1) == b"x"


def test_a_handshake_that_comes_byte_by_byte(place: Place) -> None:
    relay = plain_relay(place.secure_echo(), 1)
    place.stack.callback(relay.close)
    driver, _ = place.dial(relay.address, **TRUSTING)
    place.heard("opened")
    place.write(driver, b"slowly")
    assert place.arrived(6) == b"slowly"


def test_bytes_that_come_with_the_end_of_the_handshake(place: Place) -> None:
    """The socket has been read when the driver begins to watch it: nothing else will tell of them."""
    listener = socket.create_server(("127.0.0.1", 0))
    place.stack.callback(listener.close)
    over = threading.Event()

    def serve() -> None:
        with listener.accept()[0] as sock:
            peer = MemoryPeer(sock, server_context(version=ssl.TLSVersion.TLSv1_2))
            while not peer.handshake():
                peer.push()
            peer.tls.write(b"first words")
            peer.push()
            over.wait(PATIENCE)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    place.dial(f"127.0.0.1:{listener.getsockname()[1]}", **TRUSTING)
    assert place.arrived(11) == b"first words"
    over.set()
    thread.join(PATIENCE)


def test_hanging_up_sends_the_rest_first(place: Place) -> None:
    ended: SimpleQueue[bytes] = SimpleQueue()
    context = server_context()
    listener = socket.create_server(("127.0.0.1", 0))
    place.stack.callback(listener.close)

    def serve() -> None:
        with listener.accept()[0] as sock, context.wrap_socket(sock, server_side=True) as secured:
            secured.sendall(b"ready")
            data = b""
            while part := secured.recv(65_536):
                data += part
            ended.put(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    driver, link = place.dial(f"127.0.0.1:{listener.getsockname()[1]}", **TRUSTING)
    assert place.arrived(5) == b"ready"

    def write_and_hang_up(now: int) -> None:
        place.node.write(link, bytes(1 << 20))
        place.node.forget(link, "done")

    driver.enter(write_and_hang_up)
    assert ended.get(timeout=PATIENCE) == bytes(1 << 20)
    thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("server", "options", "says"),
    [
        ("server", {"tls_client_trust_cert_path": certificate("stranger")}, "unable to get local issuer certificate"),
        ("server", {}, "unable to get local issuer certificate"),
        ("expired", TRUSTING, "certificate has expired"),
        ("elsewhere", TRUSTING, "IP address mismatch"),
    ],
    ids=["of a stranger", "of nobody known", "expired", "of another host"],
)
def test_a_certificate_that_is_not_believed(place: Place, server: str, options: dict[str, Any], says: str) -> None:
    place.dial(place.secure_echo(server_context(server)), **options)
    assert place.heard("closed").startswith(
        "closed TLS handshake failed: the server's certificate is not believed: " + says
    )


@pytest.mark.parametrize(
    ("server", "options"),
    [
        ("expired", {"tls_test_mode_enable": True}),
        ("elsewhere", {"tls_client_auth_server": False}),
        ("elsewhere", {**TRUSTING, "tls_check_hostname": False}),
    ],
    ids=["test mode", "no authentication", "any host"],
)
def test_who_asks_for_less_gets_it(place: Place, server: str, options: dict[str, Any]) -> None:
    driver, _ = place.dial(place.secure_echo(server_context(server)), **options)
    place.heard("opened")
    place.write(driver, b"x")
    assert place.arrived(1) == b"x"


def test_a_server_that_wants_to_know_its_clients(place: Place) -> None:
    address = place.secure_echo(server_context(clients="authority"))
    options: dict[str, Any] = {
        "tls_client_cert_path": certificate("client"),
        "tls_client_key_path": certificate("client-key-encrypted"),
        "tls_client_key_password": "secret",
    }
    driver, _ = place.dial(address, **TRUSTING, **options)
    place.heard("opened")
    place.write(driver, b"known")
    assert place.arrived(5) == b"known"


def test_a_client_that_the_server_does_not_know(place: Place) -> None:
    """With TLS 1.3 the refusal comes behind the handshake."""
    driver, _ = place.dial(place.secure_echo(server_context(clients="authority")), **TRUSTING)
    assert "certificate required" in place.heard("closed")
    del driver


def test_a_context_of_the_application(place: Place) -> None:
    context = ssl.create_default_context(cafile=certificate("authority"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    driver, _ = place.dial(place.secure_echo(), ssl_context=context)
    place.heard("opened")
    place.write(driver, b"x")
    assert place.arrived(1) == b"x"


def test_a_server_without_tls(place: Place) -> None:
    """TLS-01: refused at once, in words that help."""
    place.dial(place.echo(), **TRUSTING)
    assert "TLS handshake failed" in place.heard("closed")


def closing_server(place: Place) -> str:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        sock.recv(1 << 16)
        sock.close()
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    place.stack.callback(thread.join, PATIENCE)
    return f"127.0.0.1:{listener.getsockname()[1]}"


def silent_server(place: Place) -> str:
    listener = socket.create_server(("127.0.0.1", 0))
    place.stack.callback(listener.close)
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("server", "timeout", "says"),
    [
        (closing_server, 60_000, "closed TLS handshake failed: the peer closed the connection; it may not speak TLS"),
        (silent_server, 50, "closed not connected within 50 ms"),
    ],
    ids=["closes", "is silent"],
)
def test_a_server_that_says_nothing(place: Place, server: Callable[[Place], str], timeout: int, says: str) -> None:
    driver, _ = place.dial(server(place), timeout, **TRUSTING)
    assert place.heard("closed") == says
    assert driver.turns < 50, "a handshake waits for its peer without turning round"


def test_a_dial_that_is_given_up_in_its_handshake(place: Place) -> None:
    driver, link = place.dial(silent_server(place), **TRUSTING)
    driver.enter(lambda now: place.node.forget(link, "not wanted any more"))
    driver.stop(PATIENCE)
    assert not any(line.startswith(("closed", "opened")) for line in place.node.log)


def test_a_driver_without_tls_says_so(place: Place) -> None:
    driver = place._drive(place.node, {}, None)
    driver.enter(place.node.dial_securely, place.echo(), 60_000)
    assert place.heard("closed") == "closed this driver was not told which TLS to use"
