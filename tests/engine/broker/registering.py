"""Brokers that register, and what name servers get of it."""

from __future__ import annotations

from typing import Any

from mqproto.codec import Command
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody
from tests.engine.broker.harness import Peer, World

TWO = "192.0.2.1:9876;ns2:9876"
IDENTITY = {"brokerAddr": "192.0.2.2:10911", "brokerId": "0", "brokerName": "broker-a", "clusterName": "DefaultCluster"}


def make(addresses: str = "192.0.2.1:9876", **settings: Any) -> World:
    return World(namesrv_addr=addresses, **settings)


def taken(server: Peer) -> Command:
    (request,) = server.read()
    return request


def topics(request: Command) -> set[str]:
    body = RegisterBrokerBody.decode(
        request.body, compressed=request.fields["compressed"] == "true", version=request.version
    )
    return set(body.topic_table.topics)


def version(request: Command) -> DataVersion:
    return RegisterBrokerBody.from_json(request.body).topic_table.data_version


def registered(world: World) -> Peer:
    """A name server that has confirmed the first registration."""
    server = world.open_dialled()
    server.answer(taken(server))
    return server
