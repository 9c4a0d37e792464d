"""The tables that say what a data directory is for: topics, groups, committed offsets (docs/protocol/store.md 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqproto.engine.store.disk.config_files import ConfigFile
from mqproto.engine.store.disk.files import Files
from mqproto.wire.bodies import GroupTable, OffsetTable, TopicTable


@dataclass(slots=True)
class Tables:
    """The three tables, and what an operator should know of their files."""

    topics: TopicTable = field(default_factory=TopicTable)
    groups: GroupTable = field(default_factory=GroupTable)
    offsets: OffsetTable = field(default_factory=OffsetTable)
    notes: list[str] = field(default_factory=list)

    def committed(self, topic: str) -> dict[str, dict[int, int]]:
        """Committed offsets of a topic by group and queue id."""
        found = {}
        for key, by_queue in self.offsets.offsets.items():
            name, _, group = key.partition("@")
            if name == topic and group:
                found[group] = {queue_id: offset for queue_id, offset in by_queue.items() if offset >= 0}
        return found


class TableFiles:
    """The files of the tables of one directory. Raises ConfigDamaged for a damaged pair, OSError. Blocks."""

    __slots__ = ("_groups", "_offsets", "_topics")

    def __init__(self, files: Files, root: str) -> None:
        self._topics = ConfigFile(f"{root}/config/topics.json", files)
        self._groups = ConfigFile(f"{root}/config/subscriptionGroup.json", files)
        self._offsets = ConfigFile(f"{root}/config/consumerOffset.json", files)

    def load(self) -> Tables:
        """What the files say; what is missing is empty."""
        tables = Tables()
        tables.topics = self._topics.load(TopicTable.from_json) or tables.topics
        tables.groups = self._groups.load(GroupTable.from_json) or tables.groups
        tables.offsets = self._offsets.load(OffsetTable.from_json) or tables.offsets
        tables.notes = [file.warning for file in (self._topics, self._groups, self._offsets) if file.warning]
        return tables

    def save(self, tables: Tables, *, topics: bool, groups: bool, offsets: bool) -> None:
        """Replace those that changed, offsets last: they are of no use without the others. To be loaded before."""
        if topics:
            self._topics.save(tables.topics.to_pretty())
        if groups:
            self._groups.save(tables.groups.to_pretty())
        if offsets:
            self._offsets.save(tables.offsets.to_pretty())
