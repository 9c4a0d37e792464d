"""Handlers of the broker: which family of requests takes which request code, and what each family is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mqproto.engine.broker.clients.client_calls import ClientCallRequests
from mqproto.engine.broker.clients.heartbeats import ClientRequests
from mqproto.engine.broker.clients.offset_resets import OffsetResetRequests
from mqproto.engine.broker.clients.queue_locks import QueueLockRequests
from mqproto.engine.broker.core.core import Core, Handlers
from mqproto.engine.broker.operators.cleaning import CleaningRequests
from mqproto.engine.broker.operators.consume_stats import ConsumeStatsRequests
from mqproto.engine.broker.operators.group_progress import GroupProgressRequests
from mqproto.engine.broker.operators.groups import GroupRequests
from mqproto.engine.broker.operators.queue_dumps import QueueDumpRequests
from mqproto.engine.broker.operators.runtime_info import RuntimeInfoRequests
from mqproto.engine.broker.operators.topics import TopicRequests
from mqproto.engine.broker.pulls.offsets import OffsetRequests
from mqproto.engine.broker.pulls.pull import PullRequests
from mqproto.engine.broker.pulls.query import QueryRequests
from mqproto.engine.broker.pulls.slow_groups import SlowGroups
from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.engine.broker.sends.message_writer import MessageWriter
from mqproto.engine.broker.sends.replies import ReplyRequests
from mqproto.engine.broker.sends.send import SendRequests
from mqproto.engine.broker.sends.send_back import SendBackRequests
from mqproto.engine.broker.transactions.end_transaction import Transactions
from mqproto.engine.broker.transactions.transaction_check import TransactionCheck


class RequestFamily(Protocol):
    """Family of requests that one class serves."""

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes."""


def transactions_of(core: Core, message_writer: MessageWriter) -> Transactions:
    """Half messages, and what producers say of them."""
    return Transactions(
        core,
        core,
        core.store,
        core.offsets,
        core.waiting_reads,
        core.pending_acks,
        core.statistics.store_stats,
        core.store_host,
        message_writer,
    )


def transaction_check_of(core: Core, message_writer: MessageWriter, transactions: Transactions) -> TransactionCheck:
    """The check of half messages that nobody ended."""
    return TransactionCheck(
        core,
        core,
        core.settings,
        core.store,
        core.topics,
        core.offsets,
        core.client_registry,
        core.waiting_reads,
        core.pending_acks,
        message_writer,
        transactions,
    )


def client_requests_of(core: Core) -> ClientRequests:
    """Heartbeats, and questions about who is connected."""
    return ClientRequests(
        core,
        core,
        core.settings,
        core.topics,
        core.subscription_groups,
        core.filters,
        core.client_registry,
        core.sliced_answers,
        core.end_link,
    )


def slow_groups_of(core: Core) -> SlowGroups:
    """Groups that are stopped because they are too far behind."""
    return SlowGroups(
        core,
        core,
        core.settings,
        core.configuration,
        core.subscription_groups,
        core.statistics,
        core.sliced_answers,
    )


def all_handlers(
    core: Core,
    message_writer: MessageWriter,
    sends: SendRequests,
    pulls: PullRequests,
    registration: Registration,
    others: Iterable[RequestFamily],
) -> Handlers:
    """The handler of each request code. All other codes are answered with code 3."""
    settings, store, topics, groups = core.settings, core.store, core.topics, core.subscription_groups
    offsets, registry, statistics = core.offsets, core.client_registry, core.statistics
    reads, answers, acks = core.waiting_reads, core.sliced_answers, core.pending_acks
    cleaning = CleaningRequests(store, topics, offsets, answers, pulls.abandon)
    families: tuple[RequestFamily, ...] = (
        sends,
        pulls,
        OffsetRequests(store, offsets, core.delay_progress, reads, answers),
        QueryRequests(store, reads),
        QueueDumpRequests(store, registry, core.filters, reads, answers),
        QueueLockRequests(core),
        ReplyRequests(core, core, settings, registry, statistics, core.address, core.store_host, message_writer, sends),
        SendBackRequests(
            core,
            settings,
            store,
            topics,
            groups,
            statistics,
            reads,
            acks,
            core.host,
            core.store_host,
            core.turn,
            message_writer,
        ),
        GroupProgressRequests(core, settings, store, topics, offsets, registry, reads, answers),
        OffsetResetRequests(core, settings, store, topics, groups, offsets, registry, reads, answers),
        ClientCallRequests(core, core, settings, store, registry, reads, answers),
        cleaning,
        TopicRequests(core, topics, statistics, acks, answers, registration, cleaning),
        GroupRequests(core, groups, offsets, statistics, acks, answers),
        RuntimeInfoRequests(core),
        ConsumeStatsRequests(
            core.address, settings, store, topics, groups, offsets, registry, statistics, reads, answers
        ),
        *others,
    )
    handlers: Handlers = {}
    for family in families:
        assert not handlers.keys() & family.handlers.keys(), family
        handlers |= {int(code): handler for code, handler in family.handlers.items()}  # plain numbers: fast to find
    return handlers
