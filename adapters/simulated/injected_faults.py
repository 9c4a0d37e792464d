"""Faults that a scenario injects: into brokers and name servers, their disks, the network, clocks and clients.

Each is a function of the scenario and mends what it broke after a while, or leaves that to the end of the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mqproto.adapters.simulated.clients import Client
from mqproto.adapters.simulated.cluster import Machine

if TYPE_CHECKING:
    from mqproto.adapters.simulated.scenario import Scenario

HOUR_MS: Final = 3_600_000


def crash_broker(scenario: Scenario) -> None:
    machine = scenario.some_broker()
    if machine.up:
        machine.crash(power=scenario.takes_power())
        scenario.restart_later(machine)


def doom_broker(scenario: Scenario) -> None:
    """The broker dies in the middle of some change of its disk."""
    machine = scenario.some_broker()
    if machine.up:
        machine.die_at_change(scenario.random.randint(1, 30), power=scenario.takes_power())
        scenario.restart_later(machine)


def stop_broker(scenario: Scenario) -> None:
    """An orderly restart."""
    machine = scenario.some_broker()
    if machine.up:
        assert machine.host is not None
        machine.host.enter(machine.host.node.close)
        scenario.restart_later(machine)


def crash_name_server(scenario: Scenario) -> None:
    machine = scenario.random.choice(scenario.cluster.name_servers)
    if machine.up:
        machine.crash(power=scenario.random.random() < 0.5)
        scenario.restart_later(machine)


def part(scenario: Scenario) -> None:
    servers = [machine.name for machine in scenario.cluster.servers]
    one = scenario.random.choice(servers)
    others = [client.name for client in scenario.cluster.clients if client.up] + [
        name for name in servers if name != one
    ]
    scenario.simulator.part(one, scenario.random.choice(others), silently=scenario.random.random() < 0.5)
    scenario.simulator.at(
        scenario.simulator.now + scenario.random.choice((1_000, 20_000, 100_000)), scenario.simulator.heal
    )


def freeze(scenario: Scenario) -> None:
    client = scenario.some_client()
    places: list[Machine[Any] | Client] = [*scenario.cluster.servers]
    if client is not None:
        places.append(client)
    place = scenario.random.choice(places)
    place.freeze()
    scenario.simulator.at(scenario.simulator.now + scenario.random.choice((500, 10_000, 60_000, 150_000)), place.thaw)


def step_wall(scenario: Scenario) -> None:
    by_ms = scenario.random.choice((-HOUR_MS, -HOUR_MS, -5_000, 5_000, HOUR_MS))
    if scenario.random.random() < 0.5:
        scenario.simulator.step_wall(by_ms)
    else:
        hosts = [host for host in scenario.simulator.hosts if host.alive]
        if hosts:
            scenario.random.choice(hosts).wall_offset += by_ms


def slow_disk(scenario: Scenario) -> None:
    machine = scenario.some_broker()
    if machine.up:
        assert machine.host is not None
        machine.host.conditions = replace(scenario.simulator.conditions, job_max=scenario.random.choice((1_000, 8_000)))


def failing_disk(scenario: Scenario) -> None:
    machine = scenario.some_broker()
    if machine.up:
        assert machine.host is not None
        host = machine.host
        host.conditions = replace(scenario.simulator.conditions, job_failure=scenario.random.choice((0.2, 1.0)))

        def replaced() -> None:
            if machine.host is host and host.alive:
                machine.crash()
            if not machine.up:
                scenario.start(machine)

        scenario.simulator.at(scenario.simulator.now + scenario.random.choice((2_000, 30_000)), replaced)


def member_joins(scenario: Scenario) -> None:
    if scenario.random.random() < 0.2:
        scenario.add_producer()
    elif len(scenario.cluster.consumers) < 5:
        scenario.join(scenario.random.choice(scenario.readers()).group)


def member_leaves(scenario: Scenario) -> None:
    consumers = [consumer for consumer in scenario.cluster.consumers if not consumer.host.asleep]
    if consumers:
        consumer = scenario.random.choice(consumers)
        consumer.host.enter(consumer.node.close)
        scenario.simulator.at(scenario.simulator.now + 10_000, consumer.crash)


def crash_client(scenario: Scenario) -> None:
    client = scenario.some_client()
    if client is not None:
        client.crash(power=scenario.random.random() < 0.5)


def full_disk(scenario: Scenario) -> None:
    files = scenario.some_broker().files
    files.space = scenario.random.choice((0, 5_000, 50_000))

    def cleared() -> None:
        files.space = None

    scenario.simulator.at(scenario.simulator.now + scenario.random.choice((1_000, 30_000)), cleared)


def burst(scenario: Scenario) -> None:
    """Much at once."""
    for _ in range(scenario.random.choice((30, 150))):
        scenario.send()


def idle(scenario: Scenario) -> None:
    """Nothing is sent for so long that connections are closed."""
    scenario.run(300_000)


def cuts(scenario: Scenario) -> None:
    """Streams break now and then, by `SimulatedConditions.cut`."""


def lose_power(scenario: Scenario) -> None:
    """Crashes may take unsynced data even where that is not promised to survive, see `Scenario.takes_power`."""


#: All of them, by the names that seeds and tests choose them by.
FAULTS: Final[Mapping[str, Callable[[Scenario], None]]] = {
    "burst": burst,
    "idle": idle,
    "cuts": cuts,
    "lose power": lose_power,
    "full disk": full_disk,
    "crash broker": crash_broker,
    "doom broker": doom_broker,
    "stop broker": stop_broker,
    "crash name server": crash_name_server,
    "part": part,
    "freeze": freeze,
    "step wall": step_wall,
    "slow disk": slow_disk,
    "failing disk": failing_disk,
    "join": member_joins,
    "leave": member_leaves,
    "crash client": crash_client,
}
