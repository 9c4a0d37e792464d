"""Checks of clients of every kind, besides those of the cluster (`checks`).

Owns: the promises about windows, attempts, transactions and requests (docs/simulation.md).
Leaves to others: sends, deliveries, offsets, queues and what is stored (`checks`), faults (`client_scenario`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from mqproto.adapters.simulated.checks import SYSTEM_TOPICS, Stored
from mqproto.adapters.simulated.clients import Client, SimulatedProducer
from mqproto.adapters.simulated.cluster import Cluster
from mqproto.adapters.simulated.pull_clients import PollingClient, SimpleClient
from mqproto.adapters.simulated.request_clients import LocalTransactions, RequestClient, TransactionClient, reply_body
from mqproto.errors import MQError
from mqproto.state.flows.effects import Call
from mqproto.state.flows.tasks import Caller, FastCall, Task
from mqproto.state.node.contract import Ticket
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.fast_send import FastSend
from mqproto.transactions import LocalTransactionState

#: What only sends have: group, topic, queue and properties.
_SEND_FIELDS: Final = frozenset("abei")


def always(cluster: Cluster) -> list[str]:
    """What must hold at any moment: windows, no call of what is settled, one own reply for each request, places of
    consumers.
    """
    return [*windows(cluster), *leftovers(cluster), *requests(cluster), *places(cluster)]


def at_rest(cluster: Cluster, stored: Stored, local: LocalTransactions) -> list[str]:
    """What must hold once everything is mended and enough time has passed: nothing counts any more, transactions have
    ended.
    """
    return [*always(cluster), *counters(cluster), *attempts(cluster, stored), *transactions(stored, local)]


def producers(cluster: Cluster) -> Iterator[tuple[Client, ProducerCore]]:
    """The running producers of the applications."""
    for client in cluster.clients:
        if client.up and isinstance(client, SimulatedProducer):
            yield client, client.core
        elif client.up and isinstance(client, TransactionClient):
            yield client, client.core.producer


# --- windows


def windows(cluster: Cluster) -> list[str]:
    """No producer has more in flight than its window lets it; counted at the links, and as the window itself counts."""
    violations = []
    sizes = {sent.ticket: len(sent.messages) for sent in cluster.records.sends if sent.ended is None}
    for client, core in producers(cluster):
        settings, window = core.settings, core.window
        messages = size = count = 0
        for link in client.node.all_links():
            for task in link.calls.values():
                body = _sent_by(core, task)
                if body is not None:
                    messages, size, count = messages + sizes.get(_ticket(task), 1), size + len(body), count + 1
        for at, seen, bytes_seen, alone in (
            ("links", messages, size, count <= 1),
            ("window", window.messages, window.size, len(client.node.application_tickets()) - window.waiting <= 1),
        ):
            if not alone and (seen > settings.send_window_messages or bytes_seen > settings.send_window_bytes):
                violations.append(f"{client.name} has {seen} messages ({bytes_seen} bytes) in flight, by its {at}")
        if window.messages < 0 or window.size < 0:
            violations.append(f"{client.name} has {window.messages} messages ({window.size} bytes) in flight")
        if window.messages < messages or window.size < size:
            violations.append(
                f"{client.name} counts {window.messages} messages ({window.size} bytes), "
                f"its links have {messages} ({size})"
            )
    return violations


def _ticket(task: Caller) -> Ticket[Any]:
    return task if isinstance(task, FastCall) else task.ticket


def _sent_by(core: ProducerCore, task: Caller) -> bytes | None:
    """The body that a call of a producer's send brought; None for other calls."""
    if isinstance(task, FastSend):
        return task.body if task.producer is core else None
    assert isinstance(task, Task)
    effect = task.effect
    if isinstance(effect, Call) and effect.fields.keys() >= _SEND_FIELDS and effect.fields["a"] == core.group:
        return effect.body
    return None


def counters(cluster: Cluster) -> list[str]:
    """Windows are empty, nobody waits for room, for a reply or for an answer to a broker's check."""
    violations = []
    for client, core in producers(cluster):
        window = core.window
        if (window.messages, window.size, window.waiting) != (0, 0, 0):
            violations.append(
                f"{client.name} still counts {window.messages} messages ({window.size} bytes), "
                f"{window.waiting} wait for room"
            )
        if len(client.node.requests):
            violations.append(f"{client.name} has {len(client.node.requests)} requests without an outcome")
        if isinstance(client, TransactionClient) and client.core._checks:
            violations.append(f"{client.name} has {len(client.core._checks)} checks unanswered")
    for client in cluster.clients:
        if client.up and isinstance(client, SimpleClient) and (client.core.held.waiting or client.core.held.taken):
            held = client.core.held
            violations.append(f"{client.name} has {len(held.waiting)} messages parked and {len(held.taken)} taken")
        if client.up and isinstance(client, PollingClient) and client.core._prefetch.in_hand.waiting:
            violations.append(
                f"{client.name} has {client.core._prefetch.in_hand.waiting} messages that wait for a poll"
            )
        if client.up and client.node._waiting.keys() & {ticket for ticket in client.node._waiting if ticket.settled}:
            violations.append(f"{client.name} has flows that wait for what is settled")
    return violations


def places(cluster: Cluster) -> list[str]:
    """No simple consumer has more messages out than it has places."""
    return [
        f"{client.name} has {len(client.core.held.taken)} messages out, "
        f"{client.core.settings.consume_thread_min} places"
        for client in cluster.clients
        if client.up
        and isinstance(client, SimpleClient)
        and len(client.core.held.taken) > client.core.settings.consume_thread_min
    ]


# --- attempts


def leftovers(cluster: Cluster) -> list[str]:
    """Nothing is in flight for what is settled."""
    return [
        f"{client.name} has a call in flight at {link.address} for what is settled"
        for client in cluster.clients
        if client.up
        for link in client.node.all_links()
        for task in (*link.calls.values(), *link.waiting)
        if _ticket(task).settled
    ]


def attempts(cluster: Cluster, stored: Stored) -> list[str]:
    """No attempt of a send begins once it is settled, and there are no more than its producer may make.

    The copy of each attempt holds its time. To be asked where no wall clock was stepped, and no disk lost anything.
    """
    violations = []
    copies: dict[str, list[int]] = {}
    for queue, messages in stored.items():
        if not queue.topic.startswith(("%", *SYSTEM_TOPICS)):
            for message in messages:
                copies.setdefault(message.msg_id, []).append(message.born_time - cluster.simulator.wall_ahead)
    settings = {
        client.name: client.core.settings for client in cluster.clients if isinstance(client, SimulatedProducer)
    }
    for sent in cluster.records.sends:
        result = sent.result
        if result is None or sent.ended is None:
            continue
        own = settings[sent.client]
        limit = 1 + max(own.retry_times, own.retry_times_async)
        for msg_id in result.msg_id.split(","):
            times = copies.get(msg_id, [])
            if len(times) > limit and not sent.messages[0].delay_level:
                # a broker that dies may deliver what was delayed again
                violations.append(f"{sent}: {msg_id} is stored {len(times)} times")
            violations += [
                f"{sent}: {msg_id} was sent at {time}, after {sent.ended}" for time in times if time > sent.ended
            ]
    return violations


# --- transactions and requests


def transactions(stored: Stored, local: LocalTransactions) -> list[str]:
    """Transactions end as their listener said: what was committed is there, and nothing else."""
    there = Counter(
        message.body for queue, messages in stored.items() if queue.topic == local.topic for message in messages
    )
    violations = [
        f"transaction {body!r} was committed and is not there" for body in sorted(local.committed - there.keys())
    ]
    violations += [
        f"transaction {body!r} was not committed and is there" for body in sorted(there.keys() - local.committed)
    ]
    for body, result in local.results:
        state = result.local_transaction_state
        if state is not LocalTransactionState.UNKNOW and (state is LocalTransactionState.COMMIT_MESSAGE) != (
            body in local.committed
        ):
            violations.append(f"transaction {body!r} is said to be {state}")
    return violations


def requests(cluster: Cluster) -> list[str]:
    """A request has its own reply or a failure."""
    violations = []
    for client in cluster.clients:
        for body, operation in client.requests if isinstance(client, RequestClient) else ():
            ticket = operation.ticket
            if not ticket.settled:
                continue
            if ticket.failure is None and ticket.result().body != reply_body(body):
                violations.append(f"{operation}: {body!r} was answered by {ticket.result().body!r}")
            if ticket.failure is not None and not isinstance(ticket.failure, MQError):
                violations.append(f"{operation} failed by {ticket.failure!r}")
    return violations
