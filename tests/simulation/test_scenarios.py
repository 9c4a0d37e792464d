"""Whole clusters through one kind of fault each: the promises to users, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.adapters.simulated import (
    Client,
    Cluster,
    Machine,
    SimulatedConditions,
    SimulatedConsumer,
    SimulatedProducer,
    checks,
)
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, Message, MessageExt, SendStatus
from mqproto.wire.bodies import ConsumeFromWhere

CALM = SimulatedConditions(delay_max=2, job_max=3)
SYNC = {"flushDiskType": "SYNC_FLUSH"}
SUCCESS, LATER = ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER


Listen = Callable[[list[MessageExt]], object]


def reader(cluster: Cluster, listener: Listen = lambda messages: SUCCESS, **options: Any) -> SimulatedConsumer:
    """A consumer of `orders` from the first message on."""
    options["consume_from_where"] = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return cluster.consumer("readers", listener, topics=("orders",), **options).start()


def send(producer: SimulatedProducer, *numbers: int) -> None:
    for number in numbers:
        producer.send(Message("orders", b"%d" % number))


def bodies(*consumers: SimulatedConsumer) -> list[int]:
    return sorted(int(message.body) for consumer in consumers for message in consumer.messages)


def check_rest(cluster: Cluster, peace_ms: int = 120_000) -> None:
    """In the end nothing is lost and nothing is under way."""
    cluster.simulator.heal()
    cluster.simulator.conditions = CALM
    cluster.run_for(peace_ms)
    assert checks.at_rest(cluster) == []


@pytest.mark.parametrize("settings", [{}, SYNC])
def test_a_good_network(settings: dict[str, str]) -> None:
    cluster = Cluster(1, brokers=2, name_servers=2, conditions=CALM, settings=settings)
    producer = cluster.producer("shop")
    send(producer, *range(100))
    consumer = reader(cluster)
    send(producer, *range(100, 200))
    cluster.run_until(lambda: len(consumer.messages) == 200, 60_000)
    check_rest(cluster)
    assert bodies(consumer) == list(range(200)), "each exactly once"


@pytest.mark.parametrize("seed", range(3))
def test_slow_and_split_streams(seed: int) -> None:
    cluster = Cluster(seed, conditions=SimulatedConditions(delay_max=400, split=0.9, job_max=50))
    producer = cluster.producer("shop")
    consumer = reader(cluster)
    send(producer, *range(60))
    check_rest(cluster)
    assert set(bodies(consumer)) == set(range(60))


@pytest.mark.parametrize("seed", range(3))
def test_streams_that_break(seed: int) -> None:
    """A send whose answer is lost is sent again, so a message may come twice; none is lost."""
    cluster = Cluster(seed, brokers=2, conditions=CALM, settings=SYNC)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    cluster.simulator.conditions = SimulatedConditions(delay_max=5, split=0.3, cut=0.03, job_max=3)
    sends = []
    for number in range(150):
        sends.append(producer.submit(Message("orders", b"%d" % number)))
        cluster.run_for(100)
    check_rest(cluster)
    acknowledged = {int(sent.messages[0].body) for sent in sends if sent.result is not None}
    assert len(acknowledged) > 120
    assert acknowledged <= set(bodies(consumer))


@pytest.mark.parametrize(("settings", "power"), [({}, False), (SYNC, False), (SYNC, True)])
def test_a_broker_dies_in_the_middle_of_sends(settings: dict[str, str], power: bool) -> None:
    """Whatever was acknowledged survives the death of the process, and under SYNC_FLUSH the loss of power too."""
    for seed in range(3):
        cluster = Cluster(seed, conditions=CALM, settings=settings)
        producer, consumer = cluster.producer("shop"), reader(cluster)
        for crash in range(4):
            for number in range(30):
                producer.submit(Message("orders", b"%d" % (crash * 30 + number)))
            cluster.run_for(cluster.simulator.random.randint(0, 12))
            cluster.broker.crash(power=power)
            cluster.run_for(5_000)
            cluster.broker.start()
            cluster.run_for(3_000)
        check_rest(cluster)
        acknowledged = {int(sent.messages[0].body) for sent in cluster.records.sends if sent.result is not None}
        assert acknowledged <= set(bodies(consumer))


def test_what_power_loss_takes_under_asynchronous_flush() -> None:
    """Nothing was promised, but the broker starts, and goes on."""
    cluster = Cluster(4, conditions=CALM)
    producer = cluster.producer("shop")
    send(producer, *range(20))
    cluster.broker.crash(power=True)
    cluster.broker.start()
    consumer = reader(cluster)
    cluster.run_for(5_000)
    send(producer, *range(20, 40))
    check_rest(cluster)
    assert set(range(20, 40)) <= set(bodies(consumer))


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_dies_in_the_middle_of_a_change_of_its_disk(seed: int) -> None:
    """At every change in turn, those of the recovery from the death before among them."""
    cluster = Cluster(
        seed, conditions=CALM, settings={**SYNC, "mappedFileSizeCommitLog": "16384", "maxMessageSize": "4096"}
    )
    producer, consumer = cluster.producer("shop"), reader(cluster)
    number = 0
    for change in range(1, 25):
        cluster.broker.die_at_change(change, power=seed % 2 == 0)
        while cluster.broker.up and number < change * 40:
            number += 1
            producer.submit(Message("orders", b"%d" % number + b" " * 1000))
            cluster.run_for(500)
        if not cluster.broker.up:
            cluster.broker.die_at_change(change, power=seed % 2 == 0)
            while not cluster.broker.start():
                pass
    cluster.broker.crash()
    cluster.broker.start()
    check_rest(cluster)
    acknowledged = {int(sent.messages[0].body) for sent in cluster.records.sends if sent.result is not None}
    assert len(acknowledged) > 50
    assert acknowledged <= set(bodies(consumer))


def test_a_name_server_that_starts_again_knows_everything_soon() -> None:
    cluster = Cluster(5, conditions=CALM)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    send(producer, 1)
    cluster.name_server.crash()
    send(producer, 2, 3)
    cluster.run_for(40_000)
    send(producer, 4)
    cluster.name_server.start()
    cluster.run_for(9_000)  # brokers try again after 8 s at the latest
    late = cluster.producer("newcomer")
    late.send(Message("orders", b"5"))
    check_rest(cluster)
    assert bodies(consumer) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("silently", [False, True])
def test_a_client_cut_off_from_its_broker(silently: bool) -> None:
    """Sends go to the other broker and end in time; the consumer finds its queues again after the cut."""
    cluster = Cluster(6, brokers=2, conditions=CALM)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    for queue in [queue for _ in cluster.brokers for queue in producer.queues("orders")]:
        producer.send(Message("orders", b"0"), queue=queue)
    cluster.run_for(31_000)
    cluster.simulator.part(producer.name, "broker-a", silently=silently)
    cluster.simulator.part(consumer.name, "broker-a", silently=silently)
    taken = 0
    for number in range(1, 40):
        try:
            producer.send(Message("orders", b"%d" % number))
            taken += 1
        except MQError:  # within its budget, see the checks
            pass
        cluster.run_for(300)
    assert taken > 10
    check_rest(cluster)
    assert {sent.result.queue.broker_name for sent in cluster.records.sends if sent.result} == {"broker-a", "broker-b"}


def test_a_broker_cut_off_from_its_name_server_is_forgotten_and_found_again() -> None:
    cluster = Cluster(7, conditions=CALM)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    send(producer, 1)
    cluster.simulator.part("broker-a", "namesrv-1", silently=True)
    cluster.run_for(150_000)
    stranger = cluster.producer("stranger")
    with pytest.raises(MQError):
        stranger.send(Message("orders", b"0"))
    cluster.simulator.heal()
    cluster.run_for(40_000)
    stranger.send(Message("orders", b"2"))
    check_rest(cluster)
    assert bodies(consumer) == [1, 2]


@pytest.mark.parametrize("settings", [{}, SYNC])
def test_a_disk_that_fails_is_never_trusted_again(settings: dict[str, str]) -> None:
    """After a failed sync nobody knows what the disk holds: nothing is acknowledged any more, until another process has
    looked.
    """
    cluster = Cluster(8, conditions=CALM, settings=settings)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    send(producer, *range(10))
    assert cluster.broker.host is not None
    cluster.broker.host.conditions = SimulatedConditions(job_failure=1.0)
    for number in range(10, 13):
        producer.submit(Message("orders", b"%d" % number))
    cluster.run_for(20_000)
    assert not cluster.broker.node.store.writer.writable
    cluster.broker.host.conditions = None
    with pytest.raises(MQError):
        send(producer, 13)
    cluster.broker.crash()
    cluster.broker.start()
    cluster.run_for(3_000)
    send(producer, 14)
    check_rest(cluster)
    acknowledged = {int(sent.messages[0].body) for sent in cluster.records.sends if sent.result is not None}
    assert 13 not in acknowledged
    assert acknowledged <= set(bodies(consumer))
    if settings is SYNC:
        statuses = [sent.result.status for sent in cluster.records.sends[10:13] if sent.result is not None]
        assert SendStatus.SEND_OK not in statuses


@pytest.mark.parametrize("power", [False, True])
def test_old_files_are_deleted_while_everything_goes_on(power: bool) -> None:
    """Consumers that keep up lose nothing by it, whatever the broker goes through meanwhile."""
    keep_nothing = {
        "fileReservedTime": "0",
        "deleteWhen": ";".join(map(str, range(24))),
        "cleanResourceInterval": "1000",
    }
    small = {
        "mappedFileSizeCommitLog": "8192",
        "mappedFileSizeConsumeQueue": "400",
        "flushConsumeQueueThoroughInterval": "1000",
    }
    cluster = Cluster(10, conditions=CALM, settings={**SYNC, **keep_nothing, **small})
    producer, consumer = cluster.producer("shop"), reader(cluster)
    begins = []
    for round_ in range(8):
        send(producer, *range(50 * round_, 50 * round_ + 50))
        cluster.run_until(lambda: len(set(bodies(consumer))) == 50 * round_ + 50, 60_000)  # noqa: B023 - called within the round
        cluster.run_for(70_000)
        begins.append(cluster.broker.node.store.min_physical)
        cluster.broker.crash(power=power)
        cluster.broker.start()
    assert sorted(set(bodies(consumer))) == list(range(400))
    assert begins == sorted(begins)
    assert begins[0] > 0
    assert begins[-1] > 6 * begins[0]


def test_a_slow_disk_delays_only_what_waits_for_it() -> None:
    cluster = Cluster(9, conditions=CALM, settings={**SYNC, "syncFlushTimeout": "1000"})
    producer = cluster.producer("shop")
    send(producer, 0)
    assert cluster.broker.host is not None
    cluster.broker.host.conditions = SimulatedConditions(job_min=8_000, job_max=8_000)
    slow = producer.submit(Message("orders", b"1"))
    quick = producer.submit(Message("orders", b"2", wait=False))
    cluster.run_for(3_000)
    assert slow.result is not None
    assert quick.result is not None
    assert slow.result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert quick.ended is not None
    assert quick.ended - quick.begun < 50
    consumer = reader(cluster)
    cluster.run_for(20_000)
    check_rest(cluster)
    assert bodies(consumer) == [0, 1, 2]


def test_failed_messages_come_again_and_end_with_the_dead() -> None:
    """By the delay levels from the third one on; after the last attempt the message is a dead letter, and only then."""
    cluster = Cluster(10, conditions=CALM, settings={"messageDelayLevel": "1s 2s 3s 4s 5s 6s"})
    producer = cluster.producer("shop")
    attempts: dict[bytes, list[int]] = {}

    def listen(messages: list[MessageExt]) -> object:
        (message,) = messages
        attempts.setdefault(message.body, []).append(cluster.now)
        return SUCCESS if message.body == b"1" and message.reconsume_times == 2 else LATER

    consumer = reader(cluster, listener=listen, max_reconsume_times=3)
    send(producer, 1, 2)
    check_rest(cluster)
    gaps = [after - before for before, after in zip(attempts[b"2"], attempts[b"2"][1:], strict=False)]
    assert [len(attempts[body]) for body in (b"1", b"2")] == [3, 4]
    assert all(wanted <= gap <= wanted + 22_000 for wanted, gap in zip((3_000, 4_000, 5_000), gaps, strict=True)), gaps
    stored, _ = checks.read_logs(cluster)
    dead = [message.body for queue, messages in stored.items() if queue.topic == "%DLQ%readers" for message in messages]
    assert dead == [b"2"]
    assert len({message.msg_id for message in consumer.messages}) == 2


@pytest.mark.parametrize("seed", range(4))
def test_members_come_and_go(seed: int) -> None:
    """By an orderly end, by a crash, without a word; every queue has one owner soon, and everything is consumed."""
    cluster = Cluster(seed, brokers=2, conditions=CALM)
    random = cluster.simulator.random
    producer = cluster.producer("shop")
    send(producer, 0)
    members = [reader(cluster), reader(cluster)]
    for number in range(1, 120):
        producer.submit(Message("orders", b"%d" % number))
        if number % 15 == 0:
            leaver = members.pop(0)
            way = random.randrange(3)
            if way == 0:
                leaver.host.enter(leaver.node.close)
            else:
                leaver.crash(power=way == 1)
            members.append(reader(cluster))
        cluster.run_for(random.choice((10, 500, 2_000)))
    check_rest(cluster, 180_000)
    assert set(bodies(*[client for client in cluster.clients if isinstance(client, SimulatedConsumer)])) == set(
        range(120)
    )


def test_a_member_whose_process_dies_is_replaced_at_once() -> None:
    """CON-17: the broker sees the connections end and tells the others."""
    cluster = Cluster(11, conditions=CALM)
    producer = cluster.producer("shop")
    send(producer, 0)
    survivor, dying = reader(cluster), reader(cluster)
    cluster.run_for(5_000)
    assert checks.shared(cluster) == []
    dying.crash()
    cluster.run_for(1_000)
    assert checks.shared(cluster) == []
    send(producer, *range(1, 9))
    cluster.run_for(500)
    assert set(range(1, 9)) <= set(bodies(survivor))


@pytest.mark.parametrize("stopped", ["broker", "producer", "consumer", "name server"])
def test_everything_stands_still_for_a_minute(stopped: str) -> None:
    """A process that does not run for 60 s (a laptop that sleeps, a paused machine) goes on where it was."""
    cluster = Cluster(12, conditions=CALM)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    send(producer, *range(10))
    places: dict[str, Machine[Any] | Client] = {
        "broker": cluster.broker,
        "producer": producer,
        "consumer": consumer,
        "name server": cluster.name_server,
    }
    place = places[stopped]
    sends = [producer.submit(Message("orders", b"%d" % number)) for number in range(10, 20)]
    place.freeze()
    cluster.run_for(60_000)
    assert checks.sends(cluster) == []
    place.thaw()
    cluster.run_for(5_000)
    assert all(sent.ended is not None for sent in sends)
    send(producer, 20)
    check_rest(cluster)
    assert set(bodies(consumer)) == set(range(21))


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_the_wall_clock_steps(by_ms: int) -> None:
    """Deadlines, delays and retries go by the time that really passes; a stored time that goes back does no harm."""
    cluster = Cluster(13, conditions=CALM, settings={"messageDelayLevel": "1s 2s 3s 4s"})
    producer = cluster.producer("shop")
    failing = iter([LATER])
    consumer = reader(cluster, listener=lambda messages: next(failing, SUCCESS))
    send(producer, 0)
    producer.send(Message("orders", b"1", delay_level=4))
    cluster.run_for(1_000)
    cluster.simulator.step_wall(by_ms)
    begun = cluster.now
    send(producer, 2)
    cluster.run_until(lambda: set(bodies(consumer)) == {0, 1, 2} and len(consumer.messages) == 4, 40_000)
    assert cluster.now - begun < 30_000
    cluster.broker.stop()
    cluster.broker.start()
    send(producer, 3)
    check_rest(cluster)
    assert bodies(consumer) == [0, 0, 1, 2, 3]
