"""Consume hooks of a push consumer, called around its listener."""

from __future__ import annotations

import inspect
import time
from types import TracebackType
from typing import Self

from mqproto.adapters.base.hooks.filter_hooks import Filters, call
from mqproto.consume_hooks import ConsumeMessageContext, ConsumeMessageHook, ConsumeOutcome
from mqproto.message import ConsumeStatus
from mqproto.state.consumer.push.concurrent import ConsumeTask


class ConsumeHooks:
    """List of the consume hooks and filters of one consumer.

    Hooks can be added at any time, from any thread; a delivery has those that were there when it began.
    """

    def __init__(self, group: str, namespace: str, *, timeout_minutes: int, unit_mode: bool) -> None:
        self.group = group
        self.namespace = namespace
        self.timeout_s = timeout_minutes * 60
        self.filters = Filters(group, unit_mode=unit_mode)
        self.hooks: tuple[ConsumeMessageHook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.filters or self.hooks)

    def add(self, hook: ConsumeMessageHook) -> None:
        self.hooks += (hook,)

    def begin(self, task: ConsumeTask) -> Hearing:
        """Filter the messages of a delivery: what is left of them is to be heard."""
        if self.filters:
            kept = self.filters.left_of(task.context.queue, task.messages)
            if len(kept) < len(task.messages):
                ids = {id(message) for message in kept}
                task.filtered += [message for message in task.messages if id(message) not in ids]
                task.messages = kept
        return Hearing(self, task)


class Hearing:
    """Delivery with its hooks: a context manager around the listener, whose result the caller puts into `result`.

    When `wanted` is False nothing is left, and the listener is not to be called. A result that is still to be awaited
    is no end: whoever awaits it enters this once more.
    """

    __slots__ = ("_begun", "_context", "_hooks", "_owner", "result", "wanted")

    def __init__(self, owner: ConsumeHooks, task: ConsumeTask) -> None:
        self._owner = owner
        self._hooks = owner.hooks
        self.wanted = bool(task.messages)
        self.result: object = ConsumeStatus.SUCCESS
        self._begun: float | None = None
        self._context = ConsumeMessageContext(owner.group, owner.namespace, task.context.queue, task.messages)

    def __enter__(self) -> Self:
        if self._begun is None:
            self._begun = time.monotonic()
            for hook in self._hooks:
                call(self._owner.group, hook.consume_message_before, self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._begun is not None
        if error is None and inspect.isawaitable(self.result):
            return
        context = self._context
        context.error = error
        context.result = None if error is not None else self.result
        context.outcome = self._outcome(time.monotonic() - self._begun)
        for hook in self._hooks:
            call(self._owner.group, hook.consume_message_after, context)

    def _outcome(self, took_s: float) -> ConsumeOutcome:
        """Apache's order of things (docs/protocol/client.md 4.10)."""
        if self._context.error is not None:
            return ConsumeOutcome.EXCEPTION
        if self.result is None:
            return ConsumeOutcome.RETURN_NULL
        if took_s >= self._owner.timeout_s:
            return ConsumeOutcome.TIME_OUT
        if self.result is ConsumeStatus.SUCCESS or self.result is ConsumeStatus.COMMIT:
            return ConsumeOutcome.SUCCESS
        return ConsumeOutcome.FAILED
