"""Clean-up of queues that nobody needs any more, of old files and of deleted topics: 306, 316, 329
(docs/protocol/broker.md 2.21).

Owns: which queues go, and that nothing points into them any more: parked pulls are answered, offsets forgotten.
Leaves to others: what a dead queue is, and files (`mqproto.engine.store`).

All queues are looked at, in slices. A queue that is made anew under the name of one that went begins at offset 0.
Offsets of the old one would send its consumers to the end of the new one, past its first messages; Apache keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.answers import LongAnswers
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Peer, Refused
from mqproto.engine.broker.tables.consumer_offsets import ConsumerOffsets
from mqproto.engine.broker.tables.topics import TopicConfigs
from mqproto.engine.slices import Steps
from mqproto.engine.store import Queue, Store
from mqproto.wire.codes import RequestCode, ResponseCode

#: Queues, and committed offsets of one group and topic, that are looked at in one slice.
_QUEUES_OF_A_SLICE: Final = 200
_OFFSETS_OF_A_SLICE: Final = 2000

#: Deletes what has to go among some queues; gives those.
Pick = Callable[[Sequence[Queue]], list[Queue]]


class _Known:
    """Topics whose queues stay: those of the table, and the system's, which may have none there."""

    __slots__ = ("topics",)

    def __init__(self, topics: TopicConfigs) -> None:
        self.topics = topics

    def __contains__(self, topic: object) -> bool:
        return topic in self.topics.table or (isinstance(topic, str) and self.topics.is_system(topic))


class CleaningRequests:
    """Requests to clean up, and the steps of it."""

    def __init__(
        self,
        store: Store,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        answers: LongAnswers,
        abandon: Callable[[Queue], None],
    ) -> None:
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.answers = answers
        #: Answers the pulls that wait at a queue which is gone.
        self.abandon = abandon
        self._known = _Known(self.topics)

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.on_dead_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.on_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.on_old_files,
        }

    def on_dead_queues(self, link: Peer, request: Command) -> None:
        """Delete the queues whose messages are all gone from the log."""
        self.start(self._sweep(self.store.delete_dead_queues), lambda: link.reply(request, ResponseCode.SUCCESS))

    def on_unused_topics(self, link: Peer, request: Command) -> None:
        """Delete the queues of topics that are not in the table."""
        self.start(self._sweep(self._delete_unknown), lambda: link.reply(request, ResponseCode.SUCCESS))

    def on_old_files(self, link: Peer, request: Command) -> None:
        """Have old files of the log deleted, whatever the hour."""
        self.store.delete_old_files()
        link.reply(request, ResponseCode.SUCCESS)

    def deleted(self, topic: str, queue_count: int) -> Steps[None]:
        """The steps that follow the end of a topic with so many queues: its queues go at once, then all others of
        unknown topics.
        """
        store = self.store
        own = [store.find_queue(topic, queue_id) for queue_id in range(queue_count)]
        gone = self._abandon(store.delete_queues(lambda _: True, [queue for queue in own if queue is not None]))
        yield from self._forget(gone)
        yield from self._sweep(self._delete_unknown)

    def start(self, steps: Steps[None], then: Callable[[], None]) -> None:
        """Take the steps whoever leaves meanwhile, and call `then` at their end.

        Raises Refused when too much waits; nothing was done.
        """
        if not self.answers.run(self, steps, lambda _: then()):
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)

    def _delete_unknown(self, among: Sequence[Queue]) -> list[Queue]:
        return self.store.delete_queues_but(self._known, among)

    def _sweep(self, pick: Pick) -> Steps[None]:
        """Let some queues go, all others stay."""
        queues = list(self.store.queues())
        gone: list[Queue] = []
        for start in range(0, len(queues), _QUEUES_OF_A_SLICE):
            part = [queue for queue in queues[start : start + _QUEUES_OF_A_SLICE] if not queue.removed]
            gone += self._abandon(pick(part))
            if start + _QUEUES_OF_A_SLICE < len(queues):
                yield
        yield from self._forget(gone)

    def _abandon(self, queues: Iterable[Queue]) -> list[Queue]:
        gone = list(queues)
        for queue in gone:
            self.abandon(queue)
        return gone

    def _forget(self, queues: Iterable[Queue]) -> Steps[None]:
        """Forget what groups have committed of queues that are gone."""
        ids: dict[str, set[int]] = {}
        for queue in queues:
            ids.setdefault(queue.topic, set()).add(queue.queue_id)
        keys = list(self.offsets.table) if ids else []
        for start in range(0, len(keys), _OFFSETS_OF_A_SLICE):
            self.offsets.forget_queues(keys[start : start + _OFFSETS_OF_A_SLICE], ids)
            if start + _OFFSETS_OF_A_SLICE < len(keys):
                yield
