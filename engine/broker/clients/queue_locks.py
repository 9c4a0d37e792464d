"""Locks of queues, LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42: which client consumes a queue orderly
(docs/protocol/broker.md 2.8).
"""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import QueueLocks
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.clock import Clock
from mqproto.engine.broker.interfaces.requests import Peer
from mqproto.message import MessageQueue
from mqproto.wire.bodies import LockAnswer, LockRequest
from mqproto.wire.codes import RequestCode, ResponseCode


class QueueLockRequests:
    """Requests for queue locks. They last 60 s and are renewed by asking again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.locks: QueueLocks[MessageQueue] = QueueLocks()

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.on_lock,
            RequestCode.UNLOCK_BATCH_MQ: self.on_unlock,
        }

    def on_lock(self, link: Peer, request: Command) -> None:
        body = LockRequest.from_json(request.body)
        granted = self.locks.lock(body.group, body.client_id, body.queues, self.clock.now)
        link.reply(request, ResponseCode.SUCCESS, body=LockAnswer(granted).to_json())

    def on_unlock(self, link: Peer, request: Command) -> None:
        body = LockRequest.from_json(request.body)
        self.locks.unlock(body.group, body.client_id, body.queues)
        link.reply(request, ResponseCode.SUCCESS)
