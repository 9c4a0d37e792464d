"""Checks of transactions across restarts, slow disks and full ones, and many at a time (docs/protocol/store.md 12)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mqproto.engine.broker.sends.message_writer import NewMessage
from mqproto.engine.broker.transactions import transaction_check
from mqproto.engine.store import ColdRead
from mqproto.engine.store.disk.config_files import SaveConfig
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.state.node.contract import Job
from mqproto.wire.record import decode_record
from tests.engine.broker.halfway import (
    COMMIT,
    GIVEN_UP,
    HALF,
    INTERVAL,
    OP,
    ROLLBACK,
    UNKNOWN,
    Producer,
    again,
    bodies,
    progress,
    text,
    wait,
)
from tests.engine.broker.harness import World, send_fields

SYNC: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH"}


def put(world: World, topic: str, body: bytes, properties: dict[str, str]) -> None:
    """Store what another broker might have left."""
    message_writer = world.broker.send_requests.message_writer
    message_writer.append(
        NewMessage(topic, 0, body, properties, born_time=world.wall, born_host=bytes(8), store_host=bytes(8))
    )


class TestRestart:
    @pytest.mark.parametrize("crash", [False, True])
    def test_only_open_ones_are_asked_about(self, world: World, crash: bool) -> None:
        producer = Producer(world)
        for n in range(90):
            producer.end(producer.prepare(str(n)), (COMMIT, ROLLBACK, UNKNOWN)[n % 3])
        later = again(world, crash=crash)
        producer = Producer(later)
        later.advance(INTERVAL)
        assert producer.asked_about() == [str(n) for n in range(2, 90, 3)]
        assert len(bodies(later)) == 30

    @pytest.mark.parametrize("crash", [False, True])
    def test_the_copy_alone_is_open(self, world: World, crash: bool) -> None:
        """Apache's broker that dies after a round asks about both, and delivers what is committed twice."""
        producer = Producer(world)
        half = producer.prepare()
        world.advance(INTERVAL)
        (question,) = producer.asked()
        later = again(world, crash=crash)
        producer = Producer(later)
        assert producer.end(question, COMMIT) is not None
        later.advance(INTERVAL)
        assert producer.asked() == []
        assert bodies(later) == [b"u"]
        if crash:
            # an orderly end has saved that nothing before the copy counts, a crash leaves that to the op messages
            assert producer.end(half, COMMIT) is not None
            assert bodies(later) == [b"u"]

    def test_two_of_one_id_are_two(self, world: World) -> None:
        """A producer that sent a half twice, because it saw no answer: both are asked about, as before the restart."""
        producer = Producer(world)
        producer.prepare()
        producer.prepare()
        world.advance(INTERVAL)
        assert producer.asked_about() == ["u", "u"]
        later = again(world, crash=True)
        producer = Producer(later)
        later.advance(INTERVAL)
        assert producer.asked_about() == ["u", "u"]

    def test_counting_goes_on(self, world: World) -> None:
        producer = Producer(world)
        producer.prepare()
        for count in range(1, 7):
            wait(INTERVAL, producer)
            (question,) = producer.asked()
            assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == str(count)
            world = again(world, crash=count % 2 == 0)
            producer = Producer(world)

    def test_progress_is_saved_as_offsets(self, world: World) -> None:
        producer = Producer(world)
        for n in range(40):
            producer.end(producer.prepare(str(n)), COMMIT)
        world.advance(20_000)
        assert progress(world) == (40, 40)
        producer.prepare("open")
        producer.end(producer.prepare("x"), COMMIT)
        world.advance(20_000)
        assert progress(world) == (40, 40)
        saved = world.files.read("/store/config/consumerOffset.json")
        assert b'"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:40' in saved.replace(b" ", b"").replace(
            b"\t", b""
        ).replace(b"\n", b"")

    @pytest.mark.parametrize(
        ("half", "op", "noted"),
        [(None, None, False), (3, None, False), (0, 0, False), (999, 0, True), (0, 999, True), (999, 999, True)],
    )
    def test_progress_that_another_broker_left(
        self, world: World, half: int | None, op: int | None, noted: bool
    ) -> None:
        producer = Producer(world)
        for n in range(10):
            producer.end(producer.prepare(str(n)), COMMIT if n != 7 else UNKNOWN)
        world.advance(0)
        for topic, offset in ((HALF, half), (OP, op)):
            by_queue = world.broker.offsets.table.setdefault(f"{topic}@CID_RMQ_SYS_TRANS", {})
            by_queue.pop(0, None)
            if offset is not None:
                by_queue[0] = offset
        world.broker.transaction_check._saved = world.broker.transaction_check._progress()
        world.broker.config_manager.changed(world.broker.offsets._kept)
        later = again(world)
        producer = Producer(later)
        later.advance(INTERVAL)
        assert producer.asked_about() == ["7"]
        assert any("transactions: progress" in notice for notice in later.broker.notices) == noted

    def test_several_offsets_in_one_op_message(self, world: World) -> None:
        """As 5.1 and later write them."""
        producer = Producer(world)
        for n in range(6):
            producer.prepare(str(n))
        put(world, OP, b"0,2,3,", {"TAGS": "d"})
        put(world, OP, b"4", {"TAGS": "other"})
        put(world, OP, b"x,", {"TAGS": "d"})
        put(world, OP, b"99", {"TAGS": "d"})
        later = again(world, crash=True)
        producer = Producer(later)
        later.advance(INTERVAL)
        assert producer.asked_about() == ["1", "4", "5"]

    def test_ends_that_come_before_the_past_is_known(self) -> None:
        """Op messages are read a few at a time."""
        world = World()
        producer = Producer(world)
        half_messages = [producer.prepare(str(n)) for n in range(1600)]
        for half in half_messages[:1500]:
            producer.end(half, COMMIT)
        later = World(files=world.files.process_death(), now=world.now)
        producer = Producer(later)
        later.broker.timer(later.now)
        assert not later.broker.transaction_check._loaded
        for half in half_messages[1500:1590]:
            producer.end(half, COMMIT)
        later.advance(INTERVAL)
        assert producer.asked_about() == [str(n) for n in range(1590, 1600)]
        assert len(bodies(later)) == 1590

    @pytest.mark.parametrize("flushed", [False, True])
    def test_no_power_loss_takes_an_open_one(self, flushed: bool) -> None:
        """Its copy may be lost, and then the half itself is open still."""
        world = World(files=MemoryFiles(forgetful=True), store=SYNC)
        producer = Producer(world)
        producer.prepare()
        # These hold progress among the op messages back: it would be beyond their end, which shows.
        producer.prepare("slow", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
        producer.end(producer.prepare("done"), COMMIT)
        world.hold_jobs = True
        for _ in range(12):
            world.advance(INTERVAL // 10)
            jobs, world.jobs = world.jobs, []
            for job in jobs:
                if flushed or isinstance(job, SaveConfig):
                    world.run(job)
            world.act()
        later = World(files=world.files.power_loss(), store=SYNC, now=world.now)
        producer = Producer(later)
        later.advance(INTERVAL)
        questions = producer.asked()
        assert [question.fields["transactionId"] for question in questions] == ["u"]
        assert decode_record(questions[0].body).properties["TRANSACTION_CHECK_TIMES"] == ("2" if flushed else "1")

    @pytest.mark.parametrize("seed", range(6))
    def test_nothing_is_lost_nor_asked_about_for_nothing(self, seed: int) -> None:
        """Ends, questions and answers in any order, with crashes of the process in between."""
        random = Random(seed)
        fast: dict[str, Any] = {
            "transaction_check_interval": 5000,
            "transaction_time_out": 1000,
            "transaction_check_max": 1000,
        }
        world = World(**fast)
        producer = Producer(world)
        open_ones: dict[str, Any] = {}
        committed: list[bytes] = []
        for n in range(300):
            what = random.random()
            if what < 0.5:
                open_ones[str(n)] = producer.prepare(str(n))
            elif what < 0.7 and open_ones:
                name = random.choice(list(open_ones))
                how = random.choice((COMMIT, ROLLBACK))
                answer = producer.end(open_ones.pop(name), how)
                assert answer is not None
                assert answer.code == 0
                committed += [name.encode()] if how == COMMIT else []
            elif what < 0.75:
                world = again(world, crash=random.random() < 0.7, **fast)
                producer = Producer(world)
            else:
                world.advance(random.choice((10, 1000, 6000)))
                producer.beat()
            for question in producer.asked():
                name = question.fields["transactionId"]
                assert name in open_ones, f"{name} was ended"
                open_ones[name] = question
        world = again(world, **fast)
        producer = Producer(world)
        world.advance(10_000)
        assert set(producer.asked_about()) == set(open_ones)
        assert sorted(bodies(world, "T", 0)) == sorted(committed)


class TestSyncFlush:
    def test_no_question_before_the_copy_can_be_found(self) -> None:
        world = World(store=SYNC)
        producer = Producer(world)
        for n in range(100):
            producer.prepare(str(n))
        world.hold_jobs = True
        world.advance(INTERVAL)
        assert producer.asked() == []
        world.run_held()
        first = producer.asked()
        assert 0 < len(first) < 100
        answer_code = producer.end(first[0], UNKNOWN)
        assert answer_code is None
        world.hold_jobs = False
        world.run_held()
        world.advance(0)
        questions = [*first, *producer.asked()]
        assert [question.fields["transactionId"] for question in questions] == [str(n) for n in range(100)]
        for question in questions:
            answer = producer.end(question, COMMIT)
            assert answer is not None
            assert answer.code == 0
        assert len(bodies(world)) == 100

    def test_a_producer_that_leaves_meanwhile(self) -> None:
        world = World(store=SYNC)
        producer = Producer(world)
        producer.prepare()
        world.hold_jobs = True
        world.advance(INTERVAL)
        producer.peer.close()
        world.hold_jobs = False
        world.run_held()
        other = Producer(world)
        wait(INTERVAL, other)
        assert other.asked_about() == ["u"]


class TestDisk:
    class Cold(World):
        broken = False

        def run(self, job: Job) -> None:
            if self.broken and isinstance(job, ColdRead):
                self.broker.done(job, OSError(5, "Input/output error"), self.now)
            else:
                super().run(job)

    def cold(self) -> tuple[Cold, Producer]:
        """Halves and op messages that are not in memory after a restart."""
        world = World()
        producer = Producer(world)
        for n in range(300):
            producer.end(producer.prepare(str(n), body=bytes(2000)), UNKNOWN if n % 3 else COMMIT)
        later = self.Cold(files=world.files.process_death(), store={"cold_read_distance": 1}, now=world.now)
        return later, Producer(later)

    def test_half_messages_that_lie_far_back_are_read_in_jobs(self) -> None:
        world, producer = self.cold()
        world.hold_jobs = True
        world.advance(0)
        assert sum(isinstance(job, ColdRead) for job in world.jobs) == 1
        world.hold_jobs = False
        world.run_held()
        world.advance(INTERVAL)
        assert producer.asked_about() == [str(n) for n in range(300) if n % 3]

    def test_what_is_ended_while_the_disk_reads_is_not_asked_about(self) -> None:
        world, producer = self.cold()
        world.advance(INTERVAL - 1)
        world.hold_jobs = True
        world.advance(1)
        queue = world.store.queue(HALF, 0)
        entry = world.store.reader.entry(queue, 2)
        assert entry is not None
        world.hold_jobs = False
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": "2",
            "commitLogOffset": str(entry[0]),
            "commitOrRollback": "12",
        }
        world.broker.transactions.mark_done(2)
        world.broker.transactions.half_messages.settle(2)
        producer.peer.tell(37, fields | {"msgId": "x"}, flag=2)
        world.run_held()
        world.advance(0)
        asked = producer.asked_about()
        assert asked[:3] == ["1", "4", "5"]
        assert len(asked) == 199

    def test_a_disk_that_cannot_be_read_is_tried_again(self) -> None:
        world, producer = self.cold()
        world.broken = True
        world.advance(25_000)
        assert not world.broker.transaction_check._loaded
        world.broken = False
        world.advance(10_000)
        world.broken = True
        world.advance(INTERVAL + 10_000)
        assert producer.asked() == []
        world.broken = False
        world.advance(20_000)
        assert len(producer.asked()) == 200

    def test_a_full_disk_holds_the_round_up(self) -> None:
        world = World(
            files=MemoryFiles(space=1_500_000),
            store={"mapped_file_size_commit_log": 1 << 20, "allocation_window": 4096},
        )
        producer = Producer(world)
        for n in range(10):
            producer.prepare(str(n), body=bytes(1000))
        world.files.space = 0
        for size in (100_000, 1000, 10):
            wait(1000, producer)
            while producer.peer.send(body=bytes(size)).code == 0:
                pass
        wait(2 * INTERVAL, producer)
        assert producer.asked() == []
        assert world.broker.transactions.half_messages.open == 10
        world.files.space = None
        wait(5000, producer)
        assert len(producer.asked()) == 10


class TestMany:
    def test_a_round_leaves_room_for_others(self, world: World) -> None:
        producer = Producer(world)
        world.advance(0)
        for n in range(500):
            producer.prepare(str(n))
        world.now += INTERVAL
        counts: list[int] = []
        while len(counts) < 30:
            world.broker.timer(world.now)
            world.act()
            counts.append(len(producer.asked()))
        assert sum(counts) == 500
        assert max(counts) <= 32

    def test_long_messages_count_for_more(self, world: World) -> None:
        producer = Producer(world)
        world.advance(0)
        for n in range(8):
            producer.prepare(str(n), body=bytes(400_000))
        world.now += INTERVAL
        counts: list[int] = []
        while len(counts) < 10:
            world.broker.timer(world.now)
            world.act()
            counts.append(len(producer.asked()))
        assert sum(counts) == 8
        assert max(counts) <= 3

    def test_one_that_rests_long_does_not_hold_progress(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """It goes on as a copy, as with Apache; with ours its end, which names the first place, still counts for the
        copy.
        """
        monkeypatch.setattr(transaction_check, "_WINDOW_MAX", 100)
        producer = Producer(world)
        slow = producer.prepare("slow", "CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
        for n in range(150):
            producer.end(producer.prepare(str(n)), ROLLBACK)
        wait(INTERVAL, producer)
        assert producer.asked() == []
        entry = world.store.reader.entry(world.store.queue(HALF, 0), 151)
        assert entry is not None
        record = world.store.reader.record(entry[0])
        assert record is not None
        copy = decode_record(record)
        assert (copy.body, copy.properties["TRAN_PREPARED_QUEUE_OFFSET"]) == (b"slow", "0")
        assert "TRANSACTION_CHECK_TIMES" not in copy.properties
        assert world.broker.transactions.half_messages.first == 151
        producer.end(slow, COMMIT)
        wait(20 * INTERVAL, producer)
        assert producer.asked() == []
        assert bodies(world) == [b"slow"]

    def test_more_rest_than_are_remembered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transaction_check, "_RESTS_MAX", 5)
        monkeypatch.setattr(transaction_check, "_PASS_AT_A_TIME", 2)
        world = World(transaction_check_interval=1000)
        producer = Producer(world)
        for n in range(20):
            producer.prepare(str(n))
        wait(5999, producer)
        assert producer.asked() == []
        wait(1, producer)
        assert producer.asked_about() == [str(n) for n in range(20)]


class TestBadHalves:
    """TXN-03: one that is bad does not keep the others from being checked, and is moved aside in the end."""

    @pytest.mark.parametrize(
        "properties",
        [
            {},
            {"PGROUP": "PG"},
            {"PGROUP": "PG", "REAL_TOPIC": "a b", "REAL_QID": "0"},
            {"PGROUP": "PG", "REAL_TOPIC": "T", "REAL_QID": "x"},
            {"REAL_TOPIC": "T", "REAL_QID": "0"},
            {"PGROUP": "PG", "REAL_TOPIC": "t" * 200, "REAL_QID": "0"},
        ],
    )
    def test_bad_properties(self, world: World, properties: dict[str, str]) -> None:
        producer = Producer(world)
        producer.prepare("a")
        put(world, HALF, b"bad", properties)
        world.broker.transactions.half_messages.reach(2)
        producer.prepare("b")
        world.broker.settings.transaction_check_max = 2
        wait(INTERVAL, producer)
        assert producer.asked_about() == ["a", "b"]
        wait(2 * INTERVAL, producer)
        assert sorted(bodies(world, GIVEN_UP)) == [b"a", b"b", b"bad"]
        assert world.broker.transactions.half_messages.open == 0

    def test_a_copy_that_would_be_too_long(self, world: World) -> None:
        producer = Producer(world)
        half = text("u") + "REAL_TOPIC\x01T\x02REAL_QID\x010\x02CLUSTER\x01DefaultCluster\x02"
        room = 32_767 - len(half) - len("K\x01\x02")
        producer.prepare(more="K\x01" + "v" * room + "\x02")
        wait(INTERVAL, producer)
        assert producer.asked() == []
        assert bodies(world, GIVEN_UP) == [b"u"]

    def test_a_record_that_cannot_be_read(self, world: World) -> None:
        producer = Producer(world)
        producer.prepare("a")
        place = world.store.end
        producer.prepare("bad")
        producer.prepare("b")
        log = world.store._log
        log.view[place - log.base + 4] ^= 0xFF
        wait(INTERVAL, producer)
        assert producer.asked_about() == ["a", "b"]
        assert any("half message" in notice for notice in world.broker.notices)

    def test_a_queue_that_lost_its_beginning(self, world: World) -> None:
        producer = Producer(world)
        for n in range(5):
            producer.prepare(str(n))
        world.store.queue(HALF, 0).min_offset = 3
        wait(INTERVAL, producer)
        assert producer.asked_about() == ["3", "4"]
        assert any("3 half messages could not be read" in notice for notice in world.broker.notices)

    def test_deleting_topics_leaves_what_is_decided_decided(self, world: World) -> None:
        """TXN-08."""
        producer = Producer(world)
        for n in range(20):
            producer.end(producer.prepare(str(n)), ROLLBACK)
        producer.peer.ask(310, send_fields("Other"))
        assert producer.peer.ask(215, {"topic": "Other"}).code == 0
        world.store.delete_queues_but({"T"})
        world.store.delete_dead_queues()
        later = again(world)
        producer = Producer(later)
        later.advance(INTERVAL)
        assert producer.asked() == []
