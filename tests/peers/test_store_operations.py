"""Directories of ours that have seen more than messages: under Apache's brokers, and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.peers.conftest import need
from tests.peers.kit.directories.filling import fill
from tests.peers.kit.directories.hands import OURS, Hands, wait_saved
from tests.peers.kit.directories.operating import damage, delete_first_files, skip_damage, store_command
from tests.peers.kit.directories.survey import assert_serves_the_same


def test_the_extension_of_queues(hands: Hands, tmp_path: Path) -> None:
    need("apache:4.9.7")
    extended = {"enableConsumeQueueExt": "true"}
    directory = hands.fresh(tmp_path)
    for kind in (OURS, "apache:4.9.7", OURS):
        with directory.under(kind, **extended) as server:
            if directory.filled.turns:
                assert_serves_the_same(directory.served, hands.look(server))
            hands.add(directory, server)
            if kind != OURS:
                wait_saved(directory)
                server.crash()
    assert (tmp_path / "store" / "consumequeue_ext" / "Orders" / "0" / f"{0:020d}").exists()


def test_a_log_without_its_first_files(hands: Hands, tmp_path: Path) -> None:
    need("apache:4.9.7")
    directory = hands.written("stopped").copied(tmp_path)
    with directory.under(OURS) as server:
        hands.add(directory, server)
    delete_first_files(tmp_path / "store", 2)
    with directory.under(OURS) as server:
        directory.served = hands.look(server)
    with directory.under("apache:4.9.7") as server:
        assert_serves_the_same(directory.served, hands.look(server))
        fill(hands.pair(server), directory.filled)
        directory.served = hands.look(server)
        wait_saved(directory)
        server.crash()
    with directory.under(OURS) as server:
        assert_serves_the_same(directory.served, hands.look(server))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_damage_that_was_stepped_over(hands: Hands, tmp_path: Path, version: str) -> None:
    need(f"apache:{version}")
    directory = hands.written("killed").copied(tmp_path)
    lost = next(place for place in directory.served.messages if place[0] == "Batched" and place[2] == 2)
    damage(tmp_path / "store", directory.served.messages[lost])
    skip_damage(tmp_path / "store")
    with directory.under(OURS) as server:
        found = hands.look(server, {lost})
        assert found.messages == {place: line for place, line in directory.served.messages.items() if place != lost}
        server.crash()
    (tmp_path / "store" / "checkpoint").unlink()  # so that Apache's broker begins with the first file
    with directory.under(f"apache:{version}") as server:
        assert_serves_the_same(found, hands.look(server, {lost}))
        server.crash()


def test_queues_and_index_that_were_repaired(hands: Hands, tmp_path: Path) -> None:
    need("apache:4.9.7")
    directory = hands.written("stopped").copied(tmp_path)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / "store" / folder)
    store_command("repair", tmp_path / "store", "--yes")
    with directory.under("apache:4.9.7") as server:
        assert_serves_the_same(directory.served, hands.look(server))
        server.crash()
