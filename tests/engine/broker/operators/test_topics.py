"""Topics and groups by request, and what of the tables outlives the process (docs/protocol/broker.md 2.14, 2.15;
docs/protocol/store.md 10).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.engine.store import ConfigDamaged
from mqproto.wire.bodies import GroupTable, TopicConfig, TopicList, TopicTable
from tests.engine.broker.harness import Peer, World, send_fields


def update(peer: Peer, topic: str = "Made", **changes: Any) -> Command:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "2",
        "writeQueueNums": "3",
        "perm": "6",
        "order": "true",
    }
    return peer.ask(17, fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "1"} | changes)


class TestTopics:
    def test_a_topic_is_made_and_changed(self, world: World, peer: Peer) -> None:
        assert update(peer).code == 0
        table = TopicTable.from_json(peer.ask(21).body)
        assert table.topics["Made"] == TopicConfig("Made", 2, 3, 6, "SINGLE_TAG", 1, order=False)
        before = table.data_version.counter
        update(peer, readQueueNums="8", writeQueueNums="8", perm="4")
        table = TopicTable.from_json(peer.ask(21).body)
        assert (table.topics["Made"].read_queues, table.topics["Made"].perm) == (8, 4)
        assert table.data_version.counter == before + 1
        assert table.data_version.timestamp == world.wall

    @pytest.mark.parametrize(
        ("changes", "remark"),
        [
            ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
            ({"topic": "DefaultCluster"}, "The topic[DefaultCluster] is conflict with system topic."),
            ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
            ({"topic": "a b"}, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
            ({"topic": ""}, "The specified topic is blank."),
            ({"topicFilterType": "X"}, "topicFilterType = [X] value invalid"),
            ({"readQueueNums": "-1"}, "readQueueNums = [-1] value invalid"),
            ({"writeQueueNums": "1000000"}, "writeQueueNums = [1000000] value invalid"),
            ({"perm": "-1"}, "perm = [-1] value invalid"),
            ({"perm": "16"}, "perm = [16] value invalid"),
            ({"topicSysFlag": "-1"}, "topicSysFlag = [-1] value invalid"),
            ({"topicSysFlag": "4"}, "topicSysFlag = [4] value invalid"),
        ],
    )
    def test_what_is_no_topic(self, peer: Peer, changes: dict[str, str], remark: str) -> None:
        answer = update(peer, **changes)
        assert (answer.code, answer.remark) == (1, remark)

    def test_fewer_read_queues_hide_messages_and_more_show_them(self, peer: Peer) -> None:
        """REB-05."""
        update(peer, readQueueNums="4", writeQueueNums="4")
        peer.send("Made", e="3")
        update(peer, readQueueNums="2", writeQueueNums="4")
        assert peer.pull("Made", queue=3).code == 1
        assert peer.send("Made", e="3").code == 0
        update(peer, readQueueNums="4", writeQueueNums="4")
        assert len(peer.messages("Made", 3)) == 2

    def test_multi_tag_topics_mark_their_messages(self, peer: Peer) -> None:
        update(peer, topicFilterType="MULTI_TAG")
        for _ in range(3):
            peer.send("Made")
        assert {message.sys_flag for message in peer.messages("Made")} == {2}

    def test_a_deleted_topic_loses_its_queues(self, world: World, peer: Peer) -> None:
        peer.send("T")
        peer.send("U")
        assert peer.ask(215, {"topic": "T"}).code == 0
        assert peer.ask(215, {"topic": "T"}).code == 0
        assert peer.pull("T").code == 17
        assert world.store.find_queue("T", 0) is None
        assert len(peer.messages("U")) == 1
        assert peer.send("T").fields["queueOffset"] == "0"

    def test_system_topics_stay(self, world: World, peer: Peer) -> None:
        peer.send(properties="DELAY\x015\x02")
        answer = peer.ask(215, {"topic": "SCHEDULE_TOPIC_XXXX"})
        assert (answer.code, answer.remark) == (1, "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic.")
        peer.ask(215, {"topic": "T"})
        assert world.store.find_queue("SCHEDULE_TOPIC_XXXX", 4) is not None

    def test_the_list_of_system_topics(self, peer: Peer) -> None:
        topics = TopicList.from_json(peer.ask(305).body).topics
        assert {"TBW102", "broker-a", "DefaultCluster", "OFFSET_MOVED_EVENT", "BenchmarkTest"} <= set(topics)

    def test_the_trace_topic_when_asked_for(self) -> None:
        world = World(trace_topic_enable=True)
        assert world.broker.topics.find("RMQ_SYS_TRACE_TOPIC") is not None

    def test_topics_are_bounded(self, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.broker.tables.topics.TOPICS_MAX", 12)
        codes = {peer.send(f"T{n}").code for n in range(10)}
        assert codes == {0, 17}
        assert update(peer, "More").remark == "this broker keeps no more topics"
        assert update(peer, "T0").code == 0

    def test_what_newer_releases_keep_of_a_topic_stays(self, world: World, peer: Peer) -> None:
        topic = {"topicName": "Made", "attributes": {"message.type": "FIFO"}, "strange": 7}
        assert peer.ask(18, None, json.dumps({"topicConfigList": [topic]}).encode()).code == 0
        update(peer, perm="4")
        config = world.broker.topics.find("Made")
        assert config is not None
        assert (config.perm, config.attributes, config.unknown) == (4, {"message.type": "FIFO"}, {"strange": 7})

    def test_several_topics(self, world: World, peer: Peer) -> None:
        update(peer, "Known")
        world.broker.topics.set_ordered(["Known"], world.wall)
        topics = [{"topicName": "A", "perm": 4, "order": True}, {"topicName": "Known", "readQueueNums": 3}]
        assert peer.ask(18, None, json.dumps({"topicConfigList": topics}).encode()).code == 0
        table = world.broker.topics.table
        assert table["A"] == TopicConfig("A", 16, 16, 4)
        assert table["Known"] == TopicConfig("Known", 3, 16, order=True)
        assert "A" in TopicTable.from_json(world.files.read("/store/config/topics.json")).topics

    @pytest.mark.parametrize(
        "bad",
        [
            {"topicName": "a b"},
            {"topicName": "TBW102"},
            {"topicName": "B", "perm": -1},
            {"topicName": "B", "perm": "x"},
            [],
        ],
    )
    def test_of_several_topics_all_or_none_are_made(self, world: World, peer: Peer, bad: Any) -> None:
        before = world.broker.topics.version.counter
        assert peer.ask(18, None, json.dumps({"topicConfigList": [{"topicName": "A"}, bad]}).encode()).code == 1
        assert world.broker.topics.version.counter == before

    def test_one_topic(self, peer: Peer) -> None:
        update(peer)
        assert TopicConfig.from_json(peer.ask(351, {"topic": "Made"}).body) == TopicConfig(
            "Made", 2, 3, 6, "SINGLE_TAG", 1
        )
        answer = peer.ask(351, {"topic": "None"})
        assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: None")
        assert peer.ask(351, {}).code == 1


class TestAfterwards:
    def test_everything_is_there_again(self, world: World, peer: Peer) -> None:
        update(peer)
        peer.send("T", body=b"kept")
        peer.pull("T", "G")
        peer.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"})
        version = world.broker.topics.version.counter
        world.close()
        later = World(files=world.files, now=world.now + 10)
        reader = later.connect()
        assert later.broker.topics.version.counter == version
        assert reader.messages("T")[0].body == b"kept"
        assert "G" in later.broker.subscription_groups.table
        assert later.broker.topics.find("Made") is not None
        assert reader.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": "0"}).fields["offset"] == "1"

    def test_topics_and_groups_are_saved_at_each_change(self, world: World, peer: Peer) -> None:
        peer.send("T")
        peer.pull("T", "G")
        assert "T" in TopicTable.from_json(world.files.read("/store/config/topics.json")).topics
        assert "G" in GroupTable.from_json(world.files.read("/store/config/subscriptionGroup.json")).groups

    def test_changes_during_a_save_are_in_the_next_one(self, world: World, peer: Peer) -> None:
        peer.send("First")
        world.hold_jobs = True
        for name in ("A", "B", "C"):
            peer.tell(310, send_fields(name), b"x")
        saves = 0
        while world.jobs:
            saves += len(world.jobs)
            world.run_held()
        assert "C" in TopicTable.from_json(world.files.read("/store/config/topics.json")).topics
        assert saves <= 4

    def test_a_save_that_failed_is_noted_and_made_up_for(
        self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(world.files, "write", full)
        peer.tell(310, send_fields("First"), b"x")
        assert any("No space left" in notice for notice in world.broker.notices)
        assert not world.files.exists("/store/config/topics.json")
        assert peer.read() == []
        monkeypatch.undo()
        world.advance(10_000)
        assert [answer.code for answer in peer.read()] == [10], "it is stored, but took too long to be safe"
        assert "First" in TopicTable.from_json(world.files.read("/store/config/topics.json")).topics
        peer.send("Second")
        assert "Second" in TopicTable.from_json(world.files.read("/store/config/topics.json")).topics

    def test_a_topic_that_is_being_saved_holds_up_no_other(self, world: World, peer: Peer) -> None:
        peer.send("Known")
        peer.send("Known")
        world.hold_jobs = True
        peer.tell(310, send_fields("New"), b"x")
        peer.tell(310, send_fields("Later", "DELAY\x011\x02"), b"x")
        assert peer.read() == []
        other = world.connect()
        assert [other.send("Known").code for _ in range(3)] == [0, 0, 0]
        assert peer.send("Known").code == 0
        while world.jobs:
            world.run_held()
        assert [answer.code for answer in peer.read()] == [0, 0]

    def test_under_sync_flush_topic_and_message_are_waited_for(self) -> None:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        peer = world.connect()
        peer.send("Known")
        world.hold_jobs = True
        peer.tell(310, send_fields("New"), b"x")
        saves = [job for job in world.jobs if type(job).__name__ == "SaveConfig"]
        flushes = [job for job in world.jobs if type(job).__name__ != "SaveConfig"]
        assert flushes
        assert saves
        world.jobs.clear()
        for job in saves:
            world.run(job)
        world.act()
        assert peer.read() == []
        for job in flushes:
            world.run(job)
        world.act()
        while world.jobs:
            world.run_held()
        assert [answer.code for answer in peer.read()] == [0]

    def test_a_topic_that_cannot_be_saved_in_time(self, world: World, peer: Peer) -> None:
        """The message is stored; that its topic may be forgotten is told as a disk that did not answer in time."""
        world.hold_jobs = True
        peer.tell(310, send_fields("New"), b"x")
        world.advance(5000)
        assert [answer.code for answer in peer.read()] == [10]
        assert not world.broker.pending_acks.count

    def test_nothing_is_acknowledged_before_its_topic_is_saved(self, world: World, peer: Peer) -> None:
        """After a crash nobody would find the message (the simulation's seed 3 of broker crashes): all ways of sending
        wait, the fast path too, and so does whoever makes a topic.
        """
        peer.heartbeat(b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":"CONSUME_PASSIVELY"}]}')
        world.hold_jobs = True
        for number in range(3):
            peer.tell(310, send_fields("New"), b"%d" % number)
        topic = {"topic": "Other", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        peer.tell(17, topic | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"})
        peer.tell(200, None, b'{"groupName":"G2"}')
        assert peer.read() == []
        found = world.files.process_death()
        assert not found.exists("/store/config/topics.json") or b'"New"' not in found.read("/store/config/topics.json")
        answers = 0
        while world.jobs:
            world.run_held()
            answers += len(peer.read())
        assert answers == 5
        saved = world.files.process_death()
        assert {"New", "Other"} <= TopicTable.from_json(saved.read("/store/config/topics.json")).topics.keys()
        assert "G2" in GroupTable.from_json(saved.read("/store/config/subscriptionGroup.json")).groups
        peer.send("New")

    def test_a_damaged_table_of_topics_stops_the_start(self) -> None:
        world = World()
        world.close()
        world.files.write("/store/config/topics.json", b"{")
        with pytest.raises(ConfigDamaged):
            World(files=world.files)

    def test_a_damaged_table_with_a_good_backup_does_not(self) -> None:
        world = World()
        peer = world.connect()
        peer.send("First")
        peer.send("Second")
        world.close()
        world.files.write("/store/config/topics.json", b"{")
        later = World(files=world.files)
        assert later.broker.topics.find("First") is not None
        assert any("backup" in notice for notice in later.broker.notices)

    def test_a_file_overrides_what_is_there_from_the_start(self) -> None:
        world = World()
        world.close()
        topic = '{"topicName":"TBW102","writeQueueNums":2,"perm":7}'
        table = f'{{"dataVersion":{{"counter":7,"timestamp":5}},"topicConfigTable":{{"TBW102":{topic}}}}}'
        world.files.write("/store/config/topics.json", table.encode())
        later = World(files=world.files)
        assert later.broker.topics.version.counter == 7
        later.connect().send("New", d="8")
        config = later.broker.topics.find("New")
        assert config is not None
        assert config.write_queues == 2

    def test_the_end_waits_for_what_runs(self, world: World, peer: Peer) -> None:
        world.hold_jobs = True
        peer.tell(310, send_fields("T"), b"x")
        world.close()
        assert not world.broker.ended
        while world.jobs:
            world.run_held()
        assert world.broker.ended

    def test_after_the_end_nothing_happens(self, world: World, peer: Peer) -> None:
        peer.send(properties="DELAY\x011\x02")
        world.close()
        assert world.broker.next_deadline() is None
        world.now += 100_000
        world.broker.timer(world.now)
        peer.feed(peer.frame(30, {"topic": "T", "queueId": "0"}))
        assert world.broker.actions == []

    def test_acknowledgements_that_wait_for_the_disk_are_given_at_the_end(self) -> None:
        world = World(store={"flush_disk_type": "SYNC_FLUSH"})
        peer = world.connect()
        peer.send()
        world.hold_jobs = True
        peer.tell(310, {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}, b"x")
        world.close()
        while world.jobs:
            world.run_held()
        assert world.broker.ended
        assert [answer.code for answer in peer.read()] == [0]
