"""The file that moves topics: whatever happened to it on the way is noticed before anything is imported."""

from __future__ import annotations

import io
import random

import pytest

from mqproto.engine.store.doctor.exportfile import ExportDamaged, ExportedQueue, ExportHead, ExportReader, ExportWriter
from mqproto.message import MessageExt
from mqproto.wire.bodies import GroupConfig, TopicConfig
from mqproto.wire.record import encode_record

HEAD = ExportHead(
    created=1_800_000_000_000,
    writer="mqproto test",
    from_time=5,
    queues=[ExportedQueue("Täg", 0, 10, 15), ExportedQueue("Other", 3, 0, 0)],
    topics={"Täg": TopicConfig("Täg", 4, 4)},
    groups={"g": GroupConfig("g", retry_max_times=3)},
    offsets={("Täg", "g"): {0: 12, 1: 0}},
)


def record(number: int, size: int = 20) -> bytes:
    message = MessageExt("Täg", bytes((number,)) * size, {"KEYS": str(number)}, queue_id=0, queue_offset=number)
    message.physical_offset = 1000 + number
    return encode_record(message)


def written(count: int = 4, size: int = 20) -> bytes:
    writer = ExportWriter()
    pieces = [writer.begin(HEAD)]
    pieces += [writer.message(0, 10 + number, record(number, size)) for number in range(count)]
    pieces.append(writer.end())
    assert (writer.messages, writer.bytes) == (count, count * len(record(0, size)))
    return b"".join(pieces)


def read(data: bytes) -> list[tuple[int, int, bytes]]:
    reader = ExportReader(io.BytesIO(data).read)
    return [(number, offset, bytes(found)) for number, offset, found in reader.messages()]


def test_what_was_written_is_read() -> None:
    data = written()
    reader = ExportReader(io.BytesIO(data).read)
    assert reader.head == HEAD
    assert [(number, offset, bytes(found)) for number, offset, found in reader.messages()] == [
        (0, 10 + number, record(number)) for number in range(4)
    ]
    assert reader.messages_read == 4
    assert reader.position == len(data)


def test_reads_may_be_short() -> None:
    source = io.BytesIO(written())
    rng = random.Random(1)
    reader = ExportReader(lambda size: source.read(min(size, rng.randint(1, 7))))
    assert len(list(reader.messages())) == 4


def test_large_exports_have_many_blocks() -> None:
    data = written(5, 700_000)
    assert data.count(b"MSGS") == 3
    assert [offset for _, offset, _ in read(data)] == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 28, 40])
def test_a_beginning_is_no_export(size: int) -> None:
    with pytest.raises(ExportDamaged, match="breaks off"):
        ExportReader(io.BytesIO(written()[:size]).read)


def test_every_cut_is_noticed() -> None:
    data = written()
    for size in range(len(data)):
        with pytest.raises(ExportDamaged):
            read(data[:size])


def test_every_changed_byte_is_noticed() -> None:
    data = written()
    for at in range(12, len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with pytest.raises(ExportDamaged):
            read(bytes(changed))


def blocks(data: bytes) -> list[bytes]:
    found, at = [data[:16]], 16
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 4 : at + 8], "big")
        found.append(data[at:end])
        at = end
    return found


def test_blocks_cannot_move_or_go_missing() -> None:
    beginning, head, *messages, trailer = blocks(written(5, 700_000))
    assert len(messages) == 3
    for order in ([0, 2, 1], [0, 1], [1, 2], [0, 1, 1, 2], []):
        with pytest.raises(ExportDamaged):
            read(b"".join((beginning, head, *(messages[number] for number in order), trailer)))
    with pytest.raises(ExportDamaged, match="breaks off"):
        read(b"".join((beginning, head, *messages)))


def test_nothing_may_follow() -> None:
    with pytest.raises(ExportDamaged, match="something follows"):
        read(written() + b"\0")


def test_other_files_are_no_exports() -> None:
    for data in (b"PK" + bytes(100), bytes(100), b"MQEXPORX" + bytes(100)):
        with pytest.raises(ExportDamaged, match="no file that"):
            ExportReader(io.BytesIO(data).read)
    with pytest.raises(ExportDamaged, match="version 2"):
        ExportReader(io.BytesIO(b"MQEXPORT\0\0\0\2" + bytes(100)).read)


def test_messages_have_to_fit_their_queues() -> None:
    """A file whose checksums are right may still be nonsense."""
    for number, offset in ((0, 9), (0, 15), (1, 0), (2, 0)):
        writer = ExportWriter()
        writer_head = ExportHead(created=0, queues=[*HEAD.queues, ExportedQueue("More", 0, 0, 9)])
        data = writer.begin(writer_head) + writer.message(number, offset, record(1)) + writer.end()
        if number == 2:
            assert read(data)[0][:2] == (2, 0)
            continue
        with pytest.raises(ExportDamaged, match="no such place"):
            read(data)
    writer = ExportWriter()
    data = writer.begin(HEAD)
    for offset in (11, 11):
        data += writer.message(0, offset, record(1))
    with pytest.raises(ExportDamaged, match="no such place"):
        read(data + writer.end())


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"garbage" * 20, "no record"),
        (record(1)[:-1], "no record"),
        (record(1)[:100] + b"\xff" + record(1)[101:], "no record"),
    ],
)
def test_what_is_no_record_is_refused(broken: bytes, why: str) -> None:
    writer = ExportWriter()
    data = writer.begin(HEAD) + writer.message(0, 10, broken) + writer.end()
    with pytest.raises(ExportDamaged, match=why):
        read(data)


def test_half_messages_are_refused() -> None:
    half = bytearray(record(1))
    half[39] |= 4
    writer = ExportWriter()
    data = writer.begin(HEAD) + writer.message(0, 10, bytes(half)) + writer.end()
    with pytest.raises(ExportDamaged, match="queues do not hold"):
        read(data)


@pytest.mark.parametrize(
    "queues",
    [
        [["T", 0, 5, 4]],
        [["T", -1, 0, 0]],
        [["", 0, 0, 0]],
        [["T", 0, 0, 1 << 62]],
        [["T", 0, 0]],
        [["T", 0, 0, 1.5]],
        [7],
        7,
    ],
)
def test_a_head_has_to_make_sense(queues: object) -> None:
    class Odd(ExportHead):
        def to_json(self) -> bytes:
            text = super().to_json().decode()
            import json

            return json.dumps({**json.loads(text), "queues": queues}).encode()

    writer = ExportWriter()
    data = writer.begin(Odd(created=0)) + writer.end()
    with pytest.raises(ExportDamaged, match="the head cannot be read"):
        ExportReader(io.BytesIO(data).read)
