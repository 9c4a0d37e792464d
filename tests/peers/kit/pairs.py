"""Pairs of a client and a server, and what a test does with the two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.peers.kit import probes, wire
from tests.peers.kit.checks import Sent, sent_by
from tests.peers.kit.probes import Clients, Outcome, Running
from tests.peers.kit.servers import Server


@dataclass
class Pair:
    """A server and a client that talk to each other."""

    server: Server
    client: probes.Client
    clients: Clients
    number: Iterator[int]

    def name(self, stem: str) -> str:
        """A topic or group name that no other test uses."""
        return f"{stem}-{os.getpid()}-{next(self.number)}"

    def topic(self, stem: str, queues: int = 4) -> str:
        """An empty topic that no other test uses."""
        name = self.name(stem)
        wire.make_topic(self.server.names, self.server.broker, name, queues)
        return name

    def start(self, command: str, **options: Any) -> Running:
        """Start a command of the client's probe against the server."""
        return self.client.start(command, names=self.server.names, **options)

    def run(self, command: str, *, status: int | None = 0, limit: float = 150, **options: Any) -> Outcome:
        """Run one from start to end."""
        return probes.finish(self.start(command, **options), limit, status)

    def produce(self, **options: Any) -> list[Sent]:
        """Send messages; they must all be accepted."""
        outcome = self.run("produce", **options)
        assert outcome.lines[-1]["accepted"] == int(str(options.get("count", 1))), probes.describe(outcome)
        sent = sent_by(outcome, options)
        for message in sent:
            message.stored_by = self.server.kind
        return sent

    def other(self, kind: str) -> Pair:
        """The same server with another client."""
        return Pair(self.server, self.clients[kind], self.clients, self.number)


def pairs(*names: str) -> pytest.MarkDecorator:
    """Parametrises `pair` with each "CLIENT @ SERVER"; see `spreading` for what the ids of the tests are used for."""
    return pytest.mark.parametrize("pair", names, ids=[name.replace(" ", "") for name in names], indirect=True)
