"""Clients over a cluster of ours, two name servers and two brokers in processes of their own, that loses a member of
each kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.peers.conftest import need
from tests.peers.kit import wire
from tests.peers.kit.checks import sent_by
from tests.peers.kit.probes import Client, Clients, Line, finish, wait_for
from tests.peers.kit.servers import COMMON, ROOT, SMALL, free_port, stop

Process = subprocess.Popen[str]


@contextmanager
def running(kind: str, port: int, settings: Mapping[str, str], *arguments: str) -> Iterator[Process]:
    """One server of ours as a process, which says that it is ready before this goes on."""
    pairs = [f"--set={key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "adapters", kind, "--json", f"--port={port}", *arguments, *pairs]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert json.loads(line)[kind] == f"127.0.0.1:{port}", line
        try:
            yield process
        finally:
            if process.poll() is None:
                stop(process)  # type: ignore[arg-type]  # it looks at no stream


@pytest.mark.parametrize("kind", ["java-4.9.7", "ours-threaded"])
def test_a_broker_and_a_name_server_leave_and_come_back(kind: str, clients: Clients, tmp_path: Path) -> None:
    need(kind)
    client: Client = clients[kind]
    topic, group = f"Several-{kind.replace('.', '-')}", "several"
    names_ports = [free_port(), free_port()]
    names = ";".join(f"127.0.0.1:{port}" for port in names_ports)
    ports = {name: free_port() for name in ("broker-a", "broker-b")}

    def name_server(port: int) -> Process:
        return stack.enter_context(running("namesrv", port, {}, f"--directory={tmp_path / str(port)}"))

    def broker(name: str) -> Process:
        settings = {**SMALL, **COMMON, "brokerName": name}
        return stack.enter_context(
            running("broker", ports[name], settings, f"--namesrv={names}", f"--store={tmp_path / name}")
        )

    def produce(count: int) -> set[str]:
        """Send so many messages; which brokers took them."""
        options = {"names": names, "topic": topic, "count": count, "body": f"round-{len(sent)}"}
        outcome = finish(client.start("produce", **options))
        assert outcome.lines[-1]["accepted"] == count
        sent.update(message.body.decode() for message in sent_by(outcome, options))
        return {str(line["broker"]) for line in outcome.sent}

    sent: set[str] = set()
    with ExitStack() as stack:
        name_servers = [name_server(port) for port in names_ports]
        brokers = {name: broker(name) for name in ports}
        for port in ports.values():
            wire.make_topic(f"127.0.0.1:{names_ports[0]}", f"127.0.0.1:{port}", topic, 4)
        consumer = client.start("consume", names=names, topic=topic, group=group, expect=10_000, seconds=250)
        assert produce(24) == {"broker-a", "broker-b"}
        stop(name_servers[0])  # type: ignore[arg-type]
        stop(brokers["broker-b"])  # type: ignore[arg-type]
        assert produce(24) == {"broker-a"}
        name_server(names_ports[0])
        wire.wait_route(f"127.0.0.1:{names_ports[0]}", topic)  # broker-a tries again within 8 s
        broker("broker-b")
        assert produce(24) == {"broker-a", "broker-b"}
        received: list[Line] = []
        while {line["body"] for line in received} != sent:  # some may come twice, as their broker left before it knew
            received.append(wait_for(consumer, "body", 120))
        consumer.stop()
        finish(consumer, status=None)
