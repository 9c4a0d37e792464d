"""Filter hooks of a consumer of any kind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mqproto.consume_hooks import FilterMessageContext, FilterMessageHook
from mqproto.message import MessageExt, MessageQueue

log: Final = logging.getLogger("mqproto.client")

C = TypeVar("C")


class Filters:
    """List of the filter hooks of one consumer.

    Hooks can be added at any time, from any thread; messages meet those that are there when their turn comes.
    """

    def __init__(self, group: str, *, unit_mode: bool) -> None:
        self._group = group
        self._unit_mode = unit_mode
        self._hooks: tuple[FilterMessageHook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: FilterMessageHook) -> None:
        self._hooks += (hook,)

    def left_of(self, queue: MessageQueue, messages: list[MessageExt]) -> list[MessageExt]:
        """What the hooks leave of messages of one queue, in their order."""
        for hook in self._hooks:
            context = FilterMessageContext(self._group, queue, list(messages), self._unit_mode)
            if call(self._group, hook.filter_message, context):
                kept = {id(message) for message in context.messages}
                messages = [message for message in messages if id(message) in kept]
        return messages

    def left_of_any(self, messages: list[MessageExt]) -> list[MessageExt]:
        """The same for messages that all come from the queue of the first."""
        if not self._hooks or not messages:
            return messages
        first = messages[0]
        return self.left_of(MessageQueue(first.topic, first.broker_name, first.queue_id), messages)


def call(group: str, function: Callable[[C], Any], context: C) -> bool:
    """Call a hook; whether it ended well.

    It watches, so its failures are not the delivery's (docs/protocol/client.md 3.12).
    """
    try:
        function(context)
    except Exception:
        log.exception("a hook of consumer %s failed", group)
        return False
    return True
