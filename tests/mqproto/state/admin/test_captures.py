"""Requests of ours agree with those of mqadmin, field by field, and Apache's answers can be read: captures of three
releases.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mqproto.errors import MQError
from mqproto.message import MessageQueue
from mqproto.state.admin import Account, AdminCore
from mqproto.wire.bodies import GroupConfig
from tests.golden.golden import FOLLOWED, GOLDEN
from tests.mqproto.state.admin.recorded import BROKER, Question, Recorded

CLUSTER = "DefaultCluster"
TOPIC = "AdminTopic"
GROUP = "admin-group"
QUEUE = MessageQueue(TOPIC, "broker-a", 1)


@dataclass(frozen=True)
class Case:
    """One scenario of mqadmin and our operation for the same job."""

    name: str
    operate: Callable[[AdminCore, Recorded], Any]
    #: Codes of requests that we send and the tool does not, or the other way round. Each has its reason in the comment
    #: beside it.
    besides: frozenset[int] = frozenset()
    #: The tool fails, and so do we.
    fails: bool = False


def own(name: str, group: str = GROUP, **changes: Any) -> GroupConfig:
    """The configuration that the tool makes of no options."""
    return GroupConfig(group, **{"consume_from_min_enable": False, "consume_broadcast_enable": False, **changes})


def by_offset_id(core: AdminCore, seen: Recorded) -> Any:
    return core.messages.by_offset_id(f"7F00000100002A9F{int(seen.field(33, 'offset')):016X}")


def tracked(core: AdminCore, seen: Recorded) -> Any:
    message = yield from by_offset_id(core, seen)
    return (yield from core.messages.tracks(message))


def pushed(core: AdminCore, seen: Recorded) -> Any:
    message = yield from by_offset_id(core, seen)
    return (yield from core.messages.push(GROUP, seen.field(309, "clientId"), message))


def reset(core: AdminCore, seen: Recorded) -> Any:
    time_ms = int(seen.field(222, "timestamp"))
    return core.offsets.reset_by_time(GROUP, TOPIC, None if time_ms == -1 else time_ms)


CASES = [
    Case("updateTopic", lambda core, seen: core.topics.create(TOPIC, broker=BROKER, read_queues=4, write_queues=4)),
    Case(
        "updateTopic-order",
        lambda core, seen: core.topics.create("AdminOrder", cluster=CLUSTER, read_queues=2, write_queues=2, order=True),
    ),
    Case("updateTopicPerm", lambda core, seen: core.topics.update_perm(TOPIC, 4, broker=BROKER)),
    Case("updateTopicPerm-cluster", lambda core, seen: core.topics.update_perm(TOPIC, 6, cluster=CLUSTER)),
    Case("updateOrderConf-put", lambda core, seen: core.topics.set_order("AdminOrder", "broker-a:2")),
    Case("updateOrderConf-get", lambda core, seen: core.topics.order("AdminOrder")),
    Case("updateOrderConf-delete", lambda core, seen: core.topics.delete_order("AdminOrder")),
    Case("topicRoute", lambda core, seen: core.topics.route(TOPIC)),
    Case("topicRoute-order", lambda core, seen: core.topics.route("AdminOrder")),
    Case("topicRoute-none", lambda core, seen: core.topics.route("NoSuchTopic"), fails=True),
    Case("topicStatus", lambda core, seen: core.topics.stats(TOPIC)),
    # The tool looks the cluster up as well, and needs the route alone.
    Case("topicClusterList", lambda core, seen: core.topics.clusters(TOPIC), frozenset({106})),
    Case("topicList", lambda core, seen: core.topics.names()),
    Case("allocateMQ", lambda core, seen: core.topics.allocate(TOPIC, ["192.0.2.11", "192.0.2.12", "192.0.2.13"])),
    Case("cleanUnusedTopic", lambda core, seen: core.topics.clean_unused(broker=BROKER)),
    Case("deleteTopic", lambda core, seen: core.topics.delete("AdminOrder", CLUSTER)),
    Case(
        "updateSubGroup",
        lambda core, seen: core.groups.create(
            own(GROUP, retry_max_times=5, consume_from_min_enable=True, consume_broadcast_enable=True), broker=BROKER
        ),
    ),
    Case(
        "updateSubGroup-cluster",
        lambda core, seen: core.groups.create(own("admin-other", "admin-other"), cluster=CLUSTER),
    ),
    Case("deleteSubGroup", lambda core, seen: core.groups.delete("admin-clone", broker=BROKER)),
    Case("deleteSubGroup-c", lambda core, seen: core.groups.delete("admin-other", cluster=CLUSTER)),
    Case("getConsumerConfig", lambda core, seen: core.groups.config(GROUP)),
    Case("consumerConnection", lambda core, seen: core.groups.connection(GROUP)),
    Case("consumerConnection-none", lambda core, seen: core.groups.connection("no-such-group"), fails=True),
    Case("producerConnection", lambda core, seen: core.groups.producers("admin-idle", TOPIC)),
    Case("producer", lambda core, seen: core.groups.all_producers(BROKER)),
    Case("consumerProgress-g", lambda core, seen: core.groups.progress(GROUP)),
    Case("consumerProgress-offline", lambda core, seen: core.groups.progress(GROUP)),
    Case("consumerProgress-none", lambda core, seen: core.groups.progress("no-such-group"), fails=True),
    Case("consumerProgress", lambda core, seen: core.groups.overview()),
    Case("consumerStatus", lambda core, seen: core.groups.check(GROUP)),
    Case("consumerStatus-i", lambda core, seen: core.groups.check(GROUP)),
    Case("consumerStatus-s", lambda core, seen: core.groups.check(GROUP, stack=True)),
    # The tool looks for the topic among all of them, and for the route once more.
    Case("statsAll-t", lambda core, seen: core.traffic.of_topic(TOPIC), frozenset({206})),
    Case("statsAll", lambda core, seen: core.traffic.of_all()),
    Case("resetOffsetByTime", reset),
    Case("resetOffsetByTime-now", reset),
    Case("resetOffsetByTime-offline", reset),
    Case("skipAccumulatedMessage", lambda core, seen: core.offsets.skip(GROUP, TOPIC)),
    Case("queryMsgById", tracked),
    Case("queryMsgById-tracked", tracked),
    Case("queryMsgById-bad", by_offset_id, fails=True),
    Case("queryMsgById-push", pushed),
    Case("queryMsgByKey", lambda core, seen: core.messages.by_key(TOPIC, "tool-key")),
    Case(
        "queryMsgByUniqueKey",
        lambda core, seen: core.messages.by_unique_id(TOPIC, seen.field(12, "key")),
        frozenset({300}),
    ),
    Case("queryMsgByOffset", lambda core, seen: core.messages.at(QUEUE, 0), frozenset({300})),
    Case("printMsg", lambda core, seen: core.messages.between(TOPIC)),
    Case("printMsgByQueue", lambda core, seen: core.messages.in_queue(QUEUE)),
    Case("queryCq", lambda core, seen: core.messages.entries(BROKER, QUEUE, 0, 3)),
    Case("clusterList", lambda core, seen: core.brokers.all_runtimes()),
    Case("brokerStatus", lambda core, seen: core.brokers.runtime(BROKER)),
    Case("getBrokerConfig", lambda core, seen: core.brokers.config(BROKER)),
    Case("brokerConsumeStats", lambda core, seen: core.brokers.consume_stats(BROKER)),
    Case("cleanExpiredCQ", lambda core, seen: core.brokers.clean_expired_queues(broker=BROKER)),
    Case("cleanExpiredCQ-c", lambda core, seen: core.brokers.clean_expired_queues(cluster=CLUSTER)),
    Case("deleteExpiredCommitLog", lambda core, seen: core.brokers.delete_expired_logs(broker=BROKER)),
    Case("getNamesrvConfig", lambda core, seen: core.name_servers.configs()),
    Case("updateKvConfig", lambda core, seen: core.name_servers.put_value("GoldenSpace", "golden-key", "golden value")),
    Case("deleteKvConfig", lambda core, seen: core.name_servers.delete_value("GoldenSpace", "golden-key")),
    Case("wipeWritePerm", lambda core, seen: core.name_servers.wipe_write_perm("broker-a")),
    Case("addWritePerm", lambda core, seen: core.name_servers.add_write_perm("broker-a")),
]


def recorded(case: Case) -> list[str]:
    return [version for version in GOLDEN.versions if f"admin-{case.name}" in GOLDEN.capture_names(version)]


@dataclass(frozen=True)
class Release:
    """What only one of both mentions, we or the tool of a release: fields and members of bodies; and which requests we
    do not make.
    """

    fields: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()


RELEASES = {
    # It names neither broker nor cluster, searches from the time in an id on, and reads as a member of a group.
    "4.4.0": Release(frozenset({"bname", "clusterName", "removeOffset", "beginTimestamp"}), frozenset({38})),
    FOLLOWED: Release(),
    # Topics and groups have more to say, and pulls a limit in bytes. It asks how a topic is configured, and looks
    # further for messages.
    "5.3.3": Release(
        frozenset(
            {
                "attributes",
                "cleanOffset",
                "clusterName",
                "committed",
                "consumeMessageOrderly",
                "consumeTimeoutMinute",
                "force",
                "groupRetryPolicy",
                "groupSysFlag",
                "maxMsgBytes",
                "offset",
                "queueId",
                "removeOffset",
                "topic",
            }
        ),
        frozenset({12, 102, 105, 208, 307, 351}),
    ),
}


def mentioned(one: Question) -> dict[str, Any]:
    """Everything that a request says, by name: fields and members of a JSON body; other bodies are a member of their
    own.
    """
    members = json.loads(one[2]) if one[2].startswith(b"{") else {"": one[2]}
    return {**members, **dict(one[1])}


def alike(one: Question, others: set[Question], release: Release) -> bool:
    """Whether others have a request that says the same, but for what only one of both mentions because of the
    release.
    """
    return any(
        one[0] == other[0]
        and all(mine.get(name) == its.get(name) for name in {*mine, *its} - missing(mine, its, release))
        for mine, other, its in ((mentioned(one), other, mentioned(other)) for other in others)
    )


def missing(mine: dict[str, Any], its: dict[str, Any], release: Release) -> set[str]:
    """Names of the release that only one side mentions; where a search begins, both mention."""
    return {name for name in release.fields if (name in mine) != (name in its) or name == "beginTimestamp"}


def differing(case: Case, version: str) -> tuple[set[Question], set[Question]]:
    """What the tool asked and we did not, and the other way round, after a run of the case."""
    seen = Recorded(GOLDEN, version, case.name)
    if case.fails:
        with pytest.raises(MQError):
            seen.run(case.operate(seen.core, seen))
    else:
        seen.run(case.operate(seen.core, seen))
    theirs, ours = seen.theirs(case.besides), seen.ours(case.besides)
    return theirs - ours, ours - theirs


@pytest.mark.parametrize(
    ("case", "version"),
    [pytest.param(case, version, id=f"{case.name}-{version}") for case in CASES for version in recorded(case)],
)
def test_the_same_questions(case: Case, version: str) -> None:
    release = RELEASES[version]
    theirs, ours = differing(case, version)
    assert [one for one in ours if not alike(one, theirs, release)] == []
    assert [one for one in theirs if one[0] not in release.codes and not alike(one, ours, release)] == []


@pytest.mark.parametrize("version", [one for one in RELEASES if one != FOLLOWED])
def test_the_differences_of_releases_occur(version: str) -> None:
    """One that occurs no more has to go."""
    fields: set[str] = set()
    codes: set[int] = set()
    for case in CASES:
        if version in recorded(case):
            theirs, ours = differing(case, version)
            codes |= {one[0] for one in theirs} - {one[0] for one in ours}
            for one in theirs:
                for other in (other for other in ours if other[0] == one[0]):
                    fields |= {name for name, _ in set(flat(one)) ^ set(flat(other))}
    assert RELEASES[version].codes <= codes
    assert RELEASES[version].fields <= fields


def flat(one: Question) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in mentioned(one).items()]


@pytest.mark.parametrize(
    ("name", "code", "operate"),
    [
        ("updateBrokerConfig", 25, lambda core: core.brokers.update_config({"fileReservedTime": "71"}, broker=BROKER)),
        ("updateBrokerConfig-unknown", 25, lambda core: core.brokers.update_config({"noSuchKey": "1"}, broker=BROKER)),
        ("updateNamesrvConfig", 318, lambda core: core.name_servers.update_config({"clusterTest": "false"})),
    ],
)
def test_changes_of_settings(name: str, code: int, operate: Callable[[AdminCore], Any]) -> None:
    """The tool asks nothing more; what we read back then is not recorded."""
    seen = Recorded(GOLDEN, FOLLOWED, name)
    seen.stage.start(operate(seen.core))
    assert {one for one in seen.ours() if one[0] == code} == seen.theirs()


SECOND = Account(
    "SecondUser",
    "second-secret",
    default_topic_perm="DENY",
    default_group_perm="SUB",
    topic_perms={"AclTopic": "PUB"},
    group_perms={"acl-group": "SUB"},
)


@pytest.mark.parametrize(
    ("name", "operate"),
    [
        ("update", lambda core: core.access.put_account(SECOND, broker=BROKER)),
        ("delete", lambda core: core.access.delete_account("SecondUser", broker=BROKER)),
        ("white", lambda core: core.access.set_white_addresses(["10.10.10.*"], broker=BROKER)),
        ("version", lambda core: core.access.version(BROKER)),
    ],
)
def test_accounts(name: str, operate: Callable[[AdminCore], Any]) -> None:
    seen = Recorded(GOLDEN, FOLLOWED, name, "acl-admin")
    result = seen.run(operate(seen.core))
    assert seen.ours() == seen.theirs()
    if name == "version":
        assert (result.broker_name, result.cluster, result.version.timestamp) == ("broker-a", CLUSTER, 1795980091041)
        assert [one.timestamp for one in result.files.values()] == [1795980091041]


def test_copies_of_offsets() -> None:
    """The tool copies the group's retries too, which no other group has."""
    seen = Recorded(GOLDEN, FOLLOWED, "cloneGroupOffset")
    seen.run(seen.core.offsets.clone(GROUP, "admin-clone", TOPIC))
    without_route = frozenset({105})
    assert seen.ours(without_route) == {
        one for one in seen.theirs(without_route) if ("topic", f"%RETRY%{GROUP}") not in one[1]
    }
