"""The simulated driver with toy nodes: what it carries, how it fails, and that a seed decides everything."""

from __future__ import annotations

import pytest

from adapters.simulated import Host, Weather, World
from mqproto.state.node import Dial, Job, Link, NodeBase, Run


class Toy(NodeBase):
    """Answers each run of bytes with the same bytes; notes everything that happens to it."""

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


def pair(seed: int, weather: Weather | None = None) -> tuple[World, Host, Toy, Host, Toy]:
    world = World(seed, weather=weather)
    server, client = Toy(), Toy("server:1")
    return world, world.add("server", server, {"main": "server:1"}), server, world.add("client", client), client


def test_bytes_arrive_in_order_however_they_are_split() -> None:
    pieces = set()
    for seed in range(50):
        world, _, server, _, client = pair(seed, Weather(split=0.9, delay_max=50))
        world.run_until(lambda client=client: len(client.got) == len(SENT))  # type: ignore[misc]
        assert server.got == client.got == SENT
        assert client.link is not None
        assert client.link.unsent == 0
        pieces.add(len(server.log))
    assert len(pieces) > 2


def test_a_seed_decides_everything() -> None:
    weather = Weather(split=0.5, cut=0.05, delay_max=20)
    runs = []
    for _ in range(2):
        world, _, server, _, client = pair(7, weather)
        world.run_for(10_000)
        runs.append((server.log, client.log))
    assert runs[0] == runs[1]
    world, _, server, _, client = pair(8, weather)
    world.run_for(10_000)
    assert (server.log, client.log) != runs[0]


def test_nobody_listens() -> None:
    world = World(1)
    client = Toy("nowhere:1")
    world.add("client", client)
    world.run_for(100)
    assert [text for _, text in client.log] == ["closed connection refused"]


def test_a_cut_network_breaks_links_and_lets_new_ones_time_out() -> None:
    world, _, server, _, client = pair(3)
    world.run_until(lambda: client.got == SENT)
    world.part("server", "client")
    world.run_for(100)
    assert client.log[-1][1] == server.log[-1][1] == "closed network cut"
    again = Toy("server:1")
    host = world.add("client", again)
    world.run_for(999)
    assert again.log == []
    world.run_for(10)
    assert again.log == [(host.world.now - 9, "closed connecting timed out")]
    world.heal()
    third = Toy("server:1")
    world.add("client", third)
    world.run_until(lambda: third.got == SENT)


def test_a_crash_ends_links_and_stops_the_node() -> None:
    world, server_host, server, _, client = pair(4)
    server.due = 500_000
    world.run_until(lambda: client.got == SENT)
    world.crash(server_host)
    heard = len(server.log)
    world.run_for(1_000_000)
    assert client.log[-1][1] == "closed the peer's process died"
    assert len(server.log) == heard
    successor = Toy()
    world.add("server", successor, {"main": "server:1"})
    late = Toy("server:1")
    world.add("late", late)
    world.run_until(lambda: late.got == SENT)


class Work:
    def __init__(self) -> None:
        self.ran = False

    def run(self) -> None:
        self.ran = True


@pytest.mark.parametrize(("failure", "outcome"), [(0.0, "done None"), (1.0, "done [Errno 5] simulated disk error")])
def test_jobs_end_later_and_may_fail(failure: float, outcome: str) -> None:
    world = World(5, weather=Weather(job_min=10, job_max=10, job_failure=failure))
    node, job = Toy(), Work()
    host = world.add("host", node)
    host.enter(lambda now: node.actions.append(Run(job)))
    assert node.log == []
    world.run_for(10)
    assert node.log == [(10, outcome)]
    assert job.ran == (failure == 0.0)


def test_timers_come_exactly_when_asked_for() -> None:
    world = World(6)
    node = Toy()
    node.due = 1234
    world.add("host", node)
    world.run_for(5000)
    assert node.log == [(1234, "timer")]
    assert world.now == 5000


def test_the_wall_clock_steps_without_moving_deadlines() -> None:
    world = World(6, wall=1000)
    node = Toy()
    node.due = 50
    world.add("host", node)
    world.step_wall(-700)
    world.run_for(100)
    assert node.log == [(50, "timer")]
    assert node.wall_ahead == 300
