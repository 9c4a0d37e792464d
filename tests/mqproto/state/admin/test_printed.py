"""Results of our operations are what mqadmin printed of the same answers: captures of three releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.state.admin import AdminCore
from tests.golden.golden import GOLDEN
from tests.mqproto.state.admin import shown
from tests.mqproto.state.admin.recorded import BROKER, Recorded
from tests.mqproto.state.admin.test_captures import GROUP, QUEUE, TOPIC, by_offset_id, reset, tracked

Operate = Callable[[AdminCore, Recorded], Any]


def cluster(core: AdminCore, seen: Recorded) -> Any:
    info = yield from core.brokers.clusters()
    return info, (yield from core.brokers.all_runtimes())


CASES: list[tuple[str, Operate, Callable[[Any], Any], Callable[[str], Any]]] = [
    ("topicStatus", lambda core, seen: core.topics.stats(TOPIC), shown.topic_status, shown.printed_topic_status),
    ("topicList", lambda core, seen: core.topics.names(), set, shown.printed_names),
    ("topicClusterList", lambda core, seen: core.topics.clusters(TOPIC), list, lambda text: [text.split()[-1]]),
    ("consumerProgress-g", lambda core, seen: core.groups.progress(GROUP), shown.progress, shown.printed_progress),
    (
        "consumerProgress-offline",
        lambda core, seen: core.groups.progress(GROUP),
        shown.progress,
        shown.printed_progress,
    ),
    (
        "consumerProgress-offline",
        lambda core, seen: core.groups.progress(GROUP),
        lambda found: found.lag,
        shown.printed_lag,
    ),
    ("consumerProgress", lambda core, seen: core.groups.overview(), shown.summaries, shown.printed_summaries),
    (
        "consumerConnection",
        lambda core, seen: core.groups.connection(GROUP),
        shown.connection,
        shown.printed_connection,
    ),
    ("statsAll", lambda core, seen: core.traffic.of_all(), shown.traffic, shown.printed_traffic),
    ("resetOffsetByTime", reset, shown.reset, shown.printed_reset),
    ("resetOffsetByTime-now", reset, shown.reset, shown.printed_reset),
    ("resetOffsetByTime-offline", reset, shown.reset, shown.printed_reset),
    ("skipAccumulatedMessage", reset, shown.reset, shown.printed_reset),
    ("queryMsgByKey", lambda core, seen: core.messages.by_key(TOPIC, "tool-key"), shown.hits, shown.printed_hits),
    ("queryMsgById", by_offset_id, shown.message, shown.printed_message),
    ("queryMsgById-tracked", tracked, shown.tracks, shown.printed_tracks),
    (
        "queryMsgByUniqueKey",
        lambda core, seen: core.messages.by_unique_id(TOPIC, seen.field(12, "key")),
        shown.message,
        shown.printed_message,
    ),
    ("queryMsgByOffset", lambda core, seen: core.messages.at(QUEUE, 0), shown.message, shown.printed_message),
    ("queryCq", lambda core, seen: core.messages.entries(BROKER, QUEUE, 0, 3), shown.entries, shown.printed_entries),
    ("clusterList", cluster, lambda found: shown.cluster(*found), shown.printed_cluster),
    (
        "brokerStatus",
        lambda core, seen: core.brokers.runtime(BROKER),
        lambda found: {key.strip(): value.strip() for key, value in found.values.items()},
        shown.printed_runtime,
    ),
    (
        "brokerConsumeStats",
        lambda core, seen: core.brokers.consume_stats(BROKER),
        shown.consume_stats,
        shown.printed_consume_stats,
    ),
]


@pytest.mark.parametrize("version", GOLDEN.versions)
@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case[0]}{index}") for index, case in enumerate(CASES)])
def test_what_the_tool_printed(
    case: tuple[str, Operate, Callable[[Any], Any], Callable[[str], Any]], version: str
) -> None:
    name, operate, ours, theirs = case
    if f"admin-{name}" not in GOLDEN.capture_names(version):
        pytest.skip("the tool of this release does not have it")
    seen = Recorded(GOLDEN, version, name)
    printed = GOLDEN.printed(version, f"admin-{name}")
    assert ours(seen.run(operate(seen.core, seen))) == theirs(printed)
