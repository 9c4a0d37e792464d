"""Hooks of consumers for tests: one that keeps what it sees, and one that fails at everything."""

from __future__ import annotations

import threading

from mqproto import ConsumeMessageContext, ConsumeMessageHook, ConsumeOutcome, FilterMessageContext, FilterMessageHook
from tests.adapters.harness import PATIENCE


class Watcher(ConsumeMessageHook):
    """Keeps what it sees, and where it runs."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun: list[ConsumeMessageContext] = []
        self.ended: list[tuple[ConsumeMessageContext, ConsumeOutcome | None]] = []
        self.threads: set[str] = set()

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        context.attributes["body"] = context.messages[0].body
        self.begun.append(context)
        self.threads.add(threading.current_thread().name)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        with self.changed:
            self.ended.append((context, context.outcome))
            self.changed.notify_all()

    def wait(self, count: int) -> list[tuple[ConsumeMessageContext, ConsumeOutcome | None]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.ended) >= count, PATIENCE)
            return list(self.ended)


class Broken(ConsumeMessageHook, FilterMessageHook):
    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        raise ValueError("before")

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        raise ValueError("after")

    def filter_message(self, context: FilterMessageContext) -> None:
        context.messages.clear()
        raise ValueError("filter")
