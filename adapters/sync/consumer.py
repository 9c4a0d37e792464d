"""Consumers that are iterated over, for every runtime in which waiting is a plain call."""

from __future__ import annotations

import time
from typing import Self

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
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._is_wanted(message := self._received(timeout_ms)):
            if until is not None:
                timeout_ms = max(0, round((until - time.monotonic()) * 1000))
        return message

    def _received(self, timeout_ms: int | None) -> MessageExt | None:
        """The same before the filters."""
        if self._life.closed:
            return None
        self._life.check()
        claim = Claim()
        try:
            message = self._enter(self._take, claim)
            return message if message is not None else self._driver.wait(self._begin_receive, claim, timeout_ms)
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
