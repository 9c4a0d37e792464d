"""Addresses of the brokers of queues, by the routes (docs/protocol/client.md 1.6)."""

from __future__ import annotations

from typing import Final

from mqproto.errors import NoRoute
from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Refresh

#: Limit of one question to a name server.
REFRESH_TIMEOUT_MS: Final = 3_000


def find_reader(routes: RouteTable, queue: MessageQueue, broker_id: int, now: int) -> Flow[tuple[str, int, int]]:
    """Where to read a queue: the broker with this id, or another with the same name where that one is gone; its id, and
    the time.

    Raises MQError when there is nobody to ask, after a refreshed route.
    """
    found = routes.reader(queue.broker_name, broker_id)
    if found is None:
        failure, now = yield Refresh(queue.topic, now + REFRESH_TIMEOUT_MS)
        found = routes.reader(queue.broker_name, broker_id)
        if found is None:
            raise failure or NoRoute(queue.topic)
    return *found, now


def find_broker(routes: RouteTable, queue: MessageQueue, now: int, *, master_only: bool) -> Flow[tuple[str, int]]:
    """The master of the queue's broker, after a refreshed route where none is known, and the time.

    Where there is no master even then, a slave does unless `master_only`. Raises MQError when there is nobody to ask.
    """
    address = routes.master(queue.broker_name)
    if address is not None:
        return address, now
    failure, now = yield Refresh(queue.topic, now + REFRESH_TIMEOUT_MS)
    address = routes.master(queue.broker_name)
    if address is None and not master_only:
        found = routes.reader(queue.broker_name)
        address = None if found is None else found[0]
    if address is None:
        raise failure or NoRoute(queue.topic)
    return address, now
