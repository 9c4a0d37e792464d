"""Send-backs and delayed delivery (docs/protocol/broker.md 2.3; docs/protocol/store.md 11)."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.engine.remarks import FAQ
from mqproto.engine.store.disk.config_files import SaveConfig
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.message import MessageExt
from tests.engine.broker.harness import HOST, Peer, World


def send_back(
    peer: Peer, message: MessageExt, group: str = "G", level: int = 0, version: int = 407, **more: str
) -> Command:
    fields = {"offset": str(message.physical_offset), "group": group, "delayLevel": str(level)} | more
    return peer.ask(36, fields, version=version)


@pytest.fixture
def message(peer: Peer) -> MessageExt:
    peer.send(body=b"again", properties="TAGS\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01u1\x02", f="2", h="3")
    (message,) = peer.messages()
    return message


class TestSendBack:
    def test_it_comes_again_after_ten_seconds(self, world: World, peer: Peer, message: MessageExt) -> None:
        answer = send_back(peer, message)
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        world.advance(9_999)
        assert peer.messages("%RETRY%G") == []
        world.advance(1)
        (again,) = peer.messages("%RETRY%G")
        assert (again.body, again.sys_flag, again.flag, again.reconsume_times) == (b"again", 2, 3, 1)
        assert (again.born_time, again.born_host, again.tags, again.msg_id) == (
            message.born_time,
            message.born_host,
            "a",
            "u1",
        )
        wanted = {
            "RETRY_TOPIC": "T",
            "ORIGIN_MESSAGE_ID": message.offset_msg_id,
            "DELAY": "3",
            "REAL_TOPIC": "%RETRY%G",
            "REAL_QID": "0",
        }
        assert {name: again.properties[name] for name in wanted} == wanted

    def test_the_delay_grows_with_the_attempts_and_the_origin_stays(
        self, world: World, peer: Peer, message: MessageExt
    ) -> None:
        send_back(peer, message)
        world.advance(10_000)
        (again,) = peer.messages("%RETRY%G")
        send_back(peer, again)
        world.advance(29_999)
        assert len(peer.messages("%RETRY%G")) == 1
        world.advance(1)
        third = peer.messages("%RETRY%G")[1]
        assert third.reconsume_times == 2
        assert third.properties["RETRY_TOPIC"] == "T"
        assert third.properties["ORIGIN_MESSAGE_ID"] == message.offset_msg_id

    def test_a_level_of_ones_own(self, world: World, peer: Peer, message: MessageExt) -> None:
        send_back(peer, message, level=1)
        world.advance(1000)
        assert len(peer.messages("%RETRY%G")) == 1

    @pytest.mark.parametrize(
        ("version", "more", "level", "dead"),
        [
            (407, {"maxReconsumeTimes": "0"}, 0, True),
            (407, {"maxReconsumeTimes": "16"}, 0, False),
            (407, {"maxReconsumeTimes": "-1"}, 0, False),
            (63, {"maxReconsumeTimes": "0"}, 0, False),
            (407, {}, -1, True),
            (407, {}, 0, False),
        ],
    )
    def test_limits(
        self, world: World, peer: Peer, message: MessageExt, version: int, more: dict[str, str], level: int, dead: bool
    ) -> None:
        assert send_back(peer, message, level=level, version=version, **more).code == 0
        assert len(peer.messages("%DLQ%G")) == dead
        world.advance(10_000)
        assert len(peer.messages("%RETRY%G")) == (not dead)

    def test_dead_letters_can_be_read_and_tell_their_origin(
        self, world: World, peer: Peer, message: MessageExt
    ) -> None:
        """ADM-06."""
        send_back(peer, message, level=-1)
        config = world.broker.topics.find("%DLQ%G")
        assert config is not None
        assert (config.perm, config.read_queues) == (6, 1)
        (dead,) = peer.messages("%DLQ%G")
        assert dead.properties["RETRY_TOPIC"] == "T"
        assert dead.properties["ORIGIN_MESSAGE_ID"] == message.offset_msg_id
        assert dead.reconsume_times == 1

    def test_a_delayed_message_becomes_a_dead_letter_at_once(
        self, world: World, peer: Peer, message: MessageExt
    ) -> None:
        send_back(peer, message)
        world.advance(10_000)
        (again,) = peer.messages("%RETRY%G")
        send_back(peer, again, level=-1)
        assert len(peer.messages("%DLQ%G")) == 1

    def test_an_unknown_group(self, message: MessageExt) -> None:
        world = World(auto_create_subscription_group=False)
        answer = send_back(world.connect(), message)
        assert (answer.code, answer.remark) == (26, f"subscription group not exist, G {FAQ}")

    def test_a_group_without_retries_drops_it(self, peer: Peer, message: MessageExt) -> None:
        peer.ask(200, None, b'{"groupName":"G","retryQueueNums":0}')
        assert send_back(peer, message).code == 0
        assert peer.messages("%RETRY%G") == []

    def test_a_group_with_more_queues_than_its_topic(self, world: World, peer: Peer, message: MessageExt) -> None:
        """Its settings changed after the topic was made: nobody would look into the queues that the topic does not
        have.
        """
        send_back(peer, message)
        peer.ask(200, None, b'{"groupName":"G","retryQueueNums":8}')
        for _ in range(8):
            send_back(peer, message)
        world.advance(10_000)
        assert len(peer.messages("%RETRY%G")) == 9

    def test_permissions(self, world: World, peer: Peer, message: MessageExt) -> None:
        send_back(peer, message)
        config = world.broker.topics.find("%RETRY%G")
        assert config is not None
        config.perm = 4
        answer = send_back(peer, message)
        assert (answer.code, answer.remark) == (16, "the topic[%RETRY%G] sending message is forbidden")
        world.broker.settings.broker_permission = 4
        answer = send_back(peer, message)
        assert (answer.code, answer.remark) == (16, f"the broker[{HOST}] sending message is forbidden")

    @pytest.mark.parametrize("offset", [-1, 7, 1 << 40])
    def test_no_such_message(self, peer: Peer, message: MessageExt, offset: int) -> None:
        message.physical_offset = offset
        answer = send_back(peer, message)
        assert (answer.code, answer.remark) == (1, f"look message by offset failed, {offset}")

    def test_a_group_whose_retry_topic_nobody_can_have(self, peer: Peer, message: MessageExt) -> None:
        """LIM-01."""
        answer = send_back(peer, message, group="g" * 121)
        assert (answer.code, answer.remark) == (1, f"topic[%RETRY%{'g' * 121}] not exist")

    def test_properties_that_leave_no_room(self, world: World, peer: Peer) -> None:
        """MSG-03: the error is visible, nothing is stored."""
        assert peer.send(properties="K\x01" + "v" * 32_700).code == 0
        (message,) = peer.messages()
        answer = send_back(peer, message)
        assert (answer.code, answer.remark) in ((1, "MESSAGE_ILLEGAL"), (1, "PROPERTIES_SIZE_EXCEEDED"))
        world.advance(60_000)
        assert peer.messages("%RETRY%G") == []


class TestDelayed:
    def delayed(self, peer: Peer, level: str, body: bytes = b"later") -> Command:
        return peer.send(body=body, properties=f"DELAY\x01{level}\x02WAIT\x01true\x02TAGS\x01a\x02", e="2")

    def test_it_arrives_when_its_time_has_come(self, world: World, peer: Peer) -> None:
        answer = self.delayed(peer, "2")
        assert (answer.code, answer.fields["queueId"], answer.fields["queueOffset"]) == (0, "2", "0")
        world.advance(4_999)
        assert peer.messages(queue=2) == []
        world.advance(1)
        (message,) = peer.messages(queue=2)
        assert (message.body, message.tags, message.queue_offset, message.store_time) == (b"later", "a", 0, world.wall)
        assert {name: message.properties[name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID")} == {
            "DELAY": "2",
            "REAL_TOPIC": "T",
            "REAL_QID": "2",
        }

    @pytest.mark.parametrize("level", ["0", "-1", ""])
    def test_no_level_is_no_delay(self, peer: Peer, level: str) -> None:
        """DLY-03."""
        assert self.delayed(peer, level).code == 0
        assert len(peer.messages(queue=2)) == 1

    @pytest.mark.parametrize("level", ["18", "19", "999"])
    def test_above_the_top_is_the_top(self, world: World, peer: Peer, level: str) -> None:
        """DLY-03."""
        self.delayed(peer, level)
        world.advance(7_200_000 - 1)
        assert world.connect().messages(queue=2) == []
        world.advance(1)
        assert world.connect().messages(queue=2)[0].properties["DELAY"] == "18"

    @pytest.mark.parametrize("level", ["4x", "99999999999", "1.0", " 1", "4Pinpoint-Flags"])
    def test_what_is_no_level(self, world: World, peer: Peer, level: str) -> None:
        """MSG-11: refused, and later messages flow."""
        answer = self.delayed(peer, level)
        assert answer.code == 13
        assert self.delayed(peer, "1").fields["queueOffset"] == "0"
        world.advance(1000)
        assert len(peer.messages(queue=2)) == 1

    def test_a_waiting_pull_gets_it(self, world: World, peer: Peer) -> None:
        self.delayed(peer, "1")
        peer.tell(
            11,
            {
                "consumerGroup": "G",
                "topic": "T",
                "queueId": "2",
                "queueOffset": "0",
                "maxMsgNums": "32",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "15000",
                "subscription": "a",
            },
        )
        assert peer.read() == []
        world.advance(1000)
        assert [answer.code for answer in peer.read()] == [0]

    def test_many_at_once(self, world: World, peer: Peer) -> None:
        """DLY-03: all that are due come at the same time, in portions that leave the broker free in between."""
        for n in range(1000):
            self.delayed(peer, "1", b"%d" % n)
        world.advance(1000)
        assert peer.ask(30, {"topic": "T", "queueId": "2"}).fields["offset"] == "1000"

    def test_an_idle_level_wakes_nobody(self, world: World, peer: Peer) -> None:
        self.delayed(peer, "1")
        world.advance(30_000)
        assert world.broker.alarms.when(world.broker.delay_levels.levels[1].run) is None

    def test_a_clock_that_was_set_back_holds_it_no_longer_than_its_delay(self, world: World, peer: Peer) -> None:
        self.delayed(peer, "2")
        world.set_wall(-3_600_000)
        world.advance(10_000)
        assert len(peer.messages(queue=2)) == 1

    def test_under_sync_flush(self) -> None:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        peer = world.connect()
        assert self.delayed(peer, "1").code == 0
        world.advance(1000)
        assert len(peer.messages(queue=2)) == 1

    @pytest.mark.parametrize("flushed", [False, True])
    def test_progress_never_runs_ahead_of_what_is_durable(self, flushed: bool) -> None:
        """A power loss takes a delivered copy that is not flushed, so nothing may say that it was delivered."""
        sync = {"flush_disk_type": "SYNC_FLUSH"}
        world = World(files=MemoryFiles(forgetful=True), store=sync)
        assert self.delayed(world.connect(), "1").code == 0
        world.hold_jobs = True
        for _ in range(30):
            world.advance(1000)
            jobs, world.jobs = world.jobs, []
            for job in jobs:
                if flushed or isinstance(job, SaveConfig):
                    world.run(job)
            world.act()
        later = World(files=world.files.power_loss(), store=sync, now=world.now)
        later.advance(5_000)
        assert len(later.connect().messages(queue=2)) == 1, (
            "neither lost nor, once it is known to be durable, delivered again"
        )

    def test_progress_is_saved_and_survives(self, world: World, peer: Peer) -> None:
        self.delayed(peer, "1")
        world.advance(22_000)  # the log is flushed after 10 s at the latest, progress saved 10 s later
        assert b"{1:1" in world.files.read("/store/config/delayOffset.json")
        self.delayed(peer, "1")
        self.delayed(peer, "5", b"much later")
        world.advance(1000)
        world.close()
        later = World(files=world.files, now=world.now + 3_600_000)
        reader = later.connect()
        later.advance(0)
        assert [message.body for message in reader.messages(queue=2)] == [b"later", b"later", b"much later"]
        dump = reader.ask(45)
        assert b"1:2" in dump.body
        assert b"5:1" in dump.body

    @pytest.mark.parametrize("offset", ["25477423", "-5", '"x"'])
    def test_progress_that_cannot_be(self, offset: str) -> None:
        """DLY-01: corrected into the range, noted, messages due are delivered once."""
        world = World()
        peer = world.connect()
        for n in range(3):
            self.delayed(peer, "4", b"%d" % n)
        world.close()
        files: MemoryFiles = world.files
        files.write("/store/config/delayOffset.json", f'{{"offsetTable":{{4:{offset}}}}}'.encode())
        later = World(files=files, now=world.now + 60_000)
        later.advance(0)
        assert [message.body for message in later.connect().messages(queue=2)] == [b"0", b"1", b"2"]
        assert any("level 4" in notice for notice in later.broker.notices) == (offset != '"x"')

    def test_a_shorter_table_stops_nobody(self) -> None:
        """DLY-03: what waits at a level that is gone comes at its time, the others as ever."""
        world = World()
        peer = world.connect()
        self.delayed(peer, "5", b"five")
        world.close()
        later = World(files=world.files, now=world.now, store={"message_delay_level": "1s 5s"})
        reader = later.connect()
        self.delayed(reader, "2", b"two")
        later.advance(5_000)
        assert [message.body for message in reader.messages(queue=2)] == [b"two"]
        later.advance(55_000)
        assert [message.body for message in reader.messages(queue=2)] == [b"two", b"five"]

    def test_a_damaged_progress_file_is_no_reason_not_to_start(self) -> None:
        """DLY-04."""
        world = World()
        world.close()
        world.files.write("/store/config/delayOffset.json", bytes(40))
        world.files.write("/store/config/delayOffset.json.bak", b"")
        World(files=world.files)
