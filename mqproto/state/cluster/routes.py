"""Routes of topics, as a client knows them: the queues to send to and to read from, and where brokers are.

Owns: the last good route of each topic (docs/protocol/client.md 2), the broker address table (1.6) and the versions
that brokers announced. Leaves to others: asking name servers (`route_refresh`), which queue to take (producers,
consumers).

A route that a name server does not know any more, or cannot give now, stays as it was: a restarted name server is empty
until brokers report again, and no send has to fail for that (NSV-03).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from mqproto.message import MessageQueue
from mqproto.wire.bodies import BrokerData, TopicRoute
from mqproto.wire.flags import PERM_READ, PERM_WRITE

MASTER_ID: Final = 0
#: Queues of one topic at one broker that are believed; a larger number in a route is a slip or hostile, and would fill
#: the memory.
QUEUES_MAX: Final = 65_536
_TURN_MASK: Final = 0x7FFF_FFFF


class PublishInfo:
    """Queues that a topic can be sent to, in an order that does not depend on the order of the route (PRO-09).

    `ordered`: an order configuration made the list (docs/protocol/client.md 2.2): then it names brokers
    whether they are up or not, so that a key keeps its queue.
    """

    __slots__ = ("ordered", "queues", "turn", "write_queues")

    def __init__(self, queues: tuple[MessageQueue, ...], ordered: bool = False, turn: int = 0) -> None:
        self.queues = queues
        self.ordered = ordered
        self.write_queues: dict[str, int] = {}
        for queue in queues:
            self.write_queues[queue.broker_name] = self.write_queues.get(queue.broker_name, 0) + 1
        #: What `next_turn` gives next.
        self.turn = turn & _TURN_MASK

    def next_turn(self) -> int:
        """The next number of the round robin: 0 .. 2^31 - 1, then 0 again."""
        turn = self.turn
        self.turn = (turn + 1) & _TURN_MASK
        return turn

    def pick(self, last_broker: str | None = None) -> MessageQueue | None:
        """The next queue in turn, at another broker than `last_broker` where there is one (docs/protocol/client.md
        3.4).

        None of no queues.
        """
        queues = self.queues
        count = len(queues)
        if not count:
            return None
        queue = queues[self.next_turn() % count]
        while queue.broker_name == last_broker and len(self.write_queues) > 1:
            queue = queues[self.next_turn() % count]
        return queue


class RouteTable:
    """Routes by topic, addresses by broker. `seed` is where round robins begin; `warn` takes remarks on odd routes."""

    __slots__ = ("_read", "_routes", "_seed", "_warn", "_write", "addresses", "changes", "versions")

    def __init__(self, seed: int = 0, warn: Callable[[str], None] | None = None) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._write: dict[str, PublishInfo] = {}
        self._read: dict[str, tuple[MessageQueue, ...]] = {}
        self._seed = seed
        self._warn = warn
        #: How often routes or addresses have changed, for whoever keeps what it worked out from them.
        self.changes = 0
        #: Broker name to broker id to `host:port`; id 0 is the master.
        self.addresses: dict[str, dict[int, str]] = {}
        #: Address to the version that its broker announced in the answer to a heartbeat.
        self.versions: dict[str, int] = {}

    # --- changes

    def update(self, topic: str, route: TopicRoute) -> bool:
        """Keep the route; True if it differs from the known one in anything that matters (docs/protocol/client.md 2.1:
        not the cluster's name).
        """
        known = self._routes.get(topic)
        if known is not None and _content(known) == _content(route):
            return False
        self.changes += 1
        self._routes[topic] = route
        for broker in route.brokers:
            self.addresses[broker.broker_name] = dict(broker.addresses)
        turn = self._write[topic].next_turn() if topic in self._write else self._seed
        self._write[topic] = publish_info(topic, route, turn, self._warn)
        self._read[topic] = readable_queues(topic, route)
        return True

    def keep(self, topics: Collection[str]) -> None:
        """Forget the routes of all other topics, and the addresses that no route names any more
        (docs/protocol/client.md 1.6).
        """
        self.changes += 1
        for topic in self._routes.keys() - topics:
            del self._routes[topic], self._write[topic], self._read[topic]
        named: dict[str, set[str]] = {}
        for route in self._routes.values():
            for broker in route.brokers:
                named.setdefault(broker.broker_name, set()).update(broker.addresses.values())
        for name, by_id in list(self.addresses.items()):
            for broker_id, address in list(by_id.items()):
                if address not in named.get(name, ()):
                    del by_id[broker_id]
            if not by_id:
                del self.addresses[name]
        for address in self.versions.keys() - set(self.all_addresses()):
            del self.versions[address]

    # --- topics

    def route(self, topic: str) -> TopicRoute | None:
        """The last good route of the topic."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        return list(self._routes)

    def publish(self, topic: str) -> PublishInfo | None:
        """Where the topic can be sent to; None while no route of it is known."""
        return self._write.get(topic)

    def readable(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """The queues that can be read, in queue order; None while no route of the topic is known."""
        return self._read.get(topic)

    # --- brokers

    def master(self, broker_name: str) -> str | None:
        """Where to write, or None."""
        by_id = self.addresses.get(broker_name)
        return None if by_id is None else by_id.get(MASTER_ID)

    def reader(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> tuple[str, int] | None:
        """Where to read, and the id that is found there: the wanted id, for a missing slave the next id, else (unless
        `only_this`) any.
        """
        by_id = self.addresses.get(broker_name)
        if not by_id:
            return None
        if broker_id not in by_id and broker_id != MASTER_ID and broker_id + 1 in by_id:
            broker_id += 1
        if broker_id not in by_id:
            if only_this:
                return None
            broker_id = min(by_id)
        return by_id[broker_id], broker_id

    def any_address(self, topic: str, turn: int) -> str | None:
        """One broker of the topic, its master where there is one (docs/protocol/client.md 1.6, "by topic"); `turn`
        chooses among them.
        """
        route = self._routes.get(topic)
        brokers = [broker for broker in _by_name(route.brokers if route is not None else ()) if broker.addresses]
        if not brokers:
            return None
        by_id = brokers[turn % len(brokers)].addresses
        return by_id[MASTER_ID] if MASTER_ID in by_id else by_id[sorted(by_id)[turn % len(by_id)]]

    def all_addresses(self, *, masters_only: bool = False) -> list[str]:
        """Every known broker address, by broker name and id, each once."""
        found: dict[str, None] = {}
        for name in sorted(self.addresses):
            for broker_id, address in sorted(self.addresses[name].items()):
                if broker_id == MASTER_ID or not masters_only:
                    found[address] = None
        return list(found)


def publish_info(
    topic: str, route: TopicRoute, turn: int = 0, warn: Callable[[str], None] | None = None
) -> PublishInfo:
    """The queues to send to (docs/protocol/client.md 2.2): those of a good order configuration, else the writable ones
    of brokers with a master.
    """
    ordered = parse_order(topic, route.order_conf, warn) if route.order_conf else []
    if ordered:
        queues = [MessageQueue(topic, name, queue_id) for name, count in ordered for queue_id in range(count)]
        return PublishInfo(tuple(queues), True, turn)
    masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.addresses}
    counts = {
        queue.broker_name: queue.write_queues
        for queue in route.queues
        if queue.perm & PERM_WRITE and queue.broker_name in masters
    }
    return PublishInfo(_queues(topic, counts), False, turn)


def readable_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues to read from, in queue order (docs/protocol/client.md 2.3); brokers need no master for that."""
    return _queues(topic, {queue.broker_name: queue.read_queues for queue in route.queues if queue.perm & PERM_READ})


def template_info(topic: str, template: TopicRoute, queues: int, turn: int = 0) -> PublishInfo:
    """Where a topic that does not exist yet will be, after the route of the create-topic key: at most `queues` for each
    broker (2.4).
    """
    masters = {broker.broker_name for broker in template.brokers if MASTER_ID in broker.addresses}
    counts = {
        queue.broker_name: min(queues, queue.read_queues)
        for queue in template.queues
        if queue.perm & PERM_WRITE and queue.broker_name in masters
    }
    return PublishInfo(_queues(topic, counts), False, turn)


def parse_order(topic: str, text: str, warn: Callable[[str], None] | None = None) -> list[tuple[str, int]]:
    """The brokers and queue counts of an order configuration `broker:count;broker:count`.

    Bad parts are left out (NSV-05).
    """
    found: dict[str, int] = {}
    for part in text.split(";"):
        name, _, count = part.strip().rpartition(":")
        if name and count.isascii() and count.isdigit() and 0 < int(count) <= QUEUES_MAX:
            found[name] = int(count)
        elif part and warn is not None:
            warn(f"order configuration of topic {topic!r}: {part!r} is no broker:count, ignored")
    return list(found.items())


def _queues(topic: str, counts: dict[str, int]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, name, queue_id)
        for name in sorted(counts)
        for queue_id in range(min(counts[name], QUEUES_MAX))
    )


def _by_name(brokers: Iterable[BrokerData]) -> list[BrokerData]:
    return sorted(brokers, key=lambda broker: broker.broker_name)


def _content(route: TopicRoute) -> tuple[object, ...]:
    """What makes two routes of a topic the same, whatever the order of their lists."""
    queues = sorted((queue.broker_name, queue.read_queues, queue.write_queues, queue.perm) for queue in route.queues)
    brokers = sorted((broker.broker_name, sorted(broker.addresses.items())) for broker in route.brokers)
    return queues, brokers, route.order_conf or None
