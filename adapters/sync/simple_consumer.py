"""Consumers that are iterated over, for every runtime in which waiting is a plain call."""

from __future__ import annotations

from functools import partial
from typing import Self

from mqproto.adapters.base.budget import Budget
from mqproto.adapters.base.simple_consumer import BaseSimpleConsumer
from mqproto.adapters.sync.runtime import Pool
from mqproto.adapters.sync.subscriber import SyncSubscriber
from mqproto.errors import StateError
from mqproto.message import MessageExt
from mqproto.state.consumer.push.simple import ClaimExpired, HeldClaim


class SyncConsumer(BaseSimpleConsumer, SyncSubscriber):
    __doc__ = BaseSimpleConsumer.__doc__

    _telling: Pool

    def _prepare(self) -> None:
        self._telling = self._new_pool("hooks", 1)

    def _end(self, timeout_ms: int) -> None:
        try:
            super()._end(timeout_ms)
        finally:
            self._given_up()

    def _deliver(self, task: object) -> None:
        assert isinstance(task, ClaimExpired)
        if self._hooks:
            self._telling.submit(partial(self._took_too_long, task))

    def receive(self, timeout_ms: int | None = None) -> MessageExt | None:
        """The next message, as iteration gives it; None when none came within `timeout_ms`, or the consumer is closed.

        Raises StateError before the start.
        """
        budget = None if timeout_ms is None else Budget(timeout_ms)
        while True:
            if self._lifecycle.closed:
                return None
            self._lifecycle.check()
            claim = HeldClaim()
            try:
                message = self._enter(self._take, claim)
                if message is None:
                    message = self._driver.wait(
                        self._begin_receive, claim, None if budget is None else budget.left_ms()
                    )
                if message is None or self._is_wanted(message, claim):
                    return message
            except StateError as failure:
                self._nothing_comes(failure)
                return None
            except BaseException as error:
                self._interrupted(claim, error)
                raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message
