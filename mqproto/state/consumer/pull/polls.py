"""Polls of a lite pull consumer: messages that were prefetched, given to the application as they arrived."""

from __future__ import annotations

from mqproto.errors import ClientError
from mqproto.message import MessageExt
from mqproto.namespaces import Namespace
from mqproto.state.consumer.life import Life, Phase
from mqproto.state.consumer.pull.in_hand import Claim
from mqproto.state.consumer.pull.positions import Positions
from mqproto.state.consumer.pull.prefetch import Prefetch
from mqproto.state.flows.effects import Flow, Wait


class Polls:
    """Polls of one consumer."""

    def __init__(self, prefetch: Prefetch, positions: Positions, life: Life, namespace: Namespace) -> None:
        self._prefetch = prefetch
        self._positions = positions
        self._life = life
        self._namespace = namespace

    def poll(self, claim: Claim, timeout_ms: int, limit: int | None, now: int) -> Flow[list[MessageExt]]:
        """The next messages, of one queue and in its order; waits for them for at most `timeout_ms`."""
        if timeout_ms < 0:
            raise ClientError(f"a poll that waits for {timeout_ms} ms makes no sense")
        messages = self.poll_now(claim, limit, now)
        deadline = now + timeout_ms
        while not messages and now < deadline and self._life.phase is Phase.RUNNING:
            _, now = yield Wait(self._prefetch.next_arrival(), deadline)
            messages = self._take(claim, limit, now)
        return messages

    def poll_now(self, claim: Claim, limit: int | None, now: int) -> list[MessageExt]:
        """As `poll`, without waiting: no flow for what is there."""
        self._life.check_running()
        if limit is not None and limit < 1:
            raise ClientError(f"a poll of {limit} messages makes no sense")
        self._positions.confirm(now)
        return self._take(claim, limit, now)

    def _take(self, claim: Claim, limit: int | None, now: int) -> list[MessageExt]:
        flow_control = self._prefetch.flow_control
        crowded = flow_control.crowded
        batch = claim.batch = self._prefetch.in_hand.take(limit, now)
        if batch is None:
            return []
        if crowded:
            flow_control.relieve(now)
        self._namespace.unwrap_messages(batch.messages)
        return batch.messages

    def put_back(self, claim: Claim, now: int) -> None:
        """The caller of a poll was interrupted and does not have what it claimed: it is polled again."""
        if claim.batch is not None:
            self._prefetch.in_hand.put_back(claim.batch)
            self._prefetch.wake_polls(now)
