"""Allocation strategies besides the default, as Apache's clients have them (docs/protocol/client.md 4.4), and the call
of the application's own.

Owns: the arithmetic of each strategy, the check of an answer, which strategies are called where.
Leaves to others: the default (`allocate`), the order of queues and ids (`queue_order`), when to rebalance (`loops`).

All members of a group must use the same strategy: nothing but equal arithmetic keeps two of them from taking the same
queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5
from typing import Final, Protocol, TypeVar

from mqproto.errors import InvalidSetting, LocalProtocolError
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import text_order
from mqproto.state.consumer.allocation.allocate import Averagely, Strategy, is_member

T = TypeVar("T")

#: Points of each member on the ring of `ConsistentHash`.
VIRTUAL_NODES: Final = 10
VIRTUAL_NODES_MAX: Final = 10_000


class AveragelyByCircle:
    """Strategy AVG_BY_CIRCLE: the member with index i of c gets the queues i, i + c, i + 2c ..."""

    __slots__ = ()

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not is_member(group, own_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(own_id) :: len(client_ids)])


class ByConfig:
    """Fixed list of queues for this member (CONFIG). Of each topic it gets those of the list that the topic has.

    In a namespace the topics of the list are wire names.
    """

    __slots__ = ("_queues",)

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = frozenset(queues)

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue in self._queues]


class ByMachineRoom:
    """Strategy MACHINE_ROOM: only for queues of brokers in certain rooms, named `room@broker`; others belong to nobody.

    Each member gets a run of queues; those that the division leaves are dealt out one by one.
    """

    __slots__ = ("_rooms",)

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        """Raises InvalidSetting for a text in the place of a collection of rooms."""
        if isinstance(rooms, str):
            raise InvalidSetting("rooms", rooms, "a collection of names expected")
        self._rooms = frozenset(rooms)

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not is_member(group, own_id, queues, client_ids):
            return []
        kept = [queue for queue in queues if self._is_inside(queue.broker_name)]
        index = client_ids.index(own_id)
        share, rest = divmod(len(kept), len(client_ids))
        own = kept[index * share : (index + 1) * share]
        return own + kept[index + share * len(client_ids) :][:1] if index < rest else own

    def _is_inside(self, broker_name: str) -> bool:
        room, mark, broker = broker_name.partition("@")
        return bool(mark and broker) and "@" not in broker and room in self._rooms


class MachineRoomResolver(Protocol):
    """Resolver of the machine room of a queue's broker and of a member; no answer may be empty."""

    def broker_deploy_in(self, queue: MessageQueue) -> str: ...

    def consumer_deploy_in(self, client_id: str) -> str: ...


class MachineRoomNearby:
    """Strategy MACHINE_ROOM_NEARBY: queues go to members in the same machine room, by another strategy among these.

    Queues of rooms in which no member lives are allocated to all.
    """

    __slots__ = ("_inner", "_resolver", "name")

    def __init__(self, inner: Strategy, resolver: MachineRoomResolver) -> None:
        self._inner = inner
        self._resolver = resolver
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not is_member(group, own_id, queues, client_ids):
            return []
        queues_by_room = _by_room(group, queues, self._resolver.broker_deploy_in)
        ids_by_room = _by_room(group, client_ids, self._resolver.consumer_deploy_in)
        own_room = next(room for room, ids in ids_by_room.items() if own_id in ids)
        share: list[MessageQueue] = []
        near = queues_by_room.pop(own_room, None)
        if near:
            share += self._inner.allocate(group, own_id, near, ids_by_room[own_room])
        for room in sorted(queues_by_room.keys() - ids_by_room.keys(), key=text_order):
            share += self._inner.allocate(group, own_id, queues_by_room[room], client_ids)
        return share


def _by_room(group: str, things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise LocalProtocolError(f"cannot share out queues in group {group}: no machine room of {thing}")
        found.setdefault(room, []).append(thing)
    return found


def md5_head(key: str) -> int:
    """The first four bytes of the MD5 of a text, as Java's ring takes them."""
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


class ConsistentHash:
    """Strategy CONSISTENT_HASH: each member has `virtual_nodes` points on a ring; a queue belongs to the next point.

    When members come or go few queues change hands. A `hash_function` of the application's own gives an integer of a
    text.
    """

    __slots__ = ("_hash", "_virtual_nodes")

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, hash_function: Callable[[str], int] = md5_head) -> None:
        """Raises InvalidSetting."""
        if not 1 <= virtual_nodes <= VIRTUAL_NODES_MAX:
            raise InvalidSetting("virtual_nodes", virtual_nodes, f"must lie between 1 and {VIRTUAL_NODES_MAX}")
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function

    @property
    def is_plain(self) -> bool:
        """Whether it calls nothing of the application's."""
        return self._hash is md5_head

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not is_member(group, own_id, queues, client_ids):
            return []
        ring: dict[int, str] = {}
        points: dict[str, int] = {}
        for client_id in client_ids:
            first = points.get(client_id, 0)  # an id that is listed twice has twice the points
            points[client_id] = first + self._virtual_nodes
            for number in range(first, first + self._virtual_nodes):
                ring[self._hash(f"{client_id}-{number}")] = client_id
        places = sorted(ring)
        return [
            queue for queue in queues if ring[places[bisect_left(places, self._place(queue)) % len(places)]] == own_id
        ]

    def _place(self, queue: MessageQueue) -> int:
        return self._hash(
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        )


#: Strategies that can be chosen by name, because they need no arguments.
BY_NAME: Final[dict[str, Strategy]] = {one.name: one for one in (Averagely(), AveragelyByCircle(), ConsistentHash())}


def find_strategy(wanted: object) -> Strategy:
    """The strategy that an application means by a name or an object. Raises InvalidSetting."""
    if isinstance(wanted, str):
        if wanted not in BY_NAME:
            raise InvalidSetting("allocate_message_queue_strategy", wanted, f"known by name are {', '.join(BY_NAME)}")
        return BY_NAME[wanted]
    name = getattr(wanted, "name", None)
    if isinstance(wanted, type) or not isinstance(name, str) or not callable(getattr(wanted, "allocate", None)):
        raise InvalidSetting(
            "allocate_message_queue_strategy", wanted, "an object with a name and a method allocate expected"
        )
    strategy: Strategy = wanted  # type: ignore[assignment]  # as far as one can see
    return strategy


def is_plain(strategy: Strategy) -> bool:
    """Whether a strategy calls nothing of the application's, so that it can be called inside the node."""
    return type(strategy) in _PLAIN or (type(strategy) is ConsistentHash and strategy.is_plain)


_PLAIN: Final = frozenset({Averagely, AveragelyByCircle, ByConfig, ByMachineRoom})


class Allocation:
    """Job that calls a strategy of the application's own, which may block. `share` is its answer afterwards."""

    __slots__ = ("_facts", "_strategy", "share")

    def __init__(
        self, strategy: Strategy, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> None:
        self._strategy = strategy
        self._facts = group, own_id, list(queues), list(client_ids)
        self.share: list[MessageQueue] = []

    def run(self) -> None:
        """Raises whatever the strategy raises, and LocalProtocolError for an answer that no share can be."""
        answer = self._strategy.allocate(*self._facts)
        self.share = checked_share(self._strategy.name, answer, self._facts[2])


def checked_share(name: str, answer: object, queues: Collection[MessageQueue]) -> list[MessageQueue]:
    """An answer of the application's strategy, if it consists of queues that were given, each once.

    Raises LocalProtocolError.
    """
    if not isinstance(answer, Collection) or isinstance(answer, str | bytes):
        raise LocalProtocolError(f"strategy {name} answered {answer!r} instead of a list of queues")
    share = list(answer)
    known = set(queues)
    for queue in share:
        if not isinstance(queue, MessageQueue) or queue not in known:
            raise LocalProtocolError(
                f"strategy {name} answered {queue!r}, which is none of the queues that it was asked to share out"
            )
    if len(set(share)) != len(share):
        raise LocalProtocolError(f"strategy {name} answered some queue twice")
    return share
