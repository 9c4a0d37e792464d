"""Consumer groups as brokers know them: how they are set up, who their members are, how far they are
(docs/protocol/admin.md 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from mqproto.errors import AccessDenied, BrokerError, MQError, NoClients, PartlyFailed, PlaceFailure
from mqproto.message import MessageQueue
from mqproto.state.admin.calls import AdminCalls, check_target
from mqproto.state.admin.topics import TopicFlows
from mqproto.state.flows.effects import Flow
from mqproto.validation import check_consumer_group, check_given
from mqproto.wire.bodies import (
    ClientConnection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeType,
    GroupConfig,
    GroupTable,
    MessageModel,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    TopicList,
)
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    DeleteSubscriptionGroupRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumeStatsRequest,
    GetProducerConnectionListRequest,
)
from mqproto.wire.names import RETRY_PREFIX, dlq_topic, retry_topic


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """Progress of a group on one queue. Both offsets are of the next message: to be stored, and to be consumed."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    #: When the last consumed message was stored, in wall milliseconds; 0 for none.
    last_time: int

    @property
    def lag(self) -> int:
        """Messages that are there and not consumed."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Progress of a group on all of its queues, in queue order; `tps` are the messages a second of the last minute."""

    group: str
    queues: tuple[QueueProgress, ...]
    tps: float

    @property
    def lag(self) -> int:
        """Messages that are there and not consumed, retries included."""
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Summary of a group: members that are online, the lowest version among them (0 for none), and their progress."""

    group: str
    members: int
    version: int
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float
    lag: int


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """Reports of all members of a group, by client id; `silent` are those that did not, with the reason."""

    group: str
    members: dict[str, ConsumerRunningInfo]
    silent: dict[str, MQError]

    @property
    def same_subscriptions(self) -> bool:
        """Whether all members subscribe the same: else they overwrite each other at the brokers, and messages are lost
        to filters.
        """
        kinds = {
            frozenset((one.topic, one.type, one.expression) for one in info.subscriptions)
            for info in self.members.values()
        }
        return len(kinds) <= 1

    @property
    def held_twice(self) -> dict[MessageQueue, tuple[str, ...]]:
        """Queues that more than one member holds, and who: while queues are being shared out anew, or for ever when
        members differ.
        """
        holders: dict[MessageQueue, list[str]] = {}
        for client_id, info in sorted(self.members.items()):
            for queue, state in info.queues.items():
                if not state.dropped:
                    holders.setdefault(queue, []).append(client_id)
        return {queue: tuple(ids) for queue, ids in sorted(holders.items()) if len(ids) > 1}


class GroupFlows:
    """Operations on groups.

    All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost, CallExpired where servers fail.
    """

    __slots__ = ("_calls", "_topics")

    def __init__(self, calls: AdminCalls, topics: TopicFlows) -> None:
        self._calls = calls
        self._topics = topics

    # --- how they are set up

    def names(self) -> Flow[list[str]]:
        """Every group that has a retry topic, so every one that ever consumed, sorted."""
        command = yield from self._calls.done(None, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        topics = TopicList.from_json(bytes(command.body)).topics
        return sorted(topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX))

    def configs(self, broker: str) -> Flow[dict[str, GroupConfig]]:
        """How every group is set up at the broker of an address, by group."""
        command = yield from self._calls.done(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return GroupTable.from_json(bytes(command.body)).groups

    def config(self, group: str) -> Flow[dict[str, GroupConfig]]:
        """How a group is set up at each master that has it, by its address. Raises InvalidName, PartlyFailed."""
        check_given("group", group)
        masters = yield from self._calls.masters(None)
        tables = yield from self._calls.at_each(
            f"asking for group {group}", [place.address for place in masters], self.configs
        )
        return {address: table[group] for address, table in tables.items() if group in table}

    def create(
        self, config: GroupConfig | str, *, broker: str | None = None, cluster: str | None = None
    ) -> Flow[list[str]]:
        """Create a group, or set up anew one that is there, at the broker of an address or at each master of a cluster;
        their addresses.

        All of `config` (`mqproto.wire.bodies.GroupConfig`) counts: what is not given there gets its default; a name
        alone does for a group that has nothing else. Raises InvalidName, NoCluster; for a cluster PartlyFailed.
        """
        if isinstance(config, str):
            config = GroupConfig(config)
        check_consumer_group(config.name)
        body = config.to_json()

        def tell(address: str) -> Flow[None]:
            yield from self._calls.done(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)

        return sorted((yield from self._calls.over(f"creating group {config.name}", broker, cluster, tell)))

    def delete(
        self, group: str, *, broker: str | None = None, cluster: str | None = None, remove_offsets: bool = False
    ) -> Flow[None]:
        """Delete a group at the broker of an address, or at each master of a cluster and then its retry and dead-letter
        topics there.

        With `remove_offsets` the brokers forget how far it was (since 4.9; older ones keep that). Where brokers create
        groups by themselves a consumer that still runs brings it back. Raises InvalidName, NoCluster; for a cluster
        PartlyFailed.
        """
        check_given("group", group)
        check_target(broker, cluster)
        fields = DeleteSubscriptionGroupRequest(group, remove_offsets).encode()
        if remove_offsets:
            fields["cleanOffset"] = "true"  # its name in 5.x

        def tell(address: str) -> Flow[None]:
            yield from self._calls.done(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

        yield from self._calls.over(f"deleting group {group}", broker, cluster, tell)
        if cluster is not None:
            for topic in (retry_topic(group), dlq_topic(group)):
                yield from self._topics.delete(topic, cluster)

    # --- who is there

    def connection(self, group: str, *, broker: str | None = None) -> Flow[ConsumerConnection]:
        """The members of a consumer group and what they subscribe, of all brokers where it is online (or of the one at
        an address).

        Raises InvalidName, NoClients when nobody is online.
        """
        check_given("group", group)
        addresses = (
            [broker]
            if broker is not None
            else [place.address for place in (yield from self._calls.group_places(group))]
        )
        merged: ConsumerConnection | None = None
        members: dict[str, ClientConnection] = {}
        for address in addresses:
            fields = GetConsumerConnectionListRequest(group).encode()
            command = yield from self._calls.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
            if command.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            if command.code != ResponseCode.SUCCESS:
                raise self._calls.refusal(command, address)
            found = ConsumerConnection.from_json(bytes(command.body))
            members.update({one.client_id: one for one in found.connections})
            if merged is None:
                merged = found
            else:
                merged.subscriptions = {**found.subscriptions, **merged.subscriptions}
        if merged is None or not members:
            raise NoClients(group, "nobody is online")
        merged.connections = [members[client_id] for client_id in sorted(members)]
        return merged

    def producers(self, group: str, topic: str) -> Flow[list[ClientConnection]]:
        """The members of a producer group that the brokers of a topic know, by client id.

        Raises InvalidName, NoRoute, NoClients.
        """
        check_given("group", group)
        members: dict[str, ClientConnection] = {}
        refused: BrokerError | None = None
        for place in (yield from self._calls.places(topic)):
            fields = GetProducerConnectionListRequest(group).encode()
            command = yield from self._calls.ask(place.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, fields)
            if command.code == ResponseCode.SUCCESS:
                found = ProducerConnection.from_json(bytes(command.body)).connections
                members.update({one.client_id: one for one in found})
                continue
            refused = self._calls.refusal(command, place.address)
            if command.code != ResponseCode.SYSTEM_ERROR or isinstance(refused, AccessDenied):
                raise refused  # else the broker does not know the group
        if not members:
            raise NoClients(group, "no broker of the topic knows a producer of it") from refused
        return [members[client_id] for client_id in sorted(members)]

    def all_producers(self, broker: str) -> Flow[dict[str, list[ProducerInfo]]]:
        """Every producer that the broker of an address knows, by group (since 4.9.4; older ones do not answer:
        CallExpired).
        """
        command = yield from self._calls.done(broker, RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTable.from_json(bytes(command.body)).producers

    def running_info(self, group: str, client_id: str, *, stack: bool = False) -> Flow[ConsumerRunningInfo]:
        """What one member says of itself: settings, subscriptions, queues, rates; with `stack` the stacks of its
        threads where it can.

        The brokers of the group are asked in turn until one of them reaches the member, three time-outs each. Raises
        InvalidName, NoClients for a group that nobody knows, and the last broker's BrokerError (1: the member is not
        there, 207: it does not answer).
        """
        places = yield from self._calls.group_places(group)
        fields = GetConsumerRunningInfoRequest(group, client_id, stack).encode()
        failure: BrokerError | None = None
        for place in places:
            timeout_ms = self._calls.long_timeout_ms
            command = yield from self._calls.ask(
                place.address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, timeout_ms=timeout_ms
            )
            if command.code == ResponseCode.SUCCESS:
                return ConsumerRunningInfo.from_json(bytes(command.body))
            failure = self._calls.refusal(command, place.address)
        assert failure is not None  # there is a broker in every list of places
        raise failure

    def check(self, group: str, *, stack: bool = False) -> Flow[GroupCheck]:
        """Ask every member of a group about itself.

        Raises InvalidName, NoClients; a member that fails is in the result as `silent`.
        """
        connection = yield from self.connection(group)
        members: dict[str, ConsumerRunningInfo] = {}
        silent: dict[str, MQError] = {}
        for one in connection.connections:
            try:
                members[one.client_id] = yield from self.running_info(group, one.client_id, stack=stack)
            except MQError as failure:
                silent[one.client_id] = failure
        return GroupCheck(group, members, silent)

    # --- how far they are

    def progress(self, group: str, topic: str | None = None) -> Flow[GroupProgress]:
        """How far a group is on its queues, of all topics or of one, as every broker says that it has been at.

        Raises InvalidName, NoClients for a group that has consumed nothing.
        """
        fields = GetConsumeStatsRequest(group, topic).encode()
        queues: dict[MessageQueue, QueueProgress] = {}
        tps = 0.0
        for place in (yield from self._calls.group_places(group)):
            timeout_ms = self._calls.long_timeout_ms
            command = yield from self._calls.done(
                place.address, RequestCode.GET_CONSUME_STATS, fields, timeout_ms=timeout_ms
            )
            stats = ConsumeStats.from_json(bytes(command.body))
            tps += stats.tps
            for queue, one in stats.offsets.items():
                queues[queue] = QueueProgress(queue, one.broker_offset, one.consumer_offset, one.last_timestamp)
        if not queues:
            raise NoClients(
                group, "it has consumed nothing" if topic is None else f"it has consumed nothing of topic {topic}"
            )
        return GroupProgress(group, tuple(queues[queue] for queue in sorted(queues)), tps)

    def overview(self) -> Flow[list[GroupSummary]]:
        """One line on each group that ever consumed, by name.

        Raises PartlyFailed, which names the groups that could not be looked at.
        """
        found: list[GroupSummary] = []
        failures: list[PlaceFailure] = []
        for group in (yield from self.names()):
            try:
                found.append((yield from self._summary(group)))
            except MQError as failure:
                failures.append(PlaceFailure(group, failure))
        if failures:
            raise PartlyFailed("looking at all groups", tuple(one.group for one in found), tuple(failures))
        return found

    def _summary(self, group: str) -> Flow[GroupSummary]:
        try:
            progress: GroupProgress | None = yield from self.progress(group)
        except NoClients:
            progress = None
        try:
            connection = yield from self.connection(group)
        except NoClients:
            connection = ConsumerConnection()
        return GroupSummary(
            group,
            len(connection.connections),
            min((one.version for one in connection.connections), default=0),
            connection.consume_type,
            connection.message_model,
            progress.tps if progress is not None else 0.0,
            progress.lag if progress is not None else 0,
        )
