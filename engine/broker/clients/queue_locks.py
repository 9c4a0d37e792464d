"""LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42: which client consumes a queue in order (docs/protocol/broker.md 2.8)."""

from __future__ import annotations

from mqproto.codec import Command
from mqproto.engine.broker.core.client_registry import QueueLocks
from mqproto.engine.broker.core.core import SUCCESS, ClientLink, Core, Handlers
from mqproto.message import MessageQueue
from mqproto.wire.bodies import LockAnswer, LockRequest


class QueueLockRequests:
    """Grants queue locks. They last 60 s and are renewed by asking again."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.locks: QueueLocks[MessageQueue] = QueueLocks()

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            41: self.on_lock,
            42: self.on_unlock,
        }

    def on_lock(self, link: ClientLink, request: Command) -> None:
        body = LockRequest.from_json(request.body)
        granted = self.locks.lock(body.group, body.client_id, body.queues, self.core.now)
        link.reply(request, SUCCESS, body=LockAnswer(granted).to_json())

    def on_unlock(self, link: ClientLink, request: Command) -> None:
        body = LockRequest.from_json(request.body)
        self.locks.unlock(body.group, body.client_id, body.queues)
        link.reply(request, SUCCESS)
