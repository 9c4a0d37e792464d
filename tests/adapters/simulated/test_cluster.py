"""The simulated cluster as a kit for users: what it composes, what waits, what a crash leaves, what is recorded."""

from __future__ import annotations

import pytest

from mqproto.adapters.simulated import Cluster, SimulatedConditions, SimulatedConsumer
from mqproto.errors import InvalidMessage, InvalidSetting, MQError, SendFailed, StateError
from mqproto.message import ConsumeContext, ConsumeStatus, Message, MessageExt, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere

SUCCESS = ConsumeStatus.SUCCESS
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def consume_all(messages: list[MessageExt]) -> object:
    return SUCCESS


def reader(cluster: Cluster) -> SimulatedConsumer:
    return cluster.consumer("readers", consume_all, topics=("orders",), consume_from_where=FIRST).start()


def test_the_example_of_the_module() -> None:
    cluster = Cluster(seed=1, settings={"flushDiskType": "SYNC_FLUSH"})
    consumer = reader(cluster)
    result = cluster.producer("shop").send(Message("orders", b"paid"))
    cluster.broker.crash(power=True)
    assert not cluster.broker.up
    assert cluster.broker.start()
    cluster.run_until(lambda: len(consumer.messages) == 1)
    assert consumer.messages[0].msg_id == result.msg_id
    consumer.close()
    assert not consumer.up
    assert cluster.consumers == []


def test_settings_are_apaches_and_are_checked() -> None:
    cluster = Cluster(settings={"autoCreateTopicEnable": "false"})
    with pytest.raises(MQError):
        cluster.producer("shop").send(Message("orders", b"x"))
    with pytest.raises(InvalidSetting):
        Cluster(settings={"flushDiskType": "SOMETIMES"})
    with pytest.raises(InvalidSetting):
        cluster.producer("shop2", no_such_option=1)  # type: ignore[call-arg]


def test_several_brokers_and_name_servers() -> None:
    cluster = Cluster(brokers=2, name_servers=2)
    assert [machine.name for machine in cluster.servers] == ["namesrv-1", "namesrv-2", "broker-a", "broker-b"]
    assert (cluster.broker.name, cluster.name_server.name) == ("broker-a", "namesrv-1")
    producer = cluster.producer("shop")
    producer.send(Message("orders", b"x"))
    assert {queue.topic for queue in producer.queues("orders")} == {"orders"}
    assert cluster.producers == [producer]


def test_sends_of_every_kind_are_recorded_with_their_outcome() -> None:
    cluster = Cluster()
    producer = cluster.producer("shop", send_msg_timeout=1_000)
    producer.send([Message("orders", b"1"), Message("orders", b"2")])
    producer.submit(Message("orders", b"3"), oneway=True)
    producer.submit(Message("orders", b"4"), callback=True, queue=MessageQueue("orders", "broker-a", 2), timeout_ms=500)
    cluster.run_for(100)
    cluster.broker.crash()
    with pytest.raises(SendFailed):
        producer.send(Message("orders", b"5"))
    batch, oneway, callback, failed = cluster.records.sends
    assert batch.result is not None
    assert (len(batch.messages), batch.result.msg_id.count(","), batch.budget_ms) == (2, 1, 1_000)
    assert (oneway.result, oneway.oneway, oneway.wakes) == (None, True, 1)
    assert callback.result is not None
    assert (callback.result.queue.queue_id, callback.budget_ms) == (2, 500)
    assert (failed.result, failed.wakes, failed.client) == (None, 1, producer.name)
    with pytest.raises(InvalidMessage):
        producer.send(Message("orders", b"x" * (5 << 20)))


def test_a_listener_takes_its_time_and_may_take_a_context_or_raise() -> None:
    cluster = Cluster()
    cluster.producer("shop").send(Message("orders", b"x"))
    contexts: list[ConsumeContext] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> object:
        contexts.append(context)
        raise ValueError("boom")

    consumer = cluster.consumer("readers", listen, topics=("orders",), takes_ms=700, consume_from_where=FIRST).start()
    cluster.run_until(lambda: len(consumer.messages) == 1)
    (delivery,) = cluster.records.deliveries
    assert delivery.ended is None
    assert not delivery.succeeded
    cluster.run_for(700)
    (again,) = cluster.records.deliveries
    assert again.ended == delivery.begun + 700
    assert isinstance(again.result, ValueError)
    assert contexts[0].queue == delivery.queue
    cluster.run_until(lambda: len(consumer.messages) == 2)
    assert cluster.records.deliveries[1].queue.topic == "%RETRY%readers"
    assert consumer.messages[1].topic == "orders"


def test_a_consumer_may_subscribe_by_tags_and_later() -> None:
    cluster = Cluster()
    producer = cluster.producer("shop")
    for tag in ("red", "blue"):
        producer.send(Message("orders", tag.encode(), tag))
        producer.send(Message("bills", tag.encode(), tag))
    consumer = cluster.consumer(
        "readers", consume_all, topics=("orders",), expression="red", consume_from_where=FIRST
    ).start()
    cluster.run_for(30_000)
    consumer.subscribe("bills", "blue")
    cluster.run_for(30_000)
    assert sorted((message.topic, message.body) for message in consumer.messages) == [
        ("bills", b"blue"),
        ("orders", b"red"),
    ]
    assert cluster.records.filtering == {"readers"}


def test_machines_start_once_and_stop_in_order() -> None:
    cluster = Cluster()
    cluster.producer("shop").send(Message("orders", b"x"))
    with pytest.raises(StateError):
        cluster.broker.start()
    cluster.broker.stop()
    with pytest.raises(StateError):
        cluster.broker.stop()
    cluster.broker.freeze()
    cluster.broker.start()
    orderly = [cluster.broker.node.store.recovery.clean]
    cluster.broker.crash()
    cluster.broker.start()
    orderly.append(cluster.broker.node.store.recovery.clean)
    assert orderly == [True, False]
    assert cluster.broker.power_losses == []
    cluster.name_server.stop()
    assert not cluster.name_server.up


def test_the_disk_keeps_what_was_promised() -> None:
    """Process death: everything. Power loss: what was synced; without SYNC_FLUSH perhaps nothing more."""
    kept = []
    for sync in (True, False):
        for power in (False, True):
            lost = 0
            for seed in range(6):
                cluster = Cluster(
                    seed,
                    conditions=SimulatedConditions(delay_max=1, job_max=1),
                    settings={"flushDiskType": "SYNC_FLUSH"} if sync else {},
                )
                producer = cluster.producer("shop")
                for number in range(5):
                    producer.send(Message("orders", b"%d" % number))
                cluster.broker.crash(power=power)
                cluster.broker.start()
                stored = sum(
                    queue.max_offset for queue in cluster.broker.node.store.queues() if queue.topic == "orders"
                )
                lost += 5 - stored
                assert cluster.broker.incomplete == (power and not sync)
            kept.append(lost == 0)
    assert kept == [True, True, True, False]


@pytest.mark.parametrize("power", [False, True])
def test_a_machine_that_dies_at_a_change_of_its_disk(power: bool) -> None:
    cluster = Cluster(3, settings={"flushDiskType": "SYNC_FLUSH"})
    producer = cluster.producer("shop")
    producer.send(Message("orders", b"x"))
    cluster.broker.die_at_change(1, power=power)
    sent = producer.submit(Message("orders", b"y"), timeout_ms=500)
    cluster.run_for(1_000)
    assert not cluster.broker.up
    assert sent.ended is not None
    assert sent.result is None
    cluster.broker.die_at_change(2, power=power)
    assert not cluster.broker.start(), "it dies while it starts"
    assert not cluster.broker.up
    assert len(cluster.broker.power_losses) == 2 * power
    assert cluster.broker.start()
    cluster.run_for(10_000)
    producer.send(Message("orders", b"z"))


def test_frozen_and_dead_clients_begin_nothing() -> None:
    cluster = Cluster()
    producer = cluster.producer("shop")
    producer.send(Message("orders", b"x"))
    sent = producer.submit(Message("orders", b"x"))
    producer.freeze()
    producer.freeze()
    cluster.run_for(5_000)
    with pytest.raises(StateError):
        producer.submit(Message("orders", b"y"))
    with pytest.raises(StateError):
        producer.queues("orders")
    assert sent.wakes == 0
    producer.thaw()
    producer.thaw()
    assert (sent.wakes, sent.ended, sent.frozen_ms) == (1, cluster.now, 5_000)
    producer.crash()
    producer.thaw()
    with pytest.raises(StateError):
        producer.send(Message("orders", b"y"))
