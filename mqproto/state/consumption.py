"""Handing messages to the application, and what becomes of them by its answer (client.md 4.10, 4.12).

Owns: deliveries that are ready and running, the meaning of a listener's result, the requests that send a failed message back.
Leaves to others: calling listeners (adapter), the cache (pull), when a consumer stops (consumer).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.message import ConsumeStatus, MessageExt, MessageQueue
from mqproto.state.pull import ProcessQueue

ALL: Final = 2**31 - 1


@dataclass(slots=True)
class ConsumeContext:
    """What a listener may read and set besides its messages."""

    queue: MessageQueue
    #: With SUCCESS: messages of the list after this index failed all the same.
    ack_index: int = ALL
    #: Of failed messages: -1 straight to the dead letters, 0 the broker decides (longer each time), from 1 a level of the broker's table.
    delay_level: int = 0


@dataclass(slots=True, eq=False)
class ConsumeTask:
    """One delivery: call `listener(messages, context)` and answer by `ClientNode.consumed(task, result, now)`, once.

    The result is what the listener returned, or the exception that it raised. An adapter may leave a task unanswered only when it
    goes away altogether: the messages then come again.
    """

    group: str
    listener: Any
    messages: list[MessageExt]
    context: ConsumeContext
    process_queue: ProcessQueue | None = None
    #: When it was handed out.
    started_at: int = 0
