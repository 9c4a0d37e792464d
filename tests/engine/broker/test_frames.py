"""Frames and whatever else comes in by a port: cut anywhere, broken, unknown (COD-01 to COD-12)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.codec import BINARY, JSON, MAX_TOTAL
from mqproto.engine.broker.core.core import UNSENT_MAX
from tests.engine.broker.harness import Peer, World, pull_fields, send_fields

BROKEN = [
    "00000002AABB",
    "0000000602000002" + "7B7D",
    "0000000400000000",
    "00000006" + "00000002" + b"[]".hex(),
    "00000008" + "00000004" + b"null".hex(),
    "00000005" + "00000001" + b"7".hex(),
    "00000010" + "0000000c" + b'{"code":"x"}'.hex(),
    "0000000a" + "00000009" + b'{"a":1'.hex(),
    "ffffffff",
    "80000000",
    "00fffffd",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".hex(),
    b"GET / HTTP/1.1\r\n\r\n".hex(),
    "0300002F2AE0",
    "16030100a5010000a1",
    "0000000e0100000a0000000000000000ffff",
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_frame_ends_that_link_and_nothing_else(world: World, peer: Peer, text: str) -> None:
    """COD-01, COD-03: one notice, the link closed at once, everybody else served."""
    other = world.connect("192.0.2.9:1")
    peer.feed(bytes.fromhex(text))
    assert peer.ended()
    assert peer.read() == []
    assert len(world.broker.notices) == 1
    assert other.send().code == 0
    assert len(world.hang_ups) == 1
    peer.feed(b"more")


def test_what_came_before_it_is_answered(world: World, peer: Peer) -> None:
    world.connect("192.0.2.8:1").send()
    peer.feed(peer.frame(310, send_fields(), b"x") + b"GET / HTTP/1.1\r\n\r\n")
    assert peer.ended()
    assert [answer.code for answer in peer.read()] == [0]
    assert peer.link in world.broker.touched or peer.link.unsent == 0


def test_the_largest_length_waits_for_its_bytes_and_one_more_is_refused(world: World, peer: Peer) -> None:
    peer.feed(MAX_TOTAL.to_bytes(4, "big"))
    assert not peer.ended()
    other = world.connect()
    other.feed((MAX_TOTAL + 1).to_bytes(4, "big"))
    assert other.ended()


def test_a_large_frame_in_small_pieces() -> None:
    world = World()
    peer = world.connect()
    data = peer.frame(310, send_fields(), bytes(range(256)) * 4000)
    for at in range(0, len(data), 4096):
        peer.feed(data[at : at + 4096])
    assert [answer.code for answer in peer.read()] == [0]
    assert peer.messages()[0].body == bytes(range(256)) * 4000


def open_peers() -> tuple[Peer, Peer]:
    """Peers of two brokers that are alike."""
    worlds = World(), World()
    for world in worlds:
        world.connect("192.0.2.8:1").send()
    return worlds[0].connect(), worlds[1].connect()


def talk(peer: Peer) -> bytes:
    """Requests of several kinds, those of the fast paths among them, about a topic that is there already: the first
    acknowledgement of a new one waits, and others pass it.
    """
    frames = [peer.frame(310, send_fields(properties="TAGS\x01a\x02"), b"%d" % n) for n in range(4)]
    frames += [peer.frame(11, pull_fields(offset=n)) for n in range(3)]
    frames += [
        peer.frame(34, None, b'{"clientID":"c"}'),
        peer.frame(9999),
        peer.frame(30, {"topic": "T", "queueId": "0"}, kind=BINARY),
    ]
    return b"".join(frames)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_split_gives_the_same_answers(data: st.DataObject) -> None:
    whole, pieces = open_peers()
    stream = talk(whole)
    whole.feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(stream) - 1), max_size=12)))
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if begin < end:
            pieces.feed(stream[begin:end])
    whole.read()
    pieces.read()
    assert whole.frames == pieces.frames
    assert len(whole.frames) == 10


def test_byte_by_byte() -> None:
    whole, pieces = open_peers()
    stream = talk(whole)
    whole.feed(stream)
    for at in range(len(stream)):
        pieces.feed(stream[at : at + 1])
    whole.read()
    pieces.read()
    assert whole.frames == pieces.frames


def test_half_frames_vanish_with_their_link(world: World, peer: Peer) -> None:
    """COD-12."""
    data = peer.frame(310, send_fields(), b"never")
    peer.feed(data[:-1])
    peer.close()
    other = world.connect()
    other.feed(data[-1:])
    assert not other.ended()
    assert world.connect().pull().code == 17


SHORT_CODES = [3442, 32767, -1, 13, 301]


@pytest.mark.parametrize(
    ("kind", "code"),
    [(JSON, code) for code in [*SHORT_CODES, 200_050, 2**31 - 1]] + [(BINARY, code) for code in SHORT_CODES],
)
def test_unknown_codes(peer: Peer, code: int, kind: int) -> None:
    """COD-08. Longer codes cannot travel in a binary header."""
    answer = peer.ask(code, {}, b"", kind=kind)
    assert (answer.code, answer.remark, answer.serialize_type) == (3, f" request type {code} not supported", kind)


CODES = sorted(World().broker.handlers)


@pytest.mark.parametrize("code", CODES)
def test_every_code_takes_any_nonsense(peer: Peer, code: int) -> None:
    """No handler is brought down by what is missing or broken; the link goes on."""
    for fields in (None, {}, {"topic": "T", "queueId": "x"}):
        for body in (b"", b"{", b"[]", b"null", bytes(50)):
            peer.tell(code, fields, body)
            assert not peer.ended()
            assert len(peer.read()) <= 1
    assert peer.send("Works").code == 0


NAMES = "topic queueId group consumerGroup offset delayLevel a b c d e f g h i j m queueOffset sysFlag maxMsgNums key"
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "topic",
            "queueId",
            "group",
            "consumerGroup",
            "offset",
            "delayLevel",
            "a",
            "b",
            "c",
            "d",
            "e",
            "f",
            "g",
            "h",
            "i",
            "j",
            "m",
            "queueOffset",
            "sysFlag",
            "maxMsgNums",
            "key",
        ]
    ),
    st.one_of(
        st.sampled_from(["0", "1", "-1", "T", "%RETRY%g", "9223372036854775807", "true", ""]), st.text(max_size=5)
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CODES), FIELDS, st.binary(max_size=40), st.booleans()), max_size=5))
def test_no_request_stops_the_broker(requests: list[tuple[int, dict[str, str], bytes, bool]]) -> None:
    world = World()
    peer = world.connect()
    for code, fields, body, binary in requests:
        fields = {name: value.encode("utf-8", "replace").decode() for name, value in fields.items()}
        peer.feed(peer.frame(code, fields, body, kind=BINARY if binary else JSON))
    world.advance(100_000)
    assert world.connect().send("Works").code == 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_stop_the_broker(data: bytes) -> None:
    world = World()
    world.connect().feed(data)
    assert world.connect().send().code == 0


def test_answers_that_nobody_waits_for_are_dropped(peer: Peer) -> None:
    peer.tell(0, {}, b"", flag=1)
    assert peer.read() == []
    assert not peer.ended()


def test_unknown_languages_and_versions_are_tolerated(peer: Peer) -> None:
    """COD-10."""
    header = {
        "code": 30,
        "extFields": {"topic": "T", "queueId": "0"},
        "flag": 0,
        "language": "PYTHON3",
        "opaque": 5,
        "version": 9999,
    }
    data = json.dumps(header).encode()
    peer.feed((4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)
    assert [answer.opaque for answer in peer.read()] == [5]


def test_numbers_in_fields_count_as_text(peer: Peer) -> None:
    header = {
        "code": 30,
        "extFields": {"topic": "T", "queueId": 0},
        "flag": 0,
        "language": "CPP",
        "opaque": 5,
        "version": 63,
        "remark": "",
    }
    data = json.dumps(header).encode() + b"\n"
    peer.feed((4 + len(data)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)
    assert [answer.code for answer in peer.read()] == [0]


def test_a_peer_that_does_not_read_is_not_read_from_and_not_served_without_end(world: World, peer: Peer) -> None:
    for _ in range(40):
        peer.send(body=bytes(1 << 16))
    link = peer.link
    while link.wants_read:
        peer.feed(b"".join(peer.frame(11, pull_fields()) for _ in range(10)))
    assert link.unsent > 1 << 22
    before = link.unsent
    peer.feed(b"".join(peer.frame(11, pull_fields()) for _ in range(2000)))
    assert link.unsent < before + UNSENT_MAX + (1 << 20)
    assert any(answer.code == 2 for answer in peer.read())
    assert peer.pull().code == 0


def test_a_peer_without_an_address(world: World) -> None:
    peer = world.connect("pipe")
    assert peer.send().code == 0
    assert peer.messages()[0].born_host == "0.0.0.0:0"


def test_a_peer_with_a_long_address(world: World) -> None:
    """MSG-06: hosts of both families in one record."""
    peer = world.connect("[2001:db8::7]:40000")
    assert peer.send().code == 0
    (message,) = peer.messages()
    assert (message.born_host, message.store_host, message.sys_flag) == ("[2001:db8::7]:40000", "192.0.2.2:10911", 0x10)
    peer.send(f="32")
    assert peer.messages()[1].sys_flag == 0x10, "the flags of hosts are the broker's to set"


def test_stale_inputs_are_harmless(world: World, peer: Peer) -> None:
    peer.close()
    peer.close()
    peer.feed(b"late")
    world.broker.timer(world.now)
    world.broker.timer(world.now - 5)
