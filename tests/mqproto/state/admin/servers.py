"""Two name servers and two masters (one with a slave) that are scripted, for an admin core on a stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqproto.codec import Command, encode_response
from mqproto.state.admin import AdminCore
from mqproto.wire.bodies import BrokerData, ClusterInfo, QueueData, TopicRoute
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.stage import Peer, Stage, refused, success

NS1, NS2 = "ns1:9876", "ns2:9876"
A, B = "a:10911", "b:10911"
SLAVE = "slave:10911"
CLUSTER = "c"


class Servers:
    """Every server answers success to everything unless told otherwise. Topics have two queues at each broker."""

    def __init__(self, *topics: str, **settings: Any) -> None:
        self.stage = Stage(name_servers=(NS1, NS2), **settings)
        self.core = AdminCore(self.stage.node)
        self.routes: dict[str, TopicRoute] = {}
        for address in (NS1, NS2, A, B, SLAVE):
            self.stage.peers[address] = Peer()
        self.brokers = {
            "a": BrokerData(CLUSTER, "a", {0: A, 1: SLAVE}),
            "b": BrokerData(CLUSTER, "b", {0: B}),
        }
        for topic in topics:
            self.add(topic)
        for name_server in (NS1, NS2):
            peer = self.stage.peers[name_server]
            peer.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route
            peer.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = self._clusters

    def add(self, topic: str, *brokers: str, queues: int = 2) -> None:
        names = brokers or tuple(self.brokers)
        self.routes[topic] = TopicRoute(
            [QueueData(name, queues, queues, 6) for name in names], [self.brokers[name] for name in names]
        )

    def _route(self, request: Command) -> bytes:
        found = self.routes.get(request.fields["topic"])
        return success(request, body=found.to_json()) if found is not None else refused(request, 17, "no route")

    def _clusters(self, request: Command) -> bytes:
        names: dict[str, list[str]] = {}
        for broker in self.brokers.values():
            names.setdefault(broker.cluster, []).append(broker.broker_name)
        return success(request, body=ClusterInfo(dict(self.brokers), names).to_json())

    # --- what tests script

    def answer(self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        self.stage.peers[address].answers[code] = lambda request: success(request, fields, body)

    def refuse(self, address: str, code: int, response: int, remark: str = "no") -> None:
        self.stage.peers[address].answers[code] = lambda request: encode_response(
            request.opaque, response, None, remark=remark
        )

    def silence(self, address: str, code: int) -> None:
        self.stage.peers[address].answers[code] = lambda request: None

    def vanish(self, address: str) -> None:
        """Nobody listens there any more."""
        del self.stage.peers[address]

    # --- what tests look at

    def run(self, flow: Any) -> Any:
        """Run an operation; whatever has no script is answered by success."""
        for peer in self.stage.peers.values():
            peer.answers = _Obliging(peer.answers)
        ticket = self.stage.start(flow)
        if not ticket.settled:
            self.stage.advance(60_000)
        return ticket.result()

    def asked(self, address: str) -> list[tuple[int, dict[str, str]]]:
        """Code and fields of what a server was asked, without routes and clusters."""
        beside = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
        return [(one.code, dict(one.fields)) for one in self.stage.peers[address].got if one.code not in beside]


class _Obliging(dict[int, Any]):
    def get(self, code: int, default: Any = None) -> Any:
        return super().get(code, success)
