"""Requests for what may not be in memory: parked while a job reads, answered once, whatever happens meanwhile."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mqproto.codec import ONEWAY_FLAG, Command
from mqproto.engine.broker.core import waiting_reads
from mqproto.engine.broker.interfaces.requests import OVERLOAD
from mqproto.engine.store import ColdRead
from mqproto.state.node.contract import Job
from mqproto.wire.record import decode_records
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields


class Cold(World):
    """A broker for which everything is far back, and whose reads end when the test says."""

    def __init__(self, **options: Any) -> None:
        super().__init__(store={"access_message_in_memory_max_ratio": 0}, **options)
        self.broken = False

    def run(self, job: Job) -> None:
        if self.broken and isinstance(job, ColdRead):
            self.broker.done(job, OSError(5, "Input/output error"), self.now)
        else:
            super().run(job)

    @property
    def reads(self) -> list[Job]:
        """Jobs that read, under way."""
        return [job for job in self.jobs if isinstance(job, ColdRead)]

    def end(self, job: Job) -> None:
        """One of them ends."""
        self.jobs.remove(job)
        self.run(job)
        self.act()

    def end_all(self) -> None:
        while self.jobs:
            self.run_held()


@pytest.fixture
def world() -> Cold:
    world = Cold()
    peer = world.connect()
    for n in range(20):
        peer.send(body=b"%d" % n, properties=f"TAGS\x01t{n % 2}\x02KEYS\x01k{n}\x02")
    peer.send("Other")
    world.hold_jobs = True
    return world


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def told(answer: Command) -> tuple[int, str | None, str | None]:
    return answer.code, answer.remark, answer.fields.get("nextBeginOffset")


class TestPull:
    def test_it_waits_and_is_answered(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields(offset=3))
        assert peer.read() == []
        (job,) = world.reads
        world.end(job)
        (answer,) = peer.read()
        assert told(answer) == (0, "FOUND", "11")
        assert answer.opaque == peer.opaque
        assert (answer.fields["minOffset"], answer.fields["maxOffset"]) == ("0", "20")
        assert bodies(answer) == [b"%d" % n for n in range(3, 11)], "eight at a time from disk"
        assert len(world.broker.waiting_reads) == 0

    def test_others_are_not_held_up(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields())
        assert peer.send(body=b"x").code == 0
        assert world.connect().ask(30, {"topic": "T", "queueId": "0"}).fields["offset"] == "21"
        assert peer.pull(offset=21).code == 19
        world.end_all()
        (answer,) = peer.read()
        assert bodies(answer)[0] == b"0"

    def test_by_tag(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields(subscription="t1"))
        peer.tell(11, pull_fields(subscription="none"))
        world.end_all()
        none, one = peer.read()  # what only has to look at the last entries does not wait
        assert bodies(one) == [b"%d" % n for n in range(1, 17, 2)]
        assert told(none) == (20, "NO_MATCHED_MESSAGE", "20")

    def test_the_shape_of_a_request_is_used_again_meanwhile(self, world: Cold, peer: Peer) -> None:
        for offset in (0, 5, 10):
            peer.tell(11, pull_fields(offset=offset, maxMsgNums="1"))
        assert len(world.reads) == 1
        world.end_all()
        answers = peer.read()
        assert [(answer.opaque, bodies(answer)) for answer in answers] == [(1, [b"0"]), (2, [b"5"]), (3, [b"10"])]

    def test_one_way(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields(), flag=ONEWAY_FLAG)
        assert world.reads == []

    def test_the_link_goes_away(self, world: Cold, peer: Peer) -> None:
        for offset in range(5):
            peer.tell(11, pull_fields(offset=offset))
        (job,) = world.reads
        peer.close()
        assert len(world.broker.waiting_reads) == 1
        world.end(job)
        assert world.reads == []
        assert len(world.broker.waiting_reads) == 0
        assert peer.read() == []

    def test_a_disk_that_fails(self, world: Cold, peer: Peer) -> None:
        world.broken = True
        peer.tell(11, pull_fields())
        world.end_all()
        (answer,) = peer.read()
        assert (answer.code, answer.remark) == (1, "the message store could not be read: [Errno 5] Input/output error")
        assert any("Input/output error" in notice for notice in world.broker.notices)
        world.broken = False
        assert peer.send().code == 0
        peer.tell(11, pull_fields())
        world.end_all()
        assert [answer.code for answer in peer.read()] == [0]

    def test_the_topic_is_deleted_meanwhile(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields())
        (job,) = world.reads
        world.connect().tell(215, {"topic": "T"})
        world.end(job)
        assert [answer.code for answer in peer.read()] == [17]

    def test_the_messages_are_deleted_meanwhile(self, world: Cold, peer: Peer) -> None:
        queue = world.store.queue("T", 0)
        peer.tell(11, pull_fields(offset=2))
        world.files.remove("/store/commitlog/00000000000000000000")
        (job,) = world.reads
        world.end(job)
        assert [told(answer) for answer in peer.read()] == [(20, "MESSAGE_WAS_REMOVING", "20")]
        peer.tell(11, pull_fields(offset=2))
        queue.min_offset = 10
        world.end_all()
        assert [told(answer) for answer in peer.read()] == [(21, "OFFSET_TOO_SMALL", "10")]

    def test_what_cannot_be_found_may_be_waited_for(self, world: Cold, peer: Peer) -> None:
        world.end_all()
        world.advance(100_000)
        world.end_all()
        world.files.remove_tree("/store/consumequeue/T")
        peer.tell(11, pull_fields(offset=2, sysFlag="6"))
        world.end_all()
        assert peer.read() == []
        assert len(world.broker.parked_pulls) == 1
        gone = world.connect()
        gone.tell(11, pull_fields(offset=2, sysFlag="6"))
        gone.close()
        world.end_all()
        assert len(world.broker.parked_pulls) == 1
        world.advance(15_000)
        assert [answer.code for answer in peer.read()] == [19]


class TestBounds:
    def test_one_of_a_link_and_two_at_a_time_in_turn(self, world: Cold) -> None:
        peers = [world.connect(f"192.0.2.3:{port}") for port in (1, 2, 3)]
        for offset in (0, 1):
            for peer in peers:
                peer.tell(11, pull_fields(offset=offset))
        order = []
        while world.reads:
            assert len(world.reads) <= 2
            world.end(world.reads[0])
            order += [(number, bodies(answer)[0]) for number, peer in enumerate(peers) for answer in peer.read()]
        assert order == [(0, b"0"), (1, b"0"), (2, b"0"), (0, b"1"), (1, b"1"), (2, b"1")]

    def test_too_many(self, world: Cold, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(waiting_reads, "OF_A_LINK_MAX", 3)
        for _ in range(5):
            peer.tell(11, pull_fields())
        assert [(answer.code, answer.remark) for answer in peer.read()] == [(2, OVERLOAD)]
        world.broker.settings.query_thread_pool_queue_capacity = 3
        other = world.connect()
        assert other.pull().code == 2
        assert other.ask(33, {"offset": "0"}).code == 2
        world.end_all()
        assert [answer.code for answer in peer.read()] == [0] * 4
        other.tell(11, pull_fields())
        world.end_all()
        assert [answer.code for answer in other.read()] == [0]

    def test_pulls_that_have_waited_for_too_long_are_refused(self, world: Cold, peer: Peer) -> None:
        """waitTimeMillsInPullQueue: also while the disk is at something else; queries have no such limit."""
        others = [world.connect(), world.connect()]
        for one in others:
            one.tell(33, {"offset": "0"})
        peer.tell(11, pull_fields())
        world.advance(3000)
        peer.tell(11, pull_fields(offset=1))
        peer.tell(33, {"offset": "0"})
        assert len(world.reads) == 2
        world.advance(2000)
        assert peer.read() == []
        world.advance(1)
        (answer,) = peer.read()
        text = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5001ms, size of "
            "queue: 3"
        )
        assert (answer.code, answer.opaque, answer.remark) == (2, peer.opaque - 2, text)
        world.advance(3100)
        assert [(answer.code, answer.opaque) for answer in peer.read()] == [(2, peer.opaque - 1)]
        world.advance(20_000)
        world.end_all()
        assert [(answer.code, answer.opaque) for answer in peer.read()] == [(0, peer.opaque)]
        assert len(world.broker.waiting_reads) == 0
        world.broker.settings.broker_fast_failure_enable = False
        for one in others:
            one.tell(33, {"offset": "0"})
        peer.tell(11, pull_fields())
        world.advance(60_000)
        assert peer.read() == []

    def test_a_peer_that_takes_nothing_waits_for_itself(self, world: Cold, peer: Peer) -> None:
        peer.tell(11, pull_fields())
        peer.tell(11, pull_fields(offset=1))
        peer.link.unsent += 2 << 20
        world.end_all()
        assert len(peer.read()) == 1
        world.advance(1000)
        assert world.reads == []
        other = world.connect()
        other.tell(11, pull_fields())
        assert len(world.reads) == 1
        peer.link.unsent = 0
        world.advance(50)
        assert len(world.reads) == 2
        world.end_all()
        assert (len(peer.read()), len(other.read())) == (1, 1)

    def test_all_answers_together_hold_only_so_much(self, world: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(waiting_reads, "UNSENT_MAX", 1500)
        peers = [world.connect(f"192.0.2.3:{port}") for port in range(1, 6)]
        for peer in peers:
            peer.tell(11, pull_fields())
        while world.reads:
            world.end(world.reads[0])
        answered = [peer for peer in peers if peer.link.unsent]
        assert 2 <= len(answered) < 5
        for peer in answered:
            peer.read()
        world.advance(50)
        while world.reads:
            world.end(world.reads[0])
        assert all(peer.frames or peer.read() for peer in peers)

    @pytest.mark.parametrize("seed", range(30))
    def test_every_pull_is_answered_once(self, world: Cold, seed: int) -> None:
        """Whatever ends when: answers by opaque, none lost, none twice, each the right one; those of closed links are
        dropped.
        """
        random = Random(seed)
        peers = [world.connect(f"192.0.2.3:{port}") for port in range(1, 8)]
        asked: dict[tuple[int, int], int] = {}
        answers: dict[tuple[int, int], bytes] = {}
        gone: set[int] = set()

        def collect() -> None:
            for number, peer in enumerate(peers):
                for answer in peer.read():
                    assert (number, answer.opaque) not in answers
                    answers[number, answer.opaque] = bodies(answer)[0]

        for _ in range(200):
            number = random.randrange(len(peers))
            match random.randrange(5):
                case 0 if random.random() < 0.1 and number not in gone:
                    collect()
                    peers[number].close()
                    gone.add(number)
                case 1 | 2 if world.reads:
                    world.end(random.choice(world.reads))
                case 3:
                    world.advance(random.choice((0, 50)))
                case _ if number not in gone:
                    offset = random.randrange(20)
                    peers[number].tell(11, pull_fields(offset=offset))
                    asked[number, peers[number].opaque] = offset
            collect()
        while world.reads:
            world.end(random.choice(world.reads))
        collect()
        for key, offset in asked.items():
            if key[0] not in gone:
                assert answers.pop(key) == b"%d" % offset
            else:
                answers.pop(key, None)
        assert not answers
        assert len(world.broker.waiting_reads) == 0


class TestOtherReads:
    @pytest.mark.parametrize(
        ("code", "fields", "expected"),
        [
            (29, {"topic": "T", "queueId": "0", "timestamp": "0"}, (0, {"offset": "0"})),
            (32, {"topic": "T", "queueId": "0"}, (0, {"timestamp": "1700000001000"})),
            # the first message is beyond the memory's reach
            (14, {"consumerGroup": "New", "topic": "T", "queueId": "0"}, (22, {})),
        ],
    )
    def test_offsets(self, world: Cold, peer: Peer, code: int, fields: dict[str, str], expected: object) -> None:
        peer.tell(code, fields)
        world.end_all()
        (answer,) = peer.read()
        assert (answer.code, answer.fields) == expected

    def test_a_queue_that_begins_far_back(self) -> None:
        world = World(store={"access_message_in_memory_max_ratio": 0})
        peer = world.connect()
        peer.send()
        world.hold_jobs = True
        peer.tell(14, {"consumerGroup": "New", "topic": "T", "queueId": "0"})
        assert peer.read() == []
        world.run_held()
        assert [answer.code for answer in peer.read()] == [22]

    def test_by_key_and_by_place(self, world: Cold, peer: Peer) -> None:
        fields = {"topic": "T", "key": "k7", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        peer.tell(12, fields, b"a body that nobody asked for")
        peer.tell(12, fields | {"key": "none"})
        assert len(world.reads) == 1
        world.end_all()
        found, missing = peer.read()
        (message,) = decode_records(found.body)
        assert message.body == b"7"
        assert missing.code == 22
        peer.tell(33, {"offset": str(message.physical_offset)})
        peer.tell(33, {"offset": "1"})
        world.end_all()
        found, missing = peer.read()
        assert decode_records(found.body) == [message]
        assert (missing.code, missing.remark) == (1, "can not find message by the offset, 1")

    @pytest.mark.parametrize("leaves", [False, True])
    def test_what_is_given_back_is_taken_back_also_from_one_who_leaves(
        self, world: Cold, peer: Peer, leaves: bool
    ) -> None:
        peer.tell(36, {"group": "G", "offset": "0", "delayLevel": "1"})
        peer.tell(36, {"group": "G", "offset": "7", "delayLevel": "1"})
        if leaves:
            peer.close()
        world.end_all()
        answers = peer.read()
        assert [answer.code for answer in answers] == ([] if leaves else [0, 1])
        queue = world.store.find_queue("SCHEDULE_TOPIC_XXXX", 0)
        assert queue is not None
        assert queue.max_offset == 1

    @pytest.mark.parametrize("leaves", [False, True])
    def test_the_end_of_a_transaction(self, world: Cold, peer: Peer, leaves: bool) -> None:
        physical = world.store.end
        half = peer.ask(310, send_fields("T", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01u\x02", f="4"), b"half")
        assert half.code == 0
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(physical),
            "commitOrRollback": "8",
            "msgId": "x",
        }
        peer.tell(37, fields, flag=ONEWAY_FLAG if leaves else 0)
        assert peer.read() == []
        if leaves:
            peer.close()
        world.end_all()
        assert [answer.code for answer in peer.read()] == ([] if leaves else [0])
        world.hold_jobs = False
        assert world.store.queue("T", 0).max_offset == 21

    def test_a_disk_that_fails(self, world: Cold, peer: Peer) -> None:
        world.broken = True
        peer.tell(33, {"offset": "0"})
        peer.tell(36, {"group": "G", "offset": "0", "delayLevel": "1"})
        world.end_all()
        assert [answer.code for answer in peer.read()] == [1, 1]
        assert world.store.find_queue("SCHEDULE_TOPIC_XXXX", 0) is None


class TestDelays:
    def world(self) -> Cold:
        """Delayed messages that slept over a restart."""
        world = Cold()
        peer = world.connect()
        for n in range(300):
            peer.send(body=b"%d" % n, properties="DELAY\x013\x02")
        world.close()
        return Cold(files=world.files, now=world.now)

    def delivered(self, world: Cold) -> int:
        queue = world.store.find_queue("T", 0)
        return 0 if queue is None else queue.max_offset

    def test_delivered_after_a_long_sleep(self) -> None:
        world = self.world()
        world.advance(9_000)
        assert self.delivered(world) == 0
        world.advance(2_000)
        assert self.delivered(world) == 300
        world.hold_jobs = True
        reader = world.connect()
        reader.tell(11, pull_fields(offset=290))
        world.end_all()
        assert bodies(reader.read()[0]) == [b"%d" % n for n in range(290, 298)]

    def test_nothing_is_left_out_while_the_disk_fails(self) -> None:
        world = self.world()
        world.broken = True
        world.advance(60_000)
        assert self.delivered(world) == 0
        assert any("Input/output error" in notice for notice in world.broker.notices)
        world.broken = False
        world.advance(11_000)
        assert self.delivered(world) == 300

    def test_others_go_on_while_it_reads(self) -> None:
        world = self.world()
        world.hold_jobs = True
        world.advance(20_000)
        peer = world.connect()
        assert peer.send(e="1").code == 0
        assert len(world.reads) == 1
        assert peer.send(properties="DELAY\x013\x02", e="1").code == 0
        world.advance(20_000)
        assert len(world.reads) == 1
        while world.jobs:
            world.run_held()
            world.advance(0)
        assert self.delivered(world) == 300


class TestTheEnd:
    def test_only_what_has_an_effect_is_still_read(self, world: Cold, peer: Peer) -> None:
        others = [world.connect(f"192.0.2.3:{port}") for port in (1, 2)]
        for other in others:
            other.tell(11, pull_fields())
            other.tell(11, pull_fields(offset=1))
        peer.tell(36, {"group": "G", "offset": "0", "delayLevel": "1"})
        peer.tell(11, pull_fields())
        world.close()
        ended = [world.broker.ended]
        assert peer.send("T").code == 0
        assert peer.pull().code == 2
        world.end_all()
        ended.append(world.broker.ended)
        assert ended == [False, True]
        assert [len(other.read()) for other in others] == [1, 1]
        assert [answer.code for answer in peer.read()] == [0]
        later = World(files=world.files)
        queue = later.store.find_queue("SCHEDULE_TOPIC_XXXX", 0)
        assert queue is not None
        assert queue.max_offset == 1

    def test_a_peer_that_takes_nothing_does_not_hold_it_up(self, world: Cold, peer: Peer) -> None:
        peer.link.unsent = 2 << 20
        peer.tell(36, {"group": "G", "offset": "0", "delayLevel": "1"})
        assert world.reads == []
        world.close()
        world.end_all()
        assert world.broker.ended
