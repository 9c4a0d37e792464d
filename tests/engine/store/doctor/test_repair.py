"""Repair: what was damaged is whole again, what was good is still there, what was taken away was kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqproto.engine.store import ConfigFile, DiskFiles, MemoryFiles, Store
from mqproto.engine.store.doctor import Repair, RepairRefused, check
from mqproto.engine.store.errors import StoreLocked
from mqproto.engine.store.report import Recover
from mqproto.wire.names import SCHEDULE_TOPIC
from tests.engine.store.conftest import MakeRig
from tests.engine.store.doctor.test_check import fill
from tests.engine.store.harness import Rig
from tests.golden.golden import GOLDEN, VERSIONS

CONFIG = '{"topicConfigTable":{"Orders":{}},"dataVersion":{"counter":1}}'


@pytest.fixture
def rig() -> Rig:
    """A directory in memory with 72 messages in several files, stopped in an orderly way."""
    return filled(Rig(MemoryFiles(forgetful=True), "/store"))


def filled(rig: Rig) -> Rig:
    ConfigFile(f"{rig.root}/config/topics.json", rig.files).save(CONFIG)
    fill(rig)
    rig.close()
    return rig


def repaired(rig: Rig, recover: Recover = Recover.REFUSE, *, rebuild: bool = False) -> Repair:
    """A repair that left nothing wrong."""
    repair = Repair(rig.files, rig.root, recover=recover, rebuild=rebuild, settings=rig.settings())
    for _ in repair.survey():
        pass
    for _ in repair.run(rig.wall):
        pass
    assert repair.report.findings == []
    assert check(rig.files, rig.root).clean
    return repair


def contents(rig: Rig) -> dict[tuple[str, int], list[bytes]]:
    """All messages by queue, from the first to the last that the queue has."""
    rig.open()
    found = {
        (queue.topic, queue.queue_id): rig.bodies(queue.topic, queue.queue_id)
        for queue in rig.store.queues()
        if queue.max_offset
    }
    rig.close()
    return found


def keys_found(rig: Rig) -> list[int]:
    rig.open()
    found = [offset for number in range(12) for offset in rig.found(f"{number:032X}", "Orders")]
    rig.close()
    return found


def entries(rig: Rig) -> dict[str, bytes]:
    return {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree() if path.startswith("consumequeue/")}


DAMAGES: list[Callable[[Rig], None]] = [
    lambda rig: rig.files.remove_tree(f"{rig.root}/consumequeue"),
    lambda rig: rig.files.remove_tree(f"{rig.root}/consumequeue/Orders/1"),
    lambda rig: rig.files.remove_tree(f"{rig.root}/index"),
    lambda rig: rig.set_bytes(f"consumequeue/Orders/1/{0:020d}", 60, bytes(20)),
    lambda rig: rig.set_bytes(f"consumequeue/{SCHEDULE_TOPIC}/1/{0:020d}", 12, bytes(8)),
    lambda rig: rig.files.write(f"{rig.root}/consumequeue/Orders/1/{0:020d}", bytes(77)),
    lambda rig: rig.set_bytes("index/20270115080000000", 600, bytes(40)),
    lambda rig: rig.files.write(f"{rig.root}/index/20270115080000000", bytes(99)),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_queues_and_index_are_made_again(rig: Rig, damage: Callable[[Rig], None]) -> None:
    before, log, keys = entries(rig), rig.log(), keys_found(rig)
    assert len(keys) == 12
    damage(rig)
    repair = repaired(rig, rebuild=True)
    assert any("make queues and index again from 72 records" in step for step in repair.plan.steps)
    assert entries(rig) == before
    assert rig.log() == log
    assert keys_found(rig) == keys
    assert (repair.aside, rig.files.names(f"{rig.root}/set-aside-1")) == ("", [])


def test_over_disk_and_memory(make_rig: MakeRig) -> None:
    rig = filled(make_rig())
    before = entries(rig)
    rig.set_bytes(f"consumequeue/Orders/1/{0:020d}", 60, bytes(20))
    repaired(rig)
    assert entries(rig) == before
    rig.open()


def test_nothing_is_done_to_what_is_whole(rig: Rig) -> None:
    tree = {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()}
    repair = Repair(rig.files, rig.root)
    for _ in repair.survey():
        pass
    assert (repair.plan.steps, repair.plan.left) == ([], [])
    assert {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()} == tree


def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    damage_in_the_middle(rig)
    rig.set_bytes(f"consumequeue/Orders/1/{0:020d}", 60, bytes(20))
    tree = {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()}
    repair = Repair(rig.files, rig.root)
    for _ in repair.survey():
        pass
    assert repair.plan.needs_choice
    assert len(repair.plan.steps) == 2
    with pytest.raises(RepairRefused, match="choose"):
        next(repair.run(rig.wall))
    assert {path: rig.files.read(f"{rig.root}/{path}") for path in rig.tree()} == tree


def test_a_running_broker_is_left_alone(rig: Rig) -> None:
    rig.open()
    with pytest.raises(StoreLocked):
        next(Repair(rig.files, rig.root).survey())
    rig.close()
    repair = Repair(rig.files, rig.root, rebuild=True)
    for _ in repair.survey():
        pass
    rig.open()
    with pytest.raises(StoreLocked):
        next(repair.run(rig.wall))
    rig.close()


def damage_in_the_middle(rig: Rig) -> tuple[int, int]:
    """Ruin the third message of a queue; gives the offsets where it begins and ends."""
    rig.open()
    entry = rig.store.reader.entry(rig.store.queue("Orders", 1), 2)
    rig.close()
    assert entry is not None
    rig.set_log(entry[0] % 4096 + 4, b"ruin", entry[0] - entry[0] % 4096)
    return entry[0], entry[0] + entry[1]


def test_damage_is_stepped_over(rig: Rig) -> None:
    before = contents(rig)
    begin, end = damage_in_the_middle(rig)
    ruined = rig.log(begin - begin % 4096)[begin % 4096 : end % 4096]
    repair = repaired(rig, Recover.SKIP)
    assert repair.lost == [("Orders", 1, 2, 2)]
    assert any("71 records" in step or "keep the good ones" in step for step in repair.plan.steps)
    rig.open()
    queue = rig.store.queue("Orders", 1)
    assert (queue.min_offset, queue.max_offset, rig.store.reader.entry(queue, 2)) == (0, 16, None)
    assert rig.store.reader.entry(queue, 3) is not None
    rig.close()
    rig.open()
    assert [bytes(message.body) for message in rig.read("Orders", 1, 3)] == before.pop(("Orders", 1))[3:]
    assert {key: rig.bodies(*key) for key in before} == before
    rig.close()
    kept = [path for path in rig.tree() if path.startswith("recovered/")]
    assert any(ruined in rig.files.read(f"{rig.root}/{path}") for path in kept)


def test_the_log_is_cut_at_damage_and_the_rest_is_kept(rig: Rig) -> None:
    begin, _ = damage_in_the_middle(rig)
    behind = rig.log(begin - begin % 4096)[begin % 4096 :]
    later = {start: rig.log(start) for start in range(begin - begin % 4096 + 4096, 12288, 4096)}
    repair = repaired(rig, Recover.CUT)
    assert any("gives up the" in step for step in repair.plan.steps)
    assert (repair.report.end, repair.aside) == (begin, f"{rig.root}/set-aside-1")
    assert rig.files.read(f"{repair.aside}/commitlog/{begin:020d}") == behind.rstrip(b"\0")
    for start, data in later.items():
        assert rig.files.read(f"{repair.aside}/commitlog/{start:020d}") == data
    rig.open()
    assert rig.store.end == begin
    rig.send("Orders", b"next")
    rig.close()
    assert check(rig.files, rig.root).clean


@pytest.mark.parametrize("recover", [Recover.SKIP, Recover.CUT])
@pytest.mark.parametrize("name", [0, 4096])
def test_a_missing_file_of_the_log(rig: Rig, recover: Recover, name: int) -> None:
    rig.files.remove(f"{rig.root}/commitlog/{name:020d}")
    if name == 0:
        repaired(rig, rebuild=True)  # the log just begins later
    else:
        repaired(rig, recover)
    rig.open()
    rig.close()


def test_a_torn_tail_is_cut_and_kept(make_rig: MakeRig) -> None:
    rig = make_rig()
    fill(rig, 3)
    rig.settle()
    end = rig.store.end
    rig.kill()
    torn = rig.log()[:150]
    rig.set_log(end % 4096, torn, end - end % 4096)
    repair = repaired(rig)
    assert f"cut off {len(torn.rstrip(bytes(1)))} bytes behind the end of the log at {end}" in repair.plan.steps
    assert rig.files.read(f"{repair.aside}/commitlog/{end:020d}") == torn.rstrip(b"\0")
    rig.open()
    assert (rig.store.end, rig.store.recovery.clean) == (end, True)


def test_old_queues_are_kept_while_anything_is_wrong(rig: Rig) -> None:
    rig.open()
    entry = rig.store.reader.entry(rig.store.queue("Orders", 0), 2)
    rig.close()
    assert entry is not None
    rig.set_log(entry[0] % 4096 + 56, bytes(8), entry[0] - entry[0] % 4096)
    rig.set_bytes(f"consumequeue/Orders/1/{0:020d}", 60, bytes(20))
    repair = Repair(rig.files, rig.root, settings=rig.settings())
    for _ in repair.survey():
        pass
    assert "stay" in repair.plan.left[0]
    for _ in repair.run(rig.wall):
        pass
    assert not repair.report.clean
    assert rig.files.exists(f"{repair.aside}/consumequeue/Orders/1/{0:020d}")


def test_the_checkpoint_claims_more_than_there_is(rig: Rig) -> None:
    rig.files.remove(f"{rig.root}/commitlog/{8192:020d}")
    repair = Repair(rig.files, rig.root)
    for _ in repair.survey():
        pass
    assert repair.plan.needs_choice
    repaired(rig, Recover.CUT)
    rig.open()
    assert rig.store.end == 8192
    rig.close()


def test_configuration_files(rig: Rig) -> None:
    path = f"{rig.root}/config/topics.json"
    rig.files.write(path + ".bak", CONFIG.encode())
    rig.files.write(path, b"{ broken")
    repair = repaired(rig)
    assert rig.files.read(path) == CONFIG.encode()
    assert rig.files.read(f"{repair.aside}/config/topics.json") == b"{ broken"
    rig.files.write(path, b"{ broken")
    rig.files.write(path + ".bak", b"too")
    repair = Repair(rig.files, rig.root)
    for _ in repair.survey():
        pass
    assert repair.plan.steps == []
    assert "restore one of them" in repair.plan.left[0]


def test_deleted_topics_stay_deleted(rig: Rig) -> None:
    rig.files.remove_tree(f"{rig.root}/consumequeue/Half")
    repaired(rig, rebuild=True)
    rig.open()
    assert rig.store.find_queue("Half", 0) is None
    assert rig.store.find_queue("Orders", 0) is not None
    rig.close()


def test_a_repair_that_was_broken_off_is_made_good(rig: Rig) -> None:
    """At every call that changes something: the next repair, or the next start of a broker, makes all of it again."""
    before = contents(rig)
    rig.set_bytes(f"consumequeue/Orders/1/{0:020d}", 60, bytes(20))
    files = rig.files
    assert isinstance(files, MemoryFiles)
    for number in range(10_000):
        copy = files.process_death()
        left = [number]

        def stop(call: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        copy.before_change = stop
        repair = Repair(copy, rig.root)
        try:
            for _ in repair.survey():
                pass
            for _ in repair.run(rig.wall):
                pass
        except KeyboardInterrupt:
            rig.files = copy.process_death()
            if number % 2:
                repaired(rig, rebuild=True)
            elif rig.files.exists(f"{rig.root}/set-aside-1/checkpoint"):
                assert contents(rig) == before
                assert check(rig.files, rig.root).clean
                continue
            else:
                continue
            assert contents(rig) == before
        else:
            assert number > 20
            return


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_directories(version: str, kind: str, tmp_path: Path) -> None:
    """Made again, queues are byte for byte what Apache had written, and all of it is served."""
    sample = GOLDEN.store(version, kind)
    root = sample.unpack(tmp_path)
    before = {path: path.read_bytes() for path in sorted((root / "consumequeue").rglob("*")) if path.is_file()}
    repair = Repair(DiskFiles(), str(root), rebuild=True)
    for _ in repair.survey():
        pass
    for _ in repair.run(sample.expected["servedAt"]):
        pass
    assert repair.report.findings == []
    for path, data in before.items():
        count = len(data.rstrip(b"\0")) if kind == "crashed" else len(data)
        assert path.read_bytes()[: count // 20 * 20] == data[: count // 20 * 20], path
    assert repair.report.keys > repair.report.records
    store = Store.open(repair._settings, wall=sample.expected["servedAt"])
    assert store.recovery.dispatched == 0
    store.close(0)
