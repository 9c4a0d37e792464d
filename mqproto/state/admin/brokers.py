"""Brokers: which there are, how they do, their settings and what they clean up (docs/protocol/admin.md 2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqproto.errors import ClientError, InvalidSetting
from mqproto.state.admin.calls import AdminCalls
from mqproto.state.flows.effects import Flow
from mqproto.wire.bodies import BrokerStats, ClusterInfo, ConsumeStatsList, KVTable
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import GetConsumeStatsInBrokerRequest, ViewBrokerStatsDataRequest
from mqproto.wire.properties_text import format_properties, read_plain

#: Counting what all groups have consumed may take long (docs/protocol/admin.md 2.2).
CONSUME_STATS_TIMEOUT_MS: Final = 50_000
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """Events a second over the last 10, 60 and 600 seconds; None where a broker does not run long enough to know."""

    seconds_10: float | None
    seconds_60: float | None
    seconds_600: float | None


@dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """Condition of a broker, as it reports it.

    `values` is all that it says (docs/protocol/broker.md 2.17), properties what is read most, None where it is silent.
    """

    address: str
    values: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """The release, like `V4_9_7`."""
        return self.values.get("brokerVersionDesc")

    @property
    def boot_time(self) -> int | None:
        """When the store was opened, in wall milliseconds."""
        return self.number("bootTimestamp")

    @property
    def put_tps(self) -> BrokerRates:
        """Messages stored."""
        return self.rates("putTps")

    @property
    def get_tps(self) -> BrokerRates:
        """Messages given to consumers."""
        return self.rates("getTransferedTps")

    @property
    def put_today(self) -> int | None:
        """Messages stored since local midnight."""
        return self._today("msgPutTotal")

    @property
    def get_today(self) -> int | None:
        """Messages given to consumers since local midnight."""
        return self._today("msgGetTotal")

    def _today(self, prefix: str) -> int | None:
        now, morning = self.number(f"{prefix}TodayNow"), self.number(f"{prefix}TodayMorning")
        return None if now is None or morning is None else now - morning

    @property
    def earliest_message_time(self) -> int | None:
        """When the oldest message was stored, in wall milliseconds; -1 when there is none."""
        return self.number("earliestMessageTimeStamp")

    @property
    def commit_log_disk_ratio(self) -> float | None:
        """How full the disk of the log is, 0 to 1; -1 when the broker does not know."""
        text = self.values.get("commitLogDiskRatio", "")
        return float(text) if _NUMBER.fullmatch(text) else None

    @property
    def dispatch_behind_bytes(self) -> int | None:
        """How much of the log is not in the queues yet."""
        return self.number("dispatchBehindBytes")

    def number(self, key: str) -> int | None:
        """A whole number; None when it is not there or is none."""
        text = self.values.get(key, "")
        return int(float(text)) if _NUMBER.fullmatch(text) and len(text) <= 40 else None

    def rates(self, key: str) -> BrokerRates:
        """Three rates with blanks between; a broker that has just started has fewer."""
        found = [float(word) for word in self.values.get(key, "").split() if _NUMBER.fullmatch(word)]
        padded: list[float | None] = [*found[:3], None, None, None]
        return BrokerRates(padded[0], padded[1], padded[2])


class BrokerFlows:
    """Operations on brokers. All of them raise NoNameServer, BrokerError, ConnectFailed, ConnectionLost and CallExpired
    where servers fail.

    `broker` is an address `host:port`, `cluster` the name of a cluster whose masters are meant (NoCluster when there is
    none of this name); operations over a cluster raise PartlyFailed, which says where they failed and where they are
    done.
    """

    __slots__ = ("_calls",)

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def clusters(self) -> Flow[ClusterInfo]:
        """Every broker that a name server knows, and the clusters that they form."""
        return self._calls.cluster()

    def runtime(self, broker: str) -> Flow[BrokerRuntime]:
        """How the broker of an address does."""
        command = yield from self._calls.done(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerRuntime(broker, KVTable.from_json(bytes(command.body)).table)

    def all_runtimes(self) -> Flow[dict[str, BrokerRuntime]]:
        """How every broker does that a name server knows, slaves too, by address.

        Raises PartlyFailed when any does not say.
        """
        info = yield from self._calls.cluster()
        addresses = [
            info.brokers[name].addresses[one]
            for name in sorted(info.brokers)
            for one in sorted(info.brokers[name].addresses)
        ]
        return (yield from self._calls.at_each("asking how brokers do", addresses, self.runtime))

    # --- settings

    def config(self, broker: str) -> Flow[dict[str, str]]:
        """All settings of the broker of an address, by Apache's names."""
        command = yield from self._calls.done(broker, RequestCode.GET_BROKER_CONFIG)
        return read_plain(str(command.body, "utf-8", "replace"))

    def update_config(
        self, changes: Mapping[str, str], *, broker: str | None = None, cluster: str | None = None
    ) -> Flow[dict[str, dict[str, str]]]:
        """Change settings of the broker of an address or of each master of a cluster: what they are set to then, by
        address and name.

        Brokers take no notice of names that they do not know or values that are malformed, and Apache's say nothing of
        it: so the settings are read back. Raises InvalidSetting for a name that a broker does not know; a value that it
        did not take shows in the result, as does one that it writes in another way. Some settings take effect only at
        the next start (docs/protocol/admin.md 5).
        """
        body = settings_text(changes)

        def change(address: str) -> Flow[dict[str, str]]:
            yield from self._calls.done(address, RequestCode.UPDATE_BROKER_CONFIG, {}, body)
            known = yield from self.config(address)
            return read_back(address, changes, known)

        return (yield from self._calls.over("changing settings", broker, cluster, change))

    # --- counters

    def stats(self, broker: str, name: str, key: str) -> Flow[BrokerStats | None]:
        """A counter of the broker of an address, like `TOPIC_PUT_NUMS` of a topic (docs/protocol/broker.md 9); None
        while it has counted nothing.
        """
        fields = ViewBrokerStatsDataRequest(name, key).encode()
        command = yield from self._calls.ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, fields)
        if command.code == ResponseCode.SYSTEM_ERROR and "not exist" in (command.remark or ""):
            return None
        if command.code != ResponseCode.SUCCESS:
            raise self._calls.refusal(command, broker)
        return BrokerStats.from_json(bytes(command.body))

    def consume_stats(self, broker: str, *, order: bool = False) -> Flow[ConsumeStatsList]:
        """How far all groups are at the broker of an address, on all topics or on ordered ones alone."""
        fields = GetConsumeStatsInBrokerRequest(order).encode()
        timeout_ms = max(CONSUME_STATS_TIMEOUT_MS, self._calls.timeout_ms)
        command = yield from self._calls.done(
            broker, RequestCode.GET_BROKER_CONSUME_STATS, fields, timeout_ms=timeout_ms
        )
        return ConsumeStatsList.from_json(bytes(command.body))

    # --- cleaning

    def clean_expired_queues(self, *, broker: str | None = None, cluster: str | None = None) -> Flow[list[str]]:
        """Let brokers delete queues whose messages are all gone: one, those of a cluster, or all when neither is given.

        Their addresses.
        """
        return self._clean("cleaning expired queues", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)

    def delete_expired_logs(self, *, broker: str | None = None, cluster: str | None = None) -> Flow[list[str]]:
        """Let brokers delete expired files of the log now and not only at their hour (since 4.9.4), as
        `clean_expired_queues`.
        """
        return self._clean("deleting expired logs", RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)

    def _clean(self, operation: str, code: int, broker: str | None, cluster: str | None) -> Flow[list[str]]:
        def clean(address: str) -> Flow[None]:
            yield from self._calls.done(address, code)

        return sorted((yield from self._calls.everywhere(operation, broker, cluster, clean)))


def settings_text(changes: Mapping[str, str]) -> bytes:
    """The body of a request that changes settings. Raises ClientError when there is nothing to change."""
    if not changes:
        raise ClientError("no setting is given")
    for key, value in changes.items():
        if not isinstance(value, str) or not key or key.strip() != key:
            raise InvalidSetting(key, value, "a name without blanks around it, and a text as value expected")
    return format_properties(changes, escaped=True).encode()


def read_back(address: str, changes: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What the changed settings are now. Raises InvalidSetting for one that the server does not know."""
    for key, value in changes.items():
        if key not in known:
            raise InvalidSetting(key, value, f"{address} knows no setting of this name")
    return {key: known[key] for key in changes}
