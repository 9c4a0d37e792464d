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

    def subscribe(self, topic: str, expression: str = "*", kind: str = "TAG") -> None:
        """Receive a topic, filtered by tags (`a || b`), or by properties with kind "SQL92". Before or after the start.

        Replaces what was said of the topic before. Raises InvalidName, InvalidExpressionError or StateError.
        """
        if self._life.running:
            self._driver.enter(self._subscribe, topic, expression, kind)
        else:
            self._want(topic, expression, kind)

    def unsubscribe(self, topic: str) -> None:
        """Receive a topic no longer. An unknown one is no error."""
        if self._life.running:
            self._driver.enter(self._unsubscribe, topic)
        else:
            self._wanted.pop(topic, None)

    def suspend(self) -> None:
        """Fetch no more messages; those that are here are still delivered."""
        self._life.check()
        self._driver.enter(self._core.suspend)

    def resume(self) -> None:
        """Fetch messages again."""
        self._life.check()
        self._driver.enter(self._core.resume)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        self._pool.submit(partial(self._consume, task))

    def _consume(self, task: ConsumeTask) -> None:
        result: object
        with self._listening():
            try:
                result = self._listener(*self._arguments(task))
            except BaseException as error:  # whatever it is, it is the listener's answer (CON-01)
                self._failed(error)
                result = error
        with suppress(StateError):  # closed meanwhile: the messages come again
            self._driver.enter(self._node.consumed, task, result)
