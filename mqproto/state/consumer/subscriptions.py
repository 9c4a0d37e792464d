"""Subscriptions of a consumer: its topics, each with a filter and a version (docs/protocol/client.md 4.1)."""

from __future__ import annotations

from mqproto.state.consumer.pull_loop import Subscribed
from mqproto.validation import check_topic
from mqproto.wire.bodies import SubscriptionData
from mqproto.wire.filters.tags import SQL92, TAG, InvalidExpressionError, parse_tags


def subscription_data(topic: str, expression: str, kind: str, version: int = 0) -> SubscriptionData:
    """A subscription as heartbeats carry it. Raises InvalidExpressionError."""
    if kind == TAG:
        tags = parse_tags(expression)
        return SubscriptionData(topic, tags.expression, TAG, list(tags.tags), sorted(tags.codes), version)
    if kind != SQL92:
        raise InvalidExpressionError(expression, f"there are {TAG} and {SQL92}, no kind {kind!r}")
    if not isinstance(expression, str) or not expression.strip():
        raise InvalidExpressionError(expression, "it is blank")
    return SubscriptionData(topic, expression, kind, version=version)


def check_subscription(topic: str, expression: str, kind: str) -> None:
    """Raises InvalidName or InvalidExpressionError for what consumers refuse to subscribe."""
    check_topic(topic)
    subscription_data(topic, expression, kind)


class Subscriptions:
    """Subscriptions of one consumer, in the order of their topics' first subscription."""

    def __init__(self) -> None:
        #: By topic, as heartbeats carry them.
        self.by_topic: dict[str, SubscriptionData] = {}
        self._subscribed: dict[str, Subscribed] = {}
        self._version = 0

    def add(self, topic: str, expression: str, kind: str, wall: int) -> SubscriptionData:
        """Subscribe a topic at a wall time, or replace its subscription. Raises InvalidExpressionError."""
        # Brokers keep the highest version, so it must rise even when the clock was set back (CON-12).
        version = max(wall, self._version + 1)
        data = subscription_data(topic, expression, kind, version)
        self._version = version
        self.by_topic[topic] = data
        self._subscribed[topic] = Subscribed(data.expression, kind, version, frozenset(data.tags))
        return data

    def remove(self, topic: str) -> bool:
        """Whether the topic was subscribed."""
        if self.by_topic.pop(topic, None) is None:
            return False
        del self._subscribed[topic]
        return True

    def subscribed(self, topic: str) -> Subscribed | None:
        """What pulls need to know of a subscription."""
        return self._subscribed.get(topic)
