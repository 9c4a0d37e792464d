"""Simulator with toy nodes: bytes, faults, and that a seed decides everything."""

from __future__ import annotations

import pytest

from mqproto.adapters.simulated import Host, SimulatedConditions, Simulator
from mqproto.state.node.contract import Dial, Job, Link, NodeBase, Run


class Toy(NodeBase):
    """Node that answers each run of bytes with the same bytes; notes everything that happens to it."""

    def __init__(self, dials: str = "") -> None:
        super().__init__()
        self.dials = dials
        self.log: list[tuple[int, str]] = []
        self.link: Link | None = None
        self.got = b""
        self.due: int | None = None
        self.ended = False

    def begin(self, now: int) -> None:
        if self.dials:
            self.link = Link(self.dials)
            self.actions.append(Dial(self.link, 1000))

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        self.log.append((now, f"accept {listener} from {address}"))
        return Link(address, listener)

    def opened(self, link: Link, now: int) -> None:
        self.log.append((now, "opened"))
        for number in range(20):
            self.write(link, b"%d;" % number)

    def received(self, link: Link, data: bytes, now: int) -> None:
        self.log.append((now, f"received {data!r}"))
        self.got += data
        if not self.dials:
            self.write(link, data)

    def closed(self, link: Link, reason: str, now: int) -> None:
        link.ended = True
        self.log.append((now, f"closed {reason}"))

    def timer(self, now: int) -> None:
        if self.due is not None and now >= self.due:
            self.due = None
            self.log.append((now, "timer"))

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        self.log.append((now, f"done {failure}"))

    def next_deadline(self) -> int | None:
        return self.due

    def close(self, now: int) -> None:
        self.ended = True


SENT = b"".join(b"%d;" % number for number in range(20))


def pair(seed: int, conditions: SimulatedConditions | None = None) -> tuple[Simulator, Host, Toy, Host, Toy]:
    simulator = Simulator(seed, conditions=conditions)
    server, client = Toy(), Toy("server:1")
    return (
        simulator,
        simulator.add("server", server, {"main": "server:1"}),
        server,
        simulator.add("client", client),
        client,
    )


def test_bytes_arrive_in_order_however_they_are_split() -> None:
    pieces = set()
    for seed in range(50):
        simulator, _, server, _, client = pair(seed, SimulatedConditions(split=0.9, delay_max=50))
        simulator.run_until(lambda client=client: len(client.got) == len(SENT))  # type: ignore[misc]
        assert server.got == client.got == SENT
        assert client.link is not None
        assert client.link.unsent == 0
        pieces.add(len(server.log))
    assert len(pieces) > 2


def test_a_seed_decides_everything() -> None:
    conditions = SimulatedConditions(split=0.5, cut=0.05, delay_max=20)
    runs = []
    for _ in range(2):
        simulator, _, server, _, client = pair(7, conditions)
        simulator.run_for(10_000)
        runs.append((server.log, client.log))
    assert runs[0] == runs[1]
    simulator, _, server, _, client = pair(8, conditions)
    simulator.run_for(10_000)
    assert (server.log, client.log) != runs[0]


def test_nobody_listens() -> None:
    simulator = Simulator(1)
    client = Toy("nowhere:1")
    simulator.add("client", client)
    simulator.run_for(100)
    assert [text for _, text in client.log] == ["closed connection refused"]


def test_a_cut_network_breaks_links_and_lets_new_ones_time_out() -> None:
    simulator, _, server, _, client = pair(3)
    simulator.run_until(lambda: client.got == SENT)
    simulator.part("server", "client")
    simulator.run_for(100)
    assert client.log[-1][1] == server.log[-1][1] == "closed network cut"
    again = Toy("server:1")
    host = simulator.add("client", again)
    simulator.run_for(999)
    assert again.log == []
    simulator.run_for(10)
    assert again.log == [(host.simulator.now - 9, "closed connecting timed out")]
    simulator.heal()
    third = Toy("server:1")
    simulator.add("client", third)
    simulator.run_until(lambda: third.got == SENT)


def test_a_crash_ends_links_and_stops_the_node() -> None:
    simulator, server_host, server, _, client = pair(4)
    server.due = 500_000
    simulator.run_until(lambda: client.got == SENT)
    simulator.crash(server_host)
    heard = len(server.log)
    simulator.run_for(1_000_000)
    assert client.log[-1][1] == "closed the peer's process died"
    assert len(server.log) == heard
    successor = Toy()
    simulator.add("server", successor, {"main": "server:1"})
    late = Toy("server:1")
    simulator.add("late", late)
    simulator.run_until(lambda: late.got == SENT)


class Work:
    def __init__(self) -> None:
        self.ran = False

    def run(self) -> None:
        self.ran = True


class TimedWork:
    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.ran_at = -1

    def run(self) -> None:
        self.ran_at = self.simulator.now


@pytest.mark.parametrize(("failure", "outcome"), [(0.0, "done None"), (1.0, "done [Errno 5] simulated disk error")])
def test_jobs_end_later_and_may_fail(failure: float, outcome: str) -> None:
    simulator = Simulator(5, conditions=SimulatedConditions(job_min=10, job_max=10, job_failure=failure))
    node, job = Toy(), Work()
    host = simulator.add("host", node)
    host.enter(lambda now: node.actions.append(Run(job)))
    assert node.log == []
    simulator.run_for(10)
    assert node.log == [(10, outcome)]
    assert job.ran == (failure == 0.0)


def test_timers_come_exactly_when_asked_for() -> None:
    simulator = Simulator(6)
    node = Toy()
    node.due = 1234
    simulator.add("host", node)
    simulator.run_for(5000)
    assert node.log == [(1234, "timer")]
    assert simulator.now == 5000


def test_the_wall_clock_steps_without_moving_deadlines() -> None:
    simulator = Simulator(6, wall=1000)
    node = Toy()
    node.due = 50
    simulator.add("host", node)
    simulator.step_wall(-700)
    simulator.run_for(100)
    assert node.log == [(50, "timer")]
    assert node.wall_ahead == 300


def test_a_host_has_its_own_clock_and_its_own_conditions() -> None:
    simulator = Simulator(6, wall=1000)
    slow, other = Toy(), Toy()
    slow.due = other.due = 50
    hosts = [simulator.add("slow", slow), simulator.add("other", other)]
    hosts[0].wall_offset = -300
    hosts[0].conditions = SimulatedConditions(job_min=70, job_max=70)
    for host, node in zip(hosts, (slow, other), strict=True):
        host.enter(lambda now, node=node: node.actions.append(Run(Work())))  # type: ignore[misc]
    simulator.run_for(100)
    assert (slow.wall_ahead, other.wall_ahead) == (700, 1000)
    assert slow.log == [(50, "timer"), (70, "done None")]
    assert other.log[0][0] <= 5


def test_a_frozen_host_does_later_what_came_meanwhile() -> None:
    orders = set()
    for seed in range(8):
        simulator, host, server, _, client = pair(seed, SimulatedConditions(split=0.0))
        simulator.run_until(lambda client=client: client.got == SENT)  # type: ignore[misc]
        server.due = simulator.now + 500
        host.settle()
        simulator.freeze(host)
        heard = len(server.log)
        assert client.link is not None
        client.write(client.link, b"more;")
        simulator.hosts[1].settle()
        late = Toy("server:1")
        simulator.add("late", late)
        simulator.run_for(900)
        assert len(server.log) == heard
        assert (client.got, client.link.unsent, late.log) == (SENT, 5, [])
        simulator.thaw(host)
        orders.add(server.log[heard][1])
        assert (simulator.now, "timer") in server.log
        simulator.run_until(lambda client=client, late=late: client.got.endswith(b"more;") and late.got == SENT)  # type: ignore[misc]
        assert client.link.unsent == 0
        simulator.thaw(host)
    assert "timer" in orders, "timers may come before what was waiting"
    assert len(orders) > 1, "or after"


def test_connecting_to_a_frozen_host_times_out() -> None:
    simulator = Simulator(3)
    host = simulator.add("server", Toy(), {"main": "server:1"})
    simulator.freeze(host)
    client = Toy("server:1")
    simulator.add("client", client)
    simulator.run_for(2_000)
    simulator.thaw(host)
    simulator.run_for(1_000)
    assert client.log == [(1000, "closed connecting timed out")]


def test_a_host_that_dies_in_its_sleep_stays_dead() -> None:
    simulator, host, server, _, client = pair(4)
    simulator.freeze(host)
    simulator.run_for(10)
    simulator.crash(host)
    simulator.thaw(host)
    simulator.run_for(2_000)
    assert server.log == []
    assert client.log[-1][1] in ("closed connection refused", "closed connecting timed out")


def test_a_machine_without_power_says_nothing() -> None:
    """Peers learn of it when they write to its successor, or never."""
    simulator, host, _, _, client = pair(4)
    simulator.run_until(lambda: client.got == SENT)
    heard = len(client.log)
    simulator.crash(host, silently=True)
    assert client.link is not None
    client.write(client.link, b"lost;")
    simulator.hosts[1].settle()
    late = Toy("server:1")
    simulator.add("late", late)
    simulator.run_for(60_000)
    assert len(client.log) == heard
    assert late.log == [(simulator.now - 59_000, "closed connecting timed out")]
    simulator.add("server", Toy(), {"main": "server:1"})
    simulator.run_for(60_000)
    assert len(client.log) == heard
    client.write(client.link, b"again;")
    simulator.hosts[1].settle()
    simulator.run_for(1_000)
    assert client.log[heard:] == [(client.log[-1][0], "closed connection reset")]


def test_a_silent_cut_keeps_everything_until_it_is_mended() -> None:
    simulator, _, server, _, client = pair(9)
    simulator.run_until(lambda: client.got == SENT)
    heard = len(server.log), len(client.log)
    simulator.part("server", "client", silently=True)
    assert client.link is not None
    for _ in range(3):
        client.write(client.link, b"late;")
        simulator.hosts[1].settle()
    late = Toy("server:1")
    simulator.add("client", late)
    simulator.run_for(30_000)
    assert (len(server.log), len(client.log)) == heard
    assert late.log == [(simulator.now - 29_000, "closed connecting timed out")]
    simulator.heal()
    simulator.run_until(lambda: client.got == SENT + b"late;" * 3)


def test_of_a_stream_that_breaks_a_part_arrives() -> None:
    arrived = set()
    for seed in range(60):
        simulator, _, server, _, client = pair(seed, SimulatedConditions(cut=0.0, split=0.0))
        simulator.run_until(lambda client=client: client.got == SENT)  # type: ignore[misc]
        before = len(server.got)
        simulator.conditions = SimulatedConditions(cut=1.0)
        assert client.link is not None
        client.write(client.link, b"0123456789")
        simulator.hosts[1].settle()
        client.write(client.link, b"never")
        simulator.hosts[1].settle()
        simulator.run_for(1_000)
        assert b"0123456789".startswith(server.got[before:])
        assert len(server.got) - before < 10
        assert client.log[-1][1] == server.log[-1][1] == "closed connection reset"
        arrived.add(len(server.got) - before)
    assert {0, 9} <= arrived


def test_a_job_happens_at_some_moment_before_it_is_told() -> None:
    gaps = set()
    for seed in range(50):
        simulator = Simulator(seed, conditions=SimulatedConditions(job_max=10))
        node, job = Toy(), TimedWork(simulator)
        host = simulator.add("host", node)
        host.enter(lambda now, node=node, job=job: node.actions.append(Run(job)))  # type: ignore[misc]
        simulator.run_for(20)
        gaps.add(node.log[0][0] - job.ran_at)
    assert {0, 3} <= gaps
    assert min(gaps) == 0


def test_the_digest_tells_runs_apart() -> None:
    digests = []
    for seed in (7, 7, 8):
        simulator, *_ = pair(seed, SimulatedConditions(split=0.5, cut=0.01, delay_max=20))
        simulator.run_for(10_000)
        digests.append(simulator.digest)
    assert digests[0] == digests[1] != digests[2]
