"""The broker's settings by request: what is answered, shown, saved, and told to name servers (docs/protocol/broker.md
2.16).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mqproto.codec import ONEWAY_FLAG, Command
from mqproto.engine.ignored import BROKER_IGNORED
from mqproto.engine.settings import BrokerSettings, parse_properties, table
from mqproto.engine.store import StoreSettings
from mqproto.wire.bodies import RegisterBrokerBody
from tests.engine.broker.harness import Peer, World
from tests.golden.golden import GOLDEN


class Save:
    """A save that fails if it is told to."""

    def __init__(self, changes: dict[str, str], failure: OSError | None) -> None:
        self.changes = changes
        self.failure = failure

    def run(self) -> None:
        if self.failure is not None:
            raise self.failure


class Saves:
    """Makes the saves and remembers what was saved."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.made: list[dict[str, str]] = []

    def __call__(self, changes: dict[str, str]) -> Save:
        self.made.append(changes)
        return Save(changes, self.failure)


@pytest.fixture
def saves() -> Saves:
    return Saves()


@pytest.fixture
def world(saves: Saves) -> Iterator[World]:
    world = World(save_settings=saves, namesrv_addr="192.0.2.9:9876")
    yield world
    world.close()


@pytest.fixture
def peer(world: World) -> Peer:
    return world.connect()


def update(peer: Peer, text: str) -> Command:
    return peer.ask(25, None, text.encode())


def shown(peer: Peer) -> dict[str, str]:
    answer = peer.ask(26)
    assert answer.code == 0
    return parse_properties(bytes(answer.body))


def version(peer: Peer) -> dict[str, int]:
    found: dict[str, int] = json.loads(peer.ask(26).fields["version"])
    return found


class TestList:
    def test_every_key_of_apaches_is_shown(self, peer: Peer) -> None:
        """The keys that a broker of 4.9.7 showed. It has the old spellings only where its file had them."""
        text = (GOLDEN.root / "bodies" / "026-GET_BROKER_CONFIG-response.4.9.7.json").read_text()
        theirs = parse_properties(text.partition("\n")[2])
        assert theirs.keys() - shown(peer).keys() == {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}

    def test_what_was_found_out_is_shown(self, world: World, peer: Peer) -> None:
        pairs = shown(peer)
        assert pairs["brokerIP1"] == pairs["brokerIP2"] == "192.0.2.2"
        assert (pairs["listenPort"], pairs["haListenPort"]) == ("10911", "10912")
        assert pairs["storePathCommitLog"] == "/store/commitlog"
        assert pairs["sendMessageThreadPoolNums"] == "2"

    def test_the_version_counts_changes(self, world: World, peer: Peer) -> None:
        assert version(peer) == {"counter": 0, "timestamp": world.wall}
        world.advance(5)
        update(peer, "traceOn=false")
        assert version(peer) == {"counter": 1, "timestamp": world.wall}
        update(peer, "traceOn=false")
        update(peer, "traceOn=maybe")
        assert version(peer)["counter"] == 1


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "code", "remark"),
        [
            ("", 0, None),
            ("# nothing\n", 0, None),
            ("fileReservedTime=71\n", 0, None),
            ("fileReservedTime=72\n", 0, None),
            ("brokerName=broker-a", 0, None),
            ("brokerName=broker-b", 0, "brokerName takes effect at the next start"),
            ("mapedFileSizeCommitLog=8192", 0, "mappedFileSizeCommitLog takes effect at the next start"),
            (
                "sendMessageThreadPoolNums=4",
                0,
                "sendMessageThreadPoolNums has no effect here: there are no thread pools",
            ),
            ("noSuchKey=1", 1, "setting noSuchKey=1: there is no such setting"),
            ("traceOn=false\nfileReservedTime=\n", 1, "setting fileReservedTime=: a whole number expected"),
            (
                "traceOn=false\nfileReservedTime=-1",
                1,
                "setting fileReservedTime=-1: must be between 0 and 9223372036854775807",
            ),
            (
                "traceOn=false\nfileReservedTime=" + "9" * 30,
                1,
                f"setting fileReservedTime={'9' * 30}: a whole number expected",
            ),
            (
                "traceOn=false\nflushDiskType=NEVER",
                1,
                "setting flushDiskType=NEVER: one of ASYNC_FLUSH, SYNC_FLUSH expected",
            ),
            (
                "traceOn=false\ndeleteWhen=25",
                1,
                "setting deleteWhen=25: hours of the day from 0 to 23 expected, separated by ;",
            ),
            ("traceOn=false\nmessageDelayLevel=1x", 1, None),
            ("traceOn=false\nnamesrvAddr=a:b", 1, None),
            ("traceOn=\\u00zz", 1, "string2Properties error: line 1: \\u00zz is no \\uXXXX"),
            ("traceOn=false\nconfigBlackList=", 16, "Can not update config in black list."),
            ("traceOn=false\nbrokerConfigPath=/x", 16, "Can not update config in black list."),
            ("traceOn=false\nrocketmqHome=/x", 16, "Can not update config in black list."),
        ],
    )
    def test_one_request(self, peer: Peer, text: str, code: int, remark: str | None) -> None:
        """A bad value and an unknown key are told, where Apache skips them in silence and says that all is well."""
        before = shown(peer)
        answer = update(peer, text)
        assert answer.code == code
        if remark is not None or code == 0:
            assert answer.remark == remark
        if code:
            assert answer.remark
            assert shown(peer) == before

    def test_too_long_a_text(self, peer: Peer) -> None:
        assert update(peer, "#" * (1 << 20) + "\n").code == 1

    def test_one_way(self, world: World, peer: Peer) -> None:
        peer.tell(25, None, b"traceOn=false\n", flag=ONEWAY_FLAG)
        assert peer.read() == []
        assert world.broker.settings.trace_on is False

    def test_a_black_list_of_ones_own(self, saves: Saves) -> None:
        peer = World(config_black_list="traceOn; regionId").connect()
        assert [update(peer, text).code for text in ("traceOn=false", "regionId=x", "brokerPermission=4")] == [
            16,
            16,
            0,
        ]

    def test_changes_are_told_to_the_operator(self, world: World, peer: Peer) -> None:
        update(peer, "regionId=here\nbrokerId=3\n")
        assert list(world.broker.notices)[-2:] == [
            "setting regionId was changed from 'DefaultRegion' to 'here'",
            "setting brokerId was changed from '0' to '3'; it takes effect at the next start",
        ]


class TestNextStart:
    def test_the_running_broker_keeps_what_it_has(self, world: World, peer: Peer) -> None:
        """Sizes of open files above all: an append that went by another one would write over the end of a file."""
        update(peer, "mappedFileSizeCommitLog=8192\nbrokerClusterName=Other\nflushDiskType=SYNC_FLUSH")
        assert world.store.settings.mapped_file_size_commit_log == 1 << 22
        assert world.broker.settings.broker_cluster_name == "DefaultCluster"
        assert world.store.settings.flush_disk_type == "ASYNC_FLUSH"
        pairs = shown(peer)
        assert (pairs["mappedFileSizeCommitLog"], pairs["brokerClusterName"]) == ("8192", "Other")
        assert peer.send(body=b"x" * 10_000).code == 0

    def test_two_changes_that_do_not_go_together(self, peer: Peer) -> None:
        """The next start would refuse them."""
        assert update(peer, "bitMapLengthConsumeQueueExt=4096").code == 0
        answer = update(peer, "mappedFileSizeConsumeQueueExt=100")
        assert (answer.code, answer.remark) == (
            1,
            "setting mappedFileSizeConsumeQueueExt=100: too small for a bitmap of 4096 bits",
        )

    def test_a_change_can_be_taken_back(self, peer: Peer, saves: Saves) -> None:
        assert update(peer, "brokerName=other").remark == "brokerName takes effect at the next start"
        assert update(peer, "brokerName=broker-a").code == 0
        assert shown(peer)["brokerName"] == "broker-a"
        assert saves.made == [{"brokerName": "other"}, {"brokerName": "broker-a"}]


class TestSaving:
    def test_the_answer_waits_for_the_file(self, world: World, peer: Peer, saves: Saves) -> None:
        world.hold_jobs = True
        peer.tell(25, None, b"traceOn=false\nbrokerId=2\n")
        assert peer.read() == []
        assert world.broker.settings.trace_on is False
        world.run_held()
        (answer,) = peer.read()
        assert answer.code == 0
        assert saves.made == [{"traceOn": "false", "brokerId": "2"}]

    def test_changes_meanwhile_share_the_next_save(self, world: World, peer: Peer, saves: Saves) -> None:
        world.hold_jobs = True
        for text in (b"traceOn=false", b"brokerId=2", b"brokerId=3"):
            peer.tell(25, None, text)
        world.run_held()
        assert len(peer.read()) == 1
        world.run_held()
        assert [answer.code for answer in peer.read()] == [0, 0]
        assert saves.made == [{"traceOn": "false"}, {"brokerId": "3"}]

    def test_a_failed_save_is_told_and_made_up_for(self, world: World, peer: Peer, saves: Saves) -> None:
        saves.failure = OSError(28, "No space left on device")
        answer = update(peer, "traceOn=false")
        assert (answer.code, answer.remark) == (
            1,
            "the change is made, but not saved: [Errno 28] No space left on device",
        )
        saves.failure = None
        assert update(peer, "brokerId=2").code == 0
        assert saves.made[-1] == {"traceOn": "false", "brokerId": "2"}

    def test_without_a_file_nothing_is_waited_for(self) -> None:
        peer = World().connect()
        assert update(peer, "traceOn=false").code == 0
        assert shown(peer)["traceOn"] == "false"

    def test_the_end_waits_for_the_file(self, world: World, peer: Peer) -> None:
        world.hold_jobs = True
        peer.tell(25, None, b"traceOn=false")
        (save,) = [job for job in world.jobs if isinstance(job, Save)]
        world.broker.close(world.now)
        world.open_dialled()
        world.advance(10_000)  # the name server says nothing to the goodbye
        for _ in range(3):
            others = [job for job in world.jobs if job is not save]
            world.jobs = [save]
            for job in others:
                world.run(job)
            world.act()
        assert not world.broker.ended
        while not world.broker.ended:
            assert world.jobs
            world.run_held()

    def test_a_peer_that_left_meanwhile(self, world: World, peer: Peer) -> None:
        world.hold_jobs = True
        peer.tell(25, None, b"traceOn=false")
        peer.close()
        world.run_held()
        assert shown(world.connect())["traceOn"] == "false"

    def test_unknown_keys_of_the_file_can_be_changed(self, saves: Saves) -> None:
        world = World(save_settings=saves, unknown={"mystery": "1"})
        peer = world.connect()
        assert shown(peer)["mystery"] == "1"
        assert update(peer, "mystery=2").remark == "mystery has no effect here"
        assert shown(peer)["mystery"] == "2"
        assert saves.made == [{"mystery": "2"}]

    def test_waiting_changes_are_bounded(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mqproto.engine.saver.WAITING_MAX", 2)
        world.hold_jobs = True
        for number in range(5):
            peer.tell(25, None, b"brokerId=%d" % (number + 1))
        assert [answer.code for answer in peer.read()] == [2, 2]


def registered(server: Peer) -> tuple[Command, RegisterBrokerBody]:
    (request,) = server.read()
    assert request.code == 103
    return request, RegisterBrokerBody.decode(request.body, compressed=False, version=407)


class TestNameServers:
    def test_another_permission_is_told_before_it_is_confirmed(self, world: World, peer: Peer) -> None:
        server = world.open_dialled()
        request, before = registered(server)
        server.answer(request)
        peer.tell(25, None, b"brokerPermission=4\n")
        assert peer.read() == []
        request, after = registered(server)
        assert {topic.perm for topic in after.topic_table.topics.values()} == {4}
        assert after.topic_table.data_version.counter == before.topic_table.data_version.counter + 1
        server.answer(request)
        assert [answer.code for answer in peer.read()] == [0]

    def test_a_name_server_more_and_one_less(self, world: World, peer: Peer) -> None:
        old = world.open_dialled()
        request, _ = registered(old)
        old.answer(request)
        assert update(peer, "namesrvAddr=192.0.2.10:9876;192.0.2.9:9876").code == 0
        (dial,) = world.dials
        assert dial.link.address == "192.0.2.10:9876"
        assert not old.ended()
        new = world.open_dialled()
        registered(new)
        assert update(peer, "namesrvAddr=192.0.2.10:9876").code == 0
        (goodbye,) = old.read()
        assert goodbye.code == 104
        old.answer(goodbye)
        assert old.ended()
        assert not new.ended()
        assert world.dials == []

    def test_no_name_server_and_then_one(self, world: World, peer: Peer) -> None:
        """Apache changes the list only where there was one at the start."""
        world.dials.clear()
        assert update(peer, "namesrvAddr=").code == 0
        world.advance(100_000)
        assert world.dials == []
        assert update(peer, "namesrvAddr=192.0.2.9:9876").code == 0
        registered(world.open_dialled())
        alone = World()
        assert update(alone.connect(), "namesrvAddr=192.0.2.9:9876").code == 0
        server = alone.open_dialled()
        request, _ = registered(server)
        server.answer(request)
        alone.advance(30_000)
        registered(server)


def test_no_key_has_two_meanings() -> None:
    keys = [*table(BrokerSettings), *table(StoreSettings), *BROKER_IGNORED]
    assert len(keys) == len(set(keys))
