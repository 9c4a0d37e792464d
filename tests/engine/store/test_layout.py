"""Bytes on disk are those of Apache's broker (docs/protocol/store.md 15 and 1 to 7)."""

from __future__ import annotations

import struct

import pytest

from mqproto.engine.store import PutRefused, PutStatus
from mqproto.engine.store.layout import index_name
from mqproto.wire.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from mqproto.wire.ids import body_crc, index_hash
from mqproto.wire.record import decode_record
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import HOST, HOST_V6, START, Rig

#: Made by the Java broker of 4.4.0: topic TA, queue 3, tag TagX, keys `k1 k2`.
RECORD = bytes.fromhex(
    "000000afdaa320a73610a6860000000300000000000000000000000000000000"
    "0000000000000000000001a2288d57d47f0000010000927c000001a2288d57e2"
    "7f000001000051af0000000000000000000000000000000568656c6c6f025441"
    "004d750176024b455953016b31206b3202554e49515f4b455901433030303032"
    "3032323642463546464432423237393432353646443330303030025741495401"
    "747275650254414753015461675802"
)
BORN = 0x1A2288D57D4
STORED = 0x1A2288D57E2


def send_known(rig: Rig) -> int:
    properties = RECORD[-0x4D:]
    unique = properties.partition(b"UNIQ_KEY\x01")[2].partition(b"\x02")[0].decode()
    queue = rig.store.queue("TA", 3)
    return rig.store.writer.append(
        queue,
        b"hello",
        properties,
        0,
        0,
        BORN,
        bytes.fromhex("7f0000010000927c"),
        HOST,
        0,
        0,
        2598942,
        unique,
        "k1 k2",
        STORED,
    )


def test_record_and_queue_entry_are_javas(rig: Rig) -> None:
    assert send_known(rig) == 0
    assert rig.log()[: len(RECORD)] == RECORD
    rig.settle()
    entries = rig.files.read(f"{rig.root}/consumequeue/TA/3/{0:020d}")
    assert entries[:20].hex() == "0000000000000000000000af000000000027a81e"
    assert len(entries) == 200
    assert not any(entries[20:])


def test_index_entries_and_head_are_javas(rig: Rig) -> None:
    send_known(rig)
    rig.settle()
    (name,) = rig.files.names(f"{rig.root}/index")
    data = rig.files.read(f"{rig.root}/index/{name}")
    assert len(data) == 8440
    assert data[440 + 20 : 440 + 40].hex() == "6de07b7000000000000000000000000000000000"
    assert data[440 + 40 : 440 + 60].hex() == "04bdd2fc00000000000000000000000000000000"
    assert struct.unpack_from(">i", data, 40 + 4 * 8) == (1,)
    assert struct.unpack_from(">i", data, 40 + 4 * 80) == (2,)
    # three keys in three slots (4.7.1 and later count slots, not entries)
    assert struct.unpack_from(">qqqqii", data) == (STORED, STORED, 0, 0, 3, 4)


def test_second_entry_of_a_slot_points_to_the_first(rig: Rig) -> None:
    rig.send(uniq_key="Aa", at=START)
    rig.send(uniq_key="BB", at=START + 2500)  # the same hash
    rig.settle()
    (name,) = rig.files.names(f"{rig.root}/index")
    data = rig.files.read(f"{rig.root}/index/{name}")
    first = struct.unpack_from(">iqii", data, 440 + 20)
    second = struct.unpack_from(">iqii", data, 440 + 40)
    assert first == (index_hash("Topic#Aa"), 0, 0, 0)
    assert second == (first[0], rig.store.reader.entry(rig.store.queue("Topic", 0), 1)[0], 2, 1)  # type: ignore[index]
    assert struct.unpack_from(">ii", data, 32) == (1, 3)


def test_filler_closes_a_file(rig: Rig) -> None:
    sizes = [len(rig.store.reader.record(rig.send(body=bytes(900))) or b"") for _ in range(5)]
    assert len(set(sizes)) == 1
    data = rig.log()
    end = 4 * sizes[0]
    assert data[end : end + 8] == struct.pack(">iI", 4096 - end, 0xCBD43194)
    assert not any(data[end + 8 :])
    assert rig.store.end == 4096 + sizes[0]
    assert rig.files.names(f"{rig.root}/commitlog")[:2] == [f"{0:020d}", f"{4096:020d}"]


def test_record_may_end_just_before_the_filler(rig: Rig) -> None:
    size = len(rig.store.reader.record(rig.send(body=b"")) or b"")
    rig.send(body=bytes(4096 - 8 - 2 * size))
    assert rig.store.end == 4088
    rig.send(body=b"next")
    assert rig.log()[4088:] == struct.pack(">iI", 8, 0xCBD43194)
    assert rig.store.end == 4096 + size + 4
    assert rig.bodies() == [b"", bytes(4096 - 8 - 2 * size), b"next"]


def test_files_have_their_full_size_at_once(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=6_000_010)
    rig.send(uniq_key="a")
    rig.settle()
    assert rig.files.size(f"{rig.root}/commitlog/{0:020d}") == 1 << 20
    assert rig.files.size(f"{rig.root}/consumequeue/Topic/0/{0:020d}") == 6_000_020
    assert rig.files.size(f"{rig.root}/index/{rig.files.names(f'{rig.root}/index')[0]}") == 40 + 4 * 100 + 20 * 400
    assert rig.files.size(f"{rig.root}/checkpoint") == 4096
    assert rig.files.read(f"{rig.root}/lock") == b"lock"
    assert rig.files.read(f"{rig.root}/abort") == b""


def test_hosts_of_ipv6_lengthen_the_record(rig: Rig) -> None:
    plain = len(rig.store.reader.record(rig.send()) or b"")
    for born, store, flags in ((HOST_V6, HOST, 0x10), (HOST, HOST_V6, 0x20), (HOST_V6, HOST_V6, 0x30)):
        record = rig.store.reader.record(rig.send(born_host=born, store_host=store, sys_flag=0x300))
        assert record is not None
        assert len(record) == plain + 12 * (flags >> 4).bit_count()
        message = decode_record(record)
        assert (message.sys_flag, message.born_host_bytes, message.store_host_bytes) == (0x300 | flags, born, store)
    record = rig.store.reader.record(rig.send(sys_flag=0x31))
    assert record is not None
    assert decode_record(record).sys_flag == 1, "flags that the hosts do not bear out are taken away"
    assert [message.body for message in rig.read()] == [b"body"] * 5
    rig.kill()
    rig.open()
    assert len(rig.read()) == 5


def test_all_fields_of_a_record_are_kept(rig: Rig) -> None:
    offset = rig.store.writer.append(
        rig.store.queue("Topic", 5),
        b"\0abc",
        b"A\x01b",
        -1,
        0x101,
        -2,
        HOST,
        HOST,
        2**31 - 1,
        2**62,
        -5,
        None,
        None,
        START,
    )
    record = rig.store.reader.record(offset)
    assert record is not None
    message = decode_record(record)
    assert message.body_crc == body_crc(b"\0abc") == 1797343180
    assert (message.flag, message.sys_flag, message.born_time, message.store_time) == (-1, 0x101, -2, START)
    assert (message.reconsume_times, message.prepared_offset, message.queue_id, message.queue_offset) == (
        2**31 - 1,
        2**62,
        5,
        0,
    )
    assert (message.topic, message.properties, message.store_size) == ("Topic", {"A": "b"}, len(record))
    assert rig.store.reader.entry(rig.store.queue("Topic", 5), 0) == (offset, len(record), -5)


@pytest.mark.parametrize("state", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_prepared_and_rolled_back_messages_have_no_place(rig: Rig, state: int) -> None:
    rig.send(body=b"first")
    offset = rig.send(body=b"apart", sys_flag=state, uniq_key="apart")
    rig.send(body=b"second", sys_flag=TRANSACTION_COMMIT)
    for _ in range(2):
        assert rig.bodies() == [b"first", b"second"]
        record = rig.store.reader.record(offset)
        assert record is not None
        assert decode_record(record).queue_offset == 0
        assert bool(rig.found("apart")) is (state == TRANSACTION_PREPARED)
        rig.kill()
        rig.open()


def test_refusals_leave_no_hole(rig: Rig) -> None:
    """STO-03."""
    queue, other = rig.store.queue("Topic", 0), rig.store.queue("Topic", 1)
    rig.send(body=b"a")

    def refused(body: bytes, properties: bytes = b"", born_host: bytes = HOST, flag: int = 0) -> PutStatus:
        end = rig.store.end
        with pytest.raises(PutRefused) as caught:
            rig.store.writer.append(queue, body, properties, flag, 0, 0, born_host, HOST, 0, 0, 0, "key", None, START)
        assert rig.store.end == end
        return caught.value.status

    assert refused(b"x", bytes(33_000)) is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert refused(bytes((4 << 20) + 1)) is PutStatus.MESSAGE_ILLEGAL
    assert refused(bytes(4000)) is PutStatus.MESSAGE_ILLEGAL, "more than a file of the log holds"
    assert refused(b"x", born_host=HOST[:7]) is PutStatus.MESSAGE_ILLEGAL
    assert refused(b"x", flag=1 << 31) is PutStatus.MESSAGE_ILLEGAL
    rig.send(body=b"b", queue_id=1)
    rig.send(body=b"c")
    assert (queue.next_offset, other.next_offset) == (2, 1)
    assert rig.store.writer.writable
    for _ in range(2):
        assert (rig.bodies(), rig.bodies(queue_id=1)) == ([b"a", b"c"], [b"b"])
        assert rig.found("key") == []
        rig.reopen()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\0b", "x" * 256, "\u6807" * 86])
def test_topics_that_are_no_folders_are_refused(rig: Rig, topic: str) -> None:
    with pytest.raises(ValueError, match="no topic"):
        rig.store.queue(topic, 0)


def test_index_files_are_named_after_local_time() -> None:
    assert index_name(1_795_981_259_421, 0) == "20261129194059421"
    assert index_name(1_795_981_259_007, 3_600_000 * 5 + 1_800_000) == "20261130011059007"
