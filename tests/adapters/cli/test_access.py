"""The command line with clusters that want TLS, an account, a namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto import ConsumeFromWhere, ConsumeStatus, Message
from mqproto.adapters.threaded import Producer, PushConsumer, Standalone
from tests.adapters.cli.test_cli import run
from tests.adapters.harness import Collector
from tests.adapters.tls_peers import certificate, server_context, tls_relay


def test_in_a_namespace(tmp_path: Path) -> None:
    with Standalone() as server:
        where = ("-n", server.namesrv_address, "--namespace", "mine")
        sent = run(tmp_path, "send", *where, "Orders", "hello")
        assert (sent.returncode, sent.stderr) == (0, "")
        received = Collector()

        def listen(messages: list[object]) -> ConsumeStatus:
            received.take(messages)  # type: ignore[arg-type]
            return ConsumeStatus.SUCCESS

        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = PushConsumer("group", listen, server.namesrv_address, consume_from_where=first)
        consumer.subscribe("mine%Orders")
        with consumer:
            assert received.wait(1)[0].body == b"hello"
        printed = run(tmp_path, "consume", *where, "Orders", "--count", "1")
        assert (printed.returncode, "hello" in printed.stdout) == (0, True)


def test_keys_and_tls(tmp_path: Path) -> None:
    keys = tmp_path / "key"
    keys.write_text("AccessKey=operator\nSecretKey=hidden-word\n")
    trust = tmp_path / "tls.properties"
    trust.write_text(
        f"tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath={certificate('authority')}\n"
    )
    with Standalone() as server, Producer("p", server.namesrv_address) as producer:
        producer.send(Message("Orders", b"first"))
        relay = tls_relay(server.namesrv_address, server_context())
        try:
            # The name server is behind TLS, the broker that it names is not: the handshake with it fails, and says so.
            done = run(
                tmp_path,
                "send",
                "-n",
                relay.address,
                "--tls-config",
                str(trust),
                "--key-file",
                str(keys),
                "Orders",
                "x",
            )
        finally:
            relay.close()
    assert done.returncode == 1
    assert "TLS" in done.stderr
    assert "hidden-word" not in done.stderr + done.stdout


@pytest.mark.parametrize("command", ["send", "consume"])
def test_a_file_of_keys_that_is_none(tmp_path: Path, command: str) -> None:
    done = run(tmp_path, command, "--key-file", str(tmp_path / "none"), "Orders", *(["x"] if command == "send" else []))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be read" in done.stderr
