"""Producers and consumers over TLS, and with keys, on every runtime: what users say, and what comes of it."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mqproto import Message, SendStatus
from mqproto.acl import SessionCredentials
from mqproto.adapters.base.settings.credentials import credentials_from_file
from mqproto.errors import AclError, InvalidSetting, NoNameServer
from tests.adapters.cli.test_programs import run
from tests.adapters.conftest import QUICK_RETRIES, World
from tests.adapters.harness import Runtime
from tests.adapters.tls_peers import Relay, certificate, server_context, tls_relay

#: The broker says that it is here; who listens is a relay.
FRONT = "127.0.0.2"
TRUSTING: dict[str, Any] = {"tls": True, "tls_client_trust_cert_path": certificate("authority")}


class SecureWorld(World):
    """Name server and broker behind relays that speak TLS alone."""

    def __init__(self, runtime: Runtime, stack: ExitStack) -> None:
        super().__init__(runtime, stack, settings={**QUICK_RETRIES, "brokerIP1": FRONT})
        context = server_context()
        broker_port = int(self.server.broker_address.rpartition(":")[2])
        self.plain_namesrv = self.namesrv
        self.relays: list[Relay] = []
        for target, address in ((self.namesrv, ("127.0.0.1", 0)), (f"127.0.0.1:{broker_port}", (FRONT, broker_port))):
            relay = tls_relay(target, context, address)
            stack.callback(relay.close)
            self.relays.append(relay)
            if target == self.namesrv:
                self.namesrv = relay.address
        #: What `test_programs.run` wants to know of a server.
        self.server_for_programs = SimpleNamespace(namesrv_address=self.namesrv)


@pytest.fixture
def secure(runtime: Runtime) -> Iterator[SecureWorld]:
    try:
        socket.create_server((FRONT, 0)).close()
    except OSError:
        pytest.skip(f"this system has no {FRONT}")
    with ExitStack() as stack:
        yield SecureWorld(runtime, stack)


def test_messages_over_tls(secure: SecureWorld) -> None:
    producer = secure.producer(**TRUSTING)
    large = bytes(range(256)) * 12_000
    for body in (b"first", large, b"last"):
        assert producer.send(Message(secure.topic, body)).status is SendStatus.SEND_OK
    collector = secure.collect(**TRUSTING)
    collector.wait(3)
    assert sorted(collector.bodies(), key=len) == [b"last", b"first", large]
    producer.send(Message(secure.topic, b"while it waits"))
    assert collector.wait(4)[-1].body == b"while it waits"


def test_why_no_connection_was_made(secure: SecureWorld) -> None:
    """Not believed: the reason reaches whoever sends."""
    producer = secure.producer(tls=True, tls_client_trust_cert_path=certificate("stranger"))
    with pytest.raises(
        NoNameServer, match="the server's certificate is not believed: unable to get local issuer certificate"
    ):
        producer.send(Message(secure.topic, b"x"))


def test_tls_to_a_server_without_it(secure: SecureWorld) -> None:
    """TLS-01: a quick, clear error."""
    producer = secure.start(secure.runtime.module.Producer, "p-plain", secure.plain_namesrv, **TRUSTING)
    with pytest.raises(NoNameServer, match=r"TLS handshake failed: .*\bTLS\b"):
        producer.send(Message(secure.topic, b"x"))


def test_plain_to_a_server_with_tls(secure: SecureWorld) -> None:
    """TLS-01: nothing gets through."""
    producer = secure.producer()
    with pytest.raises(Exception, match=re.escape(secure.namesrv)):
        producer.send(Message(secure.topic, b"x"), timeout_ms=2_000)


def test_settings_that_contradict_each_other(runtime: Runtime) -> None:
    producer = runtime.module.Producer
    for options, says in (
        ({"tls_test_mode_enable": True}, "without tls=True"),
        ({"ssl_context": object(), "tls_check_hostname": False}, "says all of it"),
        ({"ssl_context": object()}, "an ssl.SSLContext expected"),
        ({"tls": 1}, "bool expected"),
        (
            {"tls": True, "tls_client_key_password": b"hidden"},
            r"tls_client_key_password=\.\.\.: a value of type str expected",
        ),
        ({"tls": True, "tls_client_trust_cert_path": "/nowhere.pem"}, "cannot be read"),
        ({"tls": True, "tls_client_trust_cert_path": __file__}, "no certificate"),
        ({"tls": True, "tls_client_cert_path": "/nowhere.pem"}, "certificate or key cannot be read"),
        ({"tls": True, "tls_client_key_path": "/nowhere.pem"}, "no effect without tls_client_cert_path"),
        ({"tls": True, "tls_config_file": "/nowhere.properties"}, "cannot read"),
    ):
        with pytest.raises(InvalidSetting, match=says):
            producer("g", "127.0.0.1:1", **options)


def test_a_wrong_password_is_not_shown(runtime: Runtime) -> None:
    with pytest.raises(InvalidSetting, match="the password is wrong") as caught:
        runtime.module.Producer(
            "g",
            "127.0.0.1:1",
            tls=True,
            tls_client_cert_path=certificate("client"),
            tls_client_key_path=certificate("client-key-encrypted"),
            tls_client_key_password="not this one",
        )
    assert "not this one" not in str(caught.value)


def test_javas_file_has_the_last_word(secure: SecureWorld, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.test.mode.enable=false\ntls.client.trustCertPath={certificate('authority')}\ntls.server.mode=enforcing\n"
    )
    producer = secure.producer(tls=True, tls_client_trust_cert_path=certificate("stranger"), tls_config_file=str(file))
    assert producer.send(Message(secure.topic, b"x")).status is SendStatus.SEND_OK
    file.write_text("tls.test.mode.enable=true\n")
    other = secure.producer("another", tls=True, tls_config_file=str(file))
    assert other.send(Message(secure.topic, b"x")).status is SendStatus.SEND_OK


def test_clients_that_share_an_instance_share_their_tls(secure: SecureWorld) -> None:
    options = {**TRUSTING, "instance_name": "shared"}
    one, two = secure.producer("one", **options), secure.producer("two", **options)
    plain = secure.producer("three", instance_name="shared", tls=True, tls_test_mode_enable=True)
    assert one._target._node is two._target._node
    assert plain._target._node is not one._target._node
    for producer in (one, two, plain):
        assert producer.send(Message(secure.topic, b"x")).status is SendStatus.SEND_OK


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_child_of_a_fork_says_no_goodbye_for_its_parent(secure: SecureWorld) -> None:
    """Its copies of the connections end without a word, and without a warning about what nobody closed."""
    if secure.runtime.name not in ("threaded", "gevent"):
        pytest.skip("event loops do not survive a fork")
    program = f"""
        import os
        from mqproto.adapters.{secure.runtime.name} import Producer
        options = dict(tls=True, tls_client_trust_cert_path={certificate("authority")!r})
        with Producer("parent", namesrv, **options) as producer:
            first = producer.send(Message({secure.topic!r}, b"before")).queue
            child = os.fork()
            if child == 0:
                with Producer("child", namesrv, **options) as own:
                    own.send(Message({secure.topic!r}, b"child"))
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            for number in range(20):
                producer.send_oneway(Message({secure.topic!r}, b"after"), queue=first)
            producer.send(Message({secure.topic!r}, b"last"), queue=first)
        say("done")
    """
    assert run(cast(Any, secure.server_for_programs), program) == "done\n"
    assert [relay.accepted for relay in secure.relays] == [2, 2], "the parent's connections live on"
    collector = secure.collect(**TRUSTING)
    collector.wait(23)
    assert collector.bodies().count(b"after") == 20


# --- keys


def test_a_broker_without_access_control_takes_signed_requests(world: World) -> None:
    account = SessionCredentials("key", "secret", "token")
    assert world.producer(credentials=account).send(Message(world.topic, b"signed")).status is SendStatus.SEND_OK
    assert world.collect(credentials=account).wait(1)[0].body == b"signed"


def test_equal_keys_share_an_instance(world: World) -> None:
    made = [
        world.producer(f"g{index}", instance_name="shared", credentials=SessionCredentials(key, "secret"))
        for index, key in enumerate(("a", "a", "b"))
    ]
    nodes = [producer._target._node for producer in made]
    assert nodes[0] is nodes[1]
    assert nodes[2] is not nodes[0]


def test_keys_that_cannot_sign_are_refused_at_once(runtime: Runtime) -> None:
    with pytest.raises(AclError, match="secret_key"):
        runtime.module.Producer("g", "127.0.0.1:1", credentials=SessionCredentials("key", ""))


def test_keys_of_a_file_are_text_as_written(tmp_path: Path) -> None:
    """ACL-03: numbers stay as they are written, blank means none, comments and quotes are known."""
    for name, text in (
        ("tools.yml", "# keys\naccessKey: 00123456\nsecretKey: 12345678  # not a number\n"),
        ("tools.yaml", "---\r\naccessKey: '00123456'\r\nsecretKey: \"12345678\"\r\nsecurityToken:\r\n"),
        ("key", "AccessKey=00123456\nSecretKey = 12345678\nSecurityToken=\n"),
        ("keys.properties", "AccessKey: 00123456\nSecretKey: 12345678\n"),
    ):
        (tmp_path / name).write_text(text)
        assert credentials_from_file(tmp_path / name) == SessionCredentials("00123456", "12345678"), name
    (tmp_path / "key").write_text("AccessKey=a\nSecretKey=s=\\u00e4\nSecurityToken=t\n")
    assert credentials_from_file(str(tmp_path / "key")) == SessionCredentials("a", "s=ä", "t")
    (tmp_path / "quotes.yml").write_text("accessKey: 'it''s'\nsecretKey: \"a \\\"b\\\" # c\"\n")
    assert credentials_from_file(tmp_path / "quotes.yml") == SessionCredentials("it's", 'a "b" # c')


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("tools.yml", "", "it has no accessKey"),
        ("tools.yml", "accessKey: a\nsecretKey:\n", "it has no secretKey"),
        ("tools.yml", "accessKey: a\nsecretKey: [hidden]\n", "line 2 is no `key: value`"),
        ("tools.yml", "accounts:\n  - accessKey: hidden\n", "line 2 is no `key: value`"),
        ("tools.yml", "accessKey: hidden\naccessKey: hidden\n", "line 2 names accessKey again"),
        ("tools.yml", "accessKey=hidden\n", "line 1 is no `key: value`"),
        ("key", "", "it has no AccessKey"),
        ("key", "AccessKey=a\nSecretKey=\\uhidden\n", "no properties file"),
        ("key", "x" * 70_000, "no file of keys"),
    ],
)
def test_files_without_usable_keys(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidSetting, match=re.escape(says)) as caught:
        credentials_from_file(tmp_path / name)
    assert "hidden" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="cannot be read"):
        credentials_from_file(tmp_path / "none")
    (tmp_path / "tools.yml").write_bytes(b"accessKey: \xff\n")
    with pytest.raises(InvalidSetting, match="not UTF-8"):
        credentials_from_file(tmp_path / "tools.yml")
