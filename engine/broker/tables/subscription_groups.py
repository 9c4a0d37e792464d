"""Subscription groups of the broker: the table, its rules and its file (docs/protocol/broker.md 2.15, 7).

Owns: the settings of each group, which groups are made when they are first seen.
Leaves to others: when the file is written (`config_manager`), requests (`operators.groups`), who is online
(`mqproto.engine.broker.core.client_registry`).
"""

from __future__ import annotations

import re
from typing import Final

from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.settings import BrokerSettings
from mqproto.wire.bodies import DataVersion, GroupConfig, GroupTable
from mqproto.wire.names import GROUP_LENGTH_MAX, SYSTEM_GROUP_PREFIX

#: Groups that are kept. Peers create them, so their number is limited.
GROUPS_MAX: Final = 100_000

#: Groups that exist from the start (docs/protocol/broker.md 7).
_SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
_legal: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def legal_group(name: str) -> bool:
    """Whether a group can have that name.

    Of one over 120 characters no retry topic can be made; it just consumes without retries.
    """
    return 0 < len(name) <= GROUP_LENGTH_MAX and _legal(name) is not None


class SubscriptionGroups:
    """Table of the subscription groups, by name."""

    def __init__(self, settings: BrokerSettings, config_manager: ConfigManager) -> None:
        self._settings = settings
        self._config_manager = config_manager
        self.table: dict[str, GroupConfig] = {name: GroupConfig(name) for name in _SYSTEM_GROUPS}
        self.version = DataVersion()
        loaded, self._kept = config_manager.keep("subscriptionGroup.json", GroupTable.from_json, self.as_body)
        if loaded is not None:
            self.table.update(loaded.groups)
            self.version = loaded.data_version

    def as_body(self) -> GroupTable:
        return GroupTable(self.version, self.table)

    def find(self, name: str, wall: int) -> GroupConfig | None:
        """The group, made if that is allowed and the name is one; else None."""
        config = self.table.get(name)
        if config is None and self._may_make(name):
            config = GroupConfig(name)
            self.put(config, wall)
        return config

    def _may_make(self, name: str) -> bool:
        wanted = self._settings.auto_create_subscription_group or name.startswith(SYSTEM_GROUP_PREFIX)
        return wanted and legal_group(name) and len(self.table) < GROUPS_MAX

    def put(self, config: GroupConfig, wall: int) -> None:
        self.table[config.name] = config
        self._count_change(wall)

    def delete(self, name: str, wall: int) -> bool:
        if self.table.pop(name, None) is None:
            return False
        self._count_change(wall)
        return True

    def _count_change(self, wall: int) -> None:
        self.version.next(wall)
        self._config_manager.changed(self._kept)
