"""Subscriptions of a consumer."""

from __future__ import annotations

import pytest

from mqproto.errors import InvalidName
from mqproto.state.consumer.subscriptions import Subscriptions, check_subscription
from mqproto.wire.filters.tags import SQL92, TAG, InvalidExpressionError


def test_the_version_rises_even_when_the_clock_is_set_back() -> None:
    """CON-12: brokers keep the subscription with the highest version."""
    subscriptions = Subscriptions()
    versions = [subscriptions.add("T", expression, TAG, wall).version for expression, wall in [("*", 9), ("a", 4)]]
    assert versions == [9, 10]
    subscribed = subscriptions.subscribed("T")
    assert subscribed is not None
    assert (subscribed.expression, subscribed.version, subscribed.tags) == ("a", 10, frozenset({"a"}))


def test_a_subscription_is_replaced_in_its_place_and_removed_once() -> None:
    subscriptions = Subscriptions()
    for topic in ("T", "U", "T"):
        subscriptions.add(topic, "*", TAG, 1)
    assert list(subscriptions.by_topic) == ["T", "U"]
    assert [subscriptions.remove("T"), subscriptions.remove("T")] == [True, False]
    assert (list(subscriptions.by_topic), subscriptions.subscribed("T")) == (["U"], None)


def test_a_refused_expression_changes_nothing() -> None:
    subscriptions = Subscriptions()
    subscriptions.add("T", "*", TAG, 5)
    with pytest.raises(InvalidExpressionError):
        subscriptions.add("T", " ", SQL92, 7)
    assert (subscriptions.by_topic["T"].version, subscriptions.add("T", "*", TAG, 0).version) == (5, 6)


def test_what_no_consumer_subscribes_is_refused() -> None:
    check_subscription("T", "a || b", TAG)
    check_subscription("T", "a > 1", SQL92)
    with pytest.raises(InvalidName):
        check_subscription("no topic", "*", TAG)
    with pytest.raises(InvalidExpressionError, match="no kind 'XPATH'"):
        check_subscription("T", "*", "XPATH")
