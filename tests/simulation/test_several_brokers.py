"""Clusters of several brokers and name servers: members come and go, and in the end all know of each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqproto.adapters.simulated import Cluster, SimulatedConditions, SimulatedConsumer, checks
from mqproto.engine.namesrv import NameServerNode
from mqproto.message import ConsumeStatus, Message, MessageQueue
from mqproto.wire.bodies import ConsumeFromWhere

CALM = SimulatedConditions(delay_max=2, job_max=3)


def reader(cluster: Cluster) -> SimulatedConsumer:
    return cluster.consumer(
        "readers",
        lambda _: ConsumeStatus.SUCCESS,
        topics=("orders",),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ).start()


def bodies(consumer: SimulatedConsumer) -> set[int]:
    return {int(message.body) for message in consumer.messages}


def unknown(cluster: Cluster) -> list[str]:
    """What name servers do not know of brokers, or know wrongly."""
    wrong: list[str] = []
    for machine in cluster.name_servers:
        server: NameServerNode = machine.node
        registry = server.state.registry
        if set(registry.brokers) != {name for name, broker in cluster.brokers.items() if broker.up}:
            wrong.append(f"{machine.name} knows the brokers {sorted(registry.brokers)}")
        for name, broker in cluster.brokers.items():
            if broker.up:
                for topic, config in broker.node.topics.table.items():
                    held = registry.queues(topic, name)
                    if held is None or (held.read_queues, held.write_queues) != (
                        config.read_queues,
                        config.write_queues,
                    ):
                        wrong.append(f"{machine.name}: {topic} at {name} is {held}, should be {config}")
    return wrong


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_leaves_and_comes_back(seed: int, killed: bool) -> None:
    """Sends go to the others meanwhile, and to it again afterwards; what it holds is consumed once it is back."""
    cluster = Cluster(seed, brokers=3, name_servers=2, conditions=CALM)
    producer, consumer = cluster.producer("shop"), reader(cluster)
    number = 0

    def send(count: int, queues: Sequence[MessageQueue | None] = (None,)) -> set[str]:
        nonlocal number
        brokers = set()
        for turn in range(count):
            sent = producer.send(Message("orders", b"%d" % number), queue=queues[turn % len(queues)])
            brokers.add(sent.queue.broker_name)
            number += 1
            cluster.run_for(50)
        return brokers

    queues = producer.queues("orders")
    send(len(queues), queues)  # the topic is made at each of them
    cluster.run_for(35_000)
    assert send(60) == {"broker-a", "broker-b", "broker-c"}
    gone = cluster.brokers["broker-b"]
    if killed:
        gone.crash()
    else:
        gone.stop()
    assert "broker-b" not in send(60)
    cluster.run_for(5_000)
    assert unknown(cluster) == []
    gone.start()
    cluster.run_for(60_000)
    assert send(60) == {"broker-a", "broker-b", "broker-c"}
    cluster.run_for(120_000)
    assert checks.at_rest(cluster) == []
    assert bodies(consumer) == set(range(number))


def test_a_broker_that_ends_in_order_is_out_of_the_routes_before_it_stops_to_serve() -> None:
    cluster = Cluster(1, brokers=2, name_servers=2, conditions=CALM)
    gone = cluster.brokers["broker-b"]
    host = gone.host
    assert host is not None
    host.enter(host.node.close)
    seen = []

    def ended() -> bool:
        seen.append((gone.up, ["broker-b" in machine.node.state.registry.brokers for machine in cluster.name_servers]))
        return not gone.up

    cluster.run_until(ended)
    assert (True, [False, False]) in seen
    assert seen[-1] == (False, [False, False])


def test_one_name_server_is_enough_to_begin_with() -> None:
    """The other one, once it starts, is told everything within seconds."""
    cluster = Cluster(1, brokers=2, name_servers=2, conditions=CALM)
    late = cluster.name_servers[1]
    late.crash()
    for broker in cluster.brokers.values():
        broker.stop()
        broker.start()
    cluster.producer("shop").send(Message("orders", b"1"))
    cluster.run_for(60_000)
    late.start()
    cluster.run_for(10_000)
    assert unknown(cluster) == []


def test_a_name_server_that_hangs_delays_nobody() -> None:
    cluster = Cluster(1, brokers=2, name_servers=2, conditions=CALM)
    hanging = cluster.name_servers[1]
    hanging.freeze()
    producer, consumer = cluster.producer("shop"), reader(cluster)
    began = cluster.now
    for number in range(20):
        producer.send(Message("orders", b"%d" % number))
    cluster.run_until(lambda: len(consumer.messages) == 20, 60_000)
    assert cluster.now - began < 45_000
    hanging.thaw()
    cluster.run_for(40_000)
    assert unknown(cluster) == []


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"forceRegister": "false"},
        {"compressedRegister": "true", "forceRegister": "false"},
        {"registerNameServerPeriod": "10000"},
    ],
    ids=["forced", "unforced", "compressed", "often"],
)
@pytest.mark.parametrize("seed", range(4))
def test_in_the_end_every_name_server_knows_every_topic(seed: int, settings: dict[str, str]) -> None:
    """Topics are made all the time while name servers and brokers start anew, hang and lose their streams
    (docs/protocol/broker.md 1.6, Trap).
    """
    cluster = Cluster(seed, brokers=2, name_servers=2, conditions=CALM, settings=settings)
    random = cluster.simulator.random
    producer = cluster.producer("shop", retry_times_when_send_failed=0)
    made = 0
    for _ in range(12):
        cluster.simulator.conditions = SimulatedConditions(
            delay_max=random.choice((2, 300)), split=0.3, cut=random.choice((0.0, 0.05)), job_max=3
        )
        machine = random.choice(cluster.servers)
        match random.randrange(3):
            case 0:
                machine.freeze()
            case 1 if machine.up:
                machine.crash()
        for _ in range(random.randrange(4)):
            made += 1
            producer.submit(Message(f"topic-{made}", b"x"))
            cluster.run_for(random.choice((1, 50, 3_000)))
        cluster.run_for(random.choice((100, 5_000, 40_000)))
        machine.thaw()
        if not machine.up:
            machine.start()
    cluster.simulator.heal()
    cluster.simulator.conditions = CALM
    cluster.run_for(130_000)
    assert unknown(cluster) == []
    assert sum(len(broker.node.topics.table) for broker in cluster.brokers.values()) > 30
