"""The bodies of registrations: as Apache's brokers make them, and in slices the same as in one go."""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import RemoteProtocolError
from mqproto.wire.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicTable, read_registration
from mqproto.wire.bodies.registration import SLICE_TOPICS
from tests.golden.golden import GOLDEN, VERSIONS, Golden

VERSION = DataVersion(1_700_000_000_000, 7)


def table(count: int) -> TopicTable:
    return TopicTable(VERSION, {f"T{number}": TopicConfig(f"T{number}", number % 16, 4) for number in range(count)})


def run(reading: Generator[None, None, RegisterBrokerBody]) -> tuple[RegisterBrokerBody, int]:
    """The body, and after how many slices."""
    slices = 1
    while True:
        try:
            next(reading)
        except StopIteration as end:
            return end.value, slices
        slices += 1


def read(
    data: bytes, *, compressed: bool = False, version: int = 407, known: DataVersion | None = None
) -> tuple[RegisterBrokerBody, int]:
    return run(read_registration(data, compressed=compressed, version=version, known=lambda one: one == known))


@pytest.mark.parametrize("count", [0, 1, SLICE_TOPICS, 10 * SLICE_TOPICS + 1])
def test_slices_give_the_whole(count: int) -> None:
    body = RegisterBrokerBody(table(count), ["f:1"])
    assert "".join(body.json_pieces()).encode() == body.to_json()
    assert read(body.to_json()) == (body, count // SLICE_TOPICS + 1)
    whole, slices = read(body.to_compressed(), compressed=True)
    assert (whole, slices) == (body, count // SLICE_TOPICS + 1)
    whole, slices = read(body.topic_table.to_json(), version=36)
    assert (whole.topic_table, slices) == (body.topic_table, count // SLICE_TOPICS + 1)


def test_a_large_compressed_body_is_inflated_in_slices() -> None:
    _, slices = read(RegisterBrokerBody(table(20_000)).to_compressed(), compressed=True, known=VERSION)
    assert 10 < slices < 20


@pytest.mark.parametrize("compressed", [False, True])
def test_topics_under_a_known_version_are_passed_over(compressed: bool) -> None:
    body = RegisterBrokerBody(table(10 * SLICE_TOPICS), ["f:1"])
    data = body.to_compressed() if compressed else body.to_json()
    assert read(data, compressed=compressed, known=VERSION) == (RegisterBrokerBody(TopicTable(VERSION), ["f:1"]), 1)
    whole, _ = read(data, compressed=compressed, known=DataVersion(1, 1))
    assert whole == body


def test_they_are_read_where_something_of_worth_follows() -> None:
    """Java sorts members by name, others need not."""
    facts = json.loads(RegisterBrokerBody(table(3), ["f:1"]).to_json())
    other_order = {name: facts[name] for name in sorted(facts, reverse=True)}
    whole, _ = read(json.dumps(other_order).encode(), known=VERSION)
    assert whole == RegisterBrokerBody(table(3), ["f:1"])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_brokers_of_java_sent(version: str) -> None:
    seen = 0
    for name in GOLDEN.capture_names(version):
        for exchange in GOLDEN.exchanges(version, name):
            if exchange.request.code == 103 and exchange.request.body[:1] == b"{":
                whole, _ = read(exchange.request.body, version=exchange.request.header["version"])
                assert whole == RegisterBrokerBody.from_json(exchange.request.body)
                seen += 1
    assert seen > 2


@pytest.mark.parametrize(
    "text",
    [
        ' { "topicConfigSerializeWrapper" : { "topicConfigTable" : { "T" : { } , "U" : null } ,"dataVersion":{ } } } ',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}},"topicConfigTable":{"U":{}}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}},"topicConfigTable":null}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}},"topicConfigSerializeWrapper":{}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{}}},"topicConfigSerializeWrapper":null}',
        '{"topicConfigSerializeWrapper":{"topicconfigtable":{"T":{}}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"\\ud83d\\ude00":{},"\\ud83d":{}}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{T:{perm:4},}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":4}}}} // end',
        '{"filterServerList":["$ref"]}',
        "{}",
        '{"a":1,"topicConfigSerializeWrapper":null}',
    ],
)
def test_unusual_texts_are_read_as_by_the_reader_of_all_bodies(text: str) -> None:
    assert read(text.encode())[0] == RegisterBrokerBody.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1 "b":2}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":7}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":7}}',
        '{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"x"}}}',
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{}}} x',
        '{"topicConfigSerializeWrapper":' + "[" * 5000,
        '{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":' + '{"a":' * 100_000,
    ],
)
def test_what_is_no_registration_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        read(text.encode() or b" ")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
topics = st.dictionaries(
    st.text(max_size=4), st.fixed_dictionaries({}, optional={"perm": values, "topicName": values, "x": values}) | values
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "topicConfigSerializeWrapper": st.fixed_dictionaries(
                {}, optional={"topicConfigTable": topics | values, "dataVersion": values}
            )
            | values,
            "filterServerList": values,
        },
    ),
    st.booleans(),
)
def test_any_json_gives_the_same_as_in_one_go(value: dict[str, Any], escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "replace")
    try:
        expected = RegisterBrokerBody.from_json(text)
    except RemoteProtocolError:
        with pytest.raises(RemoteProtocolError):
            read(text)
    else:
        assert read(text)[0] == expected


# --- Apache's ---------------------------------------------------------------------------------------------------------


def test_register_body_compressed(golden: Golden) -> None:
    (vector,) = golden.vectors("register-body-compressed")
    for release, version in (("4.4.0", 293), ("4.9.7", 407), ("5.3.3", 479)):
        theirs = vector.output(release)
        state = 0 if version == 479 else None
        attributes: dict[str, str] | None = {} if version == 479 else None
        topics = {"T1": TopicConfig("T1", 4, 4, attributes=attributes)}
        body = RegisterBrokerBody(TopicTable(DataVersion(1700000000000, 2, state), topics), [])
        assert RegisterBrokerBody.decode(bytes.fromhex(theirs["compressed"]), compressed=True, version=version) == body
        assert zlib.decompress(body.to_compressed(version)).hex() == theirs["plain"]


def test_compressed_registrations(golden: Golden) -> None:
    """With and without the word of the request: they are told by their first byte."""
    seen = 0
    for version in VERSIONS:
        for name in golden.capture_names(version):
            if not name.startswith(("boot", "register-again")):
                continue
            for exchange in golden.exchanges(version, name):
                request = exchange.request
                if request.code != 103 or not request.body:
                    continue
                number = request.header["version"]
                compressed = request.fields.get("compressed") == "true"
                body = RegisterBrokerBody.decode(request.body, compressed=compressed, version=number)
                assert RegisterBrokerBody.decode(request.body, compressed=False, version=number) == body
                if request.body[0] == 0x78:
                    seen += 1
                    assert body.topic_table.topics
                    assert zlib.decompress(body.to_compressed(number)) == zlib.decompress(request.body)
    assert seen > 2


def test_registrations_of_other_forms() -> None:
    table = TopicTable(DataVersion(5, 6), {"T": TopicConfig("T", order=True)})
    assert RegisterBrokerBody.decode(b"", compressed=False, version=407) == RegisterBrokerBody()
    assert RegisterBrokerBody.decode(b"", compressed=True, version=407) == RegisterBrokerBody()
    assert RegisterBrokerBody.decode(table.to_json(), compressed=False, version=36) == RegisterBrokerBody(table)
    body = RegisterBrokerBody(table, ["f:1"])
    assert RegisterBrokerBody.decode(memoryview(body.to_json()), compressed=False, version=37) == body


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\0\0\0\1",
        b"\0\0\0\2{}",
        b"\0\0\0\2{}\0\0\0\1",
        b"\0\0\0\2{}\0\0\0\1\0\0\0\1x\0\0\0\2[]",
        b"\0\0\0\2{}\0\0\0\0\xff\xff\xff\xff",
        b"\0\0\0\2[]\0\0\0\0\0\0\0\2[]",
        b"\0\0\0\2{}\0\0\0\0\0\0\0\2{}",
        b"\0\0\0\2{}\0\0\0\0\0\0\0\2[]\0\0\0\1",
    ],
)
def test_broken_compressed_registrations(plain: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode(zlib.compress(plain), compressed=True, version=479)


def test_registrations_that_are_no_zlib_or_too_large() -> None:
    whole = RegisterBrokerBody().to_compressed()
    for data in (b"\x78", b"x", whole[:-1]):
        with pytest.raises(RemoteProtocolError):
            RegisterBrokerBody.decode(data, compressed=True, version=407)
    with pytest.raises(RemoteProtocolError, match="too large"):
        RegisterBrokerBody.decode(zlib.compress(bytes(65 << 20)), compressed=True, version=407)
    null = zlib.compress(b"\0\0\0\2{}\0\0\0\0\0\0\0\4null")
    assert RegisterBrokerBody.decode(null, compressed=True, version=407) == RegisterBrokerBody()


@given(st.binary(max_size=300))
def test_any_registration_gives_a_body_or_one_error(data: bytes) -> None:
    for compressed in (False, True):
        for body in (data, zlib.compress(data)):
            try:
                RegisterBrokerBody.decode(body, compressed=compressed, version=479)
            except RemoteProtocolError:
                continue
