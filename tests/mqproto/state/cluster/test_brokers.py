"""Finding the broker of a queue."""

from __future__ import annotations

import pytest

from mqproto.errors import BrokerError, NoRoute
from mqproto.message import MessageQueue
from mqproto.state.cluster.brokers import find_broker
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Flow, Refresh
from tests.mqproto.state.stage import route

QUEUE = MessageQueue("T", "b", 0)


def ended(flow: Flow[tuple[str, int]], outcome: object, now: int) -> tuple[str, int]:
    with pytest.raises(StopIteration) as stop:
        flow.send((outcome, now))
    address, later = stop.value.value
    return address, later


def test_a_known_master_is_answered_at_once() -> None:
    routes = RouteTable()
    routes.update("T", route("b=b:1"))
    flow = find_broker(routes, QUEUE, 7, master_only=True)
    with pytest.raises(StopIteration) as stop:
        next(flow)
    assert stop.value.value == ("b:1", 7)


def test_an_unknown_master_is_looked_up_once() -> None:
    routes = RouteTable()
    flow = find_broker(routes, QUEUE, 7, master_only=True)
    assert next(flow) == Refresh("T", 3_007)
    routes.update("T", route("b=b:1"))
    assert ended(flow, None, 9) == ("b:1", 9)


def test_a_slave_stands_in_where_that_is_allowed() -> None:
    routes = RouteTable()
    routes.update("T", route("b=b:1"))
    routes.addresses["b"] = {1: "slave:1"}
    flow = find_broker(routes, QUEUE, 7, master_only=False)
    next(flow)
    assert ended(flow, None, 9) == ("slave:1", 9)
    flow = find_broker(routes, QUEUE, 7, master_only=True)
    next(flow)
    with pytest.raises(NoRoute):
        flow.send((None, 9))


@pytest.mark.parametrize("master_only", [True, False])
def test_nobody_to_ask_is_an_error_with_its_reason(master_only: bool) -> None:
    for failure, error in ((BrokerError(17, "no", "ns:1"), BrokerError), (None, NoRoute)):
        flow = find_broker(RouteTable(), QUEUE, 7, master_only=master_only)
        next(flow)
        with pytest.raises(error):
            flow.send((failure, 9))
