"""Directories that our broker wrote, under Apache's brokers of every release, and back again after those have appended
to them.

What is compared is all that a broker serves (`kit/survey.py`): a test takes it from the broker that ends and from the
one that comes next.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.conftest import need
from tests.peers.kit.checks import assert_same
from tests.peers.kit.directories.filling import add_from_ipv6, check_ipv6
from tests.peers.kit.directories.hands import NEAR, OURS, Hands, wait_saved
from tests.peers.kit.directories.survey import HALF, assert_serves_the_same, wait_for_queue
from tests.peers.kit.peers import JAVA_VERSIONS
from tests.peers.kit.probes import finish
from tests.peers.kit.steps import asked_about, pull


@pytest.mark.parametrize("version", JAVA_VERSIONS)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_apache_serves_what_ours_wrote_and_ours_what_apache_added(
    hands: Hands, tmp_path: Path, version: str, end: str
) -> None:
    need(f"apache:{version}")
    directory = hands.written(end).copied(tmp_path)
    ipv6 = end == "stopped" and version != "4.4.0"
    if ipv6:
        add_from_ipv6(tmp_path / "store", f"127.0.0.1:{directory.port}")
    with directory.under(f"apache:{version}") as server:
        found = hands.look(server)
        if ipv6:
            check_ipv6(found)
        assert_serves_the_same(directory.served, found, besides={"Six"} if ipv6 else set())
        hands.add(directory, server)
        if end == "stopped" or version == "4.4.0":  # which forgets at its end what it has delivered of its delay queues
            wait_saved(directory)
        if end == "stopped":
            server.crash()
    with directory.under(OURS, flushDiskType="SYNC_FLUSH" if end == "stopped" else "ASYNC_FLUSH") as server:
        assert_serves_the_same(directory.served, hands.look(server))
        hands.add(directory, server)


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_what_waits_is_finished_by_the_next_broker(hands: Hands, tmp_path: Path, version: str) -> None:
    """Half messages are asked for and committed, delayed ones delivered as their sender made them, and ours knows of
    both afterwards.
    """
    need(f"apache:{version}")
    directory = hands.written("stopped").copied(tmp_path)
    quick = {
        "transactionCheckInterval": "1000",
        "transactionTimeOut": "500",
        "transactionCheckMax": "1000",
        "messageDelayLevel": NEAR,
    }
    with directory.under(f"apache:{version}", **quick) as server:
        pair = hands.pair(server)
        checked = pair.start(
            "transact", topic="Bought", group="buyers", count=0, checks=1000, check="commit", seconds=250
        )
        (asked, *_) = asked_about(checked, {"turn1-pending-0"})
        assert len(pull(pair, "Bought", 3)) == 3  # its producer stays until the answer has arrived
        checked.stop()
        finish(checked, status=1)
        wait_for_queue(pair, "Waiting", 1)
    with directory.under(OURS) as server:
        found = hands.look(server)
        halves = [line for line in found.of(HALF) if line["body"] == "turn1-pending-0"]
        assert (asked["body"], asked["transactionId"]) == ("turn1-pending-0", halves[0]["msgId"])
        (bought,) = [line for line in found.of("Bought") if line["body"] == "turn1-pending-0"]
        assert bought["preparedTransactionOffset"] in [line["physicalOffset"] for line in halves]
        for name in ("msgId", "bornTimestamp", "bornHost", "tags", "keys", "bodyCRC"):
            assert bought[name] == halves[0][name]
        assert_same(
            server, directory.filled.sent["Waiting"], found.of("Waiting"), extra={"DELAY", "REAL_TOPIC", "REAL_QID"}
        )
        kept = [line for line in found.of("Bought") if line["body"] != "turn1-pending-0"]
        assert kept == directory.served.of("Bought")


def test_a_directory_goes_through_many_hands(hands: Hands, tmp_path: Path) -> None:
    """Each broker serves what the one before it did, and adds messages of every kind; some end in order, some do
    not.
    """
    # which 4.4.0 reports as failed at the end of a file (docs/protocol/store.md 7.3)
    sync = {"flushDiskType": "SYNC_FLUSH"}
    turns: list[tuple[str, str, dict[str, str]]] = [
        ("apache:4.4.0", "stopped", {}), ("apache:4.9.7", "killed", sync), (OURS, "killed", {}),
        ("apache:5.3.3", "killed", sync),
        (OURS, "stopped", sync),
    ]  # fmt: skip
    for kind, _, _ in turns:
        need(kind)
    directory = hands.written("killed").copied(tmp_path)
    for kind, end, settings in turns:
        with directory.under(kind, **settings) as server:
            assert_serves_the_same(directory.served, hands.look(server))
            hands.add(directory, server)
            wait_saved(directory)
            if end == "killed":
                server.crash()
