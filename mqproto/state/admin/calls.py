"""Calls of administration, which the families of operations share (docs/protocol/admin.md 1, 4).

Owns: time-outs, what a failure of a call is as an error, brokers of a topic, of a group and of a cluster, operations
over several servers. Leaves to others: what is asked and what the answers mean (the families), links and calls (the
client node).

Flows here know no time before their first effect: each question takes the time of its own when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from mqproto.codec import Command
from mqproto.errors import (
    BrokerError,
    ClientError,
    MQError,
    NoClients,
    NoCluster,
    NoNameServer,
    NoRoute,
    PartlyFailed,
    PlaceFailure,
    refusal,
)
from mqproto.message import MessageQueue
from mqproto.state.flows.effects import Call, Flow, Lost, answer, current
from mqproto.state.flows.name_servers import NameServerList
from mqproto.validation import check_given, check_range
from mqproto.wire.bodies import ClusterInfo, TopicRoute
from mqproto.wire.bodies.routes import MASTER_ID
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.names import retry_topic

T = TypeVar("T")

#: Limit of one request (docs/protocol/admin.md 1).
TIMEOUT_MS: Final = 5_000
#: How much longer brokers may take to ask consumers, and to count what groups have consumed.
LONG: Final = 3
LONGEST_TIMEOUT_MS: Final = 600_000


class AdminHost(Protocol):
    """Members of the client node that the operations need."""

    name_servers: NameServerList


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Broker that an operation goes to."""

    broker_name: str
    address: str


class AdminCalls:
    """Calls to servers, and which servers an operation goes to.

    `timeout_ms` is the limit of one request; an operation of several requests has it for each of them.
    """

    __slots__ = ("_host", "timeout_ms")

    def __init__(self, host: AdminHost, timeout_ms: int = TIMEOUT_MS) -> None:
        """Raises InvalidSetting."""
        check_range("timeout_ms", timeout_ms, 1, LONGEST_TIMEOUT_MS)
        self._host = host
        self.timeout_ms = timeout_ms

    # --- questions

    def ask(
        self,
        address: str | None,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Flow[Command]:
        """The answer of a broker, or of a name server (address None: of any), whatever its code.

        Raises NoNameServer, ConnectFailed, ConnectionLost, CallExpired.
        """
        now = yield from current(0)
        outcome, _ = yield Call(address, code, fields or {}, body, now + (timeout_ms or self.timeout_ms))
        if address is None and isinstance(outcome, Lost) and not outcome.connected:
            known = self._host.name_servers.addresses
            raise NoNameServer(known, outcome.reason if known else "")
        return answer(outcome)

    def done(
        self,
        address: str | None,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Flow[Command]:
        """The answer, if it is success. Raises BrokerError for any other code, else as `ask`."""
        command = yield from self.ask(address, code, fields, body, timeout_ms=timeout_ms)
        if command.code != ResponseCode.SUCCESS:
            raise self.refusal(command, address)
        return command

    def refusal(self, command: Command, address: str | None) -> BrokerError:
        """The error that stands for an answer which is not success."""
        return refusal(command.code, command.remark, address or f"name server ({self._host.name_servers})")

    @property
    def long_timeout_ms(self) -> int:
        """The limit of requests for which brokers ask consumers or look at many queues."""
        return self.timeout_ms * LONG

    # --- where to ask

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Every name server, for what each of them must be told. Raises NoNameServer when there is none."""
        if not self._host.name_servers.addresses:
            raise NoNameServer()
        return self._host.name_servers.addresses

    def route(self, topic: str) -> Flow[TopicRoute]:
        """Where a topic is, as a name server says now. Raises InvalidName, NoRoute."""
        check_given("topic", topic)
        command = yield from self.ask(None, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if command.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(topic)
        if command.code != ResponseCode.SUCCESS:
            raise self.refusal(command, None)
        return TopicRoute.from_json(bytes(command.body))

    def places(self, topic: str) -> Flow[list[BrokerAddress]]:
        """One address of each broker of a topic: its master, or a slave where there is none.

        Raises NoRoute when there is no broker.
        """
        route = yield from self.route(topic)
        return places_of(topic, route)

    def group_places(self, group: str) -> Flow[list[BrokerAddress]]:
        """The same for the brokers at which a consumer group has been: those of its retry topic.

        Raises NoClients when there is none.
        """
        check_given("group", group)
        try:
            return (yield from self.places(retry_topic(group)))
        except NoRoute as error:
            raise NoClients(group, "no broker has seen it consume") from error

    def master(self, queue: MessageQueue) -> Flow[str]:
        """The master of the broker of a queue. Raises NoRoute when there is none."""
        route = yield from self.route(queue.topic)
        for broker in route.brokers:
            if broker.broker_name == queue.broker_name and MASTER_ID in broker.addresses:
                return broker.addresses[MASTER_ID]
        raise NoRoute(queue.topic)

    def cluster(self) -> Flow[ClusterInfo]:
        """Every broker that a name server knows."""
        command = yield from self.done(None, RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.from_json(bytes(command.body))

    def masters(self, cluster: str | None, *, slaves: bool = False) -> Flow[list[BrokerAddress]]:
        """The masters of a cluster (None: of all clusters), by broker name; with `slaves` all its brokers.

        Raises NoCluster.
        """
        info = yield from self.cluster()
        if cluster is None:
            names = {name for members in info.clusters.values() for name in members}
        elif cluster in info.clusters:
            names = set(info.clusters[cluster])
        else:
            raise NoCluster(cluster, tuple(sorted(info.clusters)))
        found = [info.brokers[name] for name in sorted(names) if name in info.brokers]
        return [
            BrokerAddress(broker.broker_name, address)
            for broker in found
            for broker_id, address in sorted(broker.addresses.items())
            if slaves or broker_id == MASTER_ID
        ]

    # --- operations over several servers

    def at_each(self, operation: str, places: Iterable[str], do: Callable[[str], Flow[T]]) -> Flow[dict[str, T]]:
        """Do the same at each address, one after the other, also after a failure. The results by address.

        Raises PartlyFailed when it failed anywhere: it says where, and where it is done.
        """
        done: dict[str, T] = {}
        failures: list[PlaceFailure] = []
        for place in places:
            try:
                done[place] = yield from do(place)
            except MQError as failure:
                failures.append(PlaceFailure(place, failure))
        if failures:
            raise PartlyFailed(operation, tuple(done), tuple(failures))
        return done

    def over(
        self,
        operation: str,
        broker: str | None,
        cluster: str | None,
        do: Callable[[str], Flow[T]],
        *,
        slaves: bool = False,
    ) -> Flow[dict[str, T]]:
        """Do something at the broker of an address, or at each master (with `slaves` each broker) of a cluster: one of
        them is given.

        Raises what `do` raises for the one broker, PartlyFailed for a cluster, ClientError when both or none are given.
        """
        check_target(broker, cluster)
        if broker is not None:
            return {broker: (yield from do(broker))}
        places = yield from self.masters(cluster, slaves=slaves)
        return (yield from self.at_each(operation, [place.address for place in places], do))

    def everywhere(
        self, operation: str, broker: str | None, cluster: str | None, do: Callable[[str], Flow[T]]
    ) -> Flow[dict[str, T]]:
        """The same, and at the masters of all clusters when neither is given."""
        if broker is None and cluster is None:
            masters = yield from self.masters(None)
            return (yield from self.at_each(operation, [place.address for place in masters], do))
        return (yield from self.over(operation, broker, cluster, do))


def check_target(broker: str | None, cluster: str | None) -> None:
    """Raises ClientError unless exactly one of a broker's address and a cluster's name is given."""
    if (broker is None) == (cluster is None):
        raise ClientError("give the address of a broker or the name of a cluster, one of them")


def places_of(topic: str, route: TopicRoute) -> list[BrokerAddress]:
    """One address of each broker in a route, by broker name. Raises NoRoute when there is none."""
    found = [
        BrokerAddress(broker.broker_name, broker.addresses[min(broker.addresses)])
        for broker in sorted(route.brokers, key=lambda broker: broker.broker_name)
        if broker.addresses
    ]
    if not found:
        raise NoRoute(topic)
    return found


def queue_fields(queue: MessageQueue) -> dict[str, str]:
    """What every request about one queue has."""
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}
