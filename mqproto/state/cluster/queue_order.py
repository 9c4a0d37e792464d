"""Order of queues and texts as Java sorts them: every member of a group has to come to the same one."""

from __future__ import annotations

from mqproto.message import MessageQueue


def text_order(text: str) -> bytes:
    """Sort key of Java's string order: by UTF-16 code unit, which puts U+1F600 before U+FF5E (docs/protocol/client.md,
    conventions).
    """
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of Java's queue order: topic, broker name, queue id as a number (docs/protocol/client.md,
    conventions).
    """
    return text_order(queue.topic), text_order(queue.broker_name), queue.queue_id
