"""Topics: where they are, how they are set up, how full they are (docs/protocol/admin.md 2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mqproto.errors import ClientError, NoRoute
from mqproto.message import MessageQueue
from mqproto.state.admin import kv
from mqproto.state.admin.calls import AdminCalls, check_target
from mqproto.state.cluster.queue_order import text_order
from mqproto.state.cluster.routes import QUEUES_MAX, parse_order, readable_queues
from mqproto.state.consumer.allocation.allocate import Averagely
from mqproto.state.flows.effects import Flow
from mqproto.validation import check_given, check_range, check_topic
from mqproto.wire.bodies import (
    GroupList,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicRoute,
    TopicStats,
    TopicTable,
)
from mqproto.wire.bodies.routes import MASTER_ID
from mqproto.wire.codes import RequestCode
from mqproto.wire.flags import PERM_INHERIT, PERM_READ_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUB
from mqproto.wire.headers import (
    CreateTopicRequest,
    DeleteTopicFromNamesrvRequest,
    DeleteTopicRequest,
    GetTopicsByClusterRequest,
)
from mqproto.wire.names import AUTO_CREATE_TOPIC

#: Queues of a new topic at each broker unless told otherwise.
QUEUES: Final = 8
_PERM_MAX: Final = PERM_READ_WRITE | PERM_INHERIT


class TopicFlows:
    """Operations on topics.

    All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost, CallExpired where servers fail.
    """

    __slots__ = ("_calls",)

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    # --- what there is

    def names(self) -> Flow[list[str]]:
        """Every topic that a name server knows, retry and dead-letter topics too, sorted."""
        return self._list(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})

    def of_cluster(self, cluster: str) -> Flow[list[str]]:
        """The topics that brokers of a cluster have, sorted; none for a cluster that is unknown."""
        return self._list(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequest(cluster).encode())

    def system(self) -> Flow[list[str]]:
        """The names that are the system's own, sorted: clusters and brokers, which are topics too, and what brokers
        themselves need.
        """
        command = yield from self._calls.done(None, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        known = TopicList.from_json(bytes(command.body))
        names = set(known.topics)
        if known.broker_address:
            command = yield from self._calls.done(known.broker_address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
            names.update(TopicList.from_json(bytes(command.body)).topics)
        return sorted(names)

    def _list(self, code: int, fields: dict[str, str]) -> Flow[list[str]]:
        command = yield from self._calls.done(None, code, fields)
        return sorted(TopicList.from_json(bytes(command.body)).topics)

    def route(self, topic: str) -> Flow[TopicRoute]:
        """Brokers and queues of a topic, as a name server knows them now. Raises InvalidName, NoRoute."""
        return self._calls.route(topic)

    def clusters(self, topic: str) -> Flow[list[str]]:
        """The clusters that have a topic, sorted. Raises InvalidName, NoRoute."""
        route = yield from self._calls.route(topic)
        return sorted({broker.cluster for broker in route.brokers})

    def configs(self, broker: str) -> Flow[dict[str, TopicConfig]]:
        """How every topic is set up at the broker of an address, by topic."""
        command = yield from self._calls.done(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicTable.from_json(bytes(command.body)).topics

    def config(self, topic: str, broker: str) -> Flow[TopicConfig]:
        """How a topic is set up at the broker of an address.

        Raises InvalidName, NoRoute when the broker does not have it.
        """
        check_given("topic", topic)
        found = (yield from self.configs(broker)).get(topic)
        if found is None:
            raise NoRoute(topic)
        return found

    def stats(self, topic: str) -> Flow[dict[MessageQueue, TopicOffset]]:
        """The ends of every queue of a topic: offsets, and when the last message was stored. Raises InvalidName,
        NoRoute.

        Every broker of the topic is asked; the failure of one is raised.
        """
        offsets: dict[MessageQueue, TopicOffset] = {}
        for place in (yield from self._calls.places(topic)):
            command = yield from self._calls.done(place.address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            offsets.update(TopicStats.from_json(bytes(command.body)).offsets)
        return dict(sorted(offsets.items()))

    def consumers(self, topic: str) -> Flow[list[str]]:
        """The groups that consume a topic or have consumed it, at any of its brokers, sorted.

        Raises InvalidName, NoRoute.
        """
        groups: set[str] = set()
        for place in (yield from self._calls.places(topic)):
            command = yield from self._calls.done(
                place.address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}
            )
            groups.update(GroupList.from_json(bytes(command.body)).groups)
        return sorted(groups)

    def allocate(self, topic: str, clients: Sequence[str]) -> Flow[dict[str, list[MessageQueue]]]:
        """How the averaging strategy would share the queues of a topic out among clients.

        Raises InvalidName, NoRoute.
        """
        route = yield from self._calls.route(topic)
        queues = readable_queues(topic, route)
        members = sorted(set(clients), key=text_order)
        strategy = Averagely()
        return {one: strategy.allocate("allocate", one, queues, members) if queues else [] for one in members}

    # --- changes

    def create(
        self,
        topic: str,
        *,
        broker: str | None = None,
        cluster: str | None = None,
        read_queues: int = QUEUES,
        write_queues: int = QUEUES,
        perm: int = PERM_READ_WRITE,
        unit: bool = False,
        has_unit_sub: bool = False,
        order: bool = False,
    ) -> Flow[list[str]]:
        """Create a topic, or set up anew one that is there, at the broker of an address or at each master of a cluster;
        their addresses.

        `perm` is the sum of 4 (read), 2 (write) and 1 (template of other topics). Fewer queues than before hide
        messages, they delete none. With `order` name servers keep the list of these brokers as `set_order` does, so
        that keys keep their queues even while brokers are away; name servers give it to clients where their
        `orderMessageEnable` is on. Raises InvalidName, InvalidSetting, NoCluster; for a cluster PartlyFailed.
        """
        check_range("read_queues", read_queues, 0, QUEUES_MAX)
        check_range("write_queues", write_queues, 0, QUEUES_MAX)
        check_topic(topic)
        sys_flag = TOPIC_UNIT * unit | TOPIC_UNIT_SUB * has_unit_sub
        header = _header(topic, read_queues, write_queues, perm, sys_flag, order)
        if not order:
            return sorted(
                (
                    yield from self._calls.over(
                        f"creating topic {topic}", broker, cluster, lambda place: self._set_up(place, header)
                    )
                )
            )
        check_target(broker, cluster)
        info = yield from self._calls.cluster()
        if broker is not None:
            names = [name for name, one in info.brokers.items() if broker in one.addresses.values()]
            if not names:
                raise ClientError(f"no broker {broker} is registered, so its name for the order of {topic} is unknown")
            yield from self._set_up(broker, header)
            known = yield from kv.get(self._calls, kv.ORDER_NAMESPACE, topic)
            conf = {**dict(parse_order(topic, known or "")), names[0]: write_queues}
            done = [broker]
        else:
            masters = yield from self._calls.masters(cluster)
            addresses = [place.address for place in masters]
            done = sorted(
                (
                    yield from self._calls.at_each(
                        f"creating topic {topic}", addresses, lambda place: self._set_up(place, header)
                    )
                )
            )
            conf = {place.broker_name: write_queues for place in masters}
        yield from kv.put(
            self._calls, kv.ORDER_NAMESPACE, topic, ";".join(f"{name}:{count}" for name, count in conf.items())
        )
        return done

    def update_perm(
        self, topic: str, perm: int, *, broker: str | None = None, cluster: str | None = None
    ) -> Flow[list[str]]:
        """Change what may be done with a topic, as `create`; each broker keeps its numbers of queues. Addresses of
        those changed.

        Only masters that have the topic are changed. Raises InvalidName, InvalidSetting, NoRoute when none of them has
        it, NoCluster; for a cluster PartlyFailed.
        """
        check_target(broker, cluster)
        check_range("perm", perm, 0, _PERM_MAX)
        route = yield from self._calls.route(topic)
        queues = {one.broker_name: one for one in route.queues}
        masters = {
            one.addresses[MASTER_ID]: queues[one.broker_name]
            for one in route.brokers
            if MASTER_ID in one.addresses and one.broker_name in queues
        }
        wanted = (
            [broker] if broker is not None else [place.address for place in (yield from self._calls.masters(cluster))]
        )
        known = [address for address in wanted if address in masters]
        if not known:
            raise NoRoute(topic)

        def change(address: str) -> Flow[None]:
            now = masters[address]
            yield from self._set_up(
                address, _header(topic, now.read_queues, now.write_queues, perm, now.sys_flag, False)
            )

        if broker is not None:
            yield from change(broker)
            return [broker]
        return sorted((yield from self._calls.at_each(f"changing topic {topic}", known, change)))

    def _set_up(self, address: str, header: CreateTopicRequest) -> Flow[None]:
        yield from self._calls.done(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())

    def delete(self, topic: str, cluster: str) -> Flow[None]:
        """Delete a topic at every master of a cluster, then at every name server. Its messages are gone; one that is
        not there is no error.

        Where a broker fails the name servers are not told, because it would register the topic again. Raises
        InvalidName, NoCluster, PartlyFailed.
        """
        check_given("topic", topic)
        masters = yield from self._calls.masters(cluster)

        def at_broker(address: str) -> Flow[None]:
            yield from self._calls.done(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic).encode())

        def at_name_server(address: str) -> Flow[None]:
            fields = DeleteTopicFromNamesrvRequest(topic, cluster).encode()
            yield from self._calls.done(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)

        yield from self._calls.at_each(f"deleting topic {topic}", [place.address for place in masters], at_broker)
        yield from self._calls.at_each(f"deleting topic {topic}", self._calls.name_servers, at_name_server)

    def clean_unused(self, *, broker: str | None = None, cluster: str | None = None) -> Flow[list[str]]:
        """Let brokers delete the queues of topics that they do not have any more: one, those of a cluster, or all.
        Their addresses.

        Raises NoCluster; for more than one PartlyFailed.
        """

        def clean(address: str) -> Flow[None]:
            yield from self._calls.done(address, RequestCode.CLEAN_UNUSED_TOPIC)

        return sorted((yield from self._calls.everywhere("cleaning unused topics", broker, cluster, clean)))

    # --- order

    def order(self, topic: str) -> Flow[str | None]:
        """The order configuration of a topic, `broker:queues;broker:queues`; None when it has none
        (docs/protocol/client.md 2.2).
        """
        check_given("topic", topic)
        return (yield from kv.get(self._calls, kv.ORDER_NAMESPACE, topic))

    def set_order(self, topic: str, order: str) -> Flow[None]:
        """Set the order configuration of a topic at every name server.

        Raises InvalidName, ClientError (it is malformed), PartlyFailed.
        """
        check_given("topic", topic)
        faults: list[str] = []
        if not parse_order(topic, order, faults.append) or faults:
            raise ClientError(f"order configuration {order!r} of topic {topic}: `broker:queues;broker:queues` expected")
        yield from kv.put(self._calls, kv.ORDER_NAMESPACE, topic, order)

    def delete_order(self, topic: str) -> Flow[None]:
        """Take the order configuration of a topic out of every name server. Raises InvalidName, PartlyFailed."""
        check_given("topic", topic)
        yield from kv.delete(self._calls, kv.ORDER_NAMESPACE, topic)


def _header(
    topic: str, read_queues: int, write_queues: int, perm: int, sys_flag: int, order: bool
) -> CreateTopicRequest:
    check_range("perm", perm, 0, _PERM_MAX)
    return CreateTopicRequest(
        topic, AUTO_CREATE_TOPIC, read_queues, write_queues, perm, TopicFilterType.SINGLE_TAG.value, sys_flag, order
    )
