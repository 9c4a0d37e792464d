"""Progress of delayed delivery, by delay level: the table and its file (docs/protocol/store.md 10, 11)."""

from __future__ import annotations

from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.wire.bodies import DelayOffsets
from mqproto.wire.fastjson import JsonError, loads, truncate


def _parse_progress(text: str) -> dict[int, int]:
    """The progress in a file; an entry that is no number is as good as none (DLY-01). Raises JsonError."""
    table = loads(text)
    if not isinstance(table, dict):
        raise JsonError(f"no object: {type(table).__name__}")
    found: dict[int, int] = {}
    for name, value in (table.get("offsetTable") or {}).items():
        level, offset = truncate(name), truncate(value)
        if level is not None and offset is not None:
            found[level] = offset
    return found


class DelayProgress:
    """Table of the next offset to deliver in the queue of each delay level."""

    def __init__(self, config_manager: ConfigManager, delay_ms: int) -> None:
        self._config_manager = config_manager
        loaded, self._kept = config_manager.keep(
            "delayOffset.json", _parse_progress, self.as_body, delay_ms, needed=False
        )
        self.table: dict[int, int] = loaded or {}

    def as_body(self) -> DelayOffsets:
        return DelayOffsets(self.table)

    def set(self, level: int, offset: int) -> None:
        self.table[level] = offset
        self._config_manager.changed(self._kept)
