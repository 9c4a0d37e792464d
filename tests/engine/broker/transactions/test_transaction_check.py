"""Producers are asked about half messages that nobody ended (docs/protocol/broker.md 2.10; docs/protocol/store.md
12.4).
"""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

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
    bodies,
    progress,
    wait,
)
from tests.engine.broker.harness import ADDRESS, World


@pytest.fixture
def producer(world: World) -> Producer:
    return Producer(world)


class TestTheQuestion:
    def test_its_form(self, world: World, producer: Producer) -> None:
        half = producer.prepare("u", "TAGS\x01a\x02KEYS\x01k\x02", b"body", e="3", h="9", j="2")
        born = world.wall
        assert producer.end(half, UNKNOWN) is None
        world.advance(INTERVAL)
        (question,) = producer.asked()
        copy = world.store.reader.entry(world.store.queue(HALF, 0), 1)
        assert copy is not None
        assert question.fields == {
            "tranStateTableOffset": "1",
            "commitLogOffset": str(copy[0]),
            "msgId": "u",
            "transactionId": "u",
            "offsetMsgId": half.fields["msgId"][:16] + f"{copy[0]:016X}",
        }
        message = decode_record(question.body)
        assert (message.topic, message.queue_id, message.body, message.tags, message.keys) == (
            "T",
            3,
            b"body",
            "a",
            ["k"],
        )
        assert (message.queue_offset, message.physical_offset, message.born_time, message.flag) == (1, copy[0], born, 9)
        assert (message.store_host, message.sys_flag, message.reconsume_times) == (ADDRESS, 0, 2)
        record = world.store.reader.record(copy[0])
        assert record is not None
        stored = decode_record(record)
        wanted = {
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
            "PGROUP": "PG",
            "TRAN_MSG": "true",
            "TRANSACTION_CHECK_TIMES": "1",
        }
        assert {name: stored.properties[name] for name in wanted} == wanted
        assert stored.properties == message.properties

    @pytest.mark.parametrize(("how", "delivered"), [(COMMIT, [b"u"]), (ROLLBACK, [])])
    def test_its_answer_ends_the_transaction(
        self, world: World, producer: Producer, how: int, delivered: list[bytes]
    ) -> None:
        producer.prepare()
        world.advance(INTERVAL)
        (question,) = producer.asked()
        answer = producer.end(question, how, fromTransactionCheck="true")
        assert answer is not None
        assert answer.code == 0
        assert bodies(world) == delivered
        wait(10 * INTERVAL, producer)
        assert producer.asked() == []
        assert bodies(world, OP) == [b"0", b"1"]
        assert progress(world) == (2, 2)

    def test_a_compressed_body_stays_as_it_is(self, world: World, producer: Producer) -> None:
        """Apache 4.4 puts it back inflated under a flag that says otherwise."""
        packed = zlib.compress(b"long" * 1000)
        producer.prepare(body=packed, f="5")
        world.advance(INTERVAL)
        (question,) = producer.asked()
        copy = decode_record(question.body)
        assert (copy.body, copy.sys_flag) == (packed, 1)
        producer.end(question, COMMIT)
        (message,) = producer.peer.messages()
        assert (message.body, message.sys_flag) == (b"long" * 1000, 8)

    def test_a_message_with_addresses_of_six_words(self, world: World) -> None:
        producer = Producer(world, address="[2001:db8::1]:5")
        producer.prepare()
        world.advance(INTERVAL)
        (question,) = producer.asked()
        assert decode_record(question.body).born_host == "[2001:db8::1]:5"
        producer.end(question, COMMIT)
        assert [message.born_host for message in producer.peer.messages()] == ["[2001:db8::1]:5"]


class TestWhenItIsAsked:
    def test_once_in_each_interval_until_it_is_given_up(self, world: World, producer: Producer) -> None:
        producer.prepare()
        for count in range(1, 16):
            wait(INTERVAL - 1, producer)
            assert producer.asked() == []
            wait(1, producer)
            (question,) = producer.asked()
            assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == str(count)
        wait(INTERVAL, producer)
        assert producer.asked() == []
        (given_up,) = producer.peer.messages(GIVEN_UP)
        assert (given_up.body, given_up.msg_id, given_up.queue_id) == (b"u", "u", 0)
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
        config = world.broker.topics.find(GIVEN_UP)
        assert config is not None
        assert (config.read_queues, config.write_queues, config.perm) == (1, 1, 6)
        assert any(GIVEN_UP in notice for notice in world.broker.notices)
        wait(10 * INTERVAL, producer)
        assert len(bodies(world, GIVEN_UP)) == 1
        assert world.broker.alarms.when(world.broker.transaction_check.begin_round) is None

    def test_decided_ones_are_not_asked_about_while_others_are_open(self) -> None:
        """TXN-01: ten a second, every second one undecided, checks each second after 6 s."""
        world = World(transaction_check_interval=1000, transaction_time_out=6000)
        producer = Producer(world)
        asked: Counter[str] = Counter()
        born: dict[str, int] = {}
        for n in range(400):
            if n < 100:
                half = producer.prepare(str(n))
                born[str(n)] = world.now
                producer.end(half, UNKNOWN if n % 2 else COMMIT)
            world.advance(100)
            for name in producer.asked_about():
                asked[name] += 1
                assert world.now - born[name] >= 6000
            if n % 100 == 99:
                producer.beat()
        assert asked == {str(n): 15 for n in range(1, 100, 2)}
        assert len(bodies(world)) == 50
        assert sorted(map(int, bodies(world, GIVEN_UP))) == list(range(1, 100, 2))

    def test_not_before_the_time_out(self) -> None:
        world = World(transaction_check_interval=1000, transaction_time_out=6000)
        producer = Producer(world)
        producer.prepare()
        world.advance(5999)
        assert producer.asked() == []
        world.advance(1)
        assert producer.asked_about() == ["u"]

    def test_the_clock_of_the_producer(self) -> None:
        """One that is ahead makes a half no younger than it is; for Apache's broker it is old at once."""
        world = World(transaction_check_interval=1000, transaction_time_out=6000)
        producer = Producer(world)
        producer.prepare("ahead", g=str(world.wall + 3_600_000))
        producer.prepare("behind", g=str(world.wall - 3_600_000))
        world.advance(1000)
        assert producer.asked_about() == ["behind"]
        world.advance(4999)
        assert "ahead" not in producer.asked_about()
        world.advance(1)
        assert "ahead" in producer.asked_about()

    def test_a_clock_of_ours_that_was_set_back(self) -> None:
        world = World(transaction_check_interval=1000, transaction_time_out=6000)
        producer = Producer(world)
        producer.prepare()
        world.set_wall(-3_600_000)
        world.advance(1000)
        assert producer.asked_about() == ["u"]

    @pytest.mark.parametrize("seconds", ["90", "200"])
    def test_a_time_of_its_own(self, world: World, producer: Producer, seconds: str) -> None:
        """It rests where it is, and does not keep others from being asked about."""
        half = producer.prepare("slow", f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02")
        producer.prepare("other")
        asked: list[str] = []
        rounds = int(seconds) * 1000 // INTERVAL
        for _ in range(rounds):
            wait(INTERVAL, producer)
            asked += producer.asked_about()
        assert asked == ["other"] * rounds
        wait(INTERVAL, producer)
        assert sorted(producer.asked_about()) == ["other", "slow"]
        producer.end(half, COMMIT)
        assert bodies(world) == [b"slow"]

    @pytest.mark.parametrize("seconds", ["-1", "x", "1.5", "9" * 30])
    def test_a_time_of_its_own_that_is_none(self, world: World, producer: Producer, seconds: str) -> None:
        producer.prepare(more=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02")
        world.advance(INTERVAL)
        assert producer.asked_about() == ["u"]

    def test_an_old_one_is_asked_about_once_more(self) -> None:
        """Apache gives up what is older than files are kept, without a question when it was down for long."""
        world = World(store={"file_reserved_time": 1})
        producer = Producer(world)
        producer.prepare(g=str(world.wall - 7_200_000))
        world.advance(INTERVAL)
        assert producer.asked_about() == ["u"]
        world.advance(INTERVAL)
        assert producer.asked() == []
        assert bodies(world, GIVEN_UP) == [b"u"]

    def test_nothing_open_is_no_work(self, world: World, producer: Producer) -> None:
        world.advance(0)
        half = producer.prepare()
        assert world.broker.alarms.when(world.broker.transaction_check.begin_round) is not None
        producer.end(half, COMMIT)
        world.advance(INTERVAL)
        assert world.broker.alarms.when(world.broker.transaction_check.begin_round) is None
        producer.prepare("later")
        wait(INTERVAL, producer)
        assert producer.asked_about() == ["later"]

    def test_settings_that_change_hold_from_the_next_round_on(self, world: World, producer: Producer) -> None:
        producer.prepare()
        world.broker.settings.transaction_check_max = 1
        world.broker.settings.transaction_check_interval = 10_000
        world.advance(INTERVAL)
        assert producer.asked_about() == ["u"]
        world.advance(10_000)
        assert bodies(world, GIVEN_UP) == [b"u"]


class TestWhoIsAsked:
    def test_each_group_is_asked_about_its_own(self, world: World) -> None:
        producers = [Producer(world, f"PG{n}") for n in range(20)]
        for turn in range(3):
            for producer in producers:
                producer.prepare(f"{producer.group}-{turn}")
        world.advance(INTERVAL)
        for producer in producers:
            assert producer.asked_about() == [f"{producer.group}-{turn}" for turn in range(3)]

    def test_members_take_turns_over_rounds(self, world: World) -> None:
        producers = [Producer(world) for _ in range(3)]
        producers[0].prepare()
        asked = []
        for _ in range(6):
            wait(INTERVAL, *producers)
            asked.append([producer.asked_about() for producer in producers].index(["u"]))
        assert asked == [0, 1, 2, 0, 1, 2]

    def test_two_groups_on_one_link(self, world: World) -> None:
        """TXN-06 from our side: the question says by its message whom it is for."""
        first = Producer(world, "one")
        second = Producer(world, "two", online=False)
        second.peer = first.peer
        second.beat()
        first.prepare("a")
        second.prepare("b")
        world.advance(INTERVAL)
        questions = first.asked()
        assert [decode_record(question.body).properties["PGROUP"] for question in questions] == ["one", "two"]
        answer = first.end(questions[1], COMMIT)
        assert answer is not None
        assert (answer.code, answer.remark) == (1, "The producer group wrong")
        assert bodies(world) == []

    def test_who_has_left_is_not_asked(self, world: World) -> None:
        gone, quiet, here = (Producer(world) for _ in range(3))
        gone.prepare("a")
        gone.peer.close()
        quiet.peer.ask(35, {"clientID": "PG", "producerGroup": "PG"})
        world.advance(INTERVAL)
        assert here.asked_about() == ["a"]
        assert quiet.asked() == []

    def test_a_member_whose_peer_takes_nothing_is_passed_over(self, world: World) -> None:
        stuck, here = Producer(world), Producer(world)
        stuck.peer.link.unsent = 64 << 20
        stuck_before = len(stuck.peer.link.out)
        for name in ("a", "b", "c"):
            here.prepare(name)
        world.advance(INTERVAL)
        assert here.asked_about() == ["a", "b", "c"]
        assert len(stuck.peer.link.out) == stuck_before

    def test_a_group_without_members_is_asked_once_one_is_back(self, world: World, producer: Producer) -> None:
        half = producer.prepare()
        assert half.code == 0
        producer.peer.close()
        other = Producer(world, "other")
        wait(3 * INTERVAL, other)
        back = Producer(world)
        wait(INTERVAL, back, other)
        (question,) = back.asked()
        assert other.asked() == []
        assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == "4"
        back.end(question, COMMIT)
        assert bodies(world) == [b"u"]

    def test_a_group_that_never_comes_back(self, world: World, producer: Producer) -> None:
        producer.prepare()
        producer.peer.close()
        world.advance(16 * INTERVAL)
        assert bodies(world, GIVEN_UP) == [b"u"]


class TestOnce:
    def test_the_end_of_the_first_copy_comes_late(self, world: World, producer: Producer) -> None:
        """Apache delivers it, asks about the copy again, and delivers that too."""
        half = producer.prepare()
        world.advance(INTERVAL)
        (question,) = producer.asked()
        for late in (half, question, half):
            answer = producer.end(late, COMMIT)
            assert answer is not None
            assert answer.code == 0
        wait(3 * INTERVAL, producer)
        assert producer.asked() == []
        assert bodies(world) == [b"u"]
        assert bodies(world, OP) == [b"0", b"0", b"1"]

    def test_the_first_decision_counts(self, world: World, producer: Producer) -> None:
        half = producer.prepare()
        assert producer.end(half, ROLLBACK) is not None
        answer = producer.end(half, COMMIT)
        assert answer is not None
        assert answer.code == 0
        assert bodies(world) == []

    def test_ended_while_a_round_runs(self, world: World, producer: Producer) -> None:
        """A round of many has pauses, in which ends arrive."""
        world.advance(0)
        half_messages = [producer.prepare(str(n)) for n in range(200)]
        world.now += INTERVAL
        world.broker.timer(world.now)
        first = len(producer.asked())
        assert 0 < first < 100
        assert producer.end(half_messages[150], COMMIT) is not None
        world.advance(0)
        assert "150" not in producer.asked_about()

    def test_given_up_and_committed_after_all(self, world: World, producer: Producer) -> None:
        world.broker.settings.transaction_check_max = 1
        producer.prepare()
        world.advance(INTERVAL)
        (question,) = producer.asked()
        wait(INTERVAL, producer)
        assert bodies(world, GIVEN_UP) == [b"u"]
        for _ in range(2):
            producer.end(question, COMMIT)
        assert bodies(world) == [b"u"]


class TestResume:
    def given_up(self, world: World, producer: Producer) -> str:
        world.broker.settings.transaction_check_max = 1
        producer.prepare()
        wait(2 * INTERVAL, producer)
        assert len(producer.asked()) == 1
        (message,) = producer.peer.messages(GIVEN_UP)
        return message.offset_msg_id

    def test_it_is_asked_about_again(self, world: World, producer: Producer) -> None:
        msg_id = self.given_up(world, producer)
        answer = producer.peer.ask(323, {"msgId": msg_id})
        assert (answer.code, answer.remark) == (0, None)
        world.advance(INTERVAL)
        (question,) = producer.asked()
        assert decode_record(question.body).properties["TRANSACTION_CHECK_TIMES"] == "1"
        producer.end(question, COMMIT)
        assert bodies(world) == [b"u"]

    def test_one_that_is_open_does_not_become_two(self, world: World, producer: Producer) -> None:
        half = producer.prepare()
        assert producer.peer.ask(323, {"msgId": half.fields["msgId"]}).code == 0
        world.advance(INTERVAL)
        assert producer.asked_about() == ["u"]
        producer.end(half, COMMIT)
        wait(2 * INTERVAL, producer)
        assert producer.asked() == []

    @pytest.mark.parametrize("msg_id", [None, "", "x", "00" * 16, "zz" * 16, "FF" * 16, "0" * 1000])
    def test_an_id_that_is_none(self, world: World, producer: Producer, msg_id: str | None) -> None:
        producer.prepare()
        answer = producer.peer.ask(323, {} if msg_id is None else {"msgId": msg_id})
        wanted = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        if msg_id == "00" * 16:  # the record at 0 is that half message
            assert answer.code == 0
        else:
            assert (answer.code, answer.remark) == (1, wanted)
            assert len(bodies(world, HALF)) == 1

    def test_a_message_that_was_never_a_half(self, world: World, producer: Producer) -> None:
        plain = producer.peer.send()
        answer = producer.peer.ask(323, {"msgId": plain.fields["msgId"]})
        assert answer.code == 1
        assert bodies(world, HALF) == []

    def test_a_disk_without_room(self, world: World, producer: Producer) -> None:
        msg_id = self.given_up(world, producer)
        world.files.space = 0
        for size in (100_000, 10):
            while producer.peer.send(body=bytes(size)).code == 0:
                pass
        answer = producer.peer.ask(323, {"msgId": msg_id})
        assert (answer.code, answer.remark) == (1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
