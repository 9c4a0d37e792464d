"""Reading from queues, by place, by time and by key (docs/protocol/store.md 14, 5.4)."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.engine.store import BatchPart, GetStatus, PutRefused, ReadFilter
from mqproto.wire.ids import java_hash
from mqproto.wire.record import decode_record
from tests.engine.store.conftest import MakeRig
from tests.engine.store.harness import ALWAYS, HOST, START, Rig, memory_rig, records


@pytest.fixture(params=["in memory", "in files"])
def fourteen(request: pytest.FixtureRequest, rig: Rig) -> Rig:
    """A queue of 14 messages with 10 entries a file, as in the vectors of docs/protocol/store.md 15."""
    rig.send_many(14)
    if request.param == "in files":
        rig.settle()
    return rig


@pytest.mark.parametrize(
    ("offset", "status", "count", "following"),
    [
        (-1, GetStatus.OFFSET_TOO_SMALL, 0, 0),
        (0, GetStatus.FOUND, 10, 10),
        (5, GetStatus.FOUND, 5, 10),
        (10, GetStatus.FOUND, 4, 14),
        (14, GetStatus.OFFSET_OVERFLOW_ONE, 0, 14),
        (100, GetStatus.OFFSET_OVERFLOW_BADLY, 0, 14),  # 4.9.4 and later; 4.4 says 0
    ],
)
def test_get_as_in_javas_vectors(fourteen: Rig, offset: int, status: GetStatus, count: int, following: int) -> None:
    store = fourteen.store
    result = store.reader.get(store.queue("Topic", 0), offset, 32, None)
    assert (result.status, result.count, result.next_offset) == (status, count, following)
    assert (result.min_offset, result.max_offset) == (0, 14)
    assert [message.queue_offset for message in records(result.views)] == list(
        range(max(offset, 0), max(offset, 0) + count)
    )


def test_unknown_queue_has_no_message(rig: Rig) -> None:
    result = rig.store.reader.get(rig.store.queue("Other", 0), 7, 32, None)
    assert (result.status, result.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert rig.store.find_queue("Nobody", 0) is None
    assert rig.store.reader.offset_by_time(rig.store.queue("Other", 0), START) == 0
    assert rig.store.reader.earliest_store_time() == -1


def test_neighbours_share_a_view(rig: Rig) -> None:
    for topic in ("A", "A", "B", "A", "A"):
        rig.send(topic)
    result = rig.store.reader.get(rig.store.queue("A", 0), 0, 32, None)
    sizes = [len(view) for view in result.views]
    assert (len(sizes), sizes[0]) == (2, sizes[1])
    assert len(rig.read("A")) == 4


def test_counts_and_bytes_limit_an_answer(make_rig: MakeRig) -> None:
    rig = make_rig(
        max_transfer_bytes_on_message_in_memory=1000,
        max_transfer_count_on_message_in_memory=5,
        mapped_file_size_consume_queue=2000,
    )
    queue = rig.store.queue("Topic", 0)
    rig.send(body=bytes(2000))
    rig.send_many(9, size=10)
    assert rig.store.reader.get(queue, 0, 32, None).count == 1, "one message is given whatever its size"
    assert rig.store.reader.get(queue, 1, 32, None).count == 5
    assert rig.store.reader.get(queue, 1, 3, None).count == 3
    assert rig.store.reader.get(queue, 1, 0, None).count == 1
    rig.send_many(4, size=300)
    assert rig.store.reader.get(queue, 10, 32, None).count == 2


def test_far_behind_the_end_other_limits_hold(make_rig: MakeRig) -> None:
    """What memory does not hold is given in smaller answers, and a slave is suggested.

    See docs/protocol/store.md 13.6, 14.2.
    """
    rig = make_rig(
        access_message_in_memory_max_ratio=0,
        max_transfer_count_on_message_in_disk=3,
        max_transfer_bytes_on_message_in_disk=500,
    )
    rig.send_many(10, size=10)
    queue = rig.store.queue("Topic", 0)
    result = rig.store.reader.get(queue, 0, 32, None)
    assert (result.count, result.next_offset, result.suggest_slave) == (3, 3, True)
    assert rig.store.reader.on_disk(0)
    rig.send_many(2, "Long", size=400)
    assert rig.store.reader.get(rig.store.queue("Long", 0), 0, 32, None).count == 1
    near = make_rig()
    near.send_many(10, size=10)
    assert not near.store.reader.get(near.store.queue("Topic", 0), 0, 32, None).suggest_slave
    assert not near.store.reader.on_disk(0)


def test_tags_are_compared_by_hash(rig: Rig) -> None:
    for number in range(8):
        rig.send(body=b"%d" % number, tags="odd" if number % 2 else "even")
    queue = rig.store.queue("Topic", 0)
    for _ in range(2):
        result = rig.store.reader.get(queue, 0, 3, frozenset({java_hash("odd")}))
        assert [message.body for message in records(result.views)] == [b"1", b"3", b"5"]
        assert (result.next_offset, result.count) == (6, 3)
        result = rig.store.reader.get(queue, 0, 32, frozenset({1}))
        assert (result.status, result.next_offset, result.views) == (GetStatus.NO_MATCHED_MESSAGE, 8, [])
        rig.settle()


def test_what_is_no_hash_is_left_to_the_consumer(rig: Rig) -> None:
    rig.send(tags_code=-(1 << 63))
    assert rig.store.reader.get(rig.store.queue("Topic", 0), 0, 32, frozenset({1})).count == 1


class Odd(ReadFilter):
    """Takes what has an odd offset, and works one unit for each."""

    def takes(self, record: memoryview) -> bool:
        self.work_left -= 1
        return decode_record(record).queue_offset % 2 == 1


def test_whole_records_can_be_judged(rig: Rig) -> None:
    rig.send_many(6)
    result = rig.store.reader.get(rig.store.queue("Topic", 0), 0, 2, None, Odd(100))
    assert [message.queue_offset for message in records(result.views)] == [1, 3]
    assert result.next_offset == 4


@pytest.mark.parametrize(("work", "found"), [(1, []), (2, [1]), (5, [1, 3]), (6, [1, 3, 5])])
def test_a_read_ends_when_it_has_judged_enough(rig: Rig, work: int, found: list[int]) -> None:
    rig.send_many(6)
    result = rig.store.reader.get(rig.store.queue("Topic", 0), 0, 32, None, Odd(work))
    assert [message.queue_offset for message in records(result.views)] == found
    assert (result.next_offset, result.status) == (work, GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE)


def test_one_read_looks_at_800_entries(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_consume_queue=20_000, mapped_file_size_commit_log=1 << 20)
    rig.send_many(900, size=1)
    queue = rig.store.queue("Topic", 0)
    result = rig.store.reader.get(queue, 0, 32, frozenset({1}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)
    assert rig.store.reader.get(queue, 800, 32, frozenset({1})).next_offset == 900
    assert rig.store.reader.get(queue, 0, 850, frozenset({1})).next_offset == 850


def test_next_offset_is_never_above_the_maximum(rig: Rig) -> None:
    """CON-04: entries of a queue cannot be read."""
    rig.send_many(12)
    rig.settle()
    rig.send_many(1)
    rig.store._queues.forget_maps()
    rig.files.remove(f"{rig.root}/consumequeue/Topic/0/{200:020d}")
    queue = rig.store.queue("Topic", 0)
    result = rig.store.reader.get(queue, 10, 32, None)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, 13)
    rig.files.remove(f"{rig.root}/consumequeue/Topic/0/{0:020d}")
    assert rig.store.reader.get(queue, 5, 32, None).next_offset == 10
    assert rig.store.reader.entry(queue, 5) is None


def test_records_that_are_gone_are_passed_over(rig: Rig) -> None:
    rig.send_many(60, size=300)
    rig.settle()
    rig.close()
    rig.files.remove(f"{rig.root}/commitlog/{0:020d}")
    rig.files.remove(f"{rig.root}/commitlog/{4096:020d}")
    rig.open()
    queue = rig.store.queue("Topic", 0)
    assert rig.store.min_physical == 8192
    first = decode_record(rig.store.reader.record(8192) or b"").queue_offset
    assert queue.min_offset == first > 10
    assert rig.store.reader.get(queue, first - 1, 32, None).status is GetStatus.OFFSET_TOO_SMALL
    queue.min_offset = 0  # as if the files had gone a moment ago
    result = rig.store.reader.get(queue, 0, 32, None)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 10)
    result = rig.store.reader.get(queue, first - first % 10, 32, None)
    assert [message.queue_offset for message in records(result.views)] == list(range(first, result.next_offset))
    assert rig.store.reader.record(0) is None
    assert rig.store.reader.store_time(queue, 0) == -1


def test_number_of_maps_is_bounded(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_queue_files=3)
    for topic in "ABCDEF":
        rig.send_many(12, topic, size=600)
    rig.reopen()
    for _ in range(2):
        for topic in "ABCDEF":
            assert len(rig.read(topic)) == 12
    assert len(rig.store._queues._maps) == 3
    for number in range(300):
        rig.send("Long", bytes(1500), at=number)
    assert rig.store.end > 64 * 2 * 4096
    rig.reopen()
    assert len(rig.read("Long")) == 300
    assert len(rig.store._log.mapped) == 64


def test_a_view_outlives_map_and_store(make_rig: MakeRig) -> None:
    rig = make_rig()
    bodies = rig.send_many(60, size=300)
    view = rig.store.reader.get(rig.store.queue("Topic", 0), 0, 1, None).views[0]
    rig.close()
    gc.collect()
    assert records([view])[0].body == bodies[0]


def test_record_is_given_only_where_one_begins(rig: Rig) -> None:
    offset = rig.send(body=bytes(range(256)) * 2)
    end = rig.store.end
    rig.send()
    assert rig.store.reader.record(offset) is not None
    for wrong in (-1, 1, offset + 8, end - 1, end + 1, rig.store.end, rig.store.end + 5000, 1 << 62, -(1 << 62)):
        assert rig.store.reader.record(wrong) is None, wrong


# --- by time ---


def at_times(rig: Rig, times: list[int]) -> list[int]:
    for time in times:
        rig.send(at=time)
    return times


@pytest.mark.parametrize("in_files", [False, True])
def test_offset_by_time_is_the_first_not_older(rig: Rig, in_files: bool) -> None:
    """REB-08: the rule after the fixes, not the nearest message of 4.9."""
    at_times(rig, [100, 200, 200, 200, 300])
    if in_files:
        rig.settle()
    queue = rig.store.queue("Topic", 0)
    answers = [rig.store.reader.offset_by_time(queue, time) for time in (50, 100, 150, 200, 250, 300, 301)]
    assert answers == [0, 0, 1, 1, 4, 4, 5]
    assert [rig.store.reader.store_time(queue, offset) for offset in (-1, 0, 4, 5)] == [-1, 100, 300, -1]
    assert rig.store.reader.earliest_store_time(queue) == rig.store.reader.earliest_store_time() == 100


def test_offset_by_time_finds_the_first_of_a_batch(rig: Rig) -> None:
    """REB-08."""
    at_times(rig, [100])
    queue = rig.store.queue("Topic", 0)
    rig.store.writer.append_batch(queue, [BatchPart(b"x", b"", 0, 0, None, None)] * 10, 0, 0, HOST, HOST, 0, 200)
    assert rig.store.reader.offset_by_time(queue, 200) == 1


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(0, 60))
def test_offset_by_time_stays_in_the_queue(times: list[int], wanted: int) -> None:
    """REB-08: also after the clock was set back."""
    rig = memory_rig()
    at_times(rig, times)
    found = rig.store.reader.offset_by_time(rig.store.queue("Topic", 0), wanted)
    assert 0 <= found <= len(times)
    if times == sorted(times):
        assert found == sum(time < wanted for time in times)


# --- by key ---


def test_query_gives_unique_ids_and_each_key(rig: Rig) -> None:
    rig.send(keys="k1 k2", uniq_key="first")
    rig.send(keys="k2  k3", uniq_key="second")
    rig.send("Other", keys="k2")
    for _ in range(2):
        assert rig.found("first") == [0]
        assert rig.found("k1") == [0]
        assert rig.found("k2") == [0, 1]
        assert rig.found("k3") == [1]
        assert rig.found("k2", "Other") == [0]
        assert rig.found("") == rig.found("k1 k2") == rig.found("none") == []
        last = rig.store.reader.query("Topic", "none", 32, *ALWAYS)
        assert (last.index_last_time, last.index_last_offset) == (
            START,
            rig.store.reader.entry(rig.store.queue("Other", 0), 0)[0],  # type: ignore[index]
        )
        rig.settle()


def test_query_gives_exact_matches_only(rig: Rig) -> None:
    """STO-01: keys and topics with one hash."""
    assert java_hash("TopicTest#Aa") == java_hash("TopicTest#BB")
    rig.send("TopicTest", keys="Aa")
    rig.send("TopicTest", keys="BB")
    rig.send("AaX", keys="k")
    rig.send("BBX", keys="k")
    assert (rig.found("Aa", "TopicTest"), rig.found("BB", "TopicTest")) == ([0], [1])
    assert len(rig.found("k", "AaX")) == len(rig.found("k", "BBX")) == 1
    assert records(rig.store.reader.query("BBX", "k", 32, *ALWAYS).views)[0].topic == "BBX"


def test_query_holds_to_its_time_range(rig: Rig) -> None:
    """STO-01."""
    for number in range(5):
        rig.send(keys="k", at=START + 700 * number)
    for _ in range(2):
        assert rig.found("k", begin=START + 700, end=START + 2100) == [1, 2, 3]
        assert rig.found("k", begin=START + 701, end=START + 2099) == [2]
        assert rig.found("k", begin=START + 2801, end=START + 10_000) == []
        assert rig.found("k", begin=0, end=START - 1) == []
        rig.settle()  # index entries hold whole seconds only


def test_query_gives_the_newest_when_there_are_many(make_rig: MakeRig) -> None:
    rig = make_rig(max_msgs_num_batch=8)
    for _ in range(20):
        rig.send(keys="k")
    rig.run_jobs()
    assert rig.found("k") == list(range(12, 20))
    assert rig.found("k", count=3) == [17, 18, 19]


@pytest.mark.parametrize("jobs_run", [True, False])
def test_index_goes_on_in_new_files(rig: Rig, jobs_run: bool) -> None:
    for number in range(1000):
        rig.send(uniq_key=f"id-{number}", body=b"", at=START + 10 * number)
        if jobs_run:
            rig.run_jobs()
    if not jobs_run:
        assert rig.files.names(f"{rig.root}/index") == [], "no file is made but by a job"
    assert [rig.found(f"id-{number}") for number in (0, 398, 399, 400, 797, 798, 999)] == [
        [0],
        [398],
        [399],
        [400],
        [797],
        [798],
        [999],
    ]
    rig.settle()
    assert len(rig.files.names(f"{rig.root}/index")) == 3
    for number in range(1000):
        assert rig.found(f"id-{number}") == [number]
        assert rig.found(f"id-{number}", begin=START + 10 * number, end=START + 10 * number) == [number]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1, max_size=40),
        max_size=12,
    )
)
def test_any_unique_id_is_found(ids: list[str]) -> None:
    rig = memory_rig()
    for unique in ids:
        rig.send(uniq_key=unique)
    for unique in ids:
        assert rig.found(unique) == [place for place, other in enumerate(ids) if other == unique]


@given(st.text("0123456789ABCDEF", min_size=32, max_size=32), st.text("0123456789ABCDEF", min_size=8, max_size=8))
def test_ids_of_one_producer_are_hashed_like_any_key(unique: str, tail: str) -> None:
    rig = memory_rig()
    for each in (unique, unique[:24] + tail):
        rig.send(uniq_key=each)
        assert rig.found(each)


# --- batches ---


def test_batch_lands_in_one_file_with_offsets_in_a_row(rig: Rig) -> None:
    rig.send(body=bytes(3000))
    queue = rig.store.queue("Topic", 0)
    entries = [BatchPart(b"%d" % n, b"UNIQ_KEY\x01u%d" % n, n, n, f"u{n}", None) for n in range(12)]
    offsets = rig.store.writer.append_batch(queue, entries, 0, START, HOST, HOST, 2, START)
    assert offsets[0] == 4096
    assert {offset // 4096 for offset in offsets} == {1}
    messages = rig.read(start=1)
    assert [message.physical_offset for message in messages] == offsets
    assert [(message.body, message.flag, message.queue_offset, message.reconsume_times) for message in messages] == [
        (b"%d" % n, n, n + 1, 2) for n in range(12)
    ]
    assert rig.found("u7") == [8]
    assert rig.store.writer.append_batch(queue, [], 0, START, HOST, HOST, 0, START) == []


@pytest.mark.parametrize(
    "bad",
    [
        BatchPart(bytes(4000), b"", 0, 0, None, None),
        BatchPart(b"", bytes(33_000), 0, 0, None, None),
        BatchPart(b"", b"", 1 << 31, 0, None, None),
        BatchPart(bytes(1500), b"", 0, 0, None, None),
    ],
)
def test_batch_is_stored_whole_or_not_at_all(rig: Rig, bad: BatchPart) -> None:
    queue = rig.store.queue("Topic", 0)
    good = BatchPart(bytes(1300), b"", 0, 0, None, None)
    with pytest.raises(PutRefused):
        rig.store.writer.append_batch(queue, [good, bad, good], 0, START, HOST, HOST, 0, START)
    assert (rig.store.end, queue.next_offset) == (0, 0)


def test_a_query_gives_no_more_than_a_frame_takes(make_rig: MakeRig) -> None:
    rig = make_rig(mapped_file_size_commit_log=1 << 24, allocation_window=1 << 24)
    for _ in range(6):
        rig.send(body=bytes(3 << 20), keys="large")
        rig.run_jobs()
    assert rig.found("large") == [4, 5]
