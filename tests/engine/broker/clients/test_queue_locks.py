"""Queue locks by request, 41 and 42 (docs/protocol/broker.md 2.8), without a broker."""

from __future__ import annotations

import json

from mqproto.codec import Command
from mqproto.engine.broker.clients.queue_locks import QueueLockRequests
from mqproto.wire.bodies import LockAnswer
from tests.engine.broker.stubs import StubPeer, StubTimers

QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}


def request(code: int, client: str) -> Command:
    body = {"consumerGroup": "G", "clientId": client, "mqSet": [QUEUE]}
    return Command(code, body=json.dumps(body).encode())


def test_a_lock_belongs_to_one_client_for_60_seconds_or_until_it_is_given_back() -> None:
    timers, peer = StubTimers(), StubPeer()
    requests = QueueLockRequests(timers)

    def granted(client: str) -> bool:
        requests.on_lock(peer, request(41, client))
        reply = peer.replies.pop()
        assert reply.code == 0
        return bool(LockAnswer.from_json(reply.body).queues)

    assert granted("one")
    assert not granted("other")
    timers.advance(60_000)
    assert not granted("other")
    timers.advance(1)
    assert granted("other")
    requests.on_unlock(peer, request(42, "other"))
    assert peer.replies.pop().code == 0
    assert granted("one")
