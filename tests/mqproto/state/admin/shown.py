"""Results of ours in the words of mqadmin's tables, and those words out of what it printed, so that both can be
compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mqproto.message import MessageExt, MessageQueue
from mqproto.state.admin import BrokerRuntime, GroupProgress, GroupSummary, MessageTrack, Reset, TopicTraffic
from mqproto.wire.bodies import ClusterInfo, ConsumerConnection, ConsumeStatsList, QueueDump, TopicOffset
from mqproto.wire.codes import version_name

Rows = set[tuple[str, ...]]


def table(text: str, header: str, *columns: int) -> Rows:
    """The words in some columns of the lines between a header and the next empty line, or what the tool has to complain
    about.
    """
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(header):
            break
    rows: Rows = set()
    for line in lines:
        words = line.split()
        if not words or line == "(standard error)":
            break
        rows.add(tuple(words[column] for column in columns))
    return rows


def rows(values: Iterable[Iterable[object]]) -> Rows:
    return {tuple(str(value) for value in row) for row in values}


def topic_status(stats: Mapping[MessageQueue, TopicOffset]) -> Rows:
    return rows((queue.broker_name, queue.queue_id, one.min_offset, one.max_offset) for queue, one in stats.items())


def printed_topic_status(text: str) -> Rows:
    return table(text, "#Broker Name", 0, 1, 2, 3)


def progress(found: GroupProgress) -> Rows:
    return rows(
        (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.broker_offset, one.consumer_offset)
        for one in found.queues
    )


def printed_progress(text: str) -> Rows:
    return table(text, "#Topic", 0, 1, 2, 3, 4)


def printed_lag(text: str) -> int:
    found = re.search(r"Diff Total: (-?\d+)", text)
    assert found is not None
    return int(found[1])


def summaries(found: list[GroupSummary]) -> Rows:
    return rows(
        (one.group, one.members, version_name(one.version), *kind, one.lag)
        for one in found
        if one.message_model is not None
        for kind in [("PULL", "") if one.consume_type == "CONSUME_ACTIVELY" else ("PUSH", one.message_model.value)]
    )


def printed_summaries(text: str) -> Rows:
    """Of groups that pull the tool leaves the model out, so that the next column stands there."""
    found = table(text, "#Group", 0, 1, 2, 3, 4, -1)
    return {(*row[:4], "" if row[3] == "PULL" else row[4], row[5]) for row in found if row[1] != "0"}


def connection(found: ConsumerConnection) -> tuple[Rows, Rows]:
    """Members and subscriptions."""
    members = rows(
        (one.client_id, one.address, one.language.name if one.language is not None else "") for one in found.connections
    )
    return members, rows((topic, one.expression) for topic, one in found.subscriptions.items())


def printed_connection(text: str) -> tuple[Rows, Rows]:
    if "#ClientId" not in text:  # 4.4
        members = re.findall(r"^\d{3}  (\S+) +(\S+) +(\w+) +V", text, re.MULTILINE)
        return set(members), set(re.findall(r"Topic: (\S+) +SubExpression: (\S+)", text))
    return table(text, "#ClientId", 0, 1, 2), table(text, "#Topic", 0, 1)


def hits(found: list[MessageExt]) -> Rows:
    return rows((one.msg_id, one.queue_id, one.queue_offset) for one in found)


def printed_hits(text: str) -> Rows:
    return table(text, "#Message ID", 0, 1, 2)


def reset(found: Reset) -> Rows:
    return rows((queue.broker_name, queue.queue_id, offset) for queue, offset in found.offsets.items())


def printed_reset(text: str) -> Rows:
    """Whether the members were told, or the offsets stored in the old way."""
    return table(text, "#brokerName", 0, 1, 5) if "#rollbackOffset" in text else table(text, "#brokerName", 0, 1, 2)


def consume_stats(found: ConsumeStatsList) -> Rows:
    """As the tool, without queues of which nothing was consumed yet."""
    return rows(
        (queue.topic, group, queue.broker_name, queue.queue_id, one.broker_offset, one.consumer_offset)
        for groups in found.stats
        for group, stats in groups.items()
        for each in stats
        for queue, one in each.offsets.items()
        if one.last_timestamp > 0
    )


def printed_consume_stats(text: str) -> Rows:
    return table(text, "#Topic", 0, 1, 2, 3, 4, 5)


def cluster(info: ClusterInfo, runtimes: Mapping[str, BrokerRuntime]) -> Rows:
    return rows(
        (broker.cluster, broker.broker_name, broker_id, address, runtimes[address].version)
        for broker in info.brokers.values()
        for broker_id, address in broker.addresses.items()
    )


def printed_cluster(text: str) -> Rows:
    return table(text, "#Cluster Name", 0, 1, 2, 3, 4)


def traffic(found: list[TopicTraffic]) -> Rows:
    """Topic, group and what waits for it; topics that nobody consumes alone. (5.3 says of topics that they consume
    themselves.)
    """
    shown: Rows = set()
    for one in found:
        shown |= rows((one.topic, each.group, each.lag) for each in one.groups if each.group != one.topic)
        if not one.groups:
            shown.add((one.topic,))
    return shown


def printed_traffic(text: str) -> Rows:
    lines = [line.split() for line in text.splitlines() if line and not line.startswith(("#", "$", " "))]
    found: Rows = {(words[0],) if words[-1] == "NO_CONSUMER" else (words[0], words[1], words[2]) for words in lines}
    return {row for row in found if row[:1] != row[1:2]}


def printed_names(text: str) -> set[str]:
    """One a line."""
    return {line for line in text.splitlines() if line and " " not in line}


def printed_runtime(text: str) -> dict[str, str]:
    return {
        key.strip(): value.strip()
        for key, _, value in (line.partition(": ") for line in text.splitlines() if ": " in line)
    }


def pairs(text: str, mark: str) -> dict[str, str]:
    """`key MARK value` lines."""
    found = [line.partition(mark) for line in text.splitlines() if mark in line and not line.startswith("$")]
    return {key.strip(): value.strip() for key, _, value in found}


def message(found: MessageExt) -> dict[str, str]:
    return {
        "Topic": found.topic,
        "Tags": f"[{found.tags or 'null'}]",
        "Keys": f"[{' '.join(found.keys) or 'null'}]",
        "Queue ID": str(found.queue_id),
        "Queue Offset": str(found.queue_offset),
        "CommitLog Offset": str(found.physical_offset),
        "Reconsume Times": str(found.reconsume_times),
        "Store Host": found.store_host,
        "System Flag": str(found.sys_flag),
    }


def printed_message(text: str) -> dict[str, str]:
    wanted = (
        "Topic",
        "Tags",
        "Keys",
        "Queue ID",
        "Queue Offset",
        "CommitLog Offset",
        "Reconsume Times",
        "Store Host",
        "System Flag",
    )
    found = pairs(text, ":")
    return {name: found[name] for name in wanted}


def tracks(found: list[MessageTrack]) -> Rows:
    """A group that no name server knows is not online for us, and unknown to the tool."""
    return rows((one.group, "UNKNOWN" if "no broker has seen it" in one.reason else one.type.value) for one in found)


def printed_tracks(text: str) -> Rows:
    return set(re.findall(r"MessageTrack \[consumerGroup=([^,]+), trackType=(\w+)", text))


def entries(found: QueueDump) -> Rows:
    return rows((one.physical_offset, one.size, one.tags_code) for one in found.entries)


def printed_entries(text: str) -> Rows:
    return set(re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(-?\d+)", text))
