"""Producers and push consumers in a namespace: the wire sees whole names, the application plain ones
(docs/protocol/client.md 1.8, NSP-01).
"""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import ClientError, InvalidName
from mqproto.message import ConsumeStatus, Message, MessageQueue
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientSettings
from mqproto.state.consumer.push.push_consumer import PushConsumerCore
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire import properties as names
from mqproto.wire.bodies import ConsumeFromWhere, HeartbeatData
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.scripted_broker import Cluster, queue_of
from tests.mqproto.state.stage import IDENTITY, NS, Stage, broker, name_server, route

INST = "MQ_INST_1_x"
SEND = RequestCode.SEND_MESSAGE_V2
LATER = ConsumeStatus.RECONSUME_LATER


def producing(*topics: str, namespace: str = INST) -> tuple[Stage, ProducerCore]:
    """A producer in the namespace, with a name server that knows these topics."""
    stage = Stage(namespace=namespace)
    stage.peers[NS] = name_server({topic: route("a=a:10911") for topic in topics})
    stage.peers["a:10911"] = broker()
    return stage, stage.node.add_producer(ProducerSettings(group="pg"), 0)


def sent(stage: Stage, code: int = SEND) -> dict[str, str]:
    """The fields of the last send, with its properties under their own names."""
    fields = dict(stage.peers["a:10911"].of(code)[-1].fields)
    return {**fields, **names.decode(fields["i"])}


def test_sends_go_to_the_wrapped_topic_and_results_are_plain() -> None:
    stage, core = producing(f"{INST}%T")
    message = Message("T", b"x")
    result = stage.run(core.send(message, stage.now))
    fields = sent(stage)
    assert (fields["a"], fields["b"], fields["c"], fields["INSTANCE_ID"]) == (f"{INST}%pg", f"{INST}%T", "TBW102", INST)
    assert (result.queue.topic, message.topic, message.properties) == ("T", "T", {})
    assert stage.run(core.send(Message(f"{INST}%T", b"x"), stage.now)).queue.topic == "T", (
        "wrapping twice is wrapping once"
    )
    assert sent(stage)["b"] == f"{INST}%T"
    stage.begin().advance(1_000)
    assert HeartbeatData.from_json(bytes(stage.peers["a:10911"].of(RequestCode.HEART_BEAT)[-1].body)).producers == [
        f"{INST}%pg"
    ]


def test_batches_and_one_way_sends() -> None:
    stage, core = producing(f"{INST}%T")
    assert stage.run(core.send_batch([Message("T", b"x"), Message("T", b"y")], stage.now)).queue.topic == "T"
    fields = sent(stage, RequestCode.SEND_BATCH_MESSAGE)
    assert (fields["b"], fields["INSTANCE_ID"]) == (f"{INST}%T", INST)
    stage.run(core.send_oneway(Message("T", b"x"), stage.now))
    assert sent(stage)["b"] == f"{INST}%T"


def test_queues_that_the_application_sees_and_names_are_plain() -> None:
    stage, core = producing(f"{INST}%T")
    queues = stage.run(core.publish_queues("T", stage.now))
    assert queues == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1))
    for queue in (queues[1], MessageQueue(f"{INST}%T", "a", 1)):
        assert stage.run(core.send(Message("T", b"x"), stage.now, queue=queue)).queue == queues[1]
        assert sent(stage)["e"] == "1"
    with pytest.raises(ClientError, match="queue of topic"):
        stage.run(core.send(Message("T", b"x"), stage.now, queue=MessageQueue("other", "a", 1)))


def test_a_topic_that_does_not_exist_yet_is_made_inside_the_namespace() -> None:
    stage, core = producing("TBW102")
    assert stage.run(core.send(Message("T", b"x"), stage.now)).queue.topic == "T"
    assert [one.fields["topic"] for one in stage.peers[NS].got] == [f"{INST}%T", "TBW102"]
    assert (sent(stage)["b"], sent(stage)["c"]) == (f"{INST}%T", "TBW102")


def test_system_topics_stay_outside() -> None:
    stage, core = producing("BenchmarkTest")
    assert stage.run(core.send(Message("BenchmarkTest", b"x"), stage.now)).queue.topic == "BenchmarkTest"
    assert sent(stage)["b"] == "BenchmarkTest"


def test_a_namespace_of_5_2_travels_beside_the_names() -> None:
    stage = Stage(namespace_v2="ns")
    stage.peers[NS] = name_server({"T": route("a=a:10911")})
    stage.peers["a:10911"] = broker()
    core = stage.node.add_producer(ProducerSettings(group="pg"), 0)
    stage.begin()
    assert stage.run(core.send(Message("T", b"x"), stage.now)).queue.topic == "T"
    stage.run(core.send_oneway(Message("T", b"x"), stage.now))
    for _ in range(2):
        ticket = stage.node.send(core, Message("T", b"x"), stage.now)
        stage.settle()
        assert ticket.settled
    stage.advance(2_000)
    requests = [*stage.peers[NS].got, *stage.peers["a:10911"].got]
    assert {RequestCode.GET_ROUTEINFO_BY_TOPIC, SEND, RequestCode.HEART_BEAT} <= {request.code for request in requests}
    assert {(request.fields["nsd"], request.fields["ns"]) for request in requests} == {("true", "ns")}
    assert sent(stage)["b"] == "T"
    with pytest.raises(InvalidName):
        Stage(namespace_v2="a%b")


@pytest.mark.parametrize("namespace", ["a%b", "a b", "x" * 128])
def test_names_that_no_namespace_has(namespace: str) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        ClientNode(ClientSettings(namespace=namespace), IDENTITY)


def test_a_wrapped_name_may_be_too_long() -> None:
    """LIM-01."""
    stage, core = producing(namespace="n" * 60)
    with pytest.raises(InvalidName, match="127"):
        stage.run(core.send(Message("t" * 67, b"x"), stage.now))
    with pytest.raises(InvalidName, match="RETRY"):
        PushConsumerCore(stage.node, ConsumerSettings(group="g" * 60), None)
    with pytest.raises(InvalidName):
        stage.node.add_producer(ProducerSettings(group="g" * 195), 0)


def consuming(*, orderly: bool = False, **settings: Any) -> tuple[Cluster, PushConsumerCore]:
    """A started consumer of topic T in the namespace, from the first message on."""
    cluster = Cluster("b", namespace=INST)
    cluster.topic(f"{INST}%T")
    cluster.stage.begin()
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumerCore(
        cluster.stage.node, ConsumerSettings(group="g", consume_from_where=first, orderly=orderly, **settings), "l"
    )
    consumer.subscribe("T", now=0)
    cluster.start(consumer)
    return cluster, consumer


@pytest.mark.parametrize("orderly", [False, True])
def test_messages_and_queues_that_listeners_see_are_plain(orderly: bool) -> None:
    cluster, _ = consuming(orderly=orderly)
    cluster.put(f"{INST}%T", b"x", b"y")
    cluster.answer_all()
    assert [(task.messages[0].topic, task.context.queue) for task in cluster.tasks] == [("T", queue_of("T"))] * 2
    cluster.advance(10_000)
    assert cluster.broker.offsets[(f"{INST}%T", 0)] == 2
    (data,) = cluster.broker.heartbeats[-1].consumers
    assert (data.group, sorted(one.topic for one in data.subscriptions)) == (
        f"{INST}%g",
        [f"%RETRY%{INST}%g", f"{INST}%T"],
    )


def test_a_failed_message_goes_back_under_its_whole_names() -> None:
    cluster, _ = consuming()
    cluster.put(f"{INST}%T", b"x")
    cluster.answer(cluster.tasks[0], LATER)
    (fields,) = cluster.broker.sent_back
    assert (fields["group"], fields["originTopic"]) == (f"{INST}%g", f"{INST}%T")
    cluster.advance(2_000)
    cluster.put(f"%RETRY%{INST}%g", b"x", properties={names.RETRY_TOPIC: f"{INST}%T"}, reconsume_times=1)
    assert (cluster.tasks[1].messages[0].topic, cluster.tasks[1].context.queue) == ("T", queue_of("%RETRY%g"))


@pytest.mark.parametrize("orderly", [False, True])
def test_a_copy_for_the_retry_topic_bears_whole_names(orderly: bool) -> None:
    """Where the broker takes nothing back, and where an ordered message failed too often."""
    cluster, _ = consuming(orderly=orderly, max_reconsume_times=1)
    cluster.broker.refuses[RequestCode.CONSUMER_SEND_MSG_BACK] = 1
    cluster.put(f"{INST}%T", b"x")
    cluster.answer_all(LATER)
    cluster.advance(3_000)
    cluster.answer_all(LATER)
    request = cluster.requests(SEND)[-1]
    values = names.decode(request.fields["i"])
    assert (request.fields["a"], request.fields["b"]) == ("CLIENT_INNER_PRODUCER", f"%RETRY%{INST}%g")
    assert (values[names.RETRY_TOPIC], values["INSTANCE_ID"]) == (f"{INST}%T", INST)


def test_unsubscribing_really_stops_delivery() -> None:
    cluster, consumer = consuming()
    consumer.unsubscribe("T", now=cluster.stage.now)
    cluster.stage.settle()
    cluster.advance(2_000)
    cluster.put(f"{INST}%T", b"x")
    assert (cluster.tasks, list(consumer.topics())) == ([], [f"%RETRY%{INST}%g"])
