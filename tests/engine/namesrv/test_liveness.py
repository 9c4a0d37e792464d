"""Brokers and links end at their deadlines, or at once when a connection breaks; an idle name server waits for
nothing.
"""

from __future__ import annotations

from mqproto.engine.settings import NamesrvSettings
from mqproto.state.node.contract import HangUp
from mqproto.wire.bodies import DataVersion
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig

#: No link is idle for too long in these tests, unless they say so.
PATIENT = 10_000


def rig_with_broker() -> Rig:
    return Rig(NamesrvSettings(server_channel_max_idle_time_seconds=PATIENT))


def test_a_silent_broker_is_gone_after_two_minutes() -> None:
    rig = rig_with_broker()
    link, other = rig.connect(), rig.connect()
    rig.register(link)
    rig.advance(119_999)
    assert rig.ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 0
    assert rig.node.actions == []
    rig.advance(1)
    assert rig.node.actions == [HangUp(link, "the broker did not register for too long")]
    assert rig.ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 17
    assert link.ended


def test_registering_again_and_being_asked_for_the_version_keep_a_broker_alive() -> None:
    rig = rig_with_broker()
    link = rig.connect()
    rig.register(link)
    rig.advance(100_000)
    rig.register(link)
    rig.advance(100_000)
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(1, 1).to_json())
    assert answer.fields == {"changed": "false"}
    rig.advance(100_000)
    assert rig.hung_up() == []
    answer = rig.ask(link, RequestCode.QUERY_DATA_VERSION, rig.broker(), DataVersion(1, 2).to_json())
    assert (answer.fields, bytes(answer.body)) == ({"changed": "true"}, DataVersion(1, 1).to_json())
    rig.advance(20_000)
    assert rig.hung_up() == [link], "a version that changed is no sign of life"


def test_a_lost_link_takes_its_brokers_along_at_once() -> None:
    rig = rig_with_broker()
    link, other = rig.connect(), rig.connect()
    rig.register(link)
    rig.register(link, name="broker-b", address="10.0.0.3:10911")
    rig.node.closed(link, "reset by peer", rig.now)
    assert rig.ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 17
    assert rig.node.state.registry.cluster_info().brokers == {}
    assert rig.hung_up() == []


def test_only_the_connection_of_the_last_registration_counts() -> None:
    """A broker that reconnected is not lost with its old connection."""
    rig = rig_with_broker()
    old, new = rig.connect(), rig.connect()
    rig.register(old)
    rig.register(new)
    rig.node.closed(old, "reset by peer", rig.now)
    assert rig.ask(new, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 0


def test_a_broken_stream_loses_the_broker_too() -> None:
    rig = rig_with_broker()
    link, other = rig.connect(), rig.connect()
    rig.register(link)
    rig.send(link, b"GET / HTTP/1.1\r\n\r\n")
    assert rig.hung_up() == [link]
    assert rig.ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 17
    rig.node.closed(link, "a driver that had not heard yet", rig.now)
    assert rig.hung_up() == []


def test_an_idle_link_is_closed_when_nothing_came_for_the_set_time() -> None:
    rig = Rig(NamesrvSettings(server_channel_max_idle_time_seconds=120))
    quiet, busy = rig.connect(), rig.connect()
    for byte in (b"\0", b"\0", b"\0", b"\x64"):  # of a frame that never becomes whole
        rig.advance(60_000)
        rig.send(busy, byte)
    assert rig.hung_up() == [quiet]
    rig.advance(120_000)
    assert rig.hung_up() == [busy]
    assert rig.node.next_deadline() is None, "nothing is left to wait for"


def test_timers_that_come_early_late_or_twice_are_harmless() -> None:
    rig = rig_with_broker()
    link = rig.connect()
    rig.register(link)
    for now in (0, rig.now, rig.now + 119_999):
        rig.node.timer(now)
    assert rig.node.actions == []
    rig.node.timer(rig.now + 500_000)
    rig.node.timer(rig.now + 500_000)
    assert rig.hung_up() == [link]


def test_an_empty_name_server_waits_for_nothing() -> None:
    assert Rig().node.next_deadline() is None
