"""Registry of the clients that are online: producers, consumers with their subscriptions, and locks of queues
(docs/protocol/broker.md 2.7, 2.8, 3).

Owns: the members of every group, by link, by client id and by age; the subscriptions of consumer groups; queue locks.
Leaves to others: group settings, notices to clients and everything about messages (the broker).

A *member* is one link in one group. A member that was silent for 120 s is dropped; the table keeps members in the order
in which they were last seen, so that the oldest is found at once however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from mqproto.state.node.contract import Link
from mqproto.wire.bodies import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData

#: A member without a heartbeat for this long is dropped (docs/protocol/broker.md 3.3).
MEMBER_SILENCE_MS: Final = 120_000
#: A lock that was not renewed for this long may be taken by others (docs/protocol/broker.md 2.8).
LOCK_LIFE_MS: Final = 60_000
#: Groups that one link may be a member of. Clients have a handful; the rest of a heartbeat is ignored.
LINK_GROUPS_MAX: Final = 4096
#: Topics that a consumer group may subscribe, and all groups together.
SUBSCRIPTIONS_MAX: Final = 4096
ALL_SUBSCRIPTIONS_MAX: Final = 200_000
#: Queue locks in all. When they are used up, expired ones are swept first.
LOCKS_MAX: Final = 100_000
#: Disagreements that a group remembers, so that each is reported once.
DISPUTES_MAX: Final = 64

PRODUCER: Final = 0
CONSUMER: Final = 1


class Member:
    """Member of a group: one link in one group."""

    __slots__ = ("client_id", "group", "kind", "language", "last_seen", "link", "version")

    def __init__(
        self, kind: int, group: str, link: Link, client_id: str, language: int, version: int, now: int
    ) -> None:
        self.kind = kind
        self.group = group
        self.link = link
        self.client_id = client_id
        #: From the header of the heartbeat: ordinal of the language, number of the release.
        self.language = language
        self.version = version
        self.last_seen = now


class ConsumerGroup:
    """Consumer group that has members. The attributes are those of the last heartbeat, whoever sent it."""

    __slots__ = (
        "consume_from_where",
        "consume_type",
        "disputes",
        "members",
        "message_model",
        "name",
        "subscribed_by",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.members: dict[Link, Member] = {}
        self.subscribed_by = ""
        self.disputes: set[tuple[str, ...]] = set()

    def client_ids(self) -> list[str]:
        """One for each member; two members of one client count twice."""
        return [member.client_id for member in self.members.values()]

    def member_of(self, client_id: str) -> Member | None:
        """The first member with that client id."""
        for member in self.members.values():
            if member.client_id == client_id:
                return member
        return None


@dataclass(frozen=True, slots=True)
class Dispute:
    """Disagreement of two members of one group about what it subscribes; the later heartbeat wins."""

    group: str
    former: str
    latter: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """Changes that a heartbeat made in a consumer group."""

    #: The members of the group should be notified (a new member, a topic more or less).
    changed: bool
    #: Subscriptions that are new or newer than before, and topics that are subscribed no longer.
    renewed: tuple[SubscriptionData, ...] = ()
    dropped: tuple[str, ...] = ()
    dispute: Dispute | None = None


@dataclass(frozen=True, slots=True)
class Departed:
    """Members that were dropped, and the links that have no member left because of it."""

    members: list[Member] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def consumer_groups(self) -> list[str]:
        """Names of the consumer groups that lost a member, each once."""
        return list(dict.fromkeys(member.group for member in self.members if member.kind == CONSUMER))


class ClientRegistry:
    """Registry of the producers and consumers that are online."""

    def __init__(self) -> None:
        self.producers: dict[str, dict[Link, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producer_of: dict[str, Link] = {}
        self._by_link: dict[Link, dict[tuple[int, str], Member]] = {}
        self._by_age: OrderedDict[Member, None] = OrderedDict()
        self._subscriptions = 0

    # --- coming ---

    def producer_seen(self, group: str, link: Link, client_id: str, language: int, version: int, now: int) -> None:
        """A heartbeat named a producer group. A known link keeps the client id it came with."""
        member = self._seen(PRODUCER, group, link, client_id, language, version, now)
        if member is not None:
            self.producers.setdefault(group, {})[link] = member
            self._producer_of[client_id] = link

    def consumer_seen(
        self, data: ConsumerData, link: Link, client_id: str, language: int, version: int, now: int
    ) -> Registered:
        """A heartbeat named a consumer group with its subscriptions; gives what that changed."""
        known = self._by_link.get(link, {}).get((CONSUMER, data.group))
        member = self._seen(CONSUMER, data.group, link, client_id, language, version, now)
        group = self.consumers.get(data.group)
        if member is not None:
            if group is None:
                group = self.consumers[data.group] = ConsumerGroup(data.group)
            group.members[link] = member
        elif known is not None:
            known.client_id = client_id
        if group is None or link not in group.members:
            return Registered(changed=False)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        return self._subscribe(group, client_id, data.subscriptions, joined=member is not None)

    def _seen(
        self, kind: int, group: str, link: Link, client_id: str, language: int, version: int, now: int
    ) -> Member | None:
        """Renew a member, or make it; gives the member only if it is new."""
        of_link = self._by_link.setdefault(link, {})
        member = of_link.get((kind, group))
        if member is not None:
            member.last_seen = now
            self._by_age.move_to_end(member)
            return None
        if len(of_link) >= LINK_GROUPS_MAX:
            return None
        member = Member(kind, group, link, client_id, language, version, now)
        of_link[(kind, group)] = member
        self._by_age[member] = None
        return member

    def _subscribe(
        self, group: ConsumerGroup, client_id: str, wanted: Iterable[SubscriptionData], *, joined: bool
    ) -> Registered:
        """Lay a heartbeat's subscriptions over the group's: newer versions and new topics in, other topics out."""
        named: dict[str, SubscriptionData] = {}
        for subscription in wanted:
            if len(named) < SUBSCRIPTIONS_MAX:
                named[subscription.topic] = subscription
        held = group.subscriptions
        renewed: list[SubscriptionData] = []
        disputed: list[str] = []
        topics_changed = False
        for topic, subscription in named.items():
            before = held.get(topic)
            if before is None:
                if self._subscriptions >= ALL_SUBSCRIPTIONS_MAX:
                    continue
                self._subscriptions += 1
                topics_changed = True
                disputed.append(topic)
            elif subscription.version <= before.version:
                continue
            elif subscription.expression != before.expression:
                disputed.append(topic)
            held[topic] = subscription
            renewed.append(subscription)
        dropped = tuple(topic for topic in held if topic not in named)
        for topic in dropped:
            del held[topic]
        self._subscriptions -= len(dropped)
        dispute = self._dispute(group, client_id, (*disputed, *dropped))
        if renewed or dropped:
            group.subscribed_by = client_id
        return Registered(joined or topics_changed or bool(dropped), tuple(renewed), dropped, dispute)

    def _dispute(self, group: ConsumerGroup, client_id: str, topics: tuple[str, ...]) -> Dispute | None:
        """Whether these changes undo what another member, still online, has subscribed.

        Reported once for each pair and set of topics.
        """
        former = group.subscribed_by
        if not topics or former in ("", client_id) or group.member_of(former) is None:
            return None
        key = (*sorted((former, client_id)), *sorted(topics))
        if key in group.disputes or len(group.disputes) >= DISPUTES_MAX:
            return None
        group.disputes.add(key)
        return Dispute(group.name, former, client_id, topics)

    # --- going ---

    def producer_left(self, group: str, link: Link) -> bool:
        return self._drop_member(PRODUCER, group, link) is not None

    def consumer_left(self, group: str, link: Link) -> bool:
        return self._drop_member(CONSUMER, group, link) is not None

    def _drop_member(self, kind: int, group: str, link: Link) -> Member | None:
        of_link = self._by_link.get(link)
        member = of_link.pop((kind, group), None) if of_link is not None else None
        if of_link is None or member is None:
            return None
        if not of_link:
            del self._by_link[link]
        del self._by_age[member]
        if kind == PRODUCER:
            members = self.producers[group]
            del members[link]
            if not members:
                del self.producers[group]
            if self._producer_of.get(member.client_id) is link:
                others = (other for other in of_link.values() if other.kind == PRODUCER)
                if not any(other.client_id == member.client_id for other in others):
                    del self._producer_of[member.client_id]
        else:
            consumers = self.consumers[group]
            del consumers.members[link]
            if not consumers.members:
                self._subscriptions -= len(consumers.subscriptions)
                del self.consumers[group]
        return member

    def gone(self, link: Link) -> Departed:
        """The link is over."""
        members = list(self._by_link.get(link, {}).values())
        for member in members:
            self._drop_member(member.kind, member.group, link)
        return Departed(members)

    def expired(self, now: int) -> Departed:
        """Drop the members that were silent for too long."""
        departed = Departed()
        while self._by_age:
            member = next(iter(self._by_age))
            if member.last_seen + MEMBER_SILENCE_MS > now:
                break
            self._drop_member(member.kind, member.group, member.link)
            departed.members.append(member)
            if member.link not in self._by_link:
                departed.links.append(member.link)
        return departed

    def next_deadline(self) -> int | None:
        """When the member that was silent longest is dropped."""
        if not self._by_age:
            return None
        return next(iter(self._by_age)).last_seen + MEMBER_SILENCE_MS

    # --- finding ---

    def find_producer(self, client_id: str) -> Link | None:
        """The link of a client that registered as a producer: where replies go."""
        return self._producer_of.get(client_id)

    def members(self, group: str) -> Mapping[Link, Member]:
        """The consumers of a group by link; empty when none is online."""
        consumers = self.consumers.get(group)
        return consumers.members if consumers is not None else {}


Q = TypeVar("Q", bound=Hashable)


class QueueLocks(Generic[Q]):
    """Locks of queues by group: which client holds which queue. In memory, bound to no connection."""

    def __init__(self) -> None:
        self._held: dict[str, dict[Q, tuple[str, int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[Q], now: int) -> list[Q]:
        """The queues, in the order asked, that the client holds now: free ones, its own, those not renewed for 60 s."""
        held = self._held.setdefault(group, {})
        granted = []
        for queue in queues:
            entry = held.get(queue)
            if entry is None:
                if self._count >= LOCKS_MAX and not self._sweep(now):
                    continue
                self._count += 1
            elif entry[0] != client_id and entry[1] + LOCK_LIFE_MS >= now:
                continue
            held[queue] = (client_id, now)
            self._held[group] = held
            granted.append(queue)
        if not held:
            self._held.pop(group, None)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[Q]) -> None:
        """Give up what the client holds; queues of others and unknown ones are passed over."""
        held = self._held.get(group)
        if held is None:
            return
        for queue in queues:
            entry = held.get(queue)
            if entry is not None and entry[0] == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            del self._held[group]

    def _sweep(self, now: int) -> bool:
        """Drop expired locks; whether that made room."""
        for group, held in list(self._held.items()):
            for queue, (_, since) in list(held.items()):
                if since + LOCK_LIFE_MS < now:
                    del held[queue]
                    self._count -= 1
            if not held:
                del self._held[group]
        return self._count < LOCKS_MAX
