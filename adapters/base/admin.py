"""Operations of an admin client as users see them: what is independent of waiting.

Each line below names a flow of `mqproto.state.admin`, where its parameters, result and errors are described.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar, Unpack

from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.families import Family, Operation, W
from mqproto.adapters.base.settings.client_settings import check_options
from mqproto.adapters.base.settings.options import ClientOptions
from mqproto.errors import InvalidSetting
from mqproto.state import admin as core
from mqproto.state.client.node import ClientNode
from mqproto.state.flows.effects import Flow, Sleep, Wait
from mqproto.state.node.contract import Ticket
from mqproto.validation import check_range

R = TypeVar("R")


class Topics(Family[W]):
    """Topics: where they are, how they are set up, how full they are."""

    names = Operation(core.TopicFlows.names)
    of_cluster = Operation(core.TopicFlows.of_cluster)
    system = Operation(core.TopicFlows.system)
    route = Operation(core.TopicFlows.route)
    clusters = Operation(core.TopicFlows.clusters)
    configs = Operation(core.TopicFlows.configs)
    config = Operation(core.TopicFlows.config)
    stats = Operation(core.TopicFlows.stats)
    consumers = Operation(core.TopicFlows.consumers)
    allocate = Operation(core.TopicFlows.allocate)
    create = Operation(core.TopicFlows.create)
    update_perm = Operation(core.TopicFlows.update_perm)
    delete = Operation(core.TopicFlows.delete)
    clean_unused = Operation(core.TopicFlows.clean_unused)
    order = Operation(core.TopicFlows.order)
    set_order = Operation(core.TopicFlows.set_order)
    delete_order = Operation(core.TopicFlows.delete_order)


class Groups(Family[W]):
    """Groups: how they are set up, who their members are, how far they are."""

    names = Operation(core.GroupFlows.names)
    configs = Operation(core.GroupFlows.configs)
    config = Operation(core.GroupFlows.config)
    create = Operation(core.GroupFlows.create)
    delete = Operation(core.GroupFlows.delete)
    connection = Operation(core.GroupFlows.connection)
    producers = Operation(core.GroupFlows.producers)
    all_producers = Operation(core.GroupFlows.all_producers)
    running_info = Operation(core.GroupFlows.running_info)
    check = Operation(core.GroupFlows.check)
    progress = Operation(core.GroupFlows.progress)
    overview = Operation(core.GroupFlows.overview)


class Offsets(Family[W]):
    """Offsets of queues and of groups: looking them up, and sending groups to other places."""

    maximum = Operation(core.OffsetFlows.maximum)
    minimum = Operation(core.OffsetFlows.minimum)
    at_time = Operation(core.OffsetFlows.at_time)
    earliest_time = Operation(core.OffsetFlows.earliest_time)
    committed = Operation(core.OffsetFlows.committed)
    commit = Operation(core.OffsetFlows.commit)
    reset_by_time = Operation(core.OffsetFlows.reset_by_time)
    skip = Operation(core.OffsetFlows.skip)
    clone = Operation(core.OffsetFlows.clone)
    of_members = Operation(core.OffsetFlows.of_members)
    time_spans = Operation(core.OffsetFlows.time_spans)


class Messages(Family[W]):
    """Stored messages: finding them, and what became of them."""

    by_id = Operation(core.MessageFlows.by_id)
    by_offset_id = Operation(core.MessageFlows.by_offset_id)
    by_unique_id = Operation(core.MessageFlows.by_unique_id)
    all_by_unique_id = Operation(core.MessageFlows.all_by_unique_id)
    by_key = Operation(core.MessageFlows.by_key)
    at = Operation(core.MessageFlows.at)
    between = Operation(core.MessageFlows.between)
    in_queue = Operation(core.MessageFlows.in_queue)
    entries = Operation(core.MessageFlows.entries)
    tracks = Operation(core.MessageFlows.tracks)
    push = Operation(core.MessageFlows.push)
    resume_check = Operation(core.MessageFlows.resume_check)


class Brokers(Family[W]):
    """Brokers: which there are, how they do, their settings and what they clean up."""

    clusters = Operation(core.BrokerFlows.clusters)
    runtime = Operation(core.BrokerFlows.runtime)
    all_runtimes = Operation(core.BrokerFlows.all_runtimes)
    config = Operation(core.BrokerFlows.config)
    update_config = Operation(core.BrokerFlows.update_config)
    stats = Operation(core.BrokerFlows.stats)
    consume_stats = Operation(core.BrokerFlows.consume_stats)
    clean_expired_queues = Operation(core.BrokerFlows.clean_expired_queues)
    delete_expired_logs = Operation(core.BrokerFlows.delete_expired_logs)


class NameServers(Family[W]):
    """Name servers: their settings, keys and values, and which brokers may be written to."""

    configs = Operation(core.NameServerFlows.configs)
    update_config = Operation(core.NameServerFlows.update_config)
    put_value = Operation(core.NameServerFlows.put_value)
    value = Operation(core.NameServerFlows.value)
    values = Operation(core.NameServerFlows.values)
    delete_value = Operation(core.NameServerFlows.delete_value)
    wipe_write_perm = Operation(core.NameServerFlows.wipe_write_perm)
    add_write_perm = Operation(core.NameServerFlows.add_write_perm)


class Traffic(Family[W]):
    """Traffic of topics: how much goes through them."""

    of_topic = Operation(core.TrafficFlows.of_topic)
    of_all = Operation(core.TrafficFlows.of_all)


class Access(Family[W]):
    """Accounts of brokers with access control, and what they may do."""

    put_account = Operation(core.AccessFlows.put_account)
    delete_account = Operation(core.AccessFlows.delete_account)
    set_white_addresses = Operation(core.AccessFlows.set_white_addresses)
    version = Operation(core.AccessFlows.version)


class BaseAdmin(BaseClient, Generic[W]):
    """Operations on clusters, by families: `admin.topics.create("orders", cluster="DefaultCluster")`.

    The families are `topics`, `groups`, `offsets`, `messages`, `brokers`, `name_servers`, `traffic` and `access`;
    `help(admin.topics)` lists the operations of one, `help(admin.topics.create)` describes one of them.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    `timeout_ms` limits each request: an operation of several takes longer. Further settings are Apache's in snake_case
    (`ClientOptions`). Brokers do not see an admin client as a member of anything. Raises InvalidSetting.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        timeout_ms: int = core.TIMEOUT_MS,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(options)
        if options.get("namespace"):
            raise InvalidSetting(
                "namespace",
                options["namespace"],
                "operators use names as they travel: mqproto.wire.names.wrap_namespace",
            )
        check_range("timeout_ms", timeout_ms, 1, core.LONGEST_TIMEOUT_MS)
        super().__init__("admin client", namesrv, options)
        self._timeout_ms = timeout_ms
        self.topics: Final[Topics[W]] = Topics(self, "topics")
        self.groups: Final[Groups[W]] = Groups(self, "groups")
        self.offsets: Final[Offsets[W]] = Offsets(self, "offsets")
        self.messages: Final[Messages[W]] = Messages(self, "messages")
        self.brokers: Final[Brokers[W]] = Brokers(self, "brokers")
        self.name_servers: Final[NameServers[W]] = NameServers(self, "name_servers")
        self.traffic: Final[Traffic[W]] = Traffic(self, "traffic")
        self.access: Final[Access[W]] = Access(self, "access")

    def _joined(self, node: ClientNode) -> None:
        super()._joined(node)
        self._core = core.AdminCore(node, self._timeout_ms)

    def _name(self) -> str:
        return "mqproto-admin"

    def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        """Run a flow of one of the core's families, in the way of the runtime."""
        raise NotImplementedError

    # Verbs for the driver.

    def _begin_start(self, now: int) -> Ticket[None]:
        return self._node.start(self._finding_name_servers(now), now, limited=False)

    def _finding_name_servers(self, now: int) -> Flow[None]:
        """Some operations go to every name server, so an address server gets the time to name them."""
        search = self._node.search(now)
        if search is None:
            yield Sleep(now)
        else:
            yield Wait(search, now + self._settings.api_timeout_ms)

    def _nothing_to_say(self, now: int) -> Flow[None]:
        """Nobody is told of an admin client, neither that it comes nor that it goes."""
        yield Sleep(now)

    def _closing(self, now: int) -> Flow[None]:
        return self._nothing_to_say(now)

    def _begin(self, family: str, flow: Callable[[Any], Flow[R]], now: int) -> Ticket[R]:
        return self._node.start(self._operation(family, flow), now)

    def _operation(self, family: str, flow: Callable[[Any], Flow[R]]) -> Flow[R]:
        return (yield from flow(getattr(self._core, family)))
