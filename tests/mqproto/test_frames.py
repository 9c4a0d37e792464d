"""Frames: where they are cut, how large they may be, and whatever bytes come."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import (
    BINARY,
    JSON,
    MAX_FRAME,
    MAX_TOTAL,
    NO_LANGUAGE,
    Command,
    FrameSplitter,
    decode,
    encode,
    encode_request,
)
from mqproto.errors import RemoteProtocolError
from mqproto.wire.codes import Language, RequestCode
from tests.mqproto.commands import facts, frame_of


@pytest.mark.parametrize(
    "first",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("0300002f2ae0"),
        bytes.fromhex("160301020001"),
        bytes.fromhex("80000000"),
        bytes.fromhex("ffffffff"),
        *(struct.pack(">i", total) for total in (0, 1, 2, 3, MAX_TOTAL + 1)),
    ],
)
def test_refuses_what_is_no_length_at_once(first: bytes) -> None:
    """COD-03: by the first four bytes, and for good."""
    splitter = FrameSplitter()
    with pytest.raises(RemoteProtocolError):
        splitter.feed(first)
    assert splitter.pending == 0
    with pytest.raises(RemoteProtocolError):
        splitter.feed(b"\0")


def test_largest_frame() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(struct.pack(">i", MAX_TOTAL)) == []
    assert splitter.feed(bytes(MAX_TOTAL - 1)) == []
    assert [len(frame) for frame in splitter.feed(b"\0")] == [MAX_FRAME - 4]


def test_frames_before_a_bad_length_are_given_out_first() -> None:
    good = encode_request(RequestCode.HEART_BEAT, 1)
    splitter = FrameSplitter()
    assert splitter.feed(good + b"GET /") == [good[4:]]
    assert splitter.fault is not None
    with pytest.raises(RemoteProtocolError):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    "text",
    [
        "00000002AABB",
        "00000006020000027B7D",
        "0000000400000000",
        "000000040000000A",
        *(
            struct.pack(">ii", 4 + len(one), len(one)).hex() + one.hex()
            for one in (b"[]", b"null", b"7", b'{"code":"x"}', b"{", b"{}x")
        ),
    ],
)
def test_bad_frames(text: str) -> None:
    """COD-01: one typed error."""
    with pytest.raises(RemoteProtocolError):
        [decode(frame) for frame in FrameSplitter().feed(bytes.fromhex(text))]


COMMANDS = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    fields=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(min_size=1), max_size=5
    ),
    body=st.binary(max_size=200),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    remark=st.none() | st.text(min_size=1),
    language=st.sampled_from([NO_LANGUAGE, *map(int, Language)]),
    version=st.integers(0, 612),
    serialize_type=st.sampled_from([JSON, BINARY]),
)


@given(st.lists(COMMANDS, max_size=5), st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_any_split_gives_the_same_commands(commands: list[Command], steps: list[int]) -> None:
    stream = b"".join(encode(command) for command in commands)
    splitter = FrameSplitter()
    seen: list[Command] = []
    at = turn = 0
    while at < len(stream):
        step = steps[turn % len(steps)]
        seen += [decode(frame) for frame in splitter.feed(stream[at : at + step])]
        at += step
        turn += 1
    assert [facts(one) for one in seen] == [facts(one) for one in map(as_received, commands)]


def as_received(command: Command) -> Command:
    """JSON leaves an unset language out, and then Java's is meant."""
    if command.serialize_type == JSON and command.language == NO_LANGUAGE:
        command.language = int(Language.JAVA)
    return command


@given(st.binary(max_size=300))
def test_any_bytes_give_a_command_or_one_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        [decode(frame) for frame in FrameSplitter().feed(data)]
    with contextlib.suppress(RemoteProtocolError):
        decode(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.dictionaries(
    st.sampled_from(["code", "Code", "language", "version", "opaque", "flag", "remark", "extFields", "other"]),
    JSON_VALUES,
    max_size=8,
)


@given(MEMBERS, st.binary(max_size=3), st.integers(0, 400))
def test_any_header_gives_a_command_or_one_error(members: dict[str, Any], noise: bytes, place: int) -> None:
    """What a peer can say in JSON, with bytes of it replaced; and whatever is taken can be sent on."""
    header = bytearray(json.dumps(members).encode())
    header[place : place + len(noise)] = noise
    try:
        command = decode(frame_of(bytes(header)))
    except RemoteProtocolError:
        return
    decode(encode(command)[4:])
    "".join((*command.fields, *command.fields.values(), command.remark or "")).encode()


@given(COMMANDS, st.binary(min_size=1, max_size=4), st.integers(0, 100))
def test_any_binary_header_gives_a_command_or_one_error(command: Command, noise: bytes, place: int) -> None:
    command.serialize_type = BINARY
    frame = bytearray(encode(command)[4:])
    frame[place : place + len(noise)] = noise
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(frame))
