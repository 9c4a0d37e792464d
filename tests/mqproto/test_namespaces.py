"""Messages and queues that cross the border of a namespace (bare names: test_names)."""

from __future__ import annotations

from mqproto.message import MessageExt, MessageQueue
from mqproto.namespaces import NO_NAMESPACE, Namespace

NS = Namespace("MQ_INST_1_x")
PLAIN = MessageQueue("T", "b", 3)
WIRE = MessageQueue("MQ_INST_1_x%T", "b", 3)


def test_queues_and_messages() -> None:
    """NSP-01."""
    assert NS.wrap_queue(PLAIN) == NS.wrap_queue(WIRE) == WIRE
    assert NS.unwrap_queue(WIRE) == NS.unwrap_queue(PLAIN) == PLAIN
    assert NS.wrap_queues([PLAIN]) == (WIRE,)
    assert NS.unwrap_queues([WIRE]) == (PLAIN,)
    messages = [MessageExt("MQ_INST_1_x%T", b""), MessageExt("%RETRY%MQ_INST_1_x%g", b""), MessageExt("other%T", b"")]
    NS.unwrap_messages(messages)
    assert [one.topic for one in messages] == ["T", "%RETRY%g", "other%T"]


def test_without_a_namespace_everything_stays_as_it_is() -> None:
    message = MessageExt("MQ_INST_1_x%T", b"")
    NO_NAMESPACE.unwrap_messages([message])
    assert (NS.name, bool(NS), bool(NO_NAMESPACE), message.topic) == ("MQ_INST_1_x", True, False, "MQ_INST_1_x%T")
    assert NO_NAMESPACE.wrap_queue(PLAIN) is PLAIN
    assert NO_NAMESPACE.unwrap_queue(WIRE) is WIRE
    assert (NO_NAMESPACE.wrap("T"), NO_NAMESPACE.unwrap("a%T")) == ("T", "a%T")
