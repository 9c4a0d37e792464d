"""Selectors of the queue of a message: what an application's own may do, and those that come with the project
(docs/protocol/client.md 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mqproto.errors import ClientError
from mqproto.message import Message, MessageQueue
from mqproto.wire.ids import java_hash

#: Gets the queues in order (broker name, queue id), the message and the argument that was given with the send.
Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]


def choose_queue(
    selector: Selector, queues: Sequence[MessageQueue], message: Message, argument: object
) -> MessageQueue:
    """Ask an application's selector; it gets a copy. Raises ClientError when it fails or chooses nothing
    (docs/protocol/client.md 3.2).

    Called by adapters outside the node: the application's code may block, and may use the client itself.
    """
    try:
        queue = selector(list(queues), message, argument)
    except ClientError:
        raise
    except Exception as error:
        raise ClientError(f"the queue selector failed: {error!r}") from error
    if queue is None:
        raise ClientError("the queue selector chose no queue")
    check_queue(queue)
    return queue


def check_queue(queue: MessageQueue) -> None:
    """Raises ClientError for what is no queue, such as its number: that alone does not say at which broker."""
    if not isinstance(queue, MessageQueue):
        raise ClientError(f"a MessageQueue expected, as results and selectors have them, not {queue!r}")


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """Selector that keeps equal arguments in one queue: the hash of a text or number as Java has it, so that programs
    of both languages choose alike. Other values count as the text that `str` makes of them.

    Raises ClientError for an empty list, and without an argument.
    """
    _check_any(queues, message)
    if argument is None:
        raise ClientError("choosing a queue by hash needs an argument to hash")
    return queues[hash_index(argument, len(queues))]


def random_selector(below: Callable[[int], int]) -> Selector:
    """A selector that takes any queue; `below(n)` gives a random number of 0 .. n - 1.

    It raises ClientError for an empty list.
    """

    def select(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
        _check_any(queues, message)
        return queues[below(len(queues))]

    return select


def _check_any(queues: Sequence[MessageQueue], message: Message) -> None:
    if not queues:
        raise ClientError(f"topic {message.topic!r} has no queue to choose from")


def hash_index(argument: object, count: int) -> int:
    """Absolute value of the remainder that Java's division leaves (it truncates, PRO-01): 0 .. count - 1.

    Whole numbers hash as Java's int where they fit one, else as its long.
    """
    if isinstance(argument, int):
        narrow = -(1 << 31) <= argument < 1 << 31
        value = argument if narrow else _signed32((argument ^ argument >> 32) & 0xFFFF_FFFF)
    else:
        value = java_hash(str(argument))
    return abs(value) % count


def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
