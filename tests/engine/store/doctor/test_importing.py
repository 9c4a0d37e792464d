"""Messages that move from one directory to another stay what they are, where they are."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.engine.store import MemoryFiles
from mqproto.engine.store.doctor import importing
from mqproto.engine.store.doctor.exportfile import ExportReader
from mqproto.engine.store.doctor.planning import Fate, ImportRefused
from mqproto.wire.record import decode_record
from tests.engine.store.doctor.moving import NOW, contents, export, move, opened, plan, run, small
from tests.engine.store.harness import ALWAYS, HOST_V6, Rig, memory_rig, records


def other(rig: Rig) -> str:
    """A directory beside that of a rig."""
    return f"{rig.root}-other"


def filled(rig: Rig, count: int = 40) -> None:
    for number in range(count):
        rig.wall += 7
        rig.send(
            ("A", "B")[number % 2],
            b"%d" % number * 30,
            queue_id=number % 3,
            tags="t",
            keys=f"k{number} all",
            uniq_key=f"{number:032X}",
            born_host=HOST_V6 if number % 5 == 0 else b"\x01\x02\x03\x04\x00\x00\x10\x00",
        )


def test_messages_arrive_as_they_were(rig: Rig) -> None:
    filled(rig)
    before = contents(rig.store, rig)
    rig.close()
    data, made = export(rig.files, rig.root, "A", "B")
    assert (made.messages, made.notes) == (40, [])
    moved = move(rig.files, other(rig), data)
    assert {one.fate for one in moved.queues} == {Fate.KEPT}
    there = opened(rig.files, other(rig))
    assert contents(there.store, there) == before
    assert there.found("k7", "B") == [1]
    assert there.found(f"{8:032X}", "A") == there.found("k8", "A")
    assert there.store.recovery.clean
    there.close()
    rig.open()


def test_queues_begin_where_they_began(rig: Rig) -> None:
    """The oldest messages are gone: those that are left keep their offsets."""
    rig.send_many(60, size=300)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    rig.open()
    before = contents(rig.store, rig)
    first = rig.store.queue("Topic", 0).min_offset
    assert 0 < first < 60
    rig.close()
    data, _ = export(rig.files, rig.root, "Topic")
    move(rig.files, other(rig), data)
    there = opened(rig.files, other(rig))
    for _ in range(2):
        assert contents(there.store, there) == before
        assert there.store.queue("Topic", 0).min_offset == first
        there.settle()
        there.reopen()
    there.kill()
    there.open()
    assert contents(there.store, there) == before
    there.close()
    for folder in ("consumequeue", "index"):
        there.files.remove_tree(f"{there.root}/{folder}")
    there.open()
    assert contents(there.store, there) == before
    there.close()
    rig.open()


@pytest.mark.parametrize("own", [0, 1, 20])
def test_queues_that_begin_late_come_into_a_directory_that_is_there(rig: Rig, own: int) -> None:
    """Where the log begins at 0 they lie in a later file: Apache's brokers are led there by blank places."""
    rig.send_many(60, size=300)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    rig.open()
    before = contents(rig.store, rig)
    rig.close()
    data, _ = export(rig.files, rig.root, "Topic")
    there = opened(rig.files, other(rig))
    there.send_many(own, "Own", size=300)
    there.close()
    move(rig.files, other(rig), data)
    for ending in ("orderly", "killed", "without queues"):
        there.open()
        assert contents(there.store, there)["Topic", 0] == before["Topic", 0]
        assert len(there.read("Own")) == own
        assert all(each.physical_offset >= 4096 for each in there.read())
        if ending == "orderly":
            there.kill()
        else:
            there.close()
            there.files.remove_tree(f"{there.root}/consumequeue")
    rig.open()


def test_only_what_was_asked_for_moves(rig: Rig) -> None:
    filled(rig)
    middle = rig.read("A")[3].store_time
    late = [each for each in rig.read("A") if each.store_time >= middle]
    rig.close()
    data, made = export(rig.files, rig.root, "A", from_time=middle)
    assert 0 < made.messages < 20
    move(rig.files, other(rig), data)
    there = opened(rig.files, other(rig))
    assert [(each.queue_offset, each.body) for each in there.read("A")] == [
        (each.queue_offset, each.body) for each in late
    ]
    assert there.read("B") == []
    there.close()
    rig.open()


@pytest.mark.parametrize("death", ["process", "machine"])
@pytest.mark.parametrize("steps", [0, 1, 4, 9, 19])
def test_an_interrupted_import_goes_on(monkeypatch: pytest.MonkeyPatch, steps: int, death: str) -> None:
    """Whatever died in between: the directory opens, what is there is told, and the rest follows."""
    monkeypatch.setattr(importing, "_STEP", 10)
    monkeypatch.setattr(importing, "_ROUND", 1000)
    rig = memory_rig()
    filled(rig, 200)
    before = contents(rig.store, rig)
    rig.close()
    data, _ = export(rig.files, rig.root, "A", "B")
    files, root = MemoryFiles(forgetful=True), "/other"
    first = importing.Import(files, small(root), ExportReader(io.BytesIO(data).read), plan(files, root, data), wall=NOW)
    going = first.run()
    for _ in range(steps):
        next(going)
    files = files.process_death() if death == "process" else files.power_loss(lambda path, sector: sector % 2 == 0)
    again = plan(files, root, data)
    assert {one.fate for one in again.queues} <= {Fate.KEPT, Fate.CONTINUED}
    if death == "machine":  # recovery may drop what comes behind a torn record
        with contextlib.suppress(ImportRefused):
            importing.Import(files, small(root), ExportReader(io.BytesIO(data).read), again, wall=NOW).close()
        again = plan(files, root, data)
    present = sum(one.present for one in again.queues)
    assert present == steps * 10 if death == "process" else present <= steps * 10
    second = run(files, root, data, again)
    assert (second.there, second.stored) == (present, 200 - present)
    there = opened(files, root)
    assert contents(there.store, there) == before
    assert there.store.recovery.clean
    there.close()
    assert {one.fate for one in plan(files, root, data).queues} == {Fate.THERE}
    assert plan(files, root, data).empty


def test_a_queue_with_other_messages_is_left_alone(rig: Rig) -> None:
    filled(rig)
    rig.close()
    data, _ = export(rig.files, rig.root, "A")
    there = opened(rig.files, other(rig))
    there.send("A", b"mine", queue_id=1)
    there.close()
    made = plan(there.files, there.root, data)
    assert [(one.queue_id, one.fate) for one in made.queues] == [(0, Fate.KEPT), (1, Fate.REFUSED), (2, Fate.KEPT)]
    with pytest.raises(ImportRefused, match="A/1 has other messages"):
        run(there.files, there.root, data, made)
    made = move(there.files, there.root, data, append=True)
    assert made.queues[1].fate is Fate.APPENDED
    assert not made.queues[1].keeps_offsets
    there.open()
    rig.open()
    bodies = rig.bodies("A", 1)
    assert there.bodies("A", 1) == [b"mine", *bodies]
    assert [each.queue_offset for each in there.read("A", 1)] == list(range(len(bodies) + 1))
    there.close()


def test_a_later_part_follows_an_earlier_one(rig: Rig) -> None:
    """A topic may move in pieces: offsets stay what they were."""
    filled(rig)
    before = contents(rig.store, rig)
    middle = rig.read("A")[3].store_time
    rig.close()
    early, _ = export(rig.files, rig.root, "A", to_time=middle)
    late, _ = export(rig.files, rig.root, "A", from_time=middle)
    move(rig.files, other(rig), early)
    assert {one.fate for one in plan(rig.files, other(rig), late).queues} == {Fate.REFUSED}
    made = move(rig.files, other(rig), late, append=True)
    assert all(one.keeps_offsets for one in made.queues)
    there = opened(rig.files, other(rig))
    assert contents(there.store, there) == {key: found for key, found in before.items() if key[0] == "A"}
    there.close()
    rig.open()


def test_a_topic_may_get_another_name(rig: Rig) -> None:
    filled(rig)
    before = [each[2] for each in contents(rig.store, rig)["A", 0]]
    rig.close()
    data, _ = export(rig.files, rig.root, "A", "B")
    with pytest.raises(ImportRefused, match="two topics of the export would become B"):
        plan(rig.files, other(rig), data, rename={"A": "B"})
    with pytest.raises(ImportRefused, match="the export has no topic C"):
        plan(rig.files, other(rig), data, rename={"C": "B"})
    with pytest.raises(ImportRefused, match="belongs to the broker itself"):
        plan(rig.files, other(rig), data, rename={"A": "SCHEDULE_TOPIC_XXXX"})
    move(rig.files, other(rig), data, rename={"A": "New"})
    there = opened(rig.files, other(rig))
    assert there.bodies("New") == before
    assert there.bodies("A") == []
    assert there.found("k6", "New") == there.found(f"{6:032X}", "New") == [1]
    there.close()
    rig.open()


def test_places_without_a_message_stay_blank() -> None:
    """Messages that recovery could not find leave holes; what follows keeps its offset."""
    rig = memory_rig()
    rig.send_many(3)
    rig.store.queue("Topic", 0).next_offset = 5
    rig.send(body=b"after")
    rig.kill()
    rig.open()
    rig.close()
    data, made = export(rig.files, rig.root, "Topic")
    assert made.messages == 4
    move(rig.files, other(rig), data)
    there = opened(rig.files, other(rig))
    for _ in range(2):
        queue = there.store.queue("Topic", 0)
        assert queue.max_offset == 6
        assert there.store.entry(queue, 4) is None
        result = there.store.get(queue, 3, 32, None)
        assert [each.queue_offset for each in records(result.views)] == [5]
        there.kill()
        there.open()


def test_a_queue_whose_messages_are_gone_goes_on_where_it_was(rig: Rig) -> None:
    rig.send_many(15, "Old", size=300)
    rig.send_many(20, "New", size=300)
    rig.close()
    for start in (0, 4096):
        rig.files.remove(f"{rig.root}/commitlog/{start:020d}")
    data, made = export(rig.files, rig.root, "Old")
    assert (made.messages, made.head.queues[0].end) == (0, 15)
    move(rig.files, other(rig), data)
    there = opened(rig.files, other(rig))
    queue = there.store.queue("Old", 0)
    assert (queue.min_offset, queue.max_offset) == (15, 15)
    there.send("Old", b"next")
    assert [each.queue_offset for each in there.read("Old")] == [15]
    there.close()


def test_store_times_never_go_back(rig: Rig) -> None:
    filled(rig)
    old = [each.store_time for each in rig.read("A")]
    rig.close()
    data, _ = export(rig.files, rig.root, "A")
    there = opened(rig.files, other(rig))
    newer = there.wall + 150
    there.send("Here", at=newer)
    there.close()
    move(there.files, there.root, data)
    there.open()
    assert [each.store_time for each in there.read("A")] == [max(time, newer) for time in old]
    assert old[0] < newer < old[-1]
    there.close()
    rig.open()


def test_queue_files_tell_when_their_messages_were_stored(rig: Rig) -> None:
    """4.x looks for a time in the first file that was written then or later: 10 entries fit a file."""
    filled(rig, 150)
    stored = [each.store_time for each in rig.read("A", 2)]
    rig.close()
    data, _ = export(rig.files, rig.root, "A")
    move(rig.files, other(rig), data)
    names = rig.files.names(f"{other(rig)}/consumequeue/A/2")
    found = [rig.files.modified(f"{other(rig)}/consumequeue/A/2/{name}") for name in names]
    assert found == [stored[9], stored[19], stored[24]]
    rig.open()


SENT = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "%RETRY%g"]),
        st.integers(0, 2),
        st.binary(max_size=300),
        st.text("abc ", max_size=5),
        st.sampled_from([0, 1, 8, 0x301]),
    ),
    min_size=1,
    max_size=60,
)


@given(SENT, st.integers(0, 40), st.booleans())
def test_whatever_was_sent_arrives(sent: list[tuple[str, int, bytes, str, int]], lost: int, killed: bool) -> None:
    rig = memory_rig()
    for number, (topic, queue_id, body, keys, sys_flag) in enumerate(sent):
        rig.wall += number % 3
        rig.send(topic, body, queue_id, keys=keys.strip(), uniq_key=f"{number:032X}", sys_flag=sys_flag)
    before = contents(rig.store, rig)
    if killed:
        if lost % 2:
            rig.settle()
        rig.kill()
    else:
        rig.close()
    data, made = export(rig.files, rig.root, *{topic for topic, *_ in sent})
    assert made.messages == len(sent)
    move(rig.files, "/other", data)
    there = opened(rig.files, "/other")
    assert contents(there.store, there) == before
    for number, (topic, queue_id, body, keys, _) in enumerate(sent):
        for key in (f"{number:032X}", *keys.split()):
            places = [decode_record(view) for view in there.store.query(topic, key, 64, *ALWAYS).views]
            assert any((each.queue_id, each.body) == (queue_id, body) for each in places)
    there.close()
