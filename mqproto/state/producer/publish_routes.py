"""Queues that one producer sends to: those of the routes, those of the template for topics that do not exist yet.

Owns: the topics that were sent to, the template's queues, which brokers are avoided because they were slow or failed.
Leaves to others: what routes mean (`routes`), requests for them (the client node performs the effects), attempts and
how long they may take (`core`).
"""

from __future__ import annotations

from typing import Protocol

from mqproto.errors import BrokerError, ClientError, MQError, NoRoute
from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import PublishInfo, RouteTable, template_info
from mqproto.state.flows.effects import Flow, Refresh
from mqproto.state.producer.fault_tolerance import FaultTable
from mqproto.state.producer.settings import NodeSettings, ProducerSettings
from mqproto.wire.codes import TOPIC_NOT_EXIST


class RoutesHost(Protocol):
    """Members of the client node that a producer's routes need."""

    routes: RouteTable
    #: Where round robins begin.
    seed: int

    @property
    def settings(self) -> NodeSettings: ...


class PublishRoutes:
    """Queues by topic, and the addresses of their brokers. Deadlines are those of the sends that ask."""

    def __init__(self, settings: ProducerSettings, host: RoutesHost) -> None:
        self._settings = settings
        self._host = host
        self._faults: FaultTable | None = None
        if settings.latency_fault_tolerance:
            self._faults = FaultTable(settings.latency_max_ms, settings.not_available_ms, host.seed)
        #: Queues of topics that no name server knows yet, after the route of the create-topic key.
        self._provisional: dict[str, PublishInfo] = {}
        #: The topics that were sent to; the node keeps their routes fresh.
        self._topics: set[str] = set()

    def topics(self) -> set[str]:
        """The topics whose routes the producer needs: those it sent to, and the template as long as it stands for one
        of them.
        """
        return self._topics | {self._settings.create_topic_key} if self._provisional else self._topics

    def changed(self, topic: str) -> None:
        """The node knows a route of the topic now: the template's queues have served their time."""
        self._provisional.pop(topic, None)

    def failed(self, topic: str) -> None:
        """No attempt of a send has succeeded: the template's queues may be wrong."""
        self._provisional.pop(topic, None)

    # --- queues

    def find(self, topic: str, now: int, deadline: int) -> Flow[tuple[PublishInfo, int]]:
        """Queues to send to, of which there is at least one, and the time.

        For a topic that does not exist yet: those of the template. Raises NoNameServer, NoRoute or CallExpired.
        """
        routes = self._host.routes
        info = routes.publish(topic) or self._provisional.get(topic)
        if info is not None and info.queues:
            return info, now
        error, now = yield Refresh(topic, self._limit(now, deadline))
        info = routes.publish(topic)
        if info is None and isinstance(error, BrokerError) and error.code == TOPIC_NOT_EXIST:
            error, now = yield Refresh(self._settings.create_topic_key, self._limit(now, deadline))
            template = routes.route(self._settings.create_topic_key)
            if template is not None:
                info = template_info(topic, template, self._settings.default_topic_queues, self._host.seed)
                if info.queues:
                    self._provisional[topic] = info
        if info is not None and info.queues:
            self._topics.add(topic)
            return info, now
        if error is None or (isinstance(error, BrokerError) and error.code == TOPIC_NOT_EXIST):
            raise NoRoute(topic)
        raise error

    def choose(self, info: PublishInfo, last: str | None, now: int) -> MessageQueue:
        """The queue of the next attempt, at another broker than `last` where there is one."""
        queue = info.pick(last) if self._faults is None else self._faults.pick(info, now, last)
        assert queue is not None  # `find` gives no empty list
        return queue

    def measure(self, broker_name: str, cost_ms: int, now: int, failed: bool) -> None:
        """An attempt at a broker took so long."""
        if self._faults is not None:
            self._faults.update(broker_name, cost_ms, now, isolate=failed)

    # --- brokers

    def master(self, queue: MessageQueue, now: int, deadline: int) -> Flow[tuple[str | MQError, int]]:
        """The address of the queue's master, after asking for the route once more where it is not known, or why there
        is none; the time.
        """
        address = self._host.routes.master(queue.broker_name)
        if address is not None:
            return address, now
        error, now = yield Refresh(queue.topic, self._limit(now, deadline))
        address = self._host.routes.master(queue.broker_name)
        if address is not None:
            return address, now
        if error is None or isinstance(error, BrokerError):
            error = ClientError(f"no master of broker {queue.broker_name} is known")
        return error, now

    def _limit(self, now: int, deadline: int) -> int:
        return min(deadline, now + self._host.settings.api_timeout_ms)
