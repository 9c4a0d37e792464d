"""Push consumers for every runtime in which waiting is a plain call."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from adapters.driving import CLOSE_TIMEOUT_MS
from adapters.faces.push import PushConsumerFace
from adapters.sync.client import SyncClient
from adapters.sync.kit import Pool
from mqproto.errors import StateError
from mqproto.state.consumption import ConsumeTask


class SyncPushConsumer(PushConsumerFace, SyncClient):
    __doc__ = PushConsumerFace.__doc__

    _pool: Pool

    def _prepare(self) -> None:
        self._pool = self._kit.pool(f"{self._name()}-listener", self._consumer_settings.consume_thread_min)

    def _clean_up(self, seconds: float) -> None:
        self._pool.close(seconds)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result then does not count.
        """
        super().close(timeout_ms)

    def reset_offset_by_timestamp(self, topic: str, timestamp: int) -> None:
        """Consume the queues of the topic that are this member's again from a time on (milliseconds since 1970), or skip to it.

        Ends when that is under way: listeners that run get up to 10 s to end. Other members' queues stay where they are. Raises
        StateError, and MQErrors of brokers that cannot say where that is; nothing has moved then.
        """
        self._life.check()
        self._driver.wait(self._begin_reset, topic, timestamp)

    def _room_for(self, count: int) -> None:
        if self._life.running:
            self._pool.grow(count)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        self._pool.submit(partial(self._consume, task))

    def _consume(self, task: ConsumeTask) -> None:
        result: object
        with self._listening():
            try:
                result = self._hear(task).result if self._hooks else self._call(task)
            except BaseException as error:  # whatever it is, it is the listener's answer (CON-01)
                self._failed(error)
                result = error
        with suppress(StateError):  # closed meanwhile: the messages come again
            self._driver.enter(self._node.consumed, task, result)
