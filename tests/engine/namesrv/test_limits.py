"""What a name server keeps for peers has an end: connections, requests that do not come whole, answers that nobody
takes.
"""

from __future__ import annotations

import pytest

from mqproto.codec import encode
from mqproto.engine.namesrv import node
from mqproto.engine.settings import NamesrvSettings
from tests.engine.namesrv.harness import Rig

#: The length word of the longest frame.
HEAD = ((16 << 20) - 4).to_bytes(4, "big")


def test_connections() -> None:
    rig = Rig(NamesrvSettings(max_connections=2))
    first = rig.connect()
    rig.connect()
    assert rig.node.accept("main", "192.0.2.9:1", "192.0.2.1:9876", rig.now) is None
    assert "maxConnections" in rig.node.notices[-1]
    rig.node.closed(first, "closed by the peer", rig.now)
    rig.connect()


def test_whoever_holds_most_of_what_has_not_come_whole_goes() -> None:
    rig = Rig(NamesrvSettings(max_unfinished_bytes=32 << 20))
    small, *large = [rig.connect() for _ in range(4)]
    rig.send(small, HEAD + bytes(4000))
    for link in large:
        rig.send(link, HEAD)
    for _ in range(240):
        for link in large:
            rig.send(link, bytes(65_536))
    assert [link.ended for link in (small, *large)].count(True) >= 1
    assert not small.ended
    assert rig.hung_up() == [link for link in large if link.ended]
    assert rig.ask(rig.connect(), 206).code == 0


def test_what_has_come_whole_or_is_gone_counts_no_longer() -> None:
    rig = Rig(NamesrvSettings(max_unfinished_bytes=32 << 20))
    frame = encode(rig.request(206, {}, bytes(1 << 20)))
    for _ in range(40):
        link, leaving = rig.connect(), rig.connect()
        rig.send(link, frame[:-1])
        rig.send(link, frame[-1:])
        rig.send(leaving, frame[:-1])
        rig.node.closed(leaving, "closed by the peer", rig.now)
    assert rig.hung_up() == []


@pytest.mark.pure
def test_idle_peers_go_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "IDLE_ENDS_MAX", 10)
    rig = Rig()
    for _ in range(25):
        rig.connect()
    rig.advance(119_999)
    rig.now += 1
    rig.node.timer(rig.now)
    assert len(rig.hung_up()) == 10
    rig.advance(0)
    assert len(rig.hung_up()) == 15


def test_reading_stops_at_the_mark() -> None:
    rig = Rig(NamesrvSettings(write_buffer_high_water_mark=1000))
    link = rig.connect()
    wants = [link.wants_read]
    for _ in range(10):
        rig.node.received(link, encode(rig.request(319)), rig.now)
    wants.append(link.wants_read)
    rig.taken(link)
    wants.append(link.wants_read)
    assert wants == [True, False, True]
