"""What a broker under pressure refuses: old requests, messages that its disk does not take, peers that take nothing,
crowds of links.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqproto.codec import Command
from mqproto.engine.broker import node
from mqproto.engine.broker.core import admission
from mqproto.engine.broker.core.admission import FAIR, REJECTED
from mqproto.engine.broker.interfaces.requests import OVERLOAD
from mqproto.engine.broker.pulls import pull
from mqproto.engine.store import AllocateLog, CreateLog, FlushLog
from mqproto.state.node.contract import Job
from mqproto.wire.codes import SYSTEM_BUSY
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields

HEARTBEAT = b'{"clientID":"C","consumerDataSet":[],"producerDataSet":[{"groupName":"PG"}]}'
Ask = Callable[[Peer], Command]


def send(peer: Peer) -> Command:
    return peer.send()


def batch(peer: Peer) -> Command:
    return peer.ask(320, send_fields())


def send_back(peer: Peer) -> Command:
    return peer.ask(36, {})


def pull_once(peer: Peer) -> Command:
    return peer.pull()


def heartbeat(peer: Peer) -> Command:
    return peer.ask(34, None, HEARTBEAT)


def end_transaction(peer: Peer) -> Command:
    return peer.ask(37, {})


def topics(peer: Peer) -> Command:
    return peer.ask(21)


class TestAge:
    """`NodeBase.behind` says how long ago the driver saw that the bytes were there."""

    @pytest.mark.parametrize(
        ("ask", "limit"),
        [(send, 200), (batch, 200), (send_back, 200), (pull_once, 5000), (heartbeat, 31_000), (end_transaction, 3000)],
    )
    def test_old_requests_are_refused(self, ask: Ask, limit: int) -> None:
        world = World()
        peer = world.connect()
        world.broker.behind = limit
        young = ask(peer)
        world.broker.behind = limit + 1
        old = ask(peer)
        assert young.code != SYSTEM_BUSY
        why = f"period in queue: {limit + 1}ms, size of queue: 0"
        remark = f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, {why}"
        assert (old.code, old.remark) == (SYSTEM_BUSY, remark)
        world.broker.behind = 0
        assert ask(peer).code == young.code

    def test_others_may_be_of_any_age(self) -> None:
        world = World()
        world.broker.behind = 1 << 40
        assert topics(world.connect()).code == 0

    def test_a_send_that_is_recognised_by_its_shape_is_refused_too(self) -> None:
        world = World()
        peer = world.connect()
        for _ in range(3):
            assert peer.send().code == 0
        end = world.store.end
        world.broker.behind = 201
        assert peer.send().code == SYSTEM_BUSY
        assert world.store.end == end

    def test_one_way_requests_get_no_answer_and_are_not_stored(self) -> None:
        world = World()
        peer = world.connect()
        end = world.store.end
        world.broker.behind = 201
        peer.tell(310, send_fields(), b"hi", flag=2)
        assert (peer.read(), world.store.end) == ([], end)

    def test_keys(self) -> None:
        world = World(wait_time_mills_in_send_queue=50)
        peer = world.connect()
        world.broker.behind = 51
        assert peer.send().code == SYSTEM_BUSY
        world.broker.settings.broker_fast_failure_enable = False
        assert peer.send().code == 0


class TestDisk:
    """Jobs on the log that take long (osPageCacheBusyTimeOutMills)."""

    def stuck(self, world: World, *kinds: type[Job], pause: int = 0) -> None:
        """A job of one of these kinds begins, and does not end."""
        peer = world.connect()
        peer.send()
        world.hold_jobs = True
        while not any(isinstance(job, kinds) for job in world.jobs):
            assert peer.send(body=b"x" * 1000).code == 0
            assert world.store.end < 1 << 24
            world.advance(pause)
        world.jobs = [job for job in world.jobs if isinstance(job, kinds)]

    def test_messages_are_refused_while_the_log_gets_no_blocks(self) -> None:
        world = World(store={"allocation_window": 1 << 18, "max_message_size": 4096})
        self.stuck(world, AllocateLog, CreateLog)
        peer = world.connect()
        while not world.store.writer.needs_room:
            assert peer.send(body=b"x" * 4000).code == 0
        assert peer.send().code == 0
        world.advance(1000)
        for _ in range(3):
            answer = peer.send()
            assert (answer.code, answer.remark) == (SYSTEM_BUSY, REJECTED)
        assert peer.ask(36, {}).remark == REJECTED
        assert peer.pull().code == 0
        assert heartbeat(peer).code == 0
        world.hold_jobs = False
        world.run_held()
        for _ in range(3):
            assert peer.send().code == 0

    def test_a_slow_disk_matters_only_when_there_is_no_room(self) -> None:
        world = World(store={"allocation_window": 1 << 20, "max_message_size": 4096})
        self.stuck(world, AllocateLog, CreateLog)
        world.advance(5000)
        assert not world.store.writer.needs_room
        assert world.connect().send().code == 0

    def test_a_flush_that_takes_long_while_much_is_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        self.stuck(world, FlushLog, pause=600)
        peer = world.connect()
        world.advance(1000)
        assert peer.send().code == 0
        monkeypatch.setattr(admission, "UNFLUSHED_MAX", 10_000)
        assert peer.send(body=b"x" * 10_000).code == 0
        assert peer.send().remark == REJECTED
        world.hold_jobs = False
        world.run_held()
        assert peer.send().code == 0


class TestUntaken:
    """Peers that leave their answers."""

    def fill(self, world: World, size: int = 200_000) -> None:
        assert world.connect().send(body=b"x" * size).code == 0

    def test_one_peer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(admission, "UNSENT_MAX", 1_000_000)
        world = World()
        self.fill(world)
        deaf, other = world.connect(), world.connect()
        for _ in range(20):
            deaf.tell(11, pull_fields())
        assert 1_000_000 < deaf.link.unsent < 1_300_000
        assert other.pull().code == 0
        codes = [answer.code for answer in deaf.read()]
        assert codes == [0] * 5 + [SYSTEM_BUSY] * 15
        assert deaf.pull().code == 0

    def test_all_peers_together(self) -> None:
        world = World(max_untaken_bytes=1 << 20)
        self.fill(world)
        deaf = [world.connect() for _ in range(5)]
        for _ in range(10):
            for peer in deaf:
                peer.tell(11, pull_fields())
        held = sum(peer.link.unsent for peer in deaf)
        assert held < (1 << 20) + 5 * (FAIR + 200_000)
        fast = world.connect()
        for _ in range(3):
            assert fast.pull().code == 0  # who takes its answers gets them
        answers = deaf[0].read()
        assert answers[-1].remark == OVERLOAD
        for peer in deaf[1:]:
            peer.read()
        world.advance(100)
        for _ in range(5):
            deaf[0].tell(11, pull_fields())
        assert [answer.code for answer in deaf[0].read()] == [0] * 5

    def test_a_slow_peer_that_leaves_makes_room(self) -> None:
        world = World(max_untaken_bytes=1 << 20)
        self.fill(world)
        deaf, other = world.connect(), world.connect()
        for _ in range(8):
            deaf.tell(11, pull_fields())
        for _ in range(4):
            other.tell(11, pull_fields())
        assert [answer.code for answer in other.read()] == [0, 0, 0, SYSTEM_BUSY]
        deaf.close()
        for _ in range(4):
            other.tell(11, pull_fields())
        assert [answer.code for answer in other.read()] == [0] * 4

    def test_parked_pulls_of_a_peer_that_takes_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(admission, "UNSENT_MAX", 1_000_000)
        world = World()
        self.fill(world, 1)
        deaf = world.connect()
        for _ in range(20):
            deaf.tell(11, pull_fields(offset=1, sysFlag="6"))
        self.fill(world)
        world.advance(0)
        assert [answer.code for answer in deaf.read()] == [0] * 5 + [SYSTEM_BUSY] * 15
        assert len(world.broker.parked_pulls) == 0

    def test_reading_stops_at_the_mark(self) -> None:
        world = World(write_buffer_high_water_mark=100_000)
        self.fill(world)
        peer = world.connect()
        wants = [peer.link.wants_read]
        peer.tell(11, pull_fields())
        wants.append(peer.link.wants_read)
        peer.read()
        wants.append(peer.link.wants_read)
        assert wants == [True, False, True]


class TestUnfinished:
    """Requests that do not come whole."""

    def test_whoever_holds_most_goes(self) -> None:
        world = World(max_unfinished_bytes=32 << 20)
        head = ((16 << 20) - 4).to_bytes(4, "big")
        peers = [world.connect() for _ in range(5)]
        small = world.connect()
        small.feed(head + bytes(4000))
        for _ in range(130):
            for peer in peers:
                if not peer.ended():
                    peer.feed(head + bytes(65_532) if not len(peer.link.rest) else bytes(65_536))  # type: ignore[attr-defined]
        gone = [peer for peer in peers if peer.ended()]
        assert len(gone) >= 1
        assert not small.ended()
        assert world.broker.unfinished == sum(len(link.rest) for link in world.broker.links) <= 32 << 20
        assert any("have not come whole" in text for text in world.broker.notices)
        assert world.connect().send().code == 0

    def test_what_comes_whole_is_counted_no_longer(self) -> None:
        world = World()
        peer = world.connect()
        frame = peer.frame(310, send_fields(), b"x" * 100_000)
        for at in range(0, len(frame), 999):
            assert world.broker.unfinished == at
            peer.feed(frame[at : at + 999])
        assert (world.broker.unfinished, peer.read()[0].code) == (0, 0)
        peer.feed(frame[:1000])
        peer.close()
        assert world.broker.unfinished == 0


class TestCrowds:
    """Many at once are served in slices."""

    def test_connections(self) -> None:
        world = World(max_connections=2)
        first = world.connect()
        world.connect()
        assert world.broker.accept("main", "192.0.2.9:1", "192.0.2.2:10911", world.now) is None
        assert "maxConnections" in world.broker.notices[-1]
        first.close()
        world.connect()

    @pytest.mark.pure
    def test_idle_links_go_a_few_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node, "ALARMS_MAX", 10)
        world = World()
        for _ in range(35):
            world.connect()
        world.advance(119_999)
        assert len(world.broker.links) == 35
        world.now += 1
        world.broker.timer(world.now)
        assert 25 <= len(world.broker.links) < 35
        due = world.broker.next_deadline()
        assert due is not None
        assert due <= world.now
        world.advance(0)
        assert len(world.broker.links) == 0

    @pytest.mark.pure
    def test_pulls_whose_time_is_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(node, "EXPIRED_MAX", 10)
        world = World()
        peer = world.connect()
        peer.send()
        for _ in range(35):
            peer.tell(11, pull_fields(offset=1, sysFlag="6"))
        world.advance(14_999)
        world.now += 1
        world.broker.timer(world.now)
        assert len(peer.read()) == 10
        world.advance(0)
        assert len(peer.read()) == 25

    @pytest.mark.pure
    def test_pulls_that_wait_for_one_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pull, "LOOKS_MAX", 10)
        world = World()
        peers = [world.connect() for _ in range(35)]
        producer = world.connect()
        producer.send()
        for peer in peers:
            peer.tell(11, pull_fields(offset=1, sysFlag="6"))
        producer.send(body=b"second")
        assert sum(bool(peer.link.out) for peer in peers) == 0
        peers[3].close()
        for step in range(1, 4):
            world.broker.timer(world.now)
            assert sum(bool(peer.link.out) for peer in peers) == step * 10 - 1
        producer.send(body=b"third")
        world.advance(0)
        del peers[3]
        for peer in peers:
            (answer,) = peer.read()
            assert answer.code == 0
            assert decode_records(answer.body)[0].body == b"second"
        assert len(world.broker.parked_pulls) == 0

    @pytest.mark.pure
    def test_a_crowd_that_wants_another_tag_is_passed_over_and_waits_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pull, "LOOKS_MAX", 10)
        world = World()
        producer, peer = world.connect(), world.connect()
        producer.send()
        for _ in range(25):
            peer.tell(11, pull_fields(offset=1, sysFlag="6", subscription="wanted"))
        for tag in ("other", "another", "wanted"):
            assert peer.read() == []
            producer.send(properties=f"TAGS\x01{tag}\x02")
        world.advance(0)
        assert [answer.code for answer in peer.read()] == [0] * 25


class TestHold:
    """How long pulls are parked (CON-19)."""

    @pytest.mark.parametrize(("asked", "granted"), [(5000, 5000), (20_000, 20_000), (1 << 62, 60_000)])
    def test_no_longer_than_the_limit(self, asked: int, granted: int) -> None:
        world = World()
        peer = world.connect()
        peer.send()
        peer.tell(11, pull_fields(offset=1, sysFlag="6", suspendTimeoutMillis=str(asked)))
        assert world.advance_until(lambda: bool(peer.link.out)) == granted

    def test_the_limit_can_be_set(self) -> None:
        world = World(broker_suspend_max_time_millis=700)
        peer = world.connect()
        peer.send()
        peer.tell(11, pull_fields(offset=1, sysFlag="6"))
        assert world.advance_until(lambda: bool(peer.link.out)) == 700

    def test_places(self) -> None:
        world = World(pull_thread_pool_queue_capacity=8)
        peers = [world.connect() for _ in range(5)]
        peers[0].send()
        refused = []
        for peer in peers:
            for _ in range(3):
                peer.tell(11, pull_fields(offset=1, sysFlag="6"))
            refused.append([(answer.code, answer.remark) for answer in peer.read()])
        # a quarter of all places for one peer, and not more than there are
        assert refused == [[(SYSTEM_BUSY, OVERLOAD)]] * 4 + [[(SYSTEM_BUSY, OVERLOAD)] * 3]
