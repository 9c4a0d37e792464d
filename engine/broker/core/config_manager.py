"""What the broker remembers besides messages: topics, subscription groups, progress of delayed delivery; and when all
tables are saved.

Owns: the tables, their rules (who is created when, from which template), when they are written.
Leaves to others: consumer offsets (`committed`), files (`mqproto.engine.store.disk.config_files`), requests (the
handlers), name servers (`registration`).

Files and rhythm are Apache's (docs/protocol/store.md 10): topics and groups are saved at each change, consumer offsets
after 5 s, delay progress after 10 s, everything at the end. One save of a table runs at a time; changes meanwhile are
in the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps, joined_text
from mqproto.engine.store import ConfigDamaged, ConfigFile
from mqproto.engine.store.disk.files import Files
from mqproto.errors import InvalidSetting
from mqproto.state.node.contract import Job
from mqproto.wire.bodies import (
    Body,
    DataVersion,
    DelayOffsets,
    GroupConfig,
    GroupTable,
    TopicConfig,
    TopicTable,
    pretty_pieces,
)
from mqproto.wire.fastjson import JsonError, loads, truncate
from mqproto.wire.flags import PERM_INHERIT, PERM_READ_WRITE
from mqproto.wire.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    GROUP_LENGTH_MAX,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_GROUP_PREFIX,
    TOPIC_LENGTH_MAX,
    is_system_topic,
)

#: Topics and groups that are kept. Peers create both, so there is an end to it.
TOPICS_MAX: Final = 100_000
GROUPS_MAX: Final = 100_000

_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16
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
#: Pause before a table that could not be saved is tried again.
_RETRY_MS: Final = 10_000
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_legal: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch

T = TypeVar("T")


class ConfigTable:
    """One table with a file."""

    __slots__ = ("body", "changed", "delay_ms", "file", "saving", "since")

    def __init__(self, file: ConfigFile, body: Callable[[], Body], delay_ms: int) -> None:
        self.file = file
        self.body = body
        #: How long a change may wait for its save.
        self.delay_ms = delay_ms
        self.changed = False
        #: Its text is made, or written.
        self.saving = False
        #: Number of the first change that no finished save holds; None when all are saved.
        self.since: int | None = None


class ConfigManager:
    """Saves tables below `folder`.

    `after` calls a function some time later, `notice` tells the operator, `in_slices` does long work.
    """

    def __init__(
        self,
        folder: str,
        files: Files | None,
        after: Callable[[int, Callable[[], None]], None],
        notice: Callable[[str], None],
        in_slices: Callable[[object, Steps[str], Callable[[str], None]], None],
    ) -> None:
        self._folder = folder
        self._files = files
        self._after = after
        self._notice = notice
        self._in_slices = in_slices
        self._tables: list[ConfigTable] = []
        #: Jobs under way, each with its table and the number of changes when it was made.
        self._running: dict[Job, tuple[ConfigTable, int]] = {}
        #: Jobs to run now; the owner empties the list.
        self.jobs: list[Job] = []
        #: Changes of the tables that are saved at each change: what was answered because of one must not be forgotten.
        self.changes = 0
        #: How many of these, counted from the first, are on the disk.
        self.saved = 0

    @property
    def busy(self) -> bool:
        return any(kept.saving for kept in self._tables)

    def keep(
        self, name: str, parse: Callable[[str], T], body: Callable[[], Body], delay_ms: int = 0, *, needed: bool = True
    ) -> tuple[T | None, ConfigTable]:
        """Load a table from its file, to be saved by `changed` from now on.

        Raises ConfigDamaged when neither the file nor its backup can be read. A table that is not `needed` begins anew
        then: it holds progress, and repeating some of it is better than no broker (DLY-04). Raises OSError.
        """
        file = ConfigFile(f"{self._folder}/{name}", self._files)
        kept = ConfigTable(file, body, delay_ms)
        self._tables.append(kept)
        value = None
        try:
            value = file.load(parse)
        except ConfigDamaged as damage:
            if needed:
                raise
            self._notice(f"{damage}: starting without it")
        if file.warning:
            self._notice(file.warning)
        kept.changed = not file.found  # so that one that is missing at the next start was lost
        return value, kept

    def tell_missing(self, names: Iterable[str]) -> None:
        """There are messages already: tell of tables that should be there and are not."""
        for kept in self._tables:
            path = kept.file.path
            if path.rpartition("/")[2] in names and not kept.file.found:
                self._notice(
                    f"there are messages, but no {path}: if it was lost, bring it back before consumers connect"
                )

    def changed(self, kept: ConfigTable) -> None:
        """The table has changed: save it, in its rhythm."""
        kept.changed = True
        if kept.delay_ms:
            self._after(kept.delay_ms, self.save_due)
            return
        self.changes += 1
        if kept.since is None:
            kept.since = self.changes
        self._count_saved()
        self._begin(kept)

    def save_due(self) -> None:
        """Alarm: begin every save that is wanted."""
        for kept in self._tables:
            self._begin(kept)

    def _begin(self, kept: ConfigTable) -> None:
        if kept.changed and not kept.saving:
            kept.saving = True
            kept.changed = False
            changes = self.changes  # what the text will hold; later ones are in the next
            pieces = pretty_pieces(kept.body())

            def save(text: str) -> None:
                job = kept.file.save_job(text)
                self._running[job] = kept, changes
                self.jobs.append(job)

            self._in_slices(kept, joined_text(pieces), save)

    def done(self, job: Job, failure: Exception | None) -> bool:
        """A job ended; False if it is none of ours.

        A table that could not be saved is tried again, with its next change at the latest.
        """
        entry = self._running.pop(job, None)
        if entry is None:
            return False
        kept, changes = entry
        kept.saving = False
        if failure is not None:
            self._notice(f"a table was not saved: {failure}")
            kept.changed = True
            self._after(_RETRY_MS, self.save_due)
            return True
        if kept.since is not None:
            kept.since = changes + 1 if kept.changed else None
        self._count_saved()
        if kept.changed and not kept.delay_ms:
            self._begin(kept)
        return True

    def save_all(self) -> None:
        """Save whatever has changed, at once. Blocks. Raises OSError."""
        for kept in self._tables:
            if kept.changed:
                kept.file.save(kept.body().to_pretty())
                kept.changed = False
                kept.since = None
        self._count_saved()

    def _count_saved(self) -> None:
        self.saved = min((kept.since - 1 for kept in self._tables if kept.since is not None), default=self.changes)


def legal_topic(name: str) -> bool:
    return 0 < len(name) <= TOPIC_LENGTH_MAX and _legal(name) is not None


def legal_group(name: str) -> bool:
    """Whether a group can have that name.

    Of one over 120 characters no retry topic can be made; it just consumes without retries.
    """
    return 0 < len(name) <= GROUP_LENGTH_MAX and _legal(name) is not None


class TopicConfigs:
    """The topics of this broker."""

    def __init__(self, settings: BrokerSettings, config_manager: ConfigManager, delay_levels: int) -> None:
        self._settings = settings
        self._config_manager = config_manager
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion()
        #: Number of the last change of each topic that was made or changed since the start, as the keeper counts them.
        #: What was derived from a topic can tell by it whether it still holds, and an acknowledgement whether its topic
        #: is saved.
        self.changes: dict[str, int] = {}
        #: Topics that the name servers have not been told of yet, in order.
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


class SubscriptionGroups:
    """The subscription groups of this broker."""

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


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """`1s 5s 10s ...` as milliseconds, the first one for level 1 (docs/protocol/store.md 11). Raises InvalidSetting."""
    levels = []
    for word in text.split(" "):
        number, unit = word[:-1], _UNITS.get(word[-1:])
        if unit is None or not (number.isascii() and number.isdigit() and len(number) <= 12):
            raise InvalidSetting(
                "messageDelayLevel", text, f"{word!r} is no delay: a number and one of s, m, h, d expected"
            )
        levels.append(int(number) * unit)
    return tuple(levels)


def _parse_progress(text: str) -> dict[int, int]:
    """The progress that a file tells; an entry that is no number is as good as none (DLY-01). Raises JsonError."""
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
    """How far each delay level has been delivered: the next offset in its queue, by level."""

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
