"""Last job of a broker: its tables and its store are saved and closed."""

from __future__ import annotations

from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.store import CloseStore


class LastSave:
    """Last job: save the tables, and close the store even if that fails."""

    __slots__ = ("closing", "config_manager")

    def __init__(self, config_manager: ConfigManager, closing: CloseStore) -> None:
        self.config_manager = config_manager
        self.closing = closing

    def run(self) -> None:
        try:
            self.config_manager.save_all()
        finally:
            self.closing.run()
