"""Parts of tests of producers: a node as a producer sees it, and short forms for what its flows ask and are
told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.namespaces import NO_NAMESPACE, Namespace
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Effect, Flow
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from mqproto.wire.ids import UniqueIds
from tests.mqproto.state.stage import WALL, route

SEND = RequestCode.SEND_MESSAGE_V2
SEND_BATCH = RequestCode.SEND_BATCH_MESSAGE
TOPIC = "orders"


@dataclass
class Host:
    """What a producer sees of its node."""

    wall_ahead: int = WALL
    settings: ClientSettings = field(default_factory=ClientSettings)
    routes: RouteTable = field(default_factory=RouteTable)
    namespace: Namespace = NO_NAMESPACE
    ids: UniqueIds = field(default_factory=lambda: UniqueIds(bytes((10, 0, 0, 7)), 4711, 0))
    seed: int = 0
    woken: list[Ticket[None]] = field(default_factory=list)
    #: Bytes that brokers have left unread, by address.
    unread: dict[str, int] = field(default_factory=dict)

    def wake_soon(self, ticket: Ticket[None]) -> None:
        if not ticket.settled:
            ticket.settle(None)
            self.woken.append(ticket)

    def unsent(self, address: str) -> int:
        return self.unread.get(address, 0)


def producer(*brokers: str, queues: int = 2, host: Host | None = None, **settings: Any) -> ProducerCore:
    host = host or Host()
    if brokers:
        host.routes.update(TOPIC, route(*brokers, queues=queues))
    return ProducerCore(ProducerSettings(group="pg", **settings), host)


def took(queue_id: int, offset: int = 7, code: int = 0, **fields: str) -> Command:
    return Command(code, {"msgId": "AA", "queueId": str(queue_id), "queueOffset": str(offset), **fields}, flag=1)


def call(effect: Effect) -> tuple[str | None, str, str, int]:
    """Address, queue id, broker name and deadline of a send that a flow asks for."""
    assert isinstance(effect, Call)
    assert effect.code in (SEND, RequestCode.SEND_BATCH_MESSAGE)
    return effect.address, effect.fields["e"], effect.fields["n"], effect.deadline


def end(flow: Flow[Any], outcome: object, now: int) -> Any:
    """What the flow returns; whatever it raises instead is raised."""
    with pytest.raises(StopIteration) as stop:
        flow.send((outcome, now))
    return stop.value.value
