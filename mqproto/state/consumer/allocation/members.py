"""Members of a consumer group, and this member's share of a topic (docs/protocol/client.md 4.4).

Owns: the question who the members are, and the call of the strategy.
Leaves to others: when to rebalance (`loops`), what a share changes (`assignment`), the strategies themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqproto.errors import BrokerError, LocalProtocolError, MQError, NoRoute
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import queue_order, text_order
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.allocation.allocate import Strategy
from mqproto.state.consumer.allocation.strategies import Allocation, is_plain
from mqproto.state.flows.effects import Call, Flow, Refresh, Work, current, success
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumerIds
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import GetConsumerListByGroupRequest


class MemberNode(Protocol):
    """Members of the node that the allocation needs."""

    @property
    def client_id(self) -> str: ...

    @property
    def routes(self) -> RouteTable: ...

    @property
    def api_timeout_ms(self) -> int: ...

    def notice(self, text: str) -> None:
        """A line for the operator."""

    def heartbeat(self, now: int) -> Ticket[None]:
        """A broker does not know us."""


class MemberAllocation:
    """Allocation to one member of a group. In a group that `broadcasts` every member has every queue."""

    __slots__ = ("_broadcasts", "_group", "_node", "_strategy", "_turn")

    def __init__(self, group: str, broadcasts: bool, strategy: Strategy, node: MemberNode) -> None:
        self._group = group
        self._broadcasts = broadcasts
        self._strategy = strategy
        self._node = node
        self._turn = 0

    def share(self, topic: str, now: int) -> Flow[tuple[Sequence[MessageQueue] | None, int]]:
        """Our queues of a topic, and the time; None when the facts cannot be had: everything stays as it is."""
        node = self._node
        queues = node.routes.readable(topic)
        if not queues:
            _, now = yield Refresh(topic, now + node.api_timeout_ms)
            queues = node.routes.readable(topic)
            if not queues:
                return None, now
        if self._broadcasts:
            return queues, now
        try:
            client_ids, now = yield from self._members(topic, now)
        except MQError as error:
            node.notice(
                f"group {self._group}: the members cannot be had, topic {topic} stays shared out as it is: {error}"
            )
            return None, (yield from current(now))
        if node.client_id not in client_ids:
            node.heartbeat(now)
        share, failure, now = yield from self._allocate(
            sorted(queues, key=queue_order), sorted(client_ids, key=text_order), now
        )
        if failure is not None:
            node.notice(f"group {self._group}: topic {topic} stays shared out as it is: {failure!r}")
            return None, now
        return share, now

    def _allocate(
        self, queues: list[MessageQueue], client_ids: list[str], now: int
    ) -> Flow[tuple[Sequence[MessageQueue], Exception | None, int]]:
        """Ask the strategy, one of the application's own beside the loop; its answer or why there is none."""
        allocation = Allocation(self._strategy, self._group, self._node.client_id, queues, client_ids)
        failure: Exception | None = None
        if is_plain(self._strategy):
            try:
                allocation.run()
            except LocalProtocolError as error:
                failure = error
        else:
            failure, now = yield Work(allocation)
        return allocation.share, failure, now

    def _members(self, topic: str, now: int) -> Flow[tuple[list[str], int]]:
        """GET_CONSUMER_LIST_BY_GROUP at one broker of the topic; the brokers know the group by its heartbeats."""
        self._turn += 1
        address = self._node.routes.any_address(topic, self._turn)
        if address is None:
            raise NoRoute(topic)
        fields = GetConsumerListByGroupRequest(self._group).encode()
        outcome, now = yield Call(
            address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields, deadline=now + self._node.api_timeout_ms
        )
        command = success(outcome, address)
        client_ids = ConsumerIds.from_json(command.body).client_ids
        if not client_ids:
            raise BrokerError(command.code, "no members", address)
        return client_ids, now
