"""Links, frames and bad input: nothing that a peer sends stops the name server or disturbs another link."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.codec import BINARY, Command, encode
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.namesrv import node as node_module
from mqproto.engine.settings import NamesrvSettings
from mqproto.errors import InvalidSetting
from mqproto.state.node.contract import HangUp, Link
from mqproto.wire.codes import RequestCode
from tests.engine.namesrv.harness import Rig

CODES = sorted(node_module.HANDLERS)


def test_every_request_of_the_name_server_is_served() -> None:
    assert CODES == [
        100,
        101,
        102,
        103,
        104,
        105,
        106,
        205,
        206,
        216,
        217,
        219,
        224,
        304,
        311,
        312,
        313,
        318,
        319,
        322,
        327,
        901,
        904,
    ]


@pytest.mark.parametrize("code", [0, 902, 3442, 32767, -1])
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_an_unknown_code_is_answered(code: int, serialize_type: int) -> None:
    """With code 3, in the form of the request (COD-08)."""
    rig = Rig()
    link = rig.connect()
    answer = rig.ask(link, code, {"a": "b"}, serialize_type=serialize_type)
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
    assert answer.serialize_type == serialize_type
    assert rig.node.actions == []


@pytest.mark.parametrize("code", CODES)
def test_a_request_without_anything_is_answered(code: int) -> None:
    """COD-05: an error with the same opaque, and the connection goes on."""
    rig = Rig()
    link = rig.connect()
    answer = rig.ask(link, code)
    assert answer.code in (0, 1)
    assert rig.node.actions == []
    assert rig.ask(link, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


def test_binary_headers_are_answered_in_binary() -> None:
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    answer = rig.ask(link, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, serialize_type=BINARY)
    assert (answer.code, answer.serialize_type) == (0, BINARY)


def test_one_way_requests_and_answers_get_no_answer() -> None:
    rig = Rig()
    link = rig.connect()
    for flag in (1, 2, 3):
        assert rig.send(link, encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO, flag=flag))) == []
    assert rig.send(link, encode(Command(904, flag=2))) == []
    assert rig.node.actions == []


@pytest.mark.parametrize(
    "garbage",
    [
        bytes.fromhex("00000002aabb"),
        bytes.fromhex("00000006020000027b7d"),
        bytes.fromhex("0000000400000000"),
        b"\0\0\0\x06\0\0\0\x02[]",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("0300002f2ae0"),
        bytes.fromhex("160301"),
        bytes.fromhex("00fffffd"),
    ],
)
def test_garbage_ends_that_link_alone(garbage: bytes) -> None:
    """COD-01, COD-03; what came before on the link is answered, and what comes after is ignored."""
    rig = Rig()
    bad, good = rig.connect(), rig.connect()
    request = encode(rig.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert [answer.code for answer in rig.send(bad, request + garbage.ljust(4, b"\0"))] == [0]
    (action,) = rig.node.actions
    assert isinstance(action, HangUp)
    assert action.link is bad
    assert action.reason
    assert rig.send(bad, request) == []
    assert rig.ask(good, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


def test_requests_are_answered_however_the_stream_was_cut() -> None:
    rig = Rig()
    link = rig.connect()
    data = b"".join(encode(rig.request(code)) for code in CODES)
    whole = rig.send(link, data)
    for size in (1, 3, 100):
        parts = [rig.send(link, data[at : at + size]) for at in range(0, len(data), size)]
        assert [answer for part in parts for answer in part] == whole
    assert len(whole) == len(CODES)


@pytest.mark.pure
def test_a_peer_that_asks_and_does_not_read_is_answered_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read can bring thousands of requests whose answers are long."""
    monkeypatch.setattr(node_module, "UNSENT_MAX", 1000)
    rig = Rig()
    link = rig.connect()
    rig.register(link)
    request = encode(rig.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    answers = rig.send(link, request * 50)
    assert [answer.code for answer in answers[:3]] == [0, 0, 0]
    assert answers[-1].code == 2
    assert answers[-1].body == b""
    assert link.wants_read
    assert rig.ask(link, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


def test_the_driver_stops_reading_while_much_is_unsent() -> None:
    rig = Rig()
    link = rig.connect()
    link.unsent = (4 << 20) + 1
    assert not link.wants_read


def test_the_end() -> None:
    rig = Rig()
    links = [rig.connect(), rig.connect()]
    rig.register(links[0])
    rig.node.close(rig.now)
    assert rig.hung_up() == links
    assert rig.node.ended
    assert rig.node.accept("main", "10.0.0.9:1", "10.0.0.1:9876", rig.now) is None
    assert rig.node.next_deadline() is None
    rig.node.close(rig.now)
    assert rig.hung_up() == []


def test_settings_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="between 1 and"):
        NameServerNode(NamesrvSettings(server_channel_max_idle_time_seconds=0))


texts = st.text(max_size=6)
names = st.sampled_from(
    [
        "brokerName",
        "brokerAddr",
        "clusterName",
        "haServerAddr",
        "brokerId",
        "topic",
        "namespace",
        "key",
        "value",
        "compressed",
    ]
)
requests = st.builds(
    Command,
    code=st.sampled_from(CODES) | st.integers(-(1 << 15), (1 << 15) - 1),
    fields=st.dictionaries(names, texts | st.sampled_from(["0", "1", "-1", "true", "x"]), max_size=10),
    body=st.binary(max_size=30) | st.sampled_from([b"{}", b'{"topicConfigSerializeWrapper":{}}', b"a=b"]),
    flag=st.sampled_from([0, 0, 0, 1, 2]),
    version=st.sampled_from([0, 36, 37, 400, 401, 479]),
    serialize_type=st.sampled_from([0, 1]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(requests, max_size=8), st.lists(st.binary(max_size=12), max_size=3))
def test_whatever_comes_every_request_has_one_answer_and_others_are_served(
    commands: list[Command], noise: list[bytes]
) -> None:
    rig = Rig()
    peer, other = rig.connect(), rig.connect()
    rig.register(other)
    for command in commands:
        answers = rig.send(peer, encode(command))
        assert len(answers) == (0 if command.flag else 1)
        rig.advance(40_000)
        if peer.ended:
            peer = rig.connect()
        rig.send(other, encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO)))
        if not other.ended:
            rig.register(other)
    for data in noise:
        if data:
            rig.send(peer, data)
    if not other.ended:
        assert rig.ask(other, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
    links: list[Link] = [peer, other]
    for link in links:
        if not link.ended:
            rig.node.closed(link, "closed", rig.now)
    rig.advance(500_000)
    registry = rig.node.state.registry
    assert [registry.live, registry.brokers, registry.topics, registry.clusters] == [{}] * 4
    assert rig.node.next_deadline() is None
