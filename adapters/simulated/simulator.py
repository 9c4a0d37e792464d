"""Simulator of a network of nodes: many of them in one process, under virtual time, with faults by seed.

A `Simulator` owns the virtual clock, the network between its hosts and one random source. It drives every node through
the contract of `mqproto.state.node.contract`, exactly as the real drivers do, but nothing in it waits: time jumps from
one event to the next, so an hour of a cluster takes moments, and two runs of one seed are equal to the byte.

Owns: virtual time, streams between hosts, what is under way on them, when jobs run and end.
Leaves to others: entering the nodes (`host`), what the nodes do, what survives a crash on disk (the store's memory
files), which nodes make a cluster (`cluster`), what must be true of it (`checks`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from random import Random
from zlib import crc32

from mqproto.adapters.simulated.answers import disturb
from mqproto.adapters.simulated.conditions import SimulatedConditions
from mqproto.adapters.simulated.host import Host
from mqproto.state.node.contract import Job, Link, Node

#: A run that needs more events than this is taken for one that never ends.
EVENTS_MAX = 5_000_000


class SimulatedStream:
    """One direction of a connection: bytes under way from one end to the other."""

    __slots__ = ("arrives", "broken", "pieces", "receiver", "sender", "sink", "source")

    def __init__(self, sender: Host, source: Link, receiver: Host, sink: Link) -> None:
        self.sender = sender
        self.source = source
        self.receiver = receiver
        self.sink = sink
        self.pieces: deque[bytes] = deque()
        #: When the last piece sent so far arrives; later ones come no earlier, as in TCP.
        self.arrives = 0
        #: Bytes were lost: nothing that is sent now arrives.
        self.broken = False


class Simulator:
    """Virtual time and the network between hosts.

    `seed` decides everything that is left to chance. `conditions` may be changed at any time. `wall` is the wall time
    in milliseconds at virtual time 0; `step_wall` moves it, as an administrator or a time server would. `digest` sums
    up every byte sent and every job run so far, with their times: two runs with the same digest were the same.
    """

    def __init__(
        self, seed: int, *, conditions: SimulatedConditions | None = None, wall: int = 1_700_000_000_000
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.conditions = conditions or SimulatedConditions()
        self.now = 0
        self.wall_ahead = wall
        self.digest = 0
        self.hosts: list[Host] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._streams: dict[Link, SimulatedStream] = {}
        self._numbers: dict[Link, int] = {}
        self._parted: set[frozenset[str]] = set()
        #: What a cut network keeps from happening until it is mended.
        self._held: list[Callable[[], None]] = []
        #: Addresses of machines that are off: nobody there refuses a connection.
        self._dark: set[str] = set()

    # --- what a test does

    def add(self, name: str, node: Node, addresses: Mapping[str, str] | None = None) -> Host:
        """Add a host with this node, listening at `addresses` (listener name to `host:port`), and begin it."""
        host = Host(self, name, node, addresses or {})
        taken = {address for other in self.hosts if other.alive for address in other.addresses.values()}
        assert not taken & set(host.addresses.values()), "address taken"
        self._dark.difference_update(host.addresses.values())
        self.hosts.append(host)
        host.enter(node.begin)
        return host

    def crash(self, host: Host, *, silently: bool = False) -> None:
        """The host's process dies: what it had under way is gone, its peers see their links end. One that is dead
        already stays so.

        `silently`: its machine loses power. Peers see nothing, bytes to it are lost, connecting times out; only when
        another host has taken its address are old links reset.
        """
        if not host.alive:
            return
        host.alive = False
        host.died_at = self.now
        host.wake(timers_first=False)
        if silently:
            self._dark.update(host.addresses.values())
        for link, stream in list(self._streams.items()):
            if silently and host in (stream.sender, stream.receiver):
                stream.broken = True
                stream.pieces.clear()
            elif stream.sender is host:
                self.end(link, "the peer's process died")

    def part(self, one: str, other: str, *, silently: bool = False) -> None:
        """Cut the network between two hosts (by name): open links break, new ones time out.

        `silently`: nothing breaks, but what is sent arrives only after the cut was mended, as TCP repeats it.
        """
        self._parted.add(frozenset((one, other)))
        for link, stream in list(self._streams.items()):
            if not silently and {stream.sender.name, stream.receiver.name} == {one, other} and link in self._streams:
                self._break(stream, "network cut")

    def heal(self) -> None:
        """Mend all cuts."""
        self._parted.clear()
        held, self._held = self._held, []
        for call in held:
            self.at(self.now + self.random.randint(self.conditions.delay_min, self.conditions.delay_max), call)

    def freeze(self, host: Host) -> None:
        """The host does not run (a stopped process, a machine that is paused): what comes for it waits, its own
        deadlines pass.
        """
        host.sleep()

    def thaw(self, host: Host) -> None:
        """The host runs again and finds what came meanwhile, its overdue timers before or after that."""
        if host.asleep:
            host.wake(timers_first=self.random.random() < 0.5)

    def step_wall(self, ms: int) -> None:
        """Move the wall clock of all hosts; deadlines do not notice."""
        self.wall_ahead += ms

    def run_for(self, ms: int) -> None:
        """Let that much virtual time pass."""
        end = self.now + ms
        self._run(lambda: not self._events or self._events[0][0] > end)
        self.now = end

    def run_until(self, happened: Callable[[], bool], limit_ms: int = 600_000) -> None:
        """Run until `happened()`; AssertionError with the seed when that takes more than `limit_ms` of virtual time."""
        end = self.now + limit_ms
        self._run(lambda: happened() or not self._events or self._events[0][0] > end)
        assert happened(), f"seed {self.seed}: not within {limit_ms} ms of virtual time (now {self.now})"

    def _run(self, over: Callable[[], bool]) -> None:
        for _ in range(EVENTS_MAX):
            if over():
                return
            when, _, call = heappop(self._events)
            self.now = max(self.now, when)
            call()
        raise AssertionError(f"seed {self.seed}: more than {EVENTS_MAX} events; does a node spin?")

    # --- what hosts ask for

    def at(self, when: int, call: Callable[[], None]) -> None:
        """Have `call` called at a virtual time; equal times keep their order."""
        self._count += 1
        heappush(self._events, (when, self._count, call))

    def number(self, link: Link) -> int:
        """A number of the link that is the same in each run of the seed."""
        return self._numbers.setdefault(link, len(self._numbers))

    def dial(self, host: Host, link: Link, timeout_ms: int) -> None:
        peer = next((other for other in self.hosts if other.alive and link.address in other.addresses.values()), None)
        deadline = self.now + timeout_ms
        if link.address in self._dark or (peer is not None and self._is_cut(host, peer)):
            self.at(deadline, lambda: self._closed(host, link, "connecting timed out"))
        elif peer is None:
            self.at(self.now + self._delay(host), lambda: self._closed(host, link, "connection refused"))
        else:
            self.at(self.now + self._delay(host), lambda: self._connect(host, link, peer, deadline))

    def _connect(self, host: Host, link: Link, peer: Host, deadline: int) -> None:
        if peer.asleep:  # nobody takes the connection: it comes up when the peer wakes, unless that is too late
            self.at(
                deadline,
                lambda: self._closed(host, link, "connecting timed out") if link not in self._streams else None,
            )
            peer.when_awake(lambda: self._accept(host, link, peer) if self.now < deadline else None)
        else:
            self._accept(host, link, peer)

    def _accept(self, host: Host, link: Link, peer: Host) -> None:
        if not host.alive or link.ended:
            return
        listener = next((name for name, address in peer.addresses.items() if address == link.address), None)
        self._count += 1
        from_address = f"{host.name}:{40_000 + self._count % 20_000}"
        accepted: list[Link | None] = [None]

        def accept(now: int) -> None:
            assert listener is not None
            accepted[0] = peer.node.accept(listener, from_address, link.address, now)

        peer.enter(accept)
        other = accepted[0]
        if other is None:
            self._closed(host, link, "connection refused")
            return
        self.number(link), self.number(other)
        self._streams[link] = SimulatedStream(host, link, peer, other)
        self._streams[other] = SimulatedStream(peer, other, host, link)
        peer.settle()
        host.when_awake(lambda: self._opened(host, link))

    def _opened(self, host: Host, link: Link) -> None:
        if not link.ended:
            host.enter(lambda now: host.node.opened(link, now))

    def send(self, link: Link, data: bytes) -> None:
        stream = self._streams.get(link)
        if stream is None:
            link.unsent -= len(data)
            return
        if stream.broken:  # the sender may not know it yet; a machine that was started again tells it
            if not stream.receiver.alive and link.address not in self._dark:
                self._break(stream, "connection reset")
            return
        self._note(self.number(link), data)
        conditions = stream.sender.conditions or self.conditions
        if conditions.twice or conditions.late:
            data = self._disturb(stream, data, conditions)
            if not data:
                return
        if self.random.random() < conditions.cut:
            arriving = data[: self.random.randrange(len(data))]
            link.unsent -= len(data) - len(arriving)
            stream.broken = True
            self._send_pieces(stream, [arriving] if arriving else [])
            self.at(stream.arrives, lambda: self._break(stream, "connection reset"))
            return
        self._send_pieces(stream, self._pieces(data, conditions))

    def _disturb(self, stream: SimulatedStream, data: bytes, conditions: SimulatedConditions) -> bytes:
        """What is sent now; the rest follows, if there is a link by then."""
        rest, later = disturb(data, conditions.twice, conditions.late, conditions.late_max, self.random)
        stream.source.unsent += len(rest) - len(data)

        def follow(frame: bytes) -> None:
            if self._streams.get(stream.source) is stream and not stream.broken:
                stream.source.unsent += len(frame)
                self._send_pieces(stream, [frame])

        for after_ms, frame in later:
            self.at(self.now + after_ms, lambda frame=frame: follow(frame))  # type: ignore[misc]
        return rest

    def _note(self, number: int, data: bytes) -> None:
        self.digest = crc32(data, crc32(b"%d %d" % (self.now, number), self.digest))

    def _send_pieces(self, stream: SimulatedStream, pieces: list[bytes]) -> None:
        for piece in pieces:
            stream.pieces.append(piece)
            stream.arrives = max(stream.arrives, self.now + self._delay(stream.sender))
            self.at(stream.arrives, lambda: self._arrive(stream))

    def _pieces(self, data: bytes, conditions: SimulatedConditions) -> list[bytes]:
        if len(data) < 2 or self.random.random() >= conditions.split:
            return [data]
        cuts = sorted(self.random.randrange(1, len(data)) for _ in range(self.random.randint(1, 3)))
        return [piece for piece in (data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)) if piece]

    def _arrive(self, stream: SimulatedStream) -> None:
        if self._streams.get(stream.source) is not stream or not stream.pieces:
            return
        receiver = stream.receiver
        if self._is_cut(stream.sender, receiver):
            self._held.append(lambda: self._arrive(stream))
            return
        if receiver.asleep:
            receiver.when_awake(lambda: self._arrive(stream))
            return
        if not stream.sink.wants_read:
            # the peer does not read now: the bytes stay under way, and count as unsent at their sender
            self.at(self.now + 1 + self._delay(receiver), lambda: self._arrive(stream))
            return
        piece = stream.pieces.popleft()
        stream.source.unsent -= len(piece)
        receiver.enter(lambda now: receiver.node.received(stream.sink, piece, now))

    def end(self, link: Link, reason: str) -> None:
        """One side closed: what it had sent still arrives, then the other side sees the end."""
        stream = self._streams.pop(link, None)
        if stream is None:
            return
        back = self._streams.pop(stream.sink, None)
        if back is not None:
            back.pieces.clear()
        rest = b"".join(stream.pieces)
        stream.pieces.clear()

        def over() -> None:
            receiver = stream.receiver
            if receiver.alive and not stream.sink.ended:
                if rest:
                    receiver.enter(lambda now: receiver.node.received(stream.sink, rest, now))
                self._closed(receiver, stream.sink, reason)

        def arrive() -> None:
            if self._is_cut(stream.sender, stream.receiver):
                self._held.append(arrive)
            else:
                stream.receiver.when_awake(over)

        self.at(max(stream.arrives, self.now + self._delay(stream.sender)), arrive)

    def _break(self, stream: SimulatedStream, reason: str) -> None:
        """Both ends lose the connection, with all that was under way."""
        for end in (self._streams.pop(stream.source, None), self._streams.pop(stream.sink, None)):
            if end is not None:
                end.pieces.clear()
                self.at(
                    self.now + self._delay(end.sender),
                    lambda end=end: self._closed(end.sender, end.source, reason),  # type: ignore[misc]
                )

    def _closed(self, host: Host, link: Link, reason: str) -> None:
        def closed() -> None:
            if not link.ended:
                host.enter(lambda now: host.node.closed(link, reason, now))

        host.when_awake(closed)

    def run_job(self, host: Host, job: Job) -> None:
        """Run a job and tell its node later how it ended.

        What it does happens at one moment between: a disk is busy before and after.
        """
        conditions = host.conditions or self.conditions
        failing = self.random.random() < conditions.job_failure
        begin_ms = self.random.randint(conditions.job_min, conditions.job_max)
        end_ms = self.random.randint(begin_ms, conditions.job_max)
        name = type(job).__name__.encode()

        def run() -> None:
            self._note(-1, name)
            failure: Exception | None = OSError(5, "simulated disk error") if failing else None
            if failure is None:
                try:
                    job.run()
                except Exception as error:  # what a job raises belongs to the node that named it
                    failure = error
            self.at(self.now + end_ms - begin_ms, lambda: host.enter(lambda now: host.node.done(job, failure, now)))

        self.at(self.now + begin_ms, lambda: host.when_awake(run))

    def _is_cut(self, one: Host, other: Host) -> bool:
        return bool(self._parted) and frozenset((one.name, other.name)) in self._parted

    def _delay(self, host: Host) -> int:
        """How long something takes from a host to another."""
        conditions = host.conditions or self.conditions
        return self.random.randint(conditions.delay_min, conditions.delay_max)
