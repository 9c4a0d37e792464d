"""Deliveries of push consumers to listeners, which run in threads or greenlets of a pool."""

from __future__ import annotations

from functools import partial

from mqproto.adapters.base.push_consumer import AT_A_STRETCH, BasePushConsumer, consuming
from mqproto.adapters.io.lifecycle import CLOSE_TIMEOUT_MS
from mqproto.adapters.sync.runtime import Pool
from mqproto.adapters.sync.subscriber import SyncSubscriber
from mqproto.state.consumer.push.concurrent import ConsumeTask


class SyncDeliveries(BasePushConsumer, SyncSubscriber):
    """Push consumer as far as it calls its listener."""

    _pool: Pool

    def _prepare(self) -> None:
        self._pool = self._new_pool("listener", self._consumer_settings.consume_thread_min)

    def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """End within `timeout_ms`: running listeners get half of it, offsets are stored, the group is unregistered.

        Twice, or before the start, is harmless; so is closing from inside the listener, whose result is dropped.
        """
        super().close(timeout_ms)

    def _room_for(self, count: int) -> None:
        if self._lifecycle.running:
            self._pool.grow(count)

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ConsumeTask)
        if not self._follows(task):
            self._pool.submit(partial(self._consume, task))

    def _consume(self, task: ConsumeTask) -> None:
        """Do this delivery, and for a while those that follow from it: to hand each over would cost thread switches."""
        for _ in range(AT_A_STRETCH):
            answer = self._heard(task)
            following = self._consumed(self._driver.enter_from_pool, task, answer)
            if isinstance(answer, KeyboardInterrupt):
                self._runtime.interrupted(answer)
            if following is None:
                return
            task = following
        self._pool.submit(partial(self._consume, task))

    def _heard(self, task: ConsumeTask) -> object:
        """The listener's answer, or the exception that it raised."""
        token = consuming.set(self)
        try:
            return self._hear(task).result if self._hooks else self._call(task)
        except BaseException as error:  # whatever it is, it is the listener's answer (CON-01)
            self._failed(error)
            return error
        finally:
            consuming.reset(token)
