"""Questions to producers about half messages, CHECK_TRANSACTION_STATE 39 (docs/protocol/broker.md 2.10).

Owns: which producer of a group is asked, what it is sent, and that a copy is durable before anybody is asked.
Leaves to others: when a half message is asked about (`transaction_check`), answers: they are requests 37
(`end_transaction`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mqproto.engine.broker.core.client_registry import ClientRegistry
from mqproto.engine.broker.core.core import ClientLink
from mqproto.engine.broker.sends.message_writer import Stored
from mqproto.engine.broker.tables.topics import legal_topic
from mqproto.engine.store import Store
from mqproto.message import MessageExt
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT, Link
from mqproto.wire import properties as names
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import CheckTransactionStateRequest
from mqproto.wire.record import encode_record

#: Members of a group that are tried.
_TRIES: Final = 3


class CheckQuestions:
    """Questions of one broker: those that are sent at once, and those that wait for the disk first."""

    def __init__(self, store: Store, client_registry: ClientRegistry) -> None:
        self._store = store
        self._client_registry = client_registry
        #: Whose turn it is in each group; the links of each group that was asked for in this turn of the broker.
        self._turns: dict[str, int] = {}
        self._rosters: dict[str, list[Link]] = {}
        #: Questions about copies that are not durable yet: where the log ended, to whom, header and body.
        self._waiting: deque[tuple[int, ClientLink, dict[str, str], bytes]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether any question waits for the disk."""
        return bool(self._waiting)

    def begin_turn(self) -> None:
        """Members of groups may have changed since the last turn."""
        self._rosters.clear()

    def end_round(self) -> None:
        """Forget whose turn it is in groups that are gone."""
        producers = self._client_registry.producers
        self._turns = {group: turn for group, turn in self._turns.items() if group in producers}

    def flushed(self) -> None:
        """More of the log may be durable: ask what waited for it."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._store.flushed:
            _, link, fields, body = waiting.popleft()
            if not link.ended:
                link.oneway(RequestCode.CHECK_TRANSACTION_STATE, fields, body)

    def ask(self, message: MessageExt, copy: Stored) -> None:
        """Send the question to one producer of the group, if there is one; otherwise the next round tries again."""
        real = message.properties.get(names.REAL_TOPIC, "")
        queue_id = number_of(message.properties.get(names.REAL_QUEUE_ID))
        link = self._producer(message.properties.get(names.PRODUCER_GROUP, ""))
        if link is None or queue_id is None or not legal_topic(real):
            return
        message.topic = real
        message.queue_id = queue_id
        message.queue_offset = copy.queue_offset
        message.physical_offset = copy.physical_offset
        unique = message.properties.get(names.UNIQ_KEY)
        header = CheckTransactionStateRequest(copy.queue_offset, copy.physical_offset, unique, unique, copy.msg_id)
        fields, body = header.encode(), encode_record(message)
        if self._store.sync:  # no answer finds the copy before it is durable
            self._waiting.append((self._store.end, link, fields, body))
        else:
            link.oneway(RequestCode.CHECK_TRANSACTION_STATE, fields, body)

    def _producer(self, group: str) -> ClientLink | None:
        """A member of a group, each in its turn, that takes what it is sent."""
        roster = self._rosters.get(group)
        if roster is None:
            roster = self._rosters[group] = list(self._client_registry.producers.get(group, ()))
        for _ in range(min(len(roster), _TRIES)):
            turn = self._turns[group] = self._turns.get(group, -1) + 1
            link = roster[turn % len(roster)]
            if isinstance(link, ClientLink) and not link.ended and link.unsent <= SERVER_UNSENT_LIMIT:
                return link
        return None


def number_of(text: str | None) -> int | None:
    """A number as properties hold it; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None
