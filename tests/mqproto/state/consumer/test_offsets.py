"""Where offsets are kept: at the brokers, and in a local file."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import Command
from mqproto.errors import BrokerError, CallExpired, ConnectFailed, HeaderError, MQError, NoRoute, TooManyRequests
from mqproto.message import MessageQueue
from mqproto.state.consumer.offsets import TELL_ALL_MS, LocalOffsets, RemoteOffsets, format_offsets, parse_offsets
from mqproto.state.flows.effects import Call, Expired, Flow, Lost, Oneway, Sleep, Work
from mqproto.wire.codes import RequestCode
from tests.golden.golden import Golden

Q0, Q1 = MessageQueue("News", "broker-a", 0), MessageQueue("News", "broker-a", 1)


def remote() -> RemoteOffsets:
    def locate(queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        yield from ()
        if queue.broker_name == "gone":
            raise NoRoute(queue.topic)
        return f"{queue.broker_name}:1", now

    return RemoteOffsets("g", locate)


def ended(flow: Flow[object], outcome: object, now: int = 1) -> object:
    with pytest.raises(StopIteration) as stop:
        flow.send((outcome, now))
    return stop.value.value


def offset_answer(offset: str) -> Command:
    return Command(code=0, fields={"offset": offset}, flag=1)


# --- the table


def test_the_table_goes_up_unless_told_otherwise() -> None:
    table = remote()
    assert table.known(Q0) is None
    table.update(Q0, 0)
    assert table.known(Q0) == 0, "REB-06: 0 is an offset"
    table.update(Q0, 7)
    table.update(Q0, 3)
    assert table.table() == {Q0: 7}
    table.update(Q0, 3, may_decrease=True)
    assert table.known(Q0) == 3
    table.forget(Q0)
    table.forget(Q0)
    assert table.known(Q0) is None


def test_offsets_of_equal_queue_numbers_are_independent() -> None:
    """CON-20: the broker's name is part of the key."""
    table = remote()
    a, b = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
    table.update(a, 10)
    table.update(b, 5)
    assert table.table() == {a: 10, b: 5}


# --- at the brokers


QUERY = Call(
    "broker-a:1",
    RequestCode.QUERY_CONSUMER_OFFSET,
    {"consumerGroup": "g", "topic": "News", "queueId": "1", "bname": "broker-a"},
    deadline=5_000,
)


def test_the_kept_offset_is_asked_for() -> None:
    flow = remote().fetch(Q1, 0)
    assert next(flow) == QUERY
    assert ended(flow, offset_answer("42"), 7) == (42, 7)


def test_only_not_found_means_none() -> None:
    """docs/protocol/client.md 4.3: every other refusal would make a group jump to the end."""
    flow = remote().fetch(Q1, 0)
    next(flow)
    assert ended(flow, Command(code=22, flag=1)) == (None, 1)


def test_a_negative_offset_is_none() -> None:
    flow = remote().fetch(Q1, 0)
    next(flow)
    assert ended(flow, offset_answer("-1")) == (None, 1)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Command(code=1, flag=1), BrokerError),
        (Command(code=2, flag=1), BrokerError),
        (Command(code=16, flag=1), BrokerError),
        (Command(code=0, flag=1), HeaderError),
        (offset_answer("many"), HeaderError),
        (Expired("broker-a:1", 5_000), CallExpired),
        (Lost("broker-a:1", "refused"), ConnectFailed),
    ],
)
def test_what_cannot_be_known_is_an_error(outcome: object, error: type[MQError]) -> None:
    flow = remote().fetch(Q1, 0)
    next(flow)
    with pytest.raises(error):
        flow.send((outcome, 1))


def update(queue: MessageQueue, offset: int, now: int) -> Oneway:
    fields = {
        "consumerGroup": "g",
        "topic": "News",
        "queueId": str(queue.queue_id),
        "bname": "broker-a",
        "commitOffset": str(offset),
    }
    return Oneway("broker-a:1", RequestCode.UPDATE_CONSUMER_OFFSET, fields, deadline=now + 5_000)


def holding(offsets: dict[MessageQueue, int]) -> RemoteOffsets:
    table = remote()
    for queue, offset in offsets.items():
        table.update(queue, offset)
    return table


def test_offsets_are_sent_one_way_in_queue_order() -> None:
    flow = holding({Q1: 8, Q0: 3}).persist([Q1, MessageQueue("News", "broker-a", 9), Q0], 0)
    assert next(flow) == update(Q0, 3, 0)
    assert flow.send((None, 1)) == update(Q1, 8, 1)
    assert ended(flow, None) is None


def test_one_that_cannot_be_sent_does_not_hold_up_the_others() -> None:
    other = MessageQueue("News", "a gone", 0)
    flow = holding({other: 1, Q0: 3, Q1: 8}).persist([other, Q0, Q1], 0)
    assert isinstance(next(flow), Oneway)
    assert flow.send((Lost("a gone:1", "refused"), 3)) == update(Q0, 3, 3)
    assert flow.throw(TooManyRequests("full")) == Sleep(3)
    assert flow.send((None, 4)) == update(Q1, 8, 4)
    assert ended(flow, None) is None
    flow = remote().keep(MessageQueue("News", "gone", 0), 1, 0)
    assert next(flow) == Sleep(0)
    assert ended(flow, None) is None


def test_an_offset_that_was_corrected_meanwhile_is_sent_as_it_is_now() -> None:
    table = holding({Q0: 3, Q1: 8})
    flow = table.persist([Q0, Q1], 0)
    next(flow)
    table.update(Q1, 2, may_decrease=True)
    assert flow.send((None, 1)) == update(Q1, 2, 1)


def told(flow: Flow[None]) -> list[object]:
    """The requests of a flow that sends what it sends."""
    requests: list[object] = []
    with suppress(StopIteration):
        requests.append(next(flow))
        while True:
            requests.append(flow.send((None, 0)))
    return requests


def test_what_was_told_is_told_again_now_and_then() -> None:
    """A broker that saves every few seconds may have lost it in a crash."""
    table = holding({Q0: 3, Q1: 8})
    assert len(told(table.refresh([Q0, Q1], 0))) == 2
    assert told(table.refresh([Q0, Q1], TELL_ALL_MS - 1)) == []
    assert told(table.refresh([Q0, Q1], TELL_ALL_MS)) == [update(Q0, 3, TELL_ALL_MS), update(Q1, 8, 0)]
    assert told(table.refresh([Q0, Q1], TELL_ALL_MS + 1)) == []
    assert len(told(table.persist([Q0, Q1], TELL_ALL_MS + 2))) == 2, "at the end everything is told"


def test_what_changes_is_told_with_the_next_round() -> None:
    table = holding({Q0: 3, Q1: 8})
    told(table.refresh([Q0, Q1], 0))
    table.update(Q1, 9)
    assert told(table.refresh([Q0, Q1], 1)) == [update(Q1, 9, 1)]
    table.update(Q1, 4, may_decrease=True)
    assert told(table.refresh([Q0, Q1], 2)) == [update(Q1, 4, 2)]


def test_what_could_not_be_told_is_told_with_the_next_round() -> None:
    table = holding({Q0: 3})
    flow = table.refresh([Q0], 0)
    next(flow)
    assert flow.throw(TooManyRequests("full")) == Sleep(0)
    assert ended(flow, None) is None
    flow = table.refresh([Q0], 1)
    assert next(flow) == update(Q0, 3, 1)
    assert ended(flow, Lost("broker-a:1", "refused")) is None
    assert told(table.refresh([Q0], 2)) == [update(Q0, 3, 2)]


@pytest.mark.parametrize("kept", [False, True])
def test_a_queue_that_comes_back_is_told_at_once(kept: bool) -> None:
    """Another member may have told something else meanwhile."""
    table = holding({Q0: 3})
    told(table.refresh([Q0], 0))
    table.forget(Q0)
    assert told(table.refresh([Q0], 0)) == []
    if kept:
        flow = table.keep(Q0, 3, 0)
        next(flow)
        ended(flow, Command(code=0, flag=1))
    table.update(Q0, 3)
    assert told(table.refresh([Q0], 1)) == [update(Q0, 3, 1)]


@pytest.mark.parametrize(
    "outcome",
    [Command(0, flag=1), Command(1, flag=1), Expired("broker-a:1", 5_000)],
    ids=["taken", "refused", "silence"],
)
def test_the_last_offset_of_a_forgotten_queue_is_taken_or_never_will_be(outcome: Command | Expired | None) -> None:
    """Its next owner may read it then."""
    store = remote()
    flow = store.keep(Q1, 8, 0)
    sent = update(Q1, 8, 0)
    assert next(flow) == Call(sent.address, sent.code, sent.fields, deadline=sent.deadline)
    if outcome != Command(0, flag=1):
        assert flow.send((outcome, 5)) == Sleep(5)
        outcome = None
    assert ended(flow, outcome) is None


def test_a_commit_waits_for_the_broker() -> None:
    """docs/protocol/client.md 5.1: the synchronous form of the update."""
    store = remote()
    flow = store.commit(Q0, 7, 0)
    call = next(flow)
    assert isinstance(call, Call)
    assert (call.address, call.code, call.deadline) == ("broker-a:1", RequestCode.UPDATE_CONSUMER_OFFSET, 5_000)
    assert call.fields == {
        "consumerGroup": "g",
        "topic": "News",
        "queueId": "0",
        "bname": "broker-a",
        "commitOffset": "7",
    }
    assert ended(flow, Command(code=0, flag=1)) == (None, 1)
    assert store.known(Q0) is None, "what is in memory is the caller's affair"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Command(code=1, flag=1), BrokerError),
        (Expired("broker-a:1"), CallExpired),
        (Lost("broker-a:1", "gone"), ConnectFailed),
    ],
)
def test_a_commit_that_was_not_taken_says_why(outcome: object, error: type[MQError]) -> None:
    flow = remote().commit(Q0, 7, 0)
    next(flow)
    assert flow.send((outcome, 3)) == Sleep(3), "to learn how late it is"
    failure, now = cast("tuple[MQError, int]", ended(flow, None, 5))
    assert type(failure) is error
    assert now == 5


# --- in a file


class Save:
    """A save that the test ends by hand."""

    def __init__(self, text: str, set_aside: bool) -> None:
        self.text = text
        self.set_aside = set_aside

    def run(self) -> None: ...


class File:
    def __init__(self, main: bytes | None, backup: bytes | None = None) -> None:
        self.main = main
        self.backup = backup

    def save(self, text_of: Callable[[bytes | None], str], *, set_aside: bool) -> Save:
        return Save(text_of(self.main), set_aside)


def text(offset: int) -> bytes:
    return format_offsets({Q0: offset}).encode()


def kept(store: LocalOffsets, queue: MessageQueue = Q0) -> int | None:
    flow = store.fetch(queue, 5)
    with pytest.raises(StopIteration) as stop:
        next(flow)
    offset, now = stop.value.value
    assert now == 5
    assert offset is None or isinstance(offset, int)
    return offset


def saving(flow: Flow[Any]) -> Save:
    effect = next(flow)
    assert isinstance(effect, Work)
    assert isinstance(effect.job, Save)
    return effect.job


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.3.3"])
def test_the_file_is_that_of_java_to_the_byte(golden: Golden, version: str) -> None:
    printed = golden.printed(version, "consume-broadcast")
    texts = [part.split("\n$ ")[0].rstrip("\n") for part in printed.split("/offsets.json\n")[1:]]
    assert len(texts) == 2
    for java in texts:
        assert parse_offsets(java.encode()) == {Q0: 1, Q1: 1}
        assert format_offsets({Q1: 1, Q0: 1}) == java


@given(
    st.dictionaries(
        st.builds(MessageQueue, st.text(min_size=1), st.text(min_size=1), st.integers(0, 99)), st.integers(0, 2**62)
    )
)
def test_what_is_written_is_read(offsets: dict[MessageQueue, int]) -> None:
    written = format_offsets(offsets).encode("utf-8", "surrogatepass")
    if all(char < "\ud800" or char > "\udfff" for queue in offsets for char in queue.topic + queue.broker_name):
        assert parse_offsets(written) == offsets


def test_without_a_file_a_group_begins_anew_and_quietly() -> None:
    told: list[str] = []
    assert kept(LocalOffsets(File(None), told.append)) is None
    assert told == []


DAMAGED = [
    b"",
    text(5)[:37],
    random.Random(1).randbytes(200),
    b"[]",
    b"{}",
    b"null",
    b'{"offsetTable":[]}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"far"}}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:-4}}',
    b'{"offsetTable":{{"queueId":0}:4}}',
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_replaced_by_its_backup(damage: bytes) -> None:
    """BRO-01."""
    told: list[str] = []
    store = LocalOffsets(File(damage, text(7)), told.append)
    assert kept(store) == 7
    (line,) = told
    assert line.startswith("local offset file is damaged or missing (")
    assert line.endswith(": its backup is used")


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("backup", [None, b"", b"[1"])
def test_without_a_good_backup_the_group_begins_where_it_is_told_to_and_loudly(
    damage: bytes, backup: bytes | None
) -> None:
    """BRO-01: the application starts all the same, and the damaged file is set aside before anything is written over
    it.
    """
    told: list[str] = []
    store = LocalOffsets(File(damage, backup), told.append)
    assert kept(store) is None
    (line,) = told
    assert "its backup too" in line
    assert line.endswith("consumption begins at the configured place")
    flow = store.keep(Q0, 1, 0)
    assert saving(flow).set_aside
    ended(flow, None)
    assert not saving(store.keep(Q0, 2, 0)).set_aside, "only the damaged one"


def test_a_file_between_two_names_is_found_in_the_backup() -> None:
    """Java deletes the file before it renames the new one: a crash in between leaves the backup alone, and nothing is
    damaged.
    """
    told: list[str] = []
    store = LocalOffsets(File(None, text(7)), told.append)
    assert kept(store) == 7
    assert len(told) == 1
    assert not saving(store.keep(Q0, 8, 0)).set_aside


def test_saves_are_merged_into_what_the_file_holds() -> None:
    """4.9.7 lost the entries of queues that were not in memory."""
    store = LocalOffsets(File(format_offsets({Q0: 5, Q1: 6}).encode()), print)
    flow = store.keep(Q1, 9, 0)
    assert parse_offsets(saving(flow).text.encode()) == {Q0: 5, Q1: 9}
    ended(flow, None)
    assert kept(store, Q1) == 9, "and a queue that comes back goes on from there"


def test_entries_of_others_stay() -> None:
    """A Java program of the same group on the same host shares the file."""
    file = File(text(5))
    store = LocalOffsets(file, print)
    other = MessageQueue("Other", "broker-a", 0)
    file.main = format_offsets({Q0: 4, other: 77}).encode()
    assert parse_offsets(saving(store.keep(Q0, 6, 0)).text.encode()) == {Q0: 6, other: 77}
    for damaged in (None, b"", b"{"):
        file.main = damaged
        store = LocalOffsets(File(text(5)), print)
        store._file = file
        assert parse_offsets(saving(store.keep(Q1, 6, 0)).text.encode()) == {Q0: 5, Q1: 6}, (
            "what was known at the start"
        )


def test_nothing_is_written_while_nothing_moves() -> None:
    store = LocalOffsets(File(text(5)), print)
    store.update(Q0, 5)
    with pytest.raises(StopIteration):
        next(store.persist([Q0, Q1], 0))
    store.update(Q0, 6)
    assert parse_offsets(saving(store.persist([Q0, Q1], 0)).text.encode()) == {Q0: 6}


def test_one_save_at_a_time_and_the_last_offsets_win() -> None:
    """BRO-05."""
    store = LocalOffsets(File(text(5)), print)
    first = store.keep(Q0, 6, 0)
    saving(first)
    for offset in (7, 8):
        with pytest.raises(StopIteration):
            next(store.keep(Q0, offset, 0))
    effect = first.send((None, 1))
    assert isinstance(effect, Work)
    assert isinstance(effect.job, Save)
    assert parse_offsets(effect.job.text.encode()) == {Q0: 8}
    ended(first, None)
    assert kept(store) == 8


def test_a_file_that_cannot_be_written_is_told_and_tried_again() -> None:
    """BRO-02: consumption goes on in memory."""
    told: list[str] = []
    store = LocalOffsets(File(text(5)), told.append)
    flow = store.keep(Q0, 6, 0)
    saving(flow)
    ended(flow, PermissionError(13, "read-only"))
    assert told == ["local offset file cannot be written, going on in memory: [Errno 13] read-only"]
    assert parse_offsets(saving(store.keep(Q1, 1, 0)).text.encode()) == {Q0: 6, Q1: 1}


def test_a_commit_waits_until_the_file_holds_it() -> None:
    store = LocalOffsets(File(text(5)), print)
    first = store.keep(Q0, 6, 0)
    saving(first)
    commit = store.commit(Q0, 7, 0)
    assert next(commit) == Sleep(10), "one save at a time"
    second = first.send((None, 1))
    assert isinstance(second, Work)
    ended(first, None)
    assert commit.send((None, 10)) == Sleep(10), "the other save took it along"
    assert ended(commit, None, 12) == (None, 12)
    assert kept(store) == 7


def test_a_commit_that_cannot_be_written_says_why() -> None:
    store = LocalOffsets(File(text(5)), print)
    flow = store.commit(Q0, 6, 0)
    saving(flow)
    assert flow.send((PermissionError(13, "read-only"), 1)) == Sleep(0)
    failure, _ = cast("tuple[MQError, int]", ended(flow, None, 2))
    assert str(failure) == "local offset file cannot be written: [Errno 13] read-only"
    assert kept(store) == 5
