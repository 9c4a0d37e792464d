"""Queue selection of a lite pull consumer, without a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import StateError
from mqproto.namespaces import NO_NAMESPACE
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.pull.queue_selection import Mode, QueueSelection
from mqproto.state.consumer.subscriptions import Subscriptions
from mqproto.wire.filters.tags import TAG, InvalidExpressionError
from tests.mqproto.state.by_hand import Q0, Q1
from tests.mqproto.state.scripted_broker import queue_of


class Node:
    group = "g"
    namespace = NO_NAMESPACE

    def __init__(self) -> None:
        self.routes = RouteTable()


def call(*arguments: Any) -> None:
    raise AssertionError(arguments)


@pytest.fixture
def subscriptions() -> Subscriptions:
    return Subscriptions()


@pytest.fixture
def selection(subscriptions: Subscriptions) -> QueueSelection:
    return QueueSelection(subscriptions, Node(), call)


def test_the_first_call_decides_where_queues_come_from(selection: QueueSelection, subscriptions: Subscriptions) -> None:
    selection.subscribe("T", "a", TAG, None, 1)
    assert selection.mode is Mode.SUBSCRIBE
    with pytest.raises(StateError, match="not both"):
        selection.assign([Q0])
    assert (selection.assigned, list(subscriptions.by_topic)) == ((), ["T"])


def test_assigned_queues_exclude_subscriptions(selection: QueueSelection, subscriptions: Subscriptions) -> None:
    selection.assign([Q1, Q0, Q1])
    with pytest.raises(StateError, match="not both"):
        selection.subscribe("T", "*", TAG, None, 1)
    assert (selection.mode, selection.assigned, subscriptions.by_topic) == (Mode.ASSIGN, (Q1, Q0), {})


def test_a_topic_is_given_up_by_its_subscription_or_its_queues(selection: QueueSelection) -> None:
    selection.subscribe("T", "*", TAG, None, 1)
    assert [selection.unsubscribe("T"), selection.unsubscribe("T")] == [True, False]
    assigned = QueueSelection(Subscriptions(), Node(), call)
    other = queue_of("U")
    assigned.assign([Q0, other, Q1])
    assert (assigned.unsubscribe("T"), assigned.assigned, assigned.topics()) == (True, (other,), ["U"])


def test_assigned_queues_have_all_messages_unless_tags_are_wanted(selection: QueueSelection) -> None:
    selection.assign([Q0])
    selection.filter_assigned("T", "a || b")
    with pytest.raises(InvalidExpressionError):
        selection.filter_assigned("T", "||")
    found = selection.subscribed("T"), selection.subscribed("U")
    assert [(one.expression, one.version, one.tags) for one in found if one is not None] == [
        ("a || b", 0, {"a", "b"}),
        ("*", 0, frozenset()),
    ]


def test_subscribed_topics_have_their_own_filters(selection: QueueSelection) -> None:
    selection.filter_assigned("T", "other")
    selection.subscribe("T", "a", TAG, None, 9)
    found = selection.subscribed("T")
    assert found is not None
    assert (found.expression, found.version) == ("a", 9)
    assert selection.subscribed("U") is None
