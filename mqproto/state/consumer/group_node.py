"""Client node as one consumer group uses it; each part of a consumer sees it through a narrow protocol of its own.

Leaves to others: links and flows (`mqproto.state.client`), routes (`mqproto.state.cluster`).
"""

from __future__ import annotations

from typing import TypeVar

from mqproto.errors import MQError
from mqproto.message import Message, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.client.node import ClientNode
from mqproto.state.cluster.brokers import find_broker, find_reader
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.flows.effects import Flow, current
from mqproto.state.node.contract import Action, Ticket
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.names import INNER_PRODUCER

R = TypeVar("R")


class GroupNode:
    """Client node of one consumer group."""

    def __init__(self, node: ClientNode, group: str) -> None:
        self.group = group
        self._node = node

    @property
    def client_id(self) -> str:
        return self._node.client_id

    @property
    def namespace(self) -> Namespace:
        return self._node.namespace

    @property
    def routes(self) -> RouteTable:
        return self._node.routes

    @property
    def seed(self) -> int:
        return self._node.seed

    @property
    def api_timeout_ms(self) -> int:
        return self._node.settings.api_timeout_ms

    def wall(self, now: int) -> int:
        """The wall time."""
        return now + self._node.wall_ahead

    def notice(self, text: str) -> None:
        """A line for the operator."""
        self._node.notices.append(text)

    def act(self, action: Action) -> None:
        self._node.actions.append(action)

    def spawn(self, flow: Flow[R], now: int) -> Ticket[R]:
        return self._node.spawn(flow, now)

    def cancel(self, ticket: Ticket[None], now: int) -> None:
        self._node.cancel(ticket, now)

    def wake(self, ticket: Ticket[None], now: int) -> None:
        self._node.wake(ticket, now)

    def heartbeat(self, now: int) -> Ticket[None]:
        """Send a heartbeat to every broker; settled when they have answered."""
        return self._node.heartbeats.send(now)

    # --- brokers

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        """The broker that stored a queue's messages, by the route, and the time. Raises MQError."""
        return find_broker(self.routes, queue, now, master_only=True)

    def offset_broker(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        """The broker that keeps the offset of a queue: the master, else a slave; and the time. Raises MQError."""
        return find_broker(self.routes, queue, now, master_only=False)

    def pull_address(self, queue: ProcessQueue, now: int) -> Flow[tuple[str | MQError, int]]:
        """The broker that the last answer suggested, or another with the same name where that one is gone."""
        try:
            address, queue.broker_id, now = yield from find_reader(self.routes, queue.queue, queue.broker_id, now)
        except MQError as error:
            return error, (yield from current(now))
        return address, now

    def pull_failed(self, queue: ProcessQueue, error: MQError) -> None:
        """Notice a failed pull once for each kind of trouble, not with every round."""
        trouble = str(error)
        if queue.trouble != trouble:
            queue.trouble = trouble
            self.notice(f"group {self.group}: pulling from {queue.queue} fails: {trouble}")

    def resend(self, message: Message, now: int) -> Flow[int]:
        """Send a message by a producer of the node's own, which is there from the first time on. Raises MQError."""
        producer = self._node.producers.by_group.get(INNER_PRODUCER)
        if producer is None:
            producer = self._node.add_producer(ProducerSettings(INNER_PRODUCER), now)
        yield from producer.send(message, now, checked=True)
        return (yield from current(now))
