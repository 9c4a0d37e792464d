"""Tables whose files are lost or damaged when a broker starts: it is said, and nothing is taken for empty that was
not.
"""

from __future__ import annotations

import pytest

from mqproto.engine.store import ConfigDamaged
from tests.engine.broker.harness import World

CONFIG = "/store/config"
TABLES = ["topics.json", "subscriptionGroup.json", "consumerOffset.json"]


def used() -> World:
    world = World()
    world.connect().send("Topic")
    world.broker.offsets.commit("group", "Topic", 0, 7)
    world.close()
    return world


def test_an_orderly_end_leaves_all_tables_and_nothing_is_said() -> None:
    world = used()
    assert set(TABLES) <= set(world.files.names(CONFIG))
    assert not World(files=world.files).broker.notices


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_table_that_is_missing_beside_messages_is_said(name: str) -> None:
    world = used()
    world.files.remove(f"{CONFIG}/{name}")
    world.files.remove(f"{CONFIG}/{name}.bak")
    later = World(files=world.files)
    assert [notice for notice in later.broker.notices if "there are messages" in notice and name in notice]


def test_a_new_directory_misses_nothing() -> None:
    assert not World().broker.notices


@pytest.mark.parametrize("damage", [b"{", b"", b"[]", bytes(40)])
@pytest.mark.parametrize("name", TABLES)
def test_a_damaged_pair_stops_the_start_and_both_files_are_named(name: str, damage: bytes) -> None:
    world = used()
    for path in (f"{CONFIG}/{name}", f"{CONFIG}/{name}.bak"):
        world.files.write(path, damage)
    with pytest.raises(ConfigDamaged) as caught:
        World(files=world.files)
    assert f"{CONFIG}/{name} " in str(caught.value)
    assert f"{CONFIG}/{name}.bak " in str(caught.value)


@pytest.mark.parametrize(
    "text", ['{"offsetTable":{"Topic@group":{0:7,3:9\n\t\t}\n\t}\n}', '{"offsetTable":{"Topic@group":{"0":7,"3":9}}}']
)
def test_integer_keys_with_and_without_quotes(text: str) -> None:
    world = used()
    for mark in (b"", b"\xef\xbb\xbf"):
        world.files.write(f"{CONFIG}/consumerOffset.json", mark + text.encode())
        later = World(files=world.files)
        assert later.broker.offsets.table == {"Topic@group": {0: 7, 3: 9}}
        later.close()


def test_delay_progress_begins_anew_when_both_files_are_damaged() -> None:
    """DLY-04: a start never fails for it. What was there is set aside."""
    world = used()
    world.files.write(f"{CONFIG}/delayOffset.json", b"{1")
    world.files.write(f"{CONFIG}/delayOffset.json.bak", bytes(10))
    later = World(files=world.files)
    assert any("delayOffset.json" in notice and "starting without it" in notice for notice in later.broker.notices)
    later.broker.delay_progress.set(1, 5)
    later.close()
    assert later.files.read(f"{CONFIG}/delayOffset.json.damaged") == b"{1"
    assert World(files=later.files).broker.delay_progress.table == {1: 5}
