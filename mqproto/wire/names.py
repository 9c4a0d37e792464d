"""Names of topics and groups: the system's own, derived ones, and names inside a namespace (docs/protocol/client.md
1.8, docs/protocol/broker.md 7).
"""

from __future__ import annotations

from typing import Final

TOPIC_LENGTH_MAX: Final = 127
GROUP_LENGTH_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
NAMESPACE_MARK: Final = "%"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

#: The group of the producer by which a client sends failed messages again, and the beginning of those that send its
#: trace.
INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
TRACE_PRODUCER: Final = "_INNER_TRACE_PRODUCER"

#: Topics that no client may send to.
SENDING_FORBIDDEN: Final = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
SYSTEM_TOPICS: Final = SENDING_FORBIDDEN | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}


def retry_topic(group: str) -> str:
    """The topic that a consumer group's failed messages come back by."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic that a consumer group's given-up messages end in."""
    return DLQ_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether a topic is the system's own, as 4.9 brokers and clients see it."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX)


def is_inner_group(group: str) -> bool:
    """Whether a producer group is of a client's own making: those are the same in every namespace."""
    return group.startswith((INNER_PRODUCER, TRACE_PRODUCER))


def wrap_namespace(namespace: str, name: str) -> str:
    """A topic or group in a namespace: `namespace%name`, with a retry or dead-letter prefix left in front.

    System names, names that are wrapped already and everything in the empty namespace stay as they are.
    """
    if not namespace or not name or is_system_topic(name) or is_system_group(name):
        return name
    prefix, bare = _split_prefix(name)
    wrapping = namespace + NAMESPACE_MARK
    return name if bare.startswith(wrapping) else prefix + wrapping + bare


def unwrap_namespace(namespace: str, name: str) -> str:
    """The name as it is inside the namespace. Names of other namespaces stay as they are."""
    prefix, bare = _split_prefix(name)
    wrapping = namespace + NAMESPACE_MARK
    return prefix + bare[len(wrapping) :] if namespace and bare.startswith(wrapping) else name


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
