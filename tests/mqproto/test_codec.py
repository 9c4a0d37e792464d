"""Commands and their headers against Apache's own, and against every recorded frame."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from mqproto.codec import (
    BINARY,
    JSON,
    LANGUAGE,
    MAX_FRAME,
    NO_LANGUAGE,
    Command,
    FrameSplitter,
    decode,
    encode,
    encode_head,
    encode_request,
    encode_response,
)
from mqproto.errors import LocalProtocolError, RemoteProtocolError
from mqproto.wire.codes import VERSION, Language
from tests.golden.golden import GOLDEN, VERSIONS, Golden
from tests.mqproto.commands import facts, frame_of

KINDS = {"JSON": JSON, "ROCKETMQ": BINARY}


def expected(output: dict[str, Any]) -> dict[str, Any]:
    """What a vector says, with absent fields and empty ones made alike: Java's null values and names are no fields
    here.
    """
    fields = {
        name: value for name, value in (output["extFields"] or {}).items() if value is not None and name != "null"
    }
    return {**output, "extFields": fields, "body": output["body"] or None}


# --- Apache's own functions -------------------------------------------------------------------------------------------


def test_decodes_what_java_encodes(golden: Golden) -> None:
    for kind in ("command-encode", "custom-header-encode"):
        for vector in golden.vectors(kind):
            for output in vector.outputs.values():
                frame = bytes.fromhex(output)
                (decoded,) = [decode(one) for one in FrameSplitter().feed(frame)]
                assert decoded.code == (
                    vector.input.get("code", 10) if decoded.serialize_type == JSON else decoded.code
                )
                again = decode(encode(decoded)[4:])
                assert again == decoded


def test_command_encode(golden: Golden) -> None:
    """What Java made of a command says to us what went in."""
    for vector in golden.vectors("command-encode"):
        given_command = vector.input
        command = decode(bytes.fromhex(vector.output())[4:])
        want = expected({name: value for name, value in given_command.items() if name != "case"})
        if given_command["type"] == "ROCKETMQ":
            want["remark"] = want["remark"] or None
            want["extFields"] = {name: value for name, value in want["extFields"].items() if value}
            if given_command["code"] > 32767:
                want["code"] = 3442  # sixteen bits of it: Java does not look
        assert facts(command) == want, given_command["case"]


def test_our_encoding_reads_back_as_javas_does(golden: Golden) -> None:
    for vector in golden.vectors("command-round-trip"):
        given_command = vector.input
        kind = KINDS[given_command["type"]]
        command = Command(
            given_command["code"],
            {name: value for name, value in (given_command["extFields"] or {}).items() if value is not None},
            bytes.fromhex(given_command["body"] or ""),
            given_command["opaque"],
            given_command["flag"],
            given_command["remark"],
            Language[given_command["language"]],
            given_command["version"],
            kind,
        )
        if kind == BINARY and command.code > 32767:
            with pytest.raises(LocalProtocolError):
                encode(command)
            continue
        assert facts(decode(encode(command)[4:])) == expected(vector.output()), given_command["case"]


def test_head_for_a_body_sent_behind_it(golden: Golden) -> None:
    (vector,) = golden.vectors("command-header-only")
    theirs = bytes.fromhex(vector.output())
    command = decode(theirs[4:] + bytes(10))
    assert (command.code, len(command.body)) == (34, 10)
    head = encode_head(command, 10)
    assert decode(head[4:] + bytes(10)) == command
    assert encode(command) == head + bytes(10)


def test_custom_headers_in_both_serialisations(golden: Golden) -> None:
    for vector in golden.vectors("custom-header-encode"):
        for output in vector.outputs.values():
            command = decode(bytes.fromhex(output)[4:])
            for name, value in vector.input["fields"].items():
                text = str(value).lower() if isinstance(value, bool) else str(value)
                assert command.fields[name] == text


def test_json_headers(golden: Golden) -> None:
    for vector in golden.vectors("json-header-decode"):
        frame = frame_of(vector.input.encode(), bytes.fromhex("626f6479"))
        if vector.fails():
            with pytest.raises(RemoteProtocolError):
                decode(frame)
        else:
            assert facts(decode(frame)) == expected(vector.output()), vector.input


def test_binary_headers(golden: Golden) -> None:
    for vector in golden.vectors("binary-header-decode"):
        frame = frame_of(bytes.fromhex(vector.input), kind=BINARY)
        if vector.fails():
            with pytest.raises(RemoteProtocolError):
                decode(frame)
        else:
            assert facts(decode(frame)) == expected(vector.output()), vector.input


def test_serialize_types(golden: Golden) -> None:
    for vector in golden.vectors("serialize-type-decode"):
        with pytest.raises(RemoteProtocolError):
            decode(frame_of(b'{"code":105,"flag":0,"opaque":7}', kind=vector.input))


# --- recorded frames --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_frame(version: str) -> None:
    """Fields agree with the recorder's, and what we make of a frame says the same when it is read again."""
    frames = 0
    for name in GOLDEN.capture_names(version):
        for entry in GOLDEN.capture(version, name):
            if not entry.frame:
                continue
            frames += 1
            command = decode(entry.frame[4:])
            header = entry.header
            assert command.code == header["code"]
            assert command.opaque == header["opaque"]
            assert command.flag == header["flag"]
            assert command.version == header["version"]
            assert (command.remark or None) == (header.get("remark") or None)
            assert command.fields == {
                key: value for key, value in (header.get("extFields") or {}).items() if value is not None
            }
            language = header["language"]
            assert command.language == (Language[language] if isinstance(language, str) else language)
            assert bytes(command.body) == entry.body
            assert decode(encode(command)[4:]) == command
    assert frames > 3000


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_streams_split_anywhere(version: str) -> None:
    for name in GOLDEN.capture_names(version)[::7]:
        streams: dict[tuple[int, str], list[bytes]] = {}
        for entry in GOLDEN.capture(version, name):
            if entry.frame:
                streams.setdefault((entry.connection, entry.direction), []).append(entry.frame)
        for frames in streams.values():
            stream = b"".join(frames)
            for step in (1, 3, 7, 61, 997, 65536):
                if len(stream) // step > 3000:
                    continue
                splitter = FrameSplitter()
                seen = [one for at in range(0, len(stream), step) for one in splitter.feed(stream[at : at + step])]
                assert seen == [one[4:] for one in frames]
                assert splitter.pending == 0


def test_one_recorded_exchange_cut_at_every_byte(golden: Golden) -> None:
    frames = [entry.frame for entry in golden.capture("4.9.7", "produce-sync") if entry.frame][:6]
    stream = b"".join(frames)
    for cut in range(len(stream) + 1):
        splitter = FrameSplitter()
        assert splitter.feed(stream[:cut]) + splitter.feed(stream[cut:]) == [one[4:] for one in frames]


# --- headers ----------------------------------------------------------------------------------------------------------


def header(text: str) -> Command:
    return decode(frame_of(text.encode()))


def test_values_that_are_no_text_become_text() -> None:
    """As Java does: scalars as they were written, nested values as JSON, null as absent."""
    command = header(
        '{"code":11,"extFields":{"queueId":0,"unitMode":false,"batch":true,"g":1795980051314,"f":1.50,"n":null,"o":{"a":[1,"x"]},"e":""},'
        '"flag":0,"language":"JAVA","opaque":3,"version":121}\n'
    )
    assert command.fields == {
        "queueId": "0",
        "unitMode": "false",
        "batch": "true",
        "g": "1795980051314",
        "f": "1.50",
        "o": '{"a":[1,"x"]}',
        "e": "",
    }


def test_control_characters_raw_and_escaped() -> None:
    text = (
        '{"code":310,"extFields":{"i":"KEYS\x01k\x02TAGS\\u0001t"},"flag":0,"language":"GO","opaque":3,"version":317}'
    )
    assert header(text).fields == {"i": "KEYS\x01k\x02TAGS\x01t"}


def test_half_of_a_surrogate_pair_is_a_question_mark() -> None:
    """So that all text that comes in can go out."""
    for member in ('"extFields":{"k\\ud800":"\\uDC00x","y":"\\ud83d\\ude00"}', '"remark":"\\ud800"'):
        for rest in ("", ',"code":1,"flag":0,"language":"JAVA","opaque":3,"version":121'):
            command = header("{" + member + rest + "}")
            assert command.remark == "?" or command.fields == {"k?": "?x", "y": "\U0001f600"}
    assert decode(encode_response(1, 0, {"k": "\ud800"}, remark="\ud800")[4:]).fields == {"k": "?"}
    assert decode(encode_response(1, 0, {"k": "\ud800"}, serialize_type=BINARY)[4:]).fields == {"k": "?"}


@pytest.mark.parametrize("name", ["code", "flag", "opaque", "version"])
def test_numbers_of_a_whole_header(name: str) -> None:
    """32 bits with sign, in any of the forms that Java takes; anything else ends the link."""
    whole = {"code": 1, "flag": 2, "language": "JAVA", "opaque": 3, "version": 4}
    for text, number in (
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("true", 1),
        ('"5"', 5),
        ("5.9", 5),
        ("false", 0),
    ):
        command = header(json.dumps({**whole, name: "*"}).replace('"*"', text))
        assert getattr(command, name) == number
        assert type(getattr(command, name)) is int
    for text in ("2147483648", "-2147483649", '"x"', '""', "1e400", "[1]", "{}", '"2147483648"', "9" * 5000):
        with pytest.raises(RemoteProtocolError):
            header(json.dumps({**whole, name: "*"}).replace('"*"', text))


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_header_length(kind: int) -> None:
    """A header may fill its frame, and not one byte more."""
    frame = encode(Command(34, serialize_type=kind))[4:]
    assert decode(frame).code == 34
    with pytest.raises(RemoteProtocolError):
        decode(frame[:3] + bytes([frame[3] + 1]) + frame[4:])
    with pytest.raises(RemoteProtocolError):
        decode(frame[:-1])


def test_unknown_languages_are_tolerated() -> None:
    """COD-10: names and binary bytes; but an ordinal must be one of the list."""
    assert header('{"code":1,"language":"PYTHON3","opaque":1}').language == NO_LANGUAGE
    assert header('{"code":1,"opaque":1}').language == Language.JAVA
    assert decode(frame_of(struct.pack(">hBhiiii", 34, 99, 293, 1, 0, 0, 0), kind=BINARY)).language == NO_LANGUAGE
    with pytest.raises(RemoteProtocolError):
        header('{"code":1,"language":14,"opaque":1}')


def test_codes_above_sixteen_bits() -> None:
    """COD-08: they arrive in JSON headers; in a binary one they would arrive as other codes, so ours refuses."""
    for code in (200050, 3442, 32767, -1):
        assert decode(encode_request(code, 1)[4:]).code == code
    for code in (3442, 32767, -1, -32768):
        assert decode(encode_request(code, 1, serialize_type=BINARY)[4:]).code == code
    for code in (200050, 32768, -32769):
        with pytest.raises(LocalProtocolError):
            encode_request(code, 1, serialize_type=BINARY)


def test_binary_fields_named_twice() -> None:
    """The last one wins, and an empty one takes the first away."""
    entry = b"\0\1a\0\0\0\1x"
    for last, fields in ((b"\0\1a\0\0\0\1y", {"a": "y"}), (b"\0\1a\0\0\0\0", {})):
        block = entry + last
        head = struct.pack(">hBhiiii", 34, 0, 293, 1, 0, 0, len(block))
        assert decode(frame_of(head + block, b"body", BINARY)).fields == fields


def test_binary_fields_cut_off() -> None:
    block = b"\0\1a\0\0\0\1x\0\1b"
    for size in range(len(block) + 1):
        frame = frame_of(struct.pack(">hBhiiii", 34, 0, 293, 1, 0, 0, size) + block[:size], kind=BINARY)
        if size in (0, 8):
            assert decode(frame).fields == ({"a": "x"} if size else {})
        else:
            with pytest.raises(RemoteProtocolError):
                decode(frame)


def test_deep_headers_are_refused() -> None:
    for text in (
        '{"code":1,"extFields":{"a":' + "[" * 5000,
        '{"code":1,"extFields":{"a":' + "[" * 100 + "]" * 100 + "}}",
        "{a:" * 90,
    ):
        with pytest.raises(RemoteProtocolError):
            header(text)


def test_long_headers_must_be_strict() -> None:
    text = "x" * 70000
    assert header('{"code":1,"remark":"' + text + '"}').remark == text
    with pytest.raises(RemoteProtocolError, match="strict"):
        header('{\'code\':1,"remark":"' + text + '"}')


def test_what_we_send() -> None:
    """Strict, compact, members sorted; the golden answer of an empty success but for language and version."""
    assert encode_response(7, 0)[8:] == b'{"code":0,"flag":1,"language":"PYTHON","opaque":7,"version":%d}' % VERSION
    frame = encode_request(310, 7, {"a": "PG", "i": "KEYS\x01k1\x02"}, b"hi")
    assert frame[8:-2] == (
        b'{"code":310,"extFields":{"a":"PG","i":"KEYS\\u0001k1\\u0002"},"flag":0,"language":"PYTHON","opaque":7,"version":407}'
    )
    assert struct.unpack(">ii", frame[:8]) == (len(frame) - 4, len(frame) - 10)
    oneway = decode(encode_request(15, 8, oneway=True)[4:])
    assert (oneway.is_oneway, oneway.is_response, oneway.language) == (True, False, LANGUAGE)
    answer = decode(encode_response(-5, 17, remark='no "topic" \u4e2d', serialize_type=BINARY)[4:])
    assert (answer.is_response, answer.opaque, answer.remark) == (True, -5, 'no "topic" \u4e2d')


NO_TEXT: Any = {"k": None}


@pytest.mark.parametrize(
    ("code", "opaque", "fields", "size", "kind"),
    [
        (1 << 31, 1, {}, 0, JSON),
        (1, 1 << 31, {}, 0, JSON),
        (1, 1 << 31, {}, 0, BINARY),
        (1, 1, {"k" * 40000: "v"}, 0, BINARY),
        (1, 1, {"k": "v" * (1 << 24)}, 0, JSON),
        (1, 1, {}, MAX_FRAME, JSON),
        (1, 1, NO_TEXT, 0, JSON),
        (1, 1, NO_TEXT, 0, BINARY),
    ],
    ids=lambda value: str(value)[:12],
)
def test_refuses_to_send_what_no_frame_can_carry(
    code: int, opaque: int, fields: dict[str, str], size: int, kind: int
) -> None:
    with pytest.raises(LocalProtocolError):
        encode_request(code, opaque, fields, bytes(size), serialize_type=kind)
    with pytest.raises(LocalProtocolError):
        encode_response(opaque, code, fields, bytes(size), serialize_type=kind)
    with pytest.raises(LocalProtocolError):
        encode(Command(code, fields, bytes(size), opaque, serialize_type=kind))


@pytest.mark.parametrize("kind", [JSON, BINARY])
def test_largest_frame_that_is_sent(kind: int) -> None:
    command = Command(310, {"a": "PG"}, serialize_type=kind)
    room = MAX_FRAME - len(encode_head(command, 0))
    assert len(encode_head(command, room)) + room == MAX_FRAME
    with pytest.raises(LocalProtocolError, match="limit"):
        encode_head(command, room + 1)


def test_refuses_to_send_in_an_unknown_form() -> None:
    with pytest.raises(LocalProtocolError):
        encode(Command(1, serialize_type=2))


def test_views_in_views_out() -> None:
    frame = encode_request(310, 7, {"a": "PG"}, b"hello")
    command = decode(memoryview(frame)[4:])
    assert isinstance(command.body, memoryview)
    assert bytes(command.body) == b"hello"
    assert encode(command) == frame
    assert repr(command) == "<request 310 opaque=7 fields={'a': 'PG'} body of 5>"


def test_a_command_equals_what_has_the_same_facts() -> None:
    assert Command(1) == Command(1, {}, b"")
    assert Command(1) != Command(2)
    assert Command(1) != "Command"
    with pytest.raises(TypeError):
        hash(Command(1))
