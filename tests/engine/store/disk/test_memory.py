"""Files in memory lose what a disk loses, and nothing else."""

from __future__ import annotations

import pytest

from mqproto.engine.store import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles(forgetful=True)
    made.make_folder("/d")
    made.sync_folder("/")
    made.create("/d/old", 1024).close()
    made.sync_folder("/d")
    return made


def test_what_was_synced_survives_and_the_rest_by_sectors(files: MemoryFiles) -> None:
    file = files.open("/d/old")
    file.write(0, b"a" * 1024)
    assert files.power_loss().read("/d/old") == bytes(1024)
    assert (
        files.power_loss(lambda path, sector: (path, sector) == ("/d/old", 1)).read("/d/old") == bytes(512) + b"a" * 512
    )
    file.sync()
    file.view()[0:1] = b"b"
    assert files.power_loss().read("/d/old") == b"a" * 1024
    assert files.process_death().read("/d/old") == b"b" + b"a" * 1023


def test_names_survive_in_their_order(files: MemoryFiles) -> None:
    files.write("/d/new", b"text")
    files.rename("/d/old", "/d/older")
    files.remove("/d/new")
    assert files.pending_names == 3
    found = [files.power_loss(names=count).names("/d") for count in range(4)]
    assert found == [["old"], ["new", "old"], ["new", "older"], ["older"]]
    files.sync_folder("/d")
    assert files.pending_names == 0
    assert files.power_loss().names("/d") == ["older"]


def test_a_new_file_whose_name_survives_has_what_was_written_durably(files: MemoryFiles) -> None:
    files.create("/d/log", 600).write(0, b"x" * 600)
    files.write("/d/table", b"one")
    files.write("/d/table", b"two")
    lost = files.power_loss(names=2)
    assert (lost.read("/d/log"), lost.read("/d/table")) == (bytes(600), b"two")
    assert files.power_loss(lambda path, sector: sector == 0, names=1).read("/d/log") == b"x" * 512 + bytes(88)


def test_a_folder_is_lost_with_all_that_is_in_it(files: MemoryFiles) -> None:
    files.make_folder("/d/q/0")
    files.write("/d/q/0/1", b"1")
    files.sync_folder("/d/q/0")
    files.sync_folder("/d")
    assert files.power_loss().names("/d/q") == [], "nobody made the name of the folder durable that holds it"
    assert files.power_loss(names=1).read("/d/q/0/1") == b"1"
    files.sync_folder("/d/q")
    assert files.power_loss().read("/d/q/0/1") == b"1"


def test_a_tree_goes_name_by_name_the_last_first(files: MemoryFiles) -> None:
    files.make_folder("/d/q")
    files.write("/d/q/1", b"1")
    files.write("/d/q/2", b"2")
    files.sync_folder("/d/q")
    files.sync_folder("/d")
    found: list[list[str]] = []
    files.before_change = lambda change, path: found.append(files.process_death().names("/d/q"))
    files.remove_tree("/d/q")
    assert found == [["1", "2"], ["1"], []]
    assert [files.power_loss(names=count).names("/d/q") for count in range(3)] == found
    assert files.power_loss(names=3).names("/d") == ["old"]


def test_a_folder_moves_with_what_is_in_it(files: MemoryFiles) -> None:
    files.make_folder("/d/q")
    files.write("/d/q/1", b"1")
    files.sync_folder("/d/q")
    files.sync_folder("/d")
    files.write("/d/q/2", b"2")
    files.rename("/d/q", "/d/gone")
    assert (files.names("/d"), files.names("/d/gone"), files.exists("/d/q/1")) == (["gone", "old"], ["1", "2"], False)
    assert [files.power_loss(names=count).names("/d") for count in (1, 2)] == [["old", "q"], ["gone", "old"]]
    assert files.power_loss(names=2).names("/d/gone") == ["1", "2"]
    files.sync_folder("/d")
    assert files.power_loss().names("/d/gone") == ["1"]
    files.make_folder("/d/q")
    files.sync_folder("/d")
    assert files.power_loss().names("/d/q") == [], "a folder made anew has nothing of the one before"


def test_a_failed_sync_forgets(files: MemoryFiles) -> None:
    """The system takes pages for clean that it could not write: the next sync goes well and writes nothing."""
    file = files.open("/d/old")
    file.write(0, b"a" * 1024)
    fail(files, "sync")
    with pytest.raises(OSError, match="no more"):
        file.sync()
    files.before_change = lambda change, path: None
    file.sync()
    assert (files.read("/d/old"), files.power_loss().read("/d/old")) == (b"a" * 1024, bytes(1024))
    file.write(0, b"b")
    file.sync()
    assert files.power_loss().read("/d/old") == b"b" + b"a" * 511 + bytes(512), "a sector that changed again is written"
    assert files.process_death().power_loss(lambda path, sector: True).read("/d/old") == b"b" + b"a" * 1023


def test_reads_fail_when_told(files: MemoryFiles) -> None:
    told: list[tuple[str, str]] = []
    files.before_read = lambda call, path: told.append((call, path))
    file = files.open("/d/old")
    assert (file.read(0, 2), files.read("/d/old")[:1], files.names("/d")) == (b"\0\0", b"\0", ["old"])
    assert told == [("open", "/d/old"), ("read", "/d/old"), ("read", "/d/old"), ("list", "/d")]


def fail(files: MemoryFiles, what: str) -> None:
    """Let one kind of change fail."""

    def before(change: str, path: str) -> None:
        if change == what:
            raise OSError(5, "no more", path)

    files.before_change = before


def test_the_death_of_a_process_makes_nothing_durable(files: MemoryFiles) -> None:
    files.open("/d/old").write(0, b"unsynced")
    files.create("/d/unnamed", 10).close()
    files.write("/d/table", b"text")
    files.rename("/d/table", "/d/moved")
    found = files.process_death()
    assert found.names("/d") == ["moved", "old", "unnamed"]
    assert found.read("/d/old")[:8] == b"unsynced"
    assert found.restarted_since("/d/old") is False
    lost = found.power_loss()
    assert lost.names("/d") == ["old"]
    assert lost.read("/d/old") == bytes(1024)
    assert found.power_loss(names=3).names("/d") == ["moved", "old", "unnamed"]
    found.sync_folder("/d")
    found.open("/d/old").sync()
    assert found.power_loss().read("/d/old")[:8] == b"unsynced"
    assert found.power_loss().restarted_since("/d/old") is True


def test_a_file_is_older_than_the_last_start_until_it_is_written(files: MemoryFiles) -> None:
    files.write("/d/mark", b"")
    files.sync_folder("/d")
    assert files.restarted_since("/d/mark") is False
    started = files.power_loss()
    assert started.restarted_since("/d/mark") is True
    assert started.process_death().restarted_since("/d/mark") is True, (
        "the machine ran on, but it had been started since"
    )
    started.write("/d/mark", b"")
    assert started.restarted_since("/d/mark") is False
    assert started.restarted_since("/d/old") is True


def test_changes_are_told_before_they_happen(files: MemoryFiles) -> None:
    told: list[tuple[str, str]] = []

    def before(change: str, path: str) -> None:
        told.append((change, path))
        if change == "sync":
            raise OSError(5, "no more", path)

    files.before_change = before
    file = files.create("/d/new", 10)
    file.write(0, b"x")
    with pytest.raises(OSError, match="no more"):
        file.sync()
    files.rename("/d/new", "/d/newer")
    files.make_folder("/d")
    files.remove("/d/newer")
    assert told == [
        ("create", "/d/new"),
        ("write", "/d/new"),
        ("sync", "/d/new"),
        ("rename", "/d/new"),
        ("remove", "/d/newer"),
    ]
    assert files.power_loss().names("/d") == ["old"]


def test_a_death_while_a_file_is_written_leaves_a_part(files: MemoryFiles) -> None:
    files.write("/d/table", b"0123456789")
    found: list[bytes] = []
    files.before_change = lambda change, path: found.append(files.process_death().read(path))
    files.write("/d/table", b"abcdefgh")
    assert found == [b"0123456789", b"abcd"]
    assert files.read("/d/table") == b"abcdefgh"


def test_files_have_the_time_of_whoever_owns_it(files: MemoryFiles) -> None:
    assert files.modified("/d/old") is None
    time = 1000
    files.clock = lambda: time
    file = files.create("/d/new", 10)
    assert files.modified("/d/new") == 1000
    time = 2000
    file.write(0, b"x")
    assert files.modified("/d/new") == 2000
    file.view()[1:2] = b"y"
    time = 3000
    file.sync()
    assert files.modified("/d/new") == files.process_death().modified("/d/new") == 3000
    time = 4000
    files.rename("/d/new", "/d/newer")
    assert (files.modified("/d/new"), files.modified("/d/newer")) == (None, 3000)
    files.write("/d/table", b"text")
    assert files.modified("/d/table") == files.power_loss().clock() == 4000
    files.remove("/d/newer")
    assert files.modified("/d/newer") is None


def test_a_disk_fills_up_and_is_emptied() -> None:
    files = MemoryFiles(space=100)
    files.make_folder("/d")
    assert files.usage("/d") is None
    files.capacity = 1000
    file = files.create("/d/a", 4096)
    file.allocate(0, 60)
    assert files.usage("/d") == files.process_death().usage("/d") == (960, 40)
    with pytest.raises(OSError, match="No space"):
        file.allocate(60, 60)
    files.remove("/d/a")
    assert files.usage("/d") == (900, 100)
