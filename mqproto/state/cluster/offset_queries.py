"""Questions to the broker of a queue about its offsets (docs/protocol/client.md 1.10, 5.3).

Each is asked of the master, after a refreshed route where none is known, and answers the time as well. Raises MQError:
NoRoute, NoNameServer, ConnectFailed, ConnectionLost, CallExpired, BrokerError for an answer that is no success.
"""

from __future__ import annotations

from typing import Final

from mqproto.codec import Command
from mqproto.message import MessageQueue
from mqproto.state.cluster.brokers import find_broker
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.flows.effects import Call, Flow, success
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
)

#: Limit of one question when the application asks (docs/protocol/client.md 1.10).
ASKED_TIMEOUT_MS: Final = 6_000


def max_offset(
    routes: RouteTable, queue: MessageQueue, now: int, timeout_ms: int = ASKED_TIMEOUT_MS
) -> Flow[tuple[int, int]]:
    """The offset that the next message of the queue will get."""
    fields = GetMaxOffsetRequest(queue.topic, queue.queue_id).encode()
    command, now = yield from _ask(routes, queue, RequestCode.GET_MAX_OFFSET, fields, now, timeout_ms)
    return GetMaxOffsetResponse.decode(command.fields).offset, now


def min_offset(
    routes: RouteTable, queue: MessageQueue, now: int, timeout_ms: int = ASKED_TIMEOUT_MS
) -> Flow[tuple[int, int]]:
    """The offset of the oldest message that is still there."""
    fields = GetMinOffsetRequest(queue.topic, queue.queue_id).encode()
    command, now = yield from _ask(routes, queue, RequestCode.GET_MIN_OFFSET, fields, now, timeout_ms)
    return GetMinOffsetResponse.decode(command.fields).offset, now


def offset_by_time(
    routes: RouteTable, queue: MessageQueue, timestamp: int, now: int, timeout_ms: int = ASKED_TIMEOUT_MS
) -> Flow[tuple[int, int]]:
    """The offset of the first message that was stored at `timestamp` (wall milliseconds) or later."""
    fields = SearchOffsetRequest(queue.topic, queue.queue_id, timestamp).encode()
    command, now = yield from _ask(routes, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields, now, timeout_ms)
    return SearchOffsetResponse.decode(command.fields).offset, now


def earliest_store_time(
    routes: RouteTable, queue: MessageQueue, now: int, timeout_ms: int = ASKED_TIMEOUT_MS
) -> Flow[tuple[int, int]]:
    """When the oldest message that is still there was stored, in wall milliseconds; -1 for an empty queue."""
    fields = GetEarliestMsgStoretimeRequest(queue.topic, queue.queue_id).encode()
    command, now = yield from _ask(routes, queue, RequestCode.GET_EARLIEST_MSG_STORETIME, fields, now, timeout_ms)
    return GetEarliestMsgStoretimeResponse.decode(command.fields).timestamp, now


def _ask(
    routes: RouteTable, queue: MessageQueue, code: int, fields: dict[str, str], now: int, timeout_ms: int
) -> Flow[tuple[Command, int]]:
    address, now = yield from find_broker(routes, queue, now, master_only=True)
    outcome, now = yield Call(address, code, {**fields, "bname": queue.broker_name}, deadline=now + timeout_ms)
    return success(outcome, address), now
