"""What is known of groups' expressions, how long, and in which file (docs/protocol/broker.md 4.5;
docs/protocol/store.md 10.6).
"""

from __future__ import annotations

import json

import pytest

from mqproto.engine.broker.filters import consumer_filters
from mqproto.engine.broker.filters.consumer_filters import FilterData
from mqproto.engine.store.disk.memory import MemoryFiles
from mqproto.wire.bodies import BloomData, ConsumerFilters
from mqproto.wire.fastjson import loads
from tests.engine.broker.harness import PEER, WALL, Peer, World
from tests.engine.broker.sql import heartbeat, send_numbers, subscribed
from tests.golden.golden import GOLDEN, VERSIONS

FILE = "/store/config/consumerFilter.json"
DAY = 86_400_000


@pytest.fixture
def world() -> World:
    return World(enable_property_filter=True)


def data(world: World, group: str = "G", topic: str = "T") -> FilterData:
    found = world.broker.filters.find(group, topic)
    assert found is not None
    return found


def saved(world: World) -> ConsumerFilters:
    return ConsumerFilters.from_json(world.files.read(FILE))


class TestLife:
    def test_born_with_a_heartbeat(self, world: World, peer: Peer) -> None:
        world.advance(500)
        peer.heartbeat(heartbeat("n > 1", 5))
        entry = data(world).entry
        assert (entry.expression, entry.type, entry.version, entry.born_time) == ("n > 1", "SQL92", 5, world.wall)
        assert (entry.dead, entry.dead_time) == (False, 0)
        assert entry.bloom == BloomData(112, list(world.broker.filters.bloom.positions("G", "T")))

    @pytest.mark.parametrize(
        ("expression", "kind"), [("", "SQL92"), ("n > >", "SQL92"), ("n > 1", "XPATH"), ("n", "TAG"), ("n", None)]
    )
    def test_nothing_is_kept(self, world: World, peer: Peer, expression: str, kind: str | None) -> None:
        assert peer.heartbeat(heartbeat(expression, kind=kind)).code == 0
        assert len(world.broker.filters) == 0

    def test_a_newer_version_of_the_same(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", 5))
        before = data(world)
        world.advance(10)
        peer.heartbeat(heartbeat("n > 1", 6))
        assert data(world) is before
        assert (before.entry.version, before.entry.born_time) == (6, world.wall - 10)

    def test_another_expression_is_born_anew(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", 5))
        world.advance(10)
        send_numbers(peer, 1)
        peer.heartbeat(heartbeat("n > 2", 6))
        assert data(world).entry.born_time == world.wall
        assert data(world).bits_from == world.store.end
        assert len(world.broker.filters) == 1

    def test_it_dies_with_the_last_member(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        other = world.connect("192.0.2.3:40001")
        other.heartbeat(heartbeat())
        peer.close()
        assert not data(world).entry.dead
        world.advance(10)
        other.read()  # a notice
        other.ask(35, {"clientID": "c1", "consumerGroup": "G"})
        assert (data(world).entry.dead, data(world).entry.dead_time) == (True, world.wall)

    def test_it_dies_with_a_silent_member(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        world.advance(120_000)
        assert data(world).entry.dead

    def test_it_dies_when_the_topic_is_left_out(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat(more="U"))
        peer.heartbeat(heartbeat(topic="", more="U"))
        assert data(world).entry.dead

    def test_it_dies_when_the_group_goes_over_to_tags(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", 5))
        peer.heartbeat(heartbeat("a", 6, kind="TAG"))
        assert data(world).entry.dead

    @pytest.mark.parametrize("version", [4, 5, 6])
    def test_it_revives(self, world: World, peer: Peer, version: int) -> None:
        peer.heartbeat(heartbeat(version=5))
        before = data(world)
        peer.close()
        world.connect().heartbeat(heartbeat(version=version))
        assert data(world) is before
        assert (before.entry.dead, before.entry.dead_time, before.entry.version) == (False, 0, version)

    def test_a_dead_one_gives_way(self, world: World, peer: Peer) -> None:
        """Whatever its version: Go counts nanoseconds where Java counts milliseconds."""
        peer.heartbeat(heartbeat("n > 1", 5_000_000))
        peer.close()
        world.connect().heartbeat(heartbeat("n > 2", 5))
        assert (data(world).entry.expression, data(world).entry.version) == ("n > 2", 5)

    def test_forgotten_after_a_day(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        peer.heartbeat(heartbeat(group="H"))
        peer.ask(35, {"clientID": "c1", "consumerGroup": "G"})
        world.advance(DAY - 1)
        assert len(world.broker.filters) == 2
        world.advance(1)
        assert world.broker.filters.find("G", "T") is None
        world.advance(10_000)
        assert set(saved(world).topics["T"].groups) == {"H"}

    def test_one_that_came_back_is_not_forgotten(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        peer.close()
        world.advance(DAY - 1000)
        world.connect().heartbeat(heartbeat())
        world.advance(2000)
        assert not data(world).entry.dead

    def test_a_shorter_time_counts_at_once(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        peer.close()
        world.broker.settings.filter_data_clean_time_span = 5000
        world.advance(600_000)
        assert len(world.broker.filters) == 0


class TestBounds:
    def test_so_many(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consumer_filters, "FILTERS_MAX", 2)
        for group in "ABCD":
            assert peer.heartbeat(heartbeat(group=group)).code == 0
        assert len(world.broker.filters) == 2
        assert len([notice for notice in world.broker.notices if "no more are taken" in notice]) == 1
        assert peer.ask(11, subscribed(consumerGroup="C")).code == 17  # the topic is not there
        send_numbers(peer, 1)
        assert peer.ask(11, subscribed(consumerGroup="C")).code == 27

    def test_so_long_together(self, world: World, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consumer_filters, "LENGTH_MAX", 12)
        for group in "ABC":
            peer.heartbeat(heartbeat("n > 1", group=group))
        assert len(world.broker.filters) == 2
        peer.heartbeat(heartbeat("n", 6, group="A"))
        peer.heartbeat(heartbeat("n > 1", 6, group="C"))
        assert data(world, "C").entry.expression == "n > 1"


class TestFile:
    def test_saved_10_s_after_a_change(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        world.advance(9_999)
        assert not world.files.exists(FILE)
        world.advance(1)
        assert saved(world).topics["T"].groups["G"] == data(world).entry

    def test_a_start_finds_all_of_it_dead(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat("n > 1", 5))
        world.advance(60_000)
        world.close()
        later = World(files=world.files, enable_property_filter=True, now=100_000)
        entry = data(later).entry
        assert (entry.expression, entry.version, entry.dead) == ("n > 1", 5, True)
        assert entry.dead_time == later.wall - 30_000
        send_numbers(later.connect(), 1, 2)
        back = later.connect()
        back.heartbeat(heartbeat("n > 1", 5))
        assert back.ask(11, subscribed()).code == 0
        assert not data(later).entry.dead

    def test_it_did_not_die_before_it_was_born(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        born = data(world).entry.born_time
        world.close()
        assert data(World(files=world.files, now=world.now)).entry.dead_time == born

    def test_a_day_counts_over_a_restart(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        peer.close()
        world.close()
        later = World(files=world.files, begin=False)
        later.set_wall(DAY)
        later.broker.begin(later.now)
        later.act()
        later.advance(10)
        assert len(later.broker.filters) == 0

    @pytest.mark.parametrize("version", VERSIONS)
    def test_apaches_file(self, version: str) -> None:
        text = (GOLDEN.store(version, "clean").config / "consumerFilter.json").read_bytes()
        files = MemoryFiles()
        files.make_folder("/store/config")
        files.write(FILE, text)
        world = World(files=files, enable_property_filter=True, begin=False)
        world.set_wall(1_800_000_000_000 - WALL)
        world.broker.begin(world.now)
        entry = data(world, "store-sql", "Filtered").entry
        assert (entry.expression, entry.dead) == ("n > 1 AND color = 'red'", True)
        assert entry == ConsumerFilters.from_json(text).topics["Filtered"].groups["store-sql"]
        world.broker.filters.subscribed("other", [], [])
        peer = world.connect()
        send_numbers(peer, 1, 2, topic="Filtered")
        peer.heartbeat(heartbeat("n > 1 AND color = 'red'", entry.version, group="store-sql", topic="Filtered"))
        answer = peer.ask(11, subscribed(version=entry.version, consumerGroup="store-sql", topic="Filtered"))
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "2")
        world.close()
        assert loads(files.read(FILE + ".bak")) == loads(text)
        assert loads(files.read(FILE))["filterDataByTopic"]["Filtered"]["groupFilterData"]["store-sql"]["dead"] is False

    def test_bits_of_another_shape(self, world: World, peer: Peer) -> None:
        """Apache drops all expressions then. They are as good as before: only the bits are worked out anew."""
        peer.heartbeat(heartbeat())
        world.close()
        later = World(files=world.files, expect_consumer_num_use_filter=64, now=50_000)
        entry = data(later).entry
        assert entry.bloom is not None
        assert entry.bloom.bits == later.broker.filters.bloom.bits > 112
        assert entry.born_time == later.wall

    def test_a_damaged_file_is_no_reason_not_to_start(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        world.close()
        for path in (FILE, FILE + ".bak"):
            world.files.write(path, b'{"filterDataByTopic":{')
        later = World(files=world.files)
        assert any(
            "consumerFilter.json" in notice and "starting without it" in notice for notice in later.broker.notices
        )
        later.connect().heartbeat(heartbeat())
        later.close()
        assert len(World(files=later.files).broker.filters) == 1

    def test_the_backup(self, world: World, peer: Peer) -> None:
        peer.heartbeat(heartbeat())
        world.advance(10_000)
        peer.heartbeat(heartbeat(version=6))
        world.close()
        world.files.write(FILE, b"{")
        assert data(World(files=world.files)).entry.version == 5

    def test_entries_that_are_none(self, world: World) -> None:
        """Whatever a file holds: no start fails, and nobody gets what he did not ask for."""
        entries = {
            "G": {"expression": "n > > 1", "expressionType": "SQL92", "clientVersion": 5},
            "E": {"expression": "", "expressionType": "SQL92"},
            "A": {"expression": "a || b", "expressionType": "TAG"},
            "X": {"expression": "n > 1", "expressionType": "XPATH", "clientVersion": 5, "deadTime": 7},
        }
        table = {"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": entries}}}
        world.close()
        world.files.write(FILE, json.dumps(table).encode())
        later = World(files=world.files, enable_property_filter=True, filter_data_clean_time_span=1 << 50)
        assert len(later.broker.filters) == 2
        peer = later.connect(PEER)
        send_numbers(peer, 1, 2)
        peer.heartbeat(heartbeat("n > > 1", 5))
        assert peer.ask(11, subscribed()).code == 27
        peer.heartbeat(heartbeat("n > 1", 5, group="X", kind="XPATH"))
        assert peer.ask(11, subscribed(consumerGroup="X")).code == 27


def test_a_dump_of_a_queue_shows_it(world: World, peer: Peer) -> None:
    send_numbers(peer, 1)
    peer.heartbeat(heartbeat())
    answer = peer.ask(321, {"topic": "T", "queueId": "0", "index": "0", "count": "1", "consumerGroup": "G"})
    assert loads(loads(bytes(answer.body))["filterData"]) == data(world).entry.to_value()
