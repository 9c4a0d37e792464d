"""Message records against Apache's own functions; damage is told and loses nothing that came before it."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.errors import LocalProtocolError
from mqproto.message import MessageExt
from mqproto.wire import properties
from mqproto.wire.compression import BodyError, inflate
from mqproto.wire.hosts import encode_ip
from mqproto.wire.record import RecordError, decode_record, decode_records, encode_record, inflated
from tests.golden.golden import GOLDEN, VERSIONS, Vector

#: The record of docs/protocol/wire.md 19, vector 4.
SAMPLE = bytes.fromhex(
    "00000075daa320a73610a6860000000200000003000000000000000b0000000000001000000000000000018bcfe568000a0102030000b26e0000018bcfe5687b"
    "c0a8000900002a9f0000000100000000000000000000000568656c6c6f06546f70696341000f4b455953016b310254414753015402"
)


def host_bytes(text: str) -> bytes:
    """The bytes of a vector's host, `address port`."""
    ip, port = text.split(" ")
    return encode_ip(ip) + int(port).to_bytes(4, "big")


def check_fields(message: MessageExt, expected: dict[str, Any]) -> None:
    assert message.topic == expected["topic"]
    assert message.queue_id == expected["queueId"]
    assert message.flag == expected["flag"]
    assert message.queue_offset == expected["queueOffset"]
    assert message.physical_offset == expected["physicalOffset"]
    assert message.sys_flag & ~0x701 == expected["sysFlag"] & ~0x701
    assert message.born_time == expected["bornTimestamp"]
    assert message.born_host_bytes == host_bytes(expected["bornHost"])
    assert message.store_time == expected["storeTimestamp"]
    assert message.store_host_bytes == host_bytes(expected["storeHost"])
    assert message.reconsume_times == expected["reconsumeTimes"]
    assert message.prepared_offset == expected["preparedTransactionOffset"]
    assert message.body_crc == expected["bodyCRC"]
    assert message.store_size == expected["storeSize"]
    assert message.offset_msg_id == expected["msgId"]
    assert message.properties == (expected["properties"] or {})
    if expected["body"] is not None:
        assert message.body.hex() == expected["body"]


def usable(kind: str) -> list[tuple[Vector, str]]:
    """Vectors of a kind with every release that has the function and accepts the input."""
    return [
        (vector, version)
        for vector in GOLDEN.vectors(kind)
        for version in VERSIONS
        if not vector.fails(version) and vector.output(version) != {"absent": True}
    ]


@pytest.mark.parametrize(("vector", "version"), usable("record-encode"))
def test_records_of_java_are_read_and_written_again(vector: Vector, version: str) -> None:
    """Read, then written by us: the same bytes but for the order and the end mark of the properties."""
    data = bytes.fromhex(vector.output(version))
    stored = decode_record(data)
    again = encode_record(stored)
    size = data.index(stored.topic.encode()) + len(stored.topic)
    assert again[4:8] + again[12:size] == data[4:8] + data[12:size]
    if not vector.input[
        "compress"
    ]:  # Java's vector has the CRC of the plain body there, a broker computes that of the stored one
        assert again[8:12] == data[8:12]
    written = properties.encode_bytes(stored.properties)
    assert again[size:] == len(written).to_bytes(2, "big") + written
    assert stored.properties == vector.input["properties"]
    assert int.from_bytes(again[:4], "big") == len(again) == len(data) + (0 if data.endswith(b"\x02") else 1)


@pytest.mark.parametrize(("vector", "version"), usable("record-round-trip"))
def test_fields_are_those_that_java_reads(vector: Vector, version: str) -> None:
    packed = {repr(each.input): each.output(version) for each in GOLDEN.vectors("record-encode")}
    data = bytes.fromhex(packed[repr(vector.input)])
    if version == "4.4.0" and vector.input["sysFlag"] & 0x700 not in (0, 0x300):
        # 4.4 deflates by zlib whatever the type bits say, and we go by the bits.
        with pytest.raises(RecordError):
            decode_records(data)
        return
    (message,) = decode_records(data)
    check_fields(message, vector.output(version))
    assert not message.sys_flag & 0x701, "the flag describes the body, which is plain now"


@pytest.mark.parametrize("vector", GOLDEN.vectors("record-decode"), ids=range(len(GOLDEN.vectors("record-decode"))))
def test_records_are_accepted_or_refused_as_by_5_3(vector: Vector) -> None:
    """5.3 is the one that looks at the magic number; 4.x reads a record of version 2 wrongly."""
    data = bytes.fromhex(vector.input.removeprefix("without body: "))
    expected = vector.output("5.3.3")
    if not data:
        assert decode_records(data) == []
    elif expected is None:
        with pytest.raises(RecordError) as caught:
            decode_records(data)
        assert caught.value.messages == []
    elif data[:4] != len(data).to_bytes(4, "big") or expected["properties"] is None:
        # The size word is not what ends a record: Java accepts these, and finds the rest to be no record.
        check_fields(decode_record(data), expected)
    else:
        (message,) = decode_records(data)
        check_fields(message, expected)


def test_bodies_of_several_records() -> None:
    for vector in GOLDEN.vectors("records-decode"):
        data = bytes.fromhex(vector.input)
        if len(data) % len(SAMPLE) == 0:
            assert len(decode_records(data)) == vector.output()
        else:
            with pytest.raises(RecordError) as caught:
                decode_records(data)
            assert len(caught.value.messages) == vector.output()


@given(st.integers(0, 3 * len(SAMPLE)), st.booleans())
def test_a_cut_body_gives_all_whole_records_and_says_where_it_broke(length: int, as_view: bool) -> None:
    data = (SAMPLE * 3)[:length]
    given = memoryview(data) if as_view else data
    whole, rest = divmod(length, len(SAMPLE))
    if rest == 0:
        assert len(decode_records(given, "b")) == whole
        return
    with pytest.raises(RecordError) as caught:
        decode_records(given)
    failure = caught.value
    assert len(failure.messages) == whole
    assert failure.position == whole * len(SAMPLE)
    assert failure.cause is None
    assert failure.queue_offset == (11 if rest >= 88 else None)
    assert failure.physical_offset == (4096 if rest >= 88 else None)


def test_v2_records_have_a_longer_topic_length() -> None:
    """5.1 and later write them for topics of more than 127 bytes (docs/protocol/wire.md 7)."""
    topic = b"t" * 300
    head = SAMPLE[:4] + bytes.fromhex("daa320ab") + SAMPLE[8:93]
    (message,) = decode_records(head + len(topic).to_bytes(2, "big") + topic + SAMPLE[100:])
    assert message.topic == topic.decode()
    assert message.properties == {"KEYS": "k1", "TAGS": "T"}
    assert message.body == b"hello"


@pytest.mark.parametrize("born", [0, 0x10])
@pytest.mark.parametrize("store", [0, 0x20])
def test_both_ipv6_flags_are_honoured_independently(born: int, store: int) -> None:
    """MSG-06."""
    message = MessageExt("T", b"x", sys_flag=born | store, physical_offset=7)
    message.born_host_bytes = encode_ip("2001:db8::7" if born else "10.0.0.7") + bytes(3) + b"\x09"
    message.store_host_bytes = encode_ip("2001:db8::8" if store else "10.0.0.8") + bytes(3) + b"\x0a"
    data = encode_record(message)
    assert len(data) == 91 + 1 + 1 + 12 * bool(born) + 12 * bool(store)
    back = decode_record(data)
    assert back.born_host == ("[2001:db8::7]:9" if born else "10.0.0.7:9")
    assert back.store_host == ("[2001:db8::8]:10" if store else "10.0.0.8:10")
    assert len(back.offset_msg_id) == (56 if store else 32)
    message.born_host_bytes += b"x"
    with pytest.raises(LocalProtocolError, match="host of"):
        encode_record(message)


def test_a_packed_body_that_cannot_be_inflated_is_told_with_what_came_before() -> None:
    good = MessageExt("T", zlib.compress(b"plain"), sys_flag=1, queue_offset=1)
    bad = MessageExt("T", b"no zlib", sys_flag=1, queue_offset=2, physical_offset=5)
    with pytest.raises(RecordError, match="no zlib stream") as caught:
        decode_records(encode_record(good) + encode_record(bad) + encode_record(good))
    failure = caught.value
    assert [message.body for message in failure.messages] == [b"plain"]
    assert (failure.queue_offset, failure.physical_offset) == (2, 5)
    assert isinstance(failure.cause, BodyError)


def test_bodies_share_one_limit() -> None:
    packed = MessageExt("T", zlib.compress(bytes(1000)), sys_flag=0x301)
    data = encode_record(packed) * 3
    assert [len(message.body) for message in decode_records(data, inflated_max=3000)] == [1000] * 3
    with pytest.raises(RecordError, match="more than") as caught:
        decode_records(data, inflated_max=2999)
    assert len(caught.value.messages) == 2


def test_a_record_can_be_read_as_it_was_stored_and_inflated_later() -> None:
    """What a broker re-encodes keeps its bytes; what a client shows does not."""
    data = encode_record(MessageExt("T", zlib.compress(b"plain"), {"TAGS": "A"}, sys_flag=0x301))
    stored = decode_record(data + b"what follows is not looked at", "broker-a")
    assert inflate(stored.body, stored.sys_flag) == b"plain"
    assert stored.broker_name == "broker-a"
    assert encode_record(stored) == data
    assert inflated(stored) is stored
    assert (stored.body, stored.sys_flag) == (b"plain", 0)
    assert inflated(stored).body == b"plain"


def test_what_does_not_fit_a_record_is_refused() -> None:
    """No length goes negative (MSG-03, LIM-01)."""
    assert decode_record(encode_record(MessageExt("t" * 127, b""))).topic == "t" * 127
    with pytest.raises(LocalProtocolError, match="128 bytes"):
        encode_record(MessageExt("t" * 128, b""))
    fits = {"n": "x" * (32767 - 3)}
    assert decode_record(encode_record(MessageExt("T", b"", fits))).properties == fits
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        encode_record(MessageExt("T", b"", {"n": "x" * (32768 - 3)}))


i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
legal = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(
    st.builds(
        MessageExt,
        topic=st.text(st.characters(codec="ascii"), max_size=127),
        body=st.binary(max_size=40),
        properties=st.dictionaries(legal, legal, max_size=4),
        flag=i32,
        sys_flag=st.sampled_from([0, 2, 4, 8, 12]),
        queue_id=i32,
        queue_offset=i64,
        physical_offset=i64,
        born_time=i64,
        born_host_bytes=st.binary(min_size=8, max_size=8),
        store_time=i64,
        store_host_bytes=st.binary(min_size=8, max_size=8),
        reconsume_times=i32,
        prepared_offset=i64,
    )
)
def test_round_trip(message: MessageExt) -> None:
    data = encode_record(message)
    (back,) = decode_records(data)
    message.store_size, message.body_crc = len(data), back.body_crc
    assert back == message


@given(st.binary(max_size=200), st.data())
def test_reading_raises_nothing_but_its_error(noise: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(SAMPLE)))
    for damaged in (
        noise,
        SAMPLE[:at] + noise + SAMPLE[at:],
        SAMPLE[:at] + noise[: len(SAMPLE) - at] + SAMPLE[at + len(noise) :],
    ):
        try:
            decode_records(damaged, inflated_max=1 << 16)
        except RecordError as failure:
            assert 0 <= failure.position < len(damaged)  # noqa: PT017


#: Requests whose bodies, or whose answers' bodies, are records.
RECORDS_IN_ANSWER = {11, 12, 33, 361}
RECORDS_IN_REQUEST = {39, 309}
TALKS = (
    "consume",
    "consume-tag",
    "consume-retry",
    "consume-packed",
    "pull",
    "query",
    "view",
    "transact-check",
    "sql",
    "ipv6-ids",
    "consume-dead-letter",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_record_that_apache_sent_is_read(version: str) -> None:
    """Bodies of pulls, queries, views and checks; written again they are the same up to the properties."""
    names = set(GOLDEN.capture_names(version))
    count = 0
    for name in names.intersection(TALKS):
        for exchange in GOLDEN.exchanges(version, name):
            request, answer = exchange.request, exchange.answer
            if request.code in RECORDS_IN_REQUEST:
                body = request.body
            elif request.code in RECORDS_IN_ANSWER and answer is not None and answer.code == 0:
                body = answer.body
            else:
                continue
            plain = decode_records(body, "broker-a")
            at = 0
            for message in plain:
                stored = decode_record(body[at:])
                again = encode_record(stored)
                head = len(again) - len(properties.encode_bytes(stored.properties)) - 2
                assert again[4:head] == body[at + 4 : at + head]
                assert message.store_host == "127.0.0.1:10911"
                assert not message.sys_flag & 0x701
                assert message.msg_id
                at += stored.store_size
                count += 1
            assert at == len(body)
    assert count > 20
