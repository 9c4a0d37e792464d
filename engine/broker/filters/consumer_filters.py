"""Expressions that consumer groups subscribed by: what is known of them, how long, in which file
(docs/protocol/broker.md 4.5).

Owns: who has which expression since when, when one that nobody uses is forgotten, consumerFilter.json, the bits of
groups in the bitmaps that messages get where `enableCalcFilterBitMap` is on (docs/protocol/broker.md 4.6).
Leaves to others: heartbeats (`clients.heartbeats`), what is done with an expression (`message_filters`, `pulls`).

A bitmap is believed only for messages that this process has stored since it knows the expression, which their place in
the log shows: clocks are set back, and no file says what another process knew while it stored a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqproto.engine.broker.filters.message_filters import Conditions, Filter, RetryFilter, SqlFilter, is_tag_type
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.tables.config_manager import ConfigManager
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.store import NOWHERE, Store
from mqproto.wire.bodies import BloomData, ConsumerFilter, ConsumerFilters, SubscriptionData, TopicFilters
from mqproto.wire.filters.bloom import BloomFilter
from mqproto.wire.filters.sql import Condition
from mqproto.wire.filters.tags import InvalidExpressionError
from mqproto.wire.properties import decode_bytes

#: Expressions that are kept, and how long they may be together. Peers make them, so their number is limited.
FILTERS_MAX: Final = 20_000
LENGTH_MAX: Final = 16 << 20
#: Messages of a topic are judged for so many groups when they are stored, and by no expression that is longer.
CALCULATED_MAX: Final = 256
CALCULATED_LENGTH_MAX: Final = 1024
#: Apache's rhythm of saving (docs/protocol/broker.md 1.5).
_SAVE_MS: Final = 10_000
#: Groups count as gone for so long when the broker starts.
_DEAD_AT_START_MS: Final = 30_000
#: Longest pause between two looks for what is to be forgotten.
_SWEEP_MS: Final = 600_000


class FilterData:
    """Expression of one group for one topic."""

    __slots__ = ("bits_from", "entry", "mask")

    def __init__(self, entry: ConsumerFilter, mask: int, bits_from: int) -> None:
        #: As it is in the file.
        self.entry = entry
        self.mask = mask
        #: Messages from this physical offset on have been judged when they were stored, if anything was calculated
        #: then.
        self.bits_from = bits_from


class FilterTable:
    """Table of the expressions, by group and by topic."""

    def __init__(
        self,
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        store: Store,
        config_manager: ConfigManager,
    ) -> None:
        self._timers = timers
        self._notices = notices
        self._settings = settings
        self._store = store
        self._config_manager = config_manager
        self.conditions = Conditions()
        self.bloom = BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter)
        self._by_topic: dict[str, dict[str, FilterData]] = {}
        self._by_group: dict[str, dict[str, FilterData]] = {}
        #: Those whose group is gone, in the order in which it left.
        self._dead: dict[FilterData, None] = {}
        #: Those that new messages of a topic are judged by.
        self._calculated: dict[str, list[FilterData]] = {}
        self._count = 0
        self._length = 0
        self._full = False
        self._extended = store.settings.enable_consume_queue_ext
        loaded, self._kept = config_manager.keep(
            "consumerFilter.json", ConsumerFilters.from_json, self._as_body, _SAVE_MS, needed=False
        )
        if loaded is not None:
            self._load(loaded)

    def __len__(self) -> int:
        return self._count

    def _as_body(self) -> ConsumerFilters:
        topics = {
            topic: TopicFilters(topic, {group: data.entry for group, data in groups.items()})
            for topic, groups in self._by_topic.items()
        }
        return ConsumerFilters(topics)

    # --- opening ---

    def _load(self, loaded: ConsumerFilters) -> None:
        for topic, filters in loaded.topics.items():
            for group, entry in filters.groups.items():
                if entry.expression and not is_tag_type(entry.type) and self._has_room(entry.expression):
                    entry.topic, entry.group = topic, group
                    self._put(entry)

    def begin(self) -> None:
        """The broker starts: nobody is there yet. Bits by other settings than ours mean nothing from now on."""
        wall = self._timers.wall
        changed = False
        for groups in self._by_topic.values():
            for data in groups.values():
                entry = data.entry
                bloom = self._bloom_data(entry)
                if entry.bloom != bloom:
                    entry.bloom, entry.born_time = bloom, wall
                    changed = True
                if entry.dead_time == 0:
                    entry.dead_time = max(wall - _DEAD_AT_START_MS, entry.born_time)
                    entry.dead = changed = True
        gone = [data for groups in self._by_topic.values() for data in groups.values()]
        self._dead = dict.fromkeys(sorted(gone, key=lambda data: data.entry.dead_time))
        if changed:
            self._changed()
        self._arm()

    def _changed(self) -> None:
        self._config_manager.changed(self._kept)

    def _bloom_data(self, entry: ConsumerFilter) -> BloomData:
        return BloomData(self.bloom.bits, list(self.bloom.positions(entry.group, entry.topic)))

    # --- subscribing ---

    def subscribed(self, group: str, renewed: Iterable[SubscriptionData], dropped: Iterable[str]) -> None:
        """A heartbeat brought subscriptions that are new or newer than before, and left topics out."""
        for subscription in renewed:
            if is_tag_type(subscription.type):
                self._leave(group, subscription.topic)
            elif subscription.expression:
                self._subscribe(group, subscription)
        for topic in dropped:
            self._leave(group, topic)
        self._arm()

    def _subscribe(self, group: str, wanted: SubscriptionData) -> None:
        data = self._by_group.get(group, {}).get(wanted.topic)
        if data is not None:
            entry = data.entry
            if entry.expression == wanted.expression and entry.type == wanted.type:
                entry.version = wanted.version
                entry.dead_time, entry.dead = 0, False
                self._dead.pop(data, None)
                self._changed()
                return
            self._remove(data)
        try:
            self.conditions.compile(wanted.type, wanted.expression)
        except InvalidExpressionError:
            return  # pulls are refused
        if self._has_room(wanted.expression):
            entry = ConsumerFilter(
                wanted.topic, group, wanted.expression, wanted.type, wanted.version, self._timers.wall
            )
            entry.bloom = self._bloom_data(entry)
            self._put(entry)
            self._changed()

    def _has_room(self, expression: str) -> bool:
        if self._count < FILTERS_MAX and self._length + len(expression) <= LENGTH_MAX:
            self._full = False
            return True
        if not self._full:
            self._full = True
            self._notices.notice(
                f"there are {self._count} filter expressions with {self._length} characters: no more are taken"
            )
        return False

    def _put(self, entry: ConsumerFilter) -> None:
        data = FilterData(entry, self.bloom.mask(self.bloom.positions(entry.group, entry.topic)), NOWHERE)
        self._by_topic.setdefault(entry.topic, {})[entry.group] = data
        self._by_group.setdefault(entry.group, {})[entry.topic] = data
        self._count += 1
        self._length += len(entry.expression)
        calculated = self._calculated.setdefault(entry.topic, [])
        if len(calculated) < CALCULATED_MAX and len(entry.expression) <= CALCULATED_LENGTH_MAX:
            calculated.append(data)
            data.bits_from = self._store.end

    def _remove(self, data: FilterData) -> None:
        topic, group = data.entry.topic, data.entry.group
        for table, one, other in ((self._by_topic, topic, group), (self._by_group, group, topic)):
            del table[one][other]
            if not table[one]:
                del table[one]
        self._dead.pop(data, None)
        self._count -= 1
        self._length -= len(data.entry.expression)
        calculated = self._calculated[topic]
        if data in calculated:
            calculated.remove(data)
        if topic not in self._by_topic:
            del self._calculated[topic]
        self._changed()

    # --- leaving ---

    def group_gone(self, group: str) -> None:
        """The last member of a group has left."""
        for topic in self._by_group.get(group, ()):
            self._leave(group, topic)
        self._arm()

    def _leave(self, group: str, topic: str) -> None:
        data = self._by_group.get(group, {}).get(topic)
        if data is not None and data not in self._dead:
            data.entry.dead_time, data.entry.dead = max(self._timers.wall, data.entry.born_time), True
            self._dead[data] = None
            self._changed()

    def _arm(self) -> None:
        if self._dead:
            self._timers.after(min(max(1, self._forget_time() - self._timers.wall), _SWEEP_MS), self.sweep)

    def _forget_time(self) -> int:
        """When the one that is dead for longest is to be forgotten."""
        return next(iter(self._dead)).entry.dead_time + self._settings.filter_data_clean_time_span

    def sweep(self) -> None:
        """Alarm: forget what nobody has used for `filterDataCleanTimeSpan`."""
        while self._dead and self._forget_time() <= self._timers.wall:
            self._remove(next(iter(self._dead)))
        self._arm()

    # --- pulls ---

    def find(self, group: str, topic: str) -> FilterData | None:
        """What a group wants of a topic, also when the group is gone."""
        return self._by_group.get(group, {}).get(topic)

    def filter_of(self, data: FilterData) -> Filter:
        """Raises InvalidExpressionError: a file may hold anything."""
        return SqlFilter(self._condition(data), data.bits_from, data.mask, self.bloom.size)

    def retry_filter(self, group: str, codes: frozenset[int] | None) -> Filter:
        """Judges messages of a group's retry topic by what the group wants of the topic that each came from; tags by
        `codes` as ever.
        """
        conditions = {}
        for topic, data in self._by_group.get(group, {}).items():
            try:
                conditions[topic] = self._condition(data)
            except InvalidExpressionError:
                continue
        return RetryFilter(conditions, codes) if conditions else Filter(codes)

    def _condition(self, data: FilterData) -> Condition:
        return self.conditions.compile(data.entry.type, data.entry.expression)

    # --- bitmaps ---

    def bits(self, topic: str, text: bytes) -> bytes:
        """The bitmap of a message with this property string; empty if nobody filters the topic or bitmaps are off."""
        if not self._extended or not self._settings.enable_calc_filter_bit_map:
            return b""
        calculated = self._calculated.get(topic)
        if not calculated:
            return b""
        properties = decode_bytes(text)
        return self.bloom.bitmap([data.mask for data in calculated if self._takes(data, properties)])

    def _takes(self, data: FilterData, properties: dict[str, str]) -> bool:
        try:
            return self._condition(data).matches(properties)
        except InvalidExpressionError:
            return False
