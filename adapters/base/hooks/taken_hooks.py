"""Consume hooks of a simple consumer, called when a message is received and when it is acknowledged."""

from __future__ import annotations

from mqproto.adapters.base.hooks.filter_hooks import call
from mqproto.consume_hooks import ConsumeMessageContext, ConsumeMessageHook, ConsumeOutcome
from mqproto.message import MessageExt, MessageQueue


class TakenHooks:
    """List of the consume hooks of one simple consumer.

    Hooks can be added at any time, from any thread; a message has those that were there when it was taken.

    What was begun is here until it ends. Several may come to an end at once (an answer, the time-out, the close):
    whoever takes it out of here calls the hooks, so they are called once. An answer that came before the close counts
    as what it is, whoever that is.
    """

    def __init__(self, group: str, namespace: str) -> None:
        self._group = group
        self._namespace = namespace
        self._hooks: tuple[ConsumeMessageHook, ...] = ()
        #: By message and when it was taken, since the same object may be taken again: the context, and the hooks that
        #: saw the beginning.
        self._open: dict[tuple[int, int], tuple[ConsumeMessageContext, list[ConsumeMessageHook]]] = {}
        #: Of these the ones that were answered: what that counts as, and the answer.
        self._answered: dict[tuple[int, int], tuple[ConsumeOutcome, object]] = {}

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: ConsumeMessageHook) -> None:
        self._hooks += (hook,)

    def begin(self, message: MessageExt, queue: MessageQueue, taken_at: int) -> None:
        """Call what comes before the application gets a message."""
        context = ConsumeMessageContext(self._group, self._namespace, queue, [message])
        begun: list[ConsumeMessageHook] = []
        self._open[id(message), taken_at] = context, begun
        for hook in self._hooks:
            begun.append(hook)
            call(self._group, hook.consume_message_before, context)

    def answer(self, message: MessageExt, taken_at: int, outcome: ConsumeOutcome, result: object) -> None:
        """It was answered, and `end` follows.

        To be called within the node, where a close may be about to find that nothing is out.
        """
        if (id(message), taken_at) in self._open:
            self._answered[id(message), taken_at] = outcome, result

    def end(
        self, message: MessageExt, taken_at: int, outcome: ConsumeOutcome, error: BaseException | None = None
    ) -> None:
        """Call what comes after it, unless that was done or it never began; `outcome` is that of one without answer."""
        self._end((id(message), taken_at), outcome, error)

    def end_all(self, outcome: ConsumeOutcome) -> None:
        """The same for everything that has begun."""
        for key in list(self._open):
            self._end(key, outcome, None)

    def _end(self, key: tuple[int, int], outcome: ConsumeOutcome, error: BaseException | None) -> None:
        found = self._open.pop(key, None)
        outcome, result = self._answered.pop(key, (outcome, None))
        if found is None:
            return
        context, hooks = found
        context.outcome, context.result, context.error = outcome, result, error
        for hook in hooks:
            call(self._group, hook.consume_message_after, context)
