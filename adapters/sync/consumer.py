"""Consumers that are iterated over, for every runtime in which waiting is a plain call."""

from __future__ import annotations

from typing import Self

from adapters.faces.budget import Budget
from adapters.faces.consumer import ConsumerFace
from adapters.sync.subscriber import SyncSubscriber
from mqproto.errors import StateError
from mqproto.message import MessageExt
from mqproto.state.iterated import Claim


class SyncConsumer(ConsumerFace, SyncSubscriber):
    __doc__ = ConsumerFace.__doc__

    def receive(self, timeout_ms: int | None = None) -> MessageExt | None:
        """The next message, as iteration gives it; None when none came within `timeout_ms`, or the consumer is closed.

        Raises StateError before the start.
        """
        budget = None if timeout_ms is None else Budget(timeout_ms)
        while True:
            if self._life.closed:
                return None
            self._life.check()
            claim = Claim()
            try:
                message = self._enter(self._take, claim)
                if message is None:
                    message = self._driver.wait(self._begin_receive, claim, None if budget is None else budget.left_ms())
                if message is None or self._is_wanted(message):
                    return message
            except StateError as failure:
                self._nothing_comes(failure)
                return None
            except BaseException:
                self._interrupted(claim)
                raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageExt:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message
