"""Topics of the broker: the table, its rules and its file (docs/protocol/broker.md 2.1, 7).

Owns: which topics there are, who may make one and after which template, which of them the name servers do not know yet.
Leaves to others: when the file is written (`config_manager`), requests (`operators.topics`), name servers
(`registration`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.settings import BrokerSettings
from mqproto.wire.bodies import DataVersion, TopicConfig, TopicTable
from mqproto.wire.flags import PERM_INHERIT, PERM_READ_WRITE
from mqproto.wire.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TOPIC_LENGTH_MAX,
    is_system_topic,
)

#: Topics that are kept. Peers create them, so their number is limited.
TOPICS_MAX: Final = 100_000

_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16
_legal: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch


def legal_topic(name: str) -> bool:
    """Whether a topic can have that name."""
    return 0 < len(name) <= TOPIC_LENGTH_MAX and _legal(name) is not None


class TopicConfigs:
    """Table of the topics, by name."""

    def __init__(self, settings: BrokerSettings, config_manager: ConfigManager, delay_levels: int) -> None:
        self._settings = settings
        self._config_manager = config_manager
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion()
        #: Number of the last change, as `ConfigManager` counts them, of each topic that has changed since the start.
        #: What was derived from a topic holds while it is the same, and an acknowledgement whether its topic
        #: is saved.
        self.changes: dict[str, int] = {}
        #: Topics that the name servers do not know yet, the oldest first.
        self.fresh: dict[str, None] = {}
        self.built_in: set[str] = set()
        self._add_system_topics(delay_levels)
        loaded, self._kept = config_manager.keep("topics.json", TopicTable.from_json, self.as_body)
        if loaded is not None:
            self.table.update(loaded.topics)
            self.version = loaded.data_version

    def _add_system_topics(self, delay_levels: int) -> None:
        """Topics that exist from the start (docs/protocol/broker.md 7); a file may override them."""
        settings = self._settings
        cluster, name = settings.broker_cluster_name, settings.broker_name
        readwrite, inherit = PERM_READ_WRITE, PERM_INHERIT
        for topic, queues, perm in (
            (SELF_TEST_TOPIC, 1, readwrite),
            (BENCHMARK_TOPIC, _BENCHMARK_QUEUES, readwrite),
            (cluster, _CLUSTER_QUEUES, inherit | (readwrite if settings.cluster_topic_enable else 0)),
            (name, 1, inherit | (readwrite if settings.broker_topic_enable else 0)),
            (OFFSET_MOVED_TOPIC, 1, readwrite),
            (SCHEDULE_TOPIC, delay_levels, readwrite),
            (f"{cluster}_REPLY_TOPIC", 1, readwrite),
            (HALF_TOPIC, 1, readwrite),
            (OP_HALF_TOPIC, 1, readwrite),
        ):
            self.table[topic] = TopicConfig(topic, queues, queues, perm)
        if settings.auto_create_topic_enable:
            self.table[AUTO_CREATE_TOPIC] = self._auto_create_template()
        if settings.trace_topic_enable:
            self.table[settings.msg_trace_topic_name] = TopicConfig(settings.msg_trace_topic_name, 1, 1, readwrite)
        self.built_in.update(self.table)

    def _auto_create_template(self) -> TopicConfig:
        queues = self._settings.default_topic_queue_nums
        return TopicConfig(AUTO_CREATE_TOPIC, queues, queues, PERM_READ_WRITE | PERM_INHERIT)

    def settings_changed(self, wall: int) -> None:
        """Where topics are made automatically from now on there must be the template of them, as after a start."""
        if self._settings.auto_create_topic_enable and AUTO_CREATE_TOPIC not in self.table:
            self.put(self._auto_create_template(), wall)
            self.built_in.add(AUTO_CREATE_TOPIC)

    def next_version(self, wall: int) -> None:
        """What name servers hear of the topics has changed, though no topic has."""
        self._count_change(wall)

    def as_body(self) -> TopicTable:
        return TopicTable(self.version, self.table)

    def find(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    def is_system(self, name: str) -> bool:
        """Whether operators may not change a topic."""
        return is_system_topic(name) or name in self.built_in

    def put(self, config: TopicConfig, wall: int) -> None:
        """Make a topic, or replace what is set for it."""
        self.table[config.name] = config
        self.fresh[config.name] = None
        self._count_change(wall)
        self.changes[config.name] = self._config_manager.changes

    def delete(self, name: str, wall: int) -> bool:
        if self.table.pop(name, None) is None:
            return False
        self.fresh.pop(name, None)
        self.changes.pop(name, None)
        self._count_change(wall)
        return True

    def _count_change(self, wall: int) -> None:
        self.version.next(wall)
        self._config_manager.changed(self._kept)

    def create(self, name: str, queues: int, perm: int, sys_flag: int, wall: int) -> TopicConfig | None:
        """The topic, made if there is none; None for a name that no topic can have, or when there are too many."""
        config = self.table.get(name)
        if config is None and legal_topic(name) and len(self.table) < TOPICS_MAX:
            config = TopicConfig(name, queues, queues, perm, sys_flag=sys_flag)
            self.put(config, wall)
        return config

    def create_like(self, name: str, template_name: str, queues: int, sys_flag: int, wall: int) -> TopicConfig | None:
        """Automatic creation for a send (docs/protocol/broker.md 2.1): after a template that may be inherited from;
        None if there is none.
        """
        template = self.table.get(template_name)
        if template is None or not legal_topic(name) or len(self.table) >= TOPICS_MAX:
            return None
        if template_name == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable:
            return None
        if not template.perm & PERM_INHERIT:
            return None
        queues = max(0, min(queues, template.write_queues))
        config = TopicConfig(name, queues, queues, template.perm & ~PERM_INHERIT, template.filter_type, sys_flag)
        self.put(config, wall)
        return config

    def set_ordered(self, ordered: Iterable[str], wall: int) -> None:
        """Take over which topics the name servers hold for ordered (docs/protocol/broker.md 1.6)."""
        wanted = set(ordered)
        changed = [config for name, config in self.table.items() if config.order != (name in wanted)]
        for config in changed:
            config.order = not config.order
        if changed:
            self._count_change(wall)
