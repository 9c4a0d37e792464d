"""Checks of a cluster: promises that hold whatever happened to it.

Each check looks at a cluster and gives what is wrong, one sentence for each violation; an empty list means that all is
well. `always` may be asked at any moment, the others when their docstring says.

Owns: the promises (docs/simulation.md) and how a promise is told from luck.
Leaves to others: injecting faults (`scenario`, tests), the records (`records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from mqproto.adapters.simulated.clients import Client, SimulatedConsumer, SimulatedMember
from mqproto.adapters.simulated.cluster import Cluster, Machine
from mqproto.adapters.simulated.records import Delivery, RecordedOperation, Sent
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.store.settings import SYNC_FLUSH
from mqproto.message import Message, MessageExt, MessageQueue, SendStatus
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.wire.names import dlq_topic
from mqproto.wire.record import RecordError, decode_record

#: All stored messages by their queue, from its first offset on.
Stored: TypeAlias = dict[MessageQueue, list[MessageExt]]

#: How often, and after how long, a cluster at rest is looked at.
_LOOKS: Final = 6
_PAUSE_MS: Final = 70
#: A client makes a few calls of its own for each broker and queue; beyond this something piles up.
_OWN_CALLS: Final = 64
#: How long brokers keep a lock.
_LOCK_MS: Final = 60_000
_UNSENT_MAX: Final = 16 << 20
#: Topics that brokers fill and read themselves.
SYSTEM_TOPICS: Final = ("SCHEDULE_TOPIC", "RMQ_SYS")


def always(cluster: Cluster) -> list[str]:
    """What must hold at any moment: sends settle once and in time, no offset runs ahead, order in a queue, nothing
    piles up.
    """
    return [*sends(cluster), *commits(cluster), *order(cluster), *ordered(cluster), *alone(cluster), *bounds(cluster)]


def at_rest(cluster: Cluster) -> list[str]:
    """What must hold once everything is mended and enough time has passed: all of `always`, nothing lost, nothing under
    way.

    Looks again a moment later before it reports violations: a heartbeat may just be on its way.
    """
    for _ in range(_LOOKS):
        stored, violations = read_logs(cluster)
        violations += [
            *always(cluster),
            *kept(cluster, stored),
            *consumed(cluster, stored),
            *shared(cluster),
            *quiet(cluster),
        ]
        if not violations:
            break
        cluster.run_for(_PAUSE_MS)
    return violations


# --- sends


def sends(cluster: Cluster) -> list[str]:
    """Each send, and whatever else an application waits for, has one outcome, within its budget (and the time that its
    client was frozen).
    """
    violations = []
    up = {client.name for client in cluster.clients if client.up and not client.host.asleep}
    operations: list[RecordedOperation] = [*cluster.records.sends, *cluster.records.operations]
    for operation in operations:
        if operation.wakes > 1:
            violations.append(f"{operation} was settled {operation.wakes} times")
        if operation.budget_ms is None:
            continue
        deadline = operation.begun + operation.budget_ms + operation.frozen_ms
        if operation.ended is not None and operation.ended > deadline:
            violations.append(f"{operation} took {operation.ended - operation.begun} of {operation.budget_ms} ms")
        if operation.ended is None and operation.client in up and cluster.now > deadline:
            violations.append(f"{operation} is not settled at {cluster.now}, budget {operation.budget_ms} ms")
    return violations


def promised(cluster: Cluster, sent: Sent) -> list[str]:
    """The ids of the messages of a send that must not get lost: it was acknowledged as such (a flush that came too late
    promises nothing), and no power loss could take what was not synced.
    """
    result = sent.result
    if result is None or result.status is not SendStatus.SEND_OK:
        return []
    machine = cluster.brokers[result.queue.broker_name]
    synced = machine.node.store.settings.flush_disk_type == SYNC_FLUSH and all(
        message.wait for message in sent.messages
    )
    if not synced and any(lost >= sent.begun for lost in machine.power_losses):
        return []
    return result.msg_id.split(",")


# --- what is stored


def read_logs(cluster: Cluster) -> tuple[Stored, list[str]]:
    """Everything that the running brokers have stored and visible, and what is wrong with it: offsets are dense in each
    queue.
    """
    stored: Stored = {}
    violations: list[str] = []
    for machine in cluster.brokers.values():
        if not machine.up:
            continue
        store = machine.node.store
        for queue in store.queues():
            name = MessageQueue(cluster.namespace.unwrap(queue.topic), machine.name, queue.queue_id)
            messages = stored[name] = []
            for offset in range(queue.min_offset, queue.max_offset):
                entry = store.reader.entry(queue, offset)
                record = None if entry is None else store.reader.record(entry[0])
                try:
                    message = None if record is None else decode_record(record, machine.name)
                except RecordError as damage:
                    violations.append(f"{name} has a damaged message at {offset}: {damage}")
                    continue
                if message is None or (message.topic, message.queue_id, message.queue_offset) != (
                    queue.topic,
                    queue.queue_id,
                    offset,
                ):
                    violations.append(f"{name} has at {offset} not its own message but {message}")
                else:
                    messages.append(message)
    return stored, violations


def kept(cluster: Cluster, stored: Stored) -> list[str]:
    """Every promised message lies where its acknowledgement said, and no place was given twice.

    To be asked when all brokers run.
    """
    violations: list[str] = []
    ids = {
        message.msg_id for queue, messages in stored.items() if not _is_internal(queue.topic) for message in messages
    }
    for sent in cluster.records.sends:
        wanted = promised(cluster, sent)
        result = sent.result
        if not wanted or result is None:
            continue
        if sent.messages[0].delay_level:
            violations += [f"{sent}: {lost} was not delivered after its delay" for lost in wanted if lost not in ids]
            continue
        there = stored.get(result.queue, [])
        at = result.queue_offset - (there[0].queue_offset if there else 0)
        found = [message.msg_id for message in there[at : at + len(wanted)]] if at >= 0 else []
        if found != wanted:
            violations.append(f"{sent}: {result.queue} has at {result.queue_offset} not {wanted} but {found}")
    return violations


def _is_internal(topic: str) -> bool:
    return topic.startswith(("%", *SYSTEM_TOPICS))


# --- what is consumed


def groups(cluster: Cluster) -> dict[str, list[SimulatedMember]]:
    """The running consumers by group."""
    found: dict[str, list[SimulatedMember]] = {}
    for consumer in cluster.consumers:
        found.setdefault(consumer.group, []).append(consumer)
    return found


def owned(consumer: SimulatedConsumer) -> dict[MessageQueue, ProcessQueue]:
    """The queues that a push consumer has."""
    return consumer.queues


def consumed(cluster: Cluster, stored: Stored) -> list[str]:
    """At least once: each promised message was consumed with success by each group that reads its topic from the
    beginning and has members now, or is among the group's dead letters.

    A broker that has lost messages may give their offsets to others, and groups that were further already pass these
    over; so nothing is asked of such brokers.
    """
    violations = []
    for group, members in groups(cluster).items():
        done = {
            message.msg_id
            for delivery in cluster.records.deliveries
            if delivery.group == group and delivery.succeeded
            for message in delivery.messages
        }
        dead = {
            message.msg_id
            for queue, messages in stored.items()
            if queue.topic == dlq_topic(group)
            for message in messages
        }
        for sent in cluster.records.sends:
            result = sent.result
            if result is None or cluster.brokers[result.queue.broker_name].incomplete:
                continue
            wanted = [_wanted(members[0], message) for message in sent.messages]
            for msg_id, is_wanted in zip(promised(cluster, sent), wanted, strict=False):
                if is_wanted and msg_id not in done and msg_id not in dead:
                    violations.append(f"{sent}: {msg_id} was never consumed by {group}")
    return violations


def _wanted(member: SimulatedMember, message: Message) -> bool:
    expression = member.expressions.get(message.topic)
    return expression is not None and (
        expression == "*" or message.tags in [tag.strip() for tag in expression.split("||")]
    )


def order(cluster: Cluster) -> list[str]:
    """A consumer gets the messages of a queue in their order, as long as it keeps the queue; a message may come again,
    but none is new that comes after a later one.
    """
    violations = []
    last: dict[object, int] = {}
    seen: dict[object, set[int]] = {}
    for delivery in cluster.records.deliveries:
        if delivery.group in cluster.records.unordered:
            continue
        for message in delivery.messages:
            offset = message.queue_offset
            if offset > last.get(delivery.incarnation, -1):
                last[delivery.incarnation] = offset
            elif offset not in seen.get(delivery.incarnation, ()):
                violations.append(
                    f"{delivery.consumer} got {offset} of {delivery.queue} after {last[delivery.incarnation]}"
                )
            seen.setdefault(delivery.incarnation, set()).add(offset)
    return violations


def ordered(cluster: Cluster) -> list[str]:
    """A group that consumes in order gets no message before all that lie before it in its queue were consumed with
    success.
    """
    violations = []
    for delivery in cluster.records.deliveries:
        if delivery.group not in cluster.records.orderly or cluster.brokers[delivery.queue.broker_name].incomplete:
            continue
        offsets = [message.queue_offset for message in delivery.messages]
        if offsets[0] > delivery.behind or offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            violations.append(
                f"{delivery.consumer} got {offsets} of {delivery.queue} at {delivery.begun}, "
                f"before {delivery.behind} had succeeded"
            )
    return violations


def alone(cluster: Cluster) -> list[str]:
    """A queue that is consumed in order is with one listener at a time: members of a group lock it at its broker.

    No lock helps against a listener that was frozen in the middle, and a broker that was started again has forgotten
    all locks.
    """
    violations = []
    clients = {client.name: client for client in cluster.clients}
    running: dict[tuple[str, MessageQueue], tuple[Delivery, int]] = {}
    for delivery in cluster.records.deliveries:
        if delivery.group not in cluster.records.orderly:
            continue
        client = clients[delivery.consumer]
        ends = [end for end in (delivery.ended, client.host.died_at) if end is not None]
        key = delivery.group, delivery.queue
        if key in running:
            before, end = running[key]
            forgot = any(
                0 <= delivery.begun - start < _LOCK_MS
                for start in cluster.brokers[delivery.queue.broker_name].starts[1:]
            )
            frozen = any(
                start < delivery.begun and before.begun < stop for start, stop in clients[before.consumer].sleeps
            )
            if delivery.begun < end and before.consumer != delivery.consumer and not forgot and not frozen:
                violations.append(
                    f"{delivery.queue} was with {before.consumer} when {delivery.consumer} got it at {delivery.begun}"
                )
        running[key] = delivery, min(ends, default=cluster.now)
    return violations


def commits(cluster: Cluster) -> list[str]:
    """A broker never holds an offset beyond a message that the group has not finished, unless the broker lost messages
    or the group does not want all of them.
    """
    violations = []
    for machine in cluster.brokers.values():
        if not machine.up or machine.incomplete:
            continue
        for key, offsets in machine.node.offsets.table.items():
            topic, group = map(cluster.namespace.unwrap, key.split("@"))
            if group in cluster.records.filtering or topic.startswith(SYSTEM_TOPICS):
                continue
            for queue_id, offset in offsets.items():
                queue = MessageQueue(topic, machine.name, queue_id)
                progress = cluster.records.finished.get((group, queue))
                below = 0 if progress is None else progress.below
                if offset > below:
                    violations.append(
                        f"{group} committed {offset} of {queue} at {cluster.now}, but has not finished {below}"
                    )
    return violations


def shared(cluster: Cluster) -> list[str]:
    """Each queue of each topic has exactly one owner in each group.

    To be asked some time after the last member came or went.
    """
    violations = []
    for group, members in groups(cluster).items():
        for topic in {topic for member in members for topic in member.core.topics()}:
            owners: dict[MessageQueue, list[str]] = {}
            for member in members:
                for queue in member.queues:
                    if queue.topic == topic:
                        owners.setdefault(queue, []).append(member.name)
            violations += [f"{queue} is with {names} of {group}" for queue, names in owners.items() if len(names) > 1]
            violations += [
                f"{queue} is with nobody of {group}" for queue in _readable(cluster, topic) if queue not in owners
            ]
    return violations


def _readable(cluster: Cluster, topic: str) -> Iterator[MessageQueue]:
    for machine in cluster.brokers.values():
        config = machine.node.topics.find(topic) if machine.up else None
        if config is not None:
            yield from (MessageQueue(topic, machine.name, number) for number in range(config.read_queues))


# --- what is kept in memory


def bounds(cluster: Cluster) -> list[str]:
    """Nothing piles up: calls in flight, parked pulls, unsent bytes."""
    violations = []
    open_sends = len([sent for sent in cluster.records.sends if sent.ended is None])
    queues = sum(len(consumer.queues) for consumer in cluster.consumers)
    for client in cluster.clients:
        if client.up and len(client.node.calls) > open_sends + queues + _OWN_CALLS:
            violations.append(f"{client.name} has {len(client.node.calls)} calls in flight")
        for link in client.node.all_links() if client.up else ():
            if link.unsent > _UNSENT_MAX:
                violations.append(f"{client.name} has {link.unsent} bytes unsent to {link.address}")
    readers = len([client for client in cluster.clients if isinstance(client, SimulatedMember)])
    for machine in cluster.brokers.values():
        if not machine.up:
            continue
        node = machine.node
        places = sum(
            config.read_queues for name, config in node.topics.table.items() if name not in node.topics.built_in
        )
        if len(node.parked_pulls) > 2 * readers * places:
            violations.append(
                f"{machine.name} holds {len(node.parked_pulls)} pulls for {readers} consumers and {places} queues"
            )
        violations += [
            f"{machine.name} has {link.unsent} bytes unsent to {link.address}"
            for link in node.links
            if link.unsent > _UNSENT_MAX
        ]
    return violations


def quiet(cluster: Cluster) -> list[str]:
    """Nothing is under way but parked pulls.

    To be asked some time after everything was mended and the last message sent.
    """
    return [
        *(
            violation
            for client in cluster.clients
            if client.up and not isinstance(client, SimulatedMember)
            for violation in _quiet_client(client)
        ),
        *(violation for member in cluster.consumers for violation in _quiet_consumer(member)),
        *(violation for machine in cluster.brokers.values() if machine.up for violation in _quiet_broker(machine)),
    ]


def _quiet_client(client: Client) -> Iterable[str]:
    if client.node.application_tickets():
        yield f"{client.name} has operations in flight"
    if len(client.node.calls):
        yield f"{client.name} has {len(client.node.calls)} calls in flight"


def _quiet_consumer(consumer: SimulatedMember) -> Iterable[str]:
    queues = consumer.queues
    for queue, process_queue in queues.items():
        if process_queue is not None and len(process_queue):
            count, first = len(process_queue), process_queue.first
            yield f"{consumer.name} still has {count} messages of {queue}, the first at {first}"
    if len(consumer.node.calls) > len(queues):
        yield f"{consumer.name} has {len(consumer.node.calls)} calls in flight for {len(queues)} queues"


def _quiet_broker(machine: Machine[BrokerNode]) -> Iterable[str]:
    node = machine.node
    if node.pending_acks.count:
        yield f"{machine.name} still holds {node.pending_acks.count} acknowledgements"
    if len(node.calls):
        yield f"{machine.name} has {len(node.calls)} calls in flight"
    if node.store.flushed != node.store.end:
        yield f"{machine.name} has flushed {node.store.flushed} of {node.store.end}"
    yield from (
        f"{machine.name} has {link.unsent} bytes unsent to {link.address}" for link in node.links if link.unsent
    )
