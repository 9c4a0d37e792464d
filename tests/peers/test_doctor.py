"""Directories that the doctor repaired, under Apache's brokers; and the doctor over what those added."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from mqproto.engine.settings import apply
from mqproto.engine.store import DiskFiles, Recover, StoreSettings
from mqproto.engine.store.doctor import Repair, check
from mqproto.wire.codes import RequestCode
from mqproto.wire.codes import ResponseCode as Code
from mqproto.wire.flags import pull_flag
from mqproto.wire.record import decode_records
from tests.peers.conftest import need
from tests.peers.kit import wire
from tests.peers.kit.directories.filling import LOG_FILE
from tests.peers.kit.directories.hands import SETTINGS, Hands, wait_saved
from tests.peers.kit.directories.survey import assert_serves_the_same
from tests.peers.kit.peers import JAVA_VERSIONS
from tests.peers.kit.servers import Server


def repair(root: Path, recover: Recover = Recover.REFUSE) -> None:
    """Repair a directory, whose broker has the settings of the tests."""
    settings = StoreSettings()
    apply(settings, SETTINGS)
    repairing = Repair(DiskFiles(), str(root), recover=recover, settings=settings)
    for _ in repairing.survey():
        pass
    assert repairing.plan.steps
    for _ in repairing.run(int(time.time() * 1000)):
        pass
    assert repairing.report.findings == []


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_apache_serves_what_was_repaired(hands: Hands, tmp_path: Path, version: str) -> None:
    need(f"apache:{version}")
    directory = hands.written("stopped").copied(tmp_path)
    root = tmp_path / "store"
    shutil.rmtree(root / "consumequeue" / "Orders" / "1")
    shutil.rmtree(root / "index")
    with (root / "consumequeue" / "Later" / "0" / f"{0:020d}").open("r+b") as file:
        file.write(bytes(20))
    repair(root)
    with directory.under(f"apache:{version}") as server:
        assert_serves_the_same(directory.served, hands.look(server))
        hands.add(directory, server)
        wait_saved(directory)
    report = check(DiskFiles(), str(root))
    assert report.findings == []
    assert report.entries == report.records


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_apache_goes_on_with_what_was_skipped(hands: Hands, tmp_path: Path, version: str) -> None:
    """One message is gone and its place stays; it leads to the message behind it, which Apache's brokers give twice."""
    need(f"apache:{version}")
    directory = hands.written("stopped").copied(tmp_path)
    root = tmp_path / "store"
    place, line = next(
        (place, line)
        for place, line in sorted(directory.served.messages.items())
        if place[0] == "Orders" and 0 < place[2] < directory.served.queues[place[:2]]["max"] - 1
    )
    queue, offset = place[:2], place[2]
    with (root / "commitlog" / f"{line['physicalOffset'] // LOG_FILE * LOG_FILE:020d}").open("r+b") as file:
        file.seek(line["physicalOffset"] % LOG_FILE + 4)
        file.write(b"ruin")
    repair(root, Recover.SKIP)
    end = directory.served.queues[queue]["max"]
    with directory.under(f"apache:{version}") as server:
        found = hands.look(server, holes=[place])
        before, after = (
            {place: (one["min"], one["max"]) for place, one in each.queues.items()}
            for each in (directory.served, found)
        )
        assert after == before
        assert found.messages == {kept: one for kept, one in directory.served.messages.items() if kept != place}
        assert pulled(server, queue, offset) == (Code.SUCCESS, [offset + 1, *range(offset + 1, end)])
        assert pulled(server, queue, offset + 1) == (Code.SUCCESS, list(range(offset + 1, end)))


def pulled(server: Server, queue: tuple[str, int], offset: int) -> tuple[int, list[int]]:
    """What a pull of all that a queue has from an offset on gives: its code, and the offsets of the messages."""
    fields = {
        "consumerGroup": "surveyors", "topic": queue[0], "queueId": str(queue[1]), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": str(pull_flag(commit_offset=False, suspend=False, subscription=True)),
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    header, body = wire.ask(server.broker, RequestCode.PULL_MESSAGE, fields)
    return header["code"], [message.queue_offset for message in decode_records(body)]
