"""Slow groups, which are stopped when they are too far behind (`disableConsumeIfConsumerReadSlowly`,
docs/protocol/broker.md 3.5).

Owns: which group counts as too slow, and that it gets nothing more until an operator says so (request 200).
Leaves to others: how far behind a read was (`statistics`), how a stopped group is answered (`pull_checks`).
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.broker.interfaces.answers import LongAnswers
from mqproto.engine.broker.interfaces.clock import Notices, Timers
from mqproto.engine.broker.statistics.broker_stats import Statistics
from mqproto.engine.broker.tables.subscription_groups import SubscriptionGroups
from mqproto.engine.configuration import Configuration
from mqproto.engine.settings import BrokerSettings
from mqproto.engine.slices import Steps

#: Time between two looks, as Apache's.
PERIOD_MS: Final = 180_000
#: Pairs of group and queue that are looked at in one slice: about a millisecond.
_READERS_OF_A_SLICE: Final = 2000


class SlowGroups:
    """Watch over how far groups are behind, where the setting says so.

    The setting and the limit may change at any time.
    """

    def __init__(
        self,
        timers: Timers,
        notices: Notices,
        settings: BrokerSettings,
        configuration: Configuration,
        groups: SubscriptionGroups,
        statistics: Statistics,
        answers: LongAnswers,
    ) -> None:
        self.timers = timers
        self.notices = notices
        self.settings = settings
        self.configuration = configuration
        self.groups = groups
        self.statistics = statistics
        self.answers = answers
        self.configuration.hooks.append(lambda keys: self.begin())

    def begin(self) -> None:
        """Look from now on, if the setting says so; an idle broker that does not look is never woken."""
        if self.settings.disable_consume_if_consumer_read_slowly and self.look not in self.timers.alarms:
            self.timers.after(PERIOD_MS, self.look)

    def look(self) -> None:
        """Alarm: stop who is too slow."""
        if self.settings.disable_consume_if_consumer_read_slowly:
            self.answers.run(self, self._stop_slow(), lambda _: None)
        self.begin()

    def _stop_slow(self) -> Steps[None]:
        limit = self.settings.consumer_fallbehind_threshold
        for count, (group, reader) in enumerate(self.statistics.readers_by_group(), 1):
            if reader.behind > limit:
                self._stop(group, reader.behind)
                reader.behind = 0  # once it is let go on, it is judged by what it reads then
            if count % _READERS_OF_A_SLICE == 0:
                yield

    def _stop(self, group: str, behind: int) -> None:
        config = self.groups.table.get(group)
        if config is not None and config.consume_enable:
            config.consume_enable = False
            self.groups.put(config, self.timers.wall)
            self.notices.notice(
                f"group {group} is {behind} bytes behind and gets no more messages until it is enabled again"
            )
