"""Offsets that consumer groups have committed: the table, its rules and its file (docs/protocol/store.md 10).

Owns: offsets by topic, group and queue, who has committed anything of what, how much is kept.
Leaves to others: when the file is written (`config_manager`), requests (`pulls.offsets`, `operators.group_progress`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.settings import BrokerSettings
from mqproto.wire.bodies import OffsetTable

#: Committed offsets that are kept. Peers make them, so their number is limited.
OFFSETS_MAX: Final = 1_000_000
_NONE: Final[Mapping[int, int]] = {}


class ConsumerOffsets:
    """Table of committed offsets, by topic, group and queue."""

    def __init__(self, settings: BrokerSettings, config_manager: ConfigManager) -> None:
        self._config_manager = config_manager
        self.table: dict[str, dict[int, int]] = {}
        loaded, self._kept = config_manager.keep(
            "consumerOffset.json", OffsetTable.from_json, self.as_body, settings.flush_consumer_offset_interval
        )
        if loaded is not None:
            self.table = loaded.offsets
        self._count = sum(map(len, self.table.values()))
        #: Who has committed anything: groups by topic, and topics by group.
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}
        for key in self.table:
            self._remember(key)

    def _remember(self, key: str) -> None:
        topic, _, group = key.partition("@")
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None

    def as_body(self) -> OffsetTable:
        return OffsetTable(self.table)

    def find(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None if there is none (a negative one, which some clients send, counts as none)."""
        by_queue = self.table.get(f"{topic}@{group}")
        offset = by_queue.get(queue_id) if by_queue is not None else None
        return offset if offset is not None and offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Keep an offset, lower ones too. Negative ones are passed over. False when there is no place for a new one."""
        if offset < 0:
            return True
        key = f"{topic}@{group}"
        by_queue = self.table.get(key)
        if by_queue is None or queue_id not in by_queue:
            if self._count >= OFFSETS_MAX:
                return False
            self._count += 1
            if by_queue is None:
                by_queue = self.table[key] = {}
                self._remember(key)
        elif by_queue[queue_id] == offset:
            return True
        by_queue[queue_id] = offset
        self._config_manager.changed(self._kept)
        return True

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """What a group has committed of a topic, by queue."""
        return self.table.get(f"{topic}@{group}", _NONE)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed offsets of a topic."""
        return list(self._groups.get(topic, ()))

    def topics_of(self, group: str) -> list[str]:
        """Topics of which a group has committed offsets."""
        return list(self._topics.get(group, ()))

    def copy(self, topic: str, source: str, target: str) -> bool:
        """Let a group stand where another one stands on a topic, and nowhere else on it.

        False when there is no place for that.
        """
        offsets = self.of(source, topic)
        if source == target or not offsets:
            return True
        if self._count + len(offsets) > OFFSETS_MAX:
            return False
        key = f"{topic}@{target}"
        self._forget(key)
        self.table[key] = dict(offsets)
        self._remember(key)
        self._count += len(offsets)
        self._config_manager.changed(self._kept)
        return True

    def forget_group(self, group: str) -> None:
        """Drop all offsets of exactly this group (REB-09)."""
        for topic in self.topics_of(group):
            self._forget(f"{topic}@{group}")

    def forget_queues(self, keys: Iterable[str], gone: Mapping[str, Container[int]]) -> None:
        """Drop what groups have committed of some queues, ids by topic. Looked at are only these keys of the table."""
        for key in keys:
            ids, offsets = gone.get(key.partition("@")[0]), self.table.get(key)
            if ids is None or offsets is None:
                continue
            kept = {queue_id: offset for queue_id, offset in offsets.items() if queue_id not in ids}
            if not kept:
                self._forget(key)
            elif len(kept) < len(offsets):
                self.table[key] = kept
                self._count -= len(offsets) - len(kept)
                self._config_manager.changed(self._kept)

    def _forget(self, key: str) -> None:
        offsets = self.table.pop(key, None)
        if offsets is None:
            return
        self._count -= len(offsets)
        topic, _, group = key.partition("@")
        for names, name, other in ((self._groups, topic, group), (self._topics, group, topic)):
            of_name = names.get(name, {})
            of_name.pop(other, None)
            if not of_name:
                names.pop(name, None)
        self._config_manager.changed(self._kept)
