"""Allocation of queues: strategies, and what a new assignment changes.

There is no coordination between the members of a group beyond the same inputs in the same order: every member sorts the
queues and the client ids alike, in Java's order to the byte, computes everybody's share and takes its own.

Owns: the default strategy, the difference between what a member has and what it should have.
Leaves to others: the orders (`queue_order`), the other strategies (`strategies`), where the inputs come from
(`members`), what taking a queue means (`assignment`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from mqproto.errors import LocalProtocolError
from mqproto.message import MessageQueue
from mqproto.state.cluster.queue_order import queue_order


class Strategy(Protocol):
    """Allocation strategy (AllocateMessageQueueStrategy).

    All members of a group must use the same one; its name travels in what operators are shown.
    """

    @property
    def name(self) -> str: ...

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of `own_id`.

        Queues and ids come sorted. Raises LocalProtocolError for an input that no share can be made of.
        """


class Averagely:
    """Contiguous runs of queues, the first members get one more when the division leaves a rest
    (docs/protocol/client.md 4.4, AVG).
    """

    __slots__ = ()

    name = "AVG"

    def allocate(
        self, group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not is_member(group, own_id, queues, client_ids):
            return []
        share, rest = divmod(len(queues), len(client_ids))
        index = client_ids.index(own_id)
        start = index * share + min(index, rest)
        return list(queues[start : start + share + (index < rest)])


def is_member(group: str, own_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """Guard of the strategies: False for a member that the others do not know yet, which gets nothing this round."""
    for value, what in ((own_id, "own client id"), (queues, "queues"), (client_ids, "client ids")):
        if not value:
            raise LocalProtocolError(f"cannot share out queues in group {group}: no {what}")
    return own_id in client_ids


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a member's queues by a new assignment of one topic, both lists in queue order."""

    lost: list[MessageQueue]
    gained: list[MessageQueue]

    def __bool__(self) -> bool:
        return bool(self.lost or self.gained)


def changes(topic: str, own: Collection[MessageQueue], wanted: Collection[MessageQueue]) -> Changes:
    """Compare the member's queues (of any topic) with its new share of `topic` (docs/protocol/client.md 4.7).

    A queue that stays is in neither list: its process queue and its pull loop go on untouched.
    """
    mine = {queue for queue in own if queue.topic == topic}
    share = set(wanted)
    return Changes(sorted(mine - share, key=queue_order), sorted(share - mine, key=queue_order))
