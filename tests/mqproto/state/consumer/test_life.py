"""Life of a consumer: what each phase allows, and the checks of the start."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.errors import BrokerError, ConnectionLost, NoNameServer, NoRoute, StateError
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.life import Life, Phase
from mqproto.state.consumer.subscriptions import subscription_data
from mqproto.state.flows.effects import Call, Flow, Refresh
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.filters.tags import SQL92, TAG
from tests.mqproto.state.stage import route


class Node:
    client_id = "me"
    seed = 0
    api_timeout_ms = 3_000

    def __init__(self) -> None:
        self.routes = RouteTable()
        self.routes.update("T", route("b=b:1"))


@pytest.fixture
def life() -> Life:
    life = Life("g")
    life.phase = Phase.STARTING
    return life


def play(flow: Flow[Any], *outcomes: object) -> object:
    """Give a flow these outcomes, one millisecond each; its result, or the last effect where it goes on."""
    try:
        effect: object = next(flow)
        for now, outcome in enumerate(outcomes, 1):
            effect = flow.send((outcome, now))
    except StopIteration as stop:
        return stop.value
    return effect


@pytest.mark.parametrize(
    ("phase", "allowed"),
    [
        (Phase.CREATED, {"check_new", "check_open"}),
        (Phase.STARTING, {"check_open", "check_starting"}),
        (Phase.RUNNING, {"check_open", "check_running"}),
        (Phase.STOPPING, set()),
        (Phase.STOPPED, set()),
    ],
)
def test_a_phase_refuses_what_it_does_not_allow(phase: Phase, allowed: set[str]) -> None:
    life = Life("g")
    life.phase = phase
    for name in ("check_new", "check_open", "check_starting", "check_running"):
        if name in allowed:
            getattr(life, name)()
        else:
            with pytest.raises(StateError, match="consumer g"):
                getattr(life, name)()
    assert life.ending is (not allowed)


def test_a_topic_without_a_route_may_come_later(life: Life) -> None:
    refusal = BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no", "ns:1")
    assert play(life.find_routes(["T", "U"], 0), refusal, None) == 2


def test_a_broken_link_to_a_name_server_is_tried_once_more(life: Life) -> None:
    lost = ConnectionLost("ns:1", "gone")
    assert play(life.find_routes(["T"], 0), lost) == Refresh("T", 3_001)
    assert play(life.find_routes(["T"], 0), lost, None) == 2
    with pytest.raises(ConnectionLost):
        play(life.find_routes(["T"], 0), lost, lost)


def test_name_servers_out_of_reach_fail_the_start(life: Life) -> None:
    with pytest.raises(NoNameServer):
        play(life.find_routes(["T"], 0), NoNameServer(("ns:1",)))


def test_brokers_check_filters_that_are_not_by_tags(life: Life) -> None:
    """docs/protocol/client.md CI-9."""
    subscriptions = [subscription_data("U", "*", TAG), subscription_data("T", "a > 1", SQL92)]
    flow = life.check_filters(subscriptions, Node(), 5)
    effect = next(flow)
    assert isinstance(effect, Call)
    assert (effect.address, effect.code, effect.deadline) == ("b:1", RequestCode.CHECK_CLIENT_CONFIG, 3_005)
    with pytest.raises(BrokerError, match="sql"):
        flow.send((Command(code=1, flag=1, remark="sql"), 6))
    assert play(life.check_filters(subscriptions, Node(), 5), Command(code=0, flag=1)) == 1
    with pytest.raises(NoRoute):
        play(life.check_filters([subscription_data("V", "a > 1", SQL92)], Node(), 0))


def test_a_close_during_the_start_ends_it(life: Life) -> None:
    flow = life.find_routes(["T"], 0)
    next(flow)
    life.phase = Phase.STOPPING
    with pytest.raises(StateError, match="closed while it started"):
        flow.send((None, 1))
