"""Life of a consumer: its phases, and what its start asks of name servers and brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Protocol

from mqproto.errors import BrokerError, ConnectionLost, NoRoute, StateError
from mqproto.state.cluster.brokers import REFRESH_TIMEOUT_MS
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Flow, Refresh, success
from mqproto.wire.bodies import CheckClient, SubscriptionData
from mqproto.wire.codes import RequestCode
from mqproto.wire.filters.tags import TAG


class Phase(Enum):
    """Phases in their order; there is no way back."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class StartNode(Protocol):
    """Members of the node that the start of a consumer needs."""

    @property
    def client_id(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def routes(self) -> RouteTable: ...

    @property
    def api_timeout_ms(self) -> int: ...


class Life:
    """Phase of one consumer, the errors for what it does not allow, and the checks of the start."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.phase = Phase.CREATED

    @property
    def ending(self) -> bool:
        return self.phase in (Phase.STOPPING, Phase.STOPPED)

    def check_new(self) -> None:
        if self.phase is not Phase.CREATED:
            raise StateError(f"consumer {self.group} is {self.phase.value} already")

    def check_open(self) -> None:
        if self.ending:
            raise StateError(f"consumer {self.group} is {self.phase.value}")

    def check_running(self) -> None:
        if self.phase is not Phase.RUNNING:
            raise StateError(f"consumer {self.group} is {self.phase.value}")

    def check_starting(self) -> None:
        if self.phase is not Phase.STARTING:
            raise StateError(f"consumer {self.group} was closed while it started")

    # --- the start

    def find_routes(self, topics: Collection[str], now: int) -> Flow[int]:
        """Fetch the routes of all topics. One that does not exist may come later; name servers out of reach are
        a failure, unless all that happened is that a link broke.
        """
        for topic in topics:
            failure, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
            if isinstance(failure, ConnectionLost):
                failure, now = yield Refresh(topic, now + REFRESH_TIMEOUT_MS)
            self.check_starting()
            if failure is not None and not isinstance(failure, BrokerError):
                raise failure
        return now

    def check_filters(self, subscriptions: Iterable[SubscriptionData], node: StartNode, now: int) -> Flow[int]:
        """CHECK_CLIENT_CONFIG for each subscription that is not by tags (docs/protocol/client.md CI-9): a broker may
        not know that kind of filter.
        """
        for data in [data for data in subscriptions if data.type != TAG]:
            address = node.routes.any_address(data.topic, node.seed)
            if address is None:
                raise NoRoute(data.topic)
            body = CheckClient(node.client_id, self.group, data).to_json()
            outcome, now = yield Call(address, RequestCode.CHECK_CLIENT_CONFIG, {}, body, now + node.api_timeout_ms)
            self.check_starting()
            success(outcome, address)
        return now
