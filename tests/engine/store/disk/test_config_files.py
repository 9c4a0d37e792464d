"""Configuration files and their backups (docs/protocol/store.md 10.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqproto.engine.store import ConfigDamaged, ConfigFile, DiskFiles, Files, MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    """A file system and the path of a configuration file in it."""
    if request.param == "disk":
        return DiskFiles(), str(tmp_path / "config" / "topics.json")
    return MemoryFiles(forgetful=True), "/store/config/topics.json"


def parse(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("a table expected")
    return found


def test_nothing_is_no_table(place: tuple[Files, str]) -> None:
    files, path = place
    file = ConfigFile(path, files)
    assert file.load(parse) is None
    assert file.warning == ""


def test_generations(place: tuple[Files, str]) -> None:
    files, path = place
    file = ConfigFile(path, files)
    for number in range(4):
        file.save(f'{{"n": {number}}}') if number % 2 else file.save_job(f'{{"n": {number}}}').run()
    assert (files.read(path), files.read(path + ".bak")) == (b'{"n": 3}', b'{"n": 2}')
    assert files.names(path.rpartition("/")[0]) == ["topics.json", "topics.json.bak"]
    assert ConfigFile(path, files).load(parse) == {"n": 3}


def test_any_text_comes_back(place: tuple[Files, str]) -> None:
    """STO-06."""
    files, path = place
    text = json.dumps({"note": "\u8ba2\u5355\U0001f600"}, ensure_ascii=False)
    for _ in range(2):
        ConfigFile(path, files).save(text)
        assert ConfigFile(path, files).load(parse) == {"note": "\u8ba2\u5355\U0001f600"}
    files.write(path, b"\xef\xbb\xbf" + text.encode())
    assert ConfigFile(path, files).load(parse) == {"note": "\u8ba2\u5355\U0001f600"}


DAMAGE = [b"", b"\0" * 20, b"  \n", b'{"n": 2', b"[]", b"\xff\xfe{}"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_backup_takes_the_place_of_a_damaged_file(place: tuple[Files, str], damage: bytes) -> None:
    """DLY-04, REC-10: with a word about it, and without harm to the backup."""
    files, path = place
    first = ConfigFile(path, files)
    first.save('{"n": 1}')
    first.save('{"n": 2}')
    files.write(path, damage)
    file = ConfigFile(path, files)
    assert file.load(parse) == {"n": 1}
    assert path in file.warning
    assert "backup" in file.warning
    file.save('{"n": 3}')
    assert (files.read(path), files.read(path + ".bak")) == (b'{"n": 3}', b'{"n": 1}')
    assert file.load(parse) == {"n": 3}
    assert file.warning == ""


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_pair_is_no_empty_table(place: tuple[Files, str], damage: bytes) -> None:
    files, path = place
    ConfigFile(path, files).save("{}")
    files.write(path, damage)
    with pytest.raises(ConfigDamaged, match="no backup"):
        ConfigFile(path, files).load(parse)
    files.write(path + ".bak", damage)
    with pytest.raises(ConfigDamaged) as caught:
        ConfigFile(path, files).load(parse)
    assert caught.value.path == path
    files.remove(path)
    with pytest.raises(ConfigDamaged, match="missing"):
        ConfigFile(path, files).load(parse)


def test_backup_of_a_missing_file(place: tuple[Files, str]) -> None:
    files, path = place
    ConfigFile(path, files).save("{}")
    files.write(path + ".bak", b'{"n": 1}')
    files.remove(path)
    file = ConfigFile(path, files)
    assert file.load(parse) == {"n": 1}
    assert "missing" in file.warning


class Dying(MemoryFiles):
    """Loses power before its n-th change."""

    def __init__(self, steps: int) -> None:
        super().__init__(forgetful=True)
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError(5, "power is gone")

    def write(self, path: str, data: bytes) -> None:
        self._step()
        super().write(path, data)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self._step()
        super().sync_folder(path)


@pytest.mark.parametrize("kind", ["power", "process"])
@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("steps", range(5))
def test_one_generation_survives_every_step(steps: int, damaged: bool, kind: str) -> None:
    """REC-10."""
    path = "/c/offsets.json"
    files = Dying(1000)
    file = ConfigFile(path, files)
    file.save('{"n": 1}')
    file.save('{"n": 2}')
    if damaged:
        files.write(path, b"")
    file.load(parse)
    files.steps = steps
    saved = True
    try:
        file.save('{"n": 3}')
    except OSError:
        saved = False
    after = files.power_loss() if kind == "power" else files.process_death()
    found = ConfigFile(path, after).load(parse)
    assert found is not None
    assert found["n"] in ({3} if saved else {1, 2, 3})
    assert found["n"] >= (1 if damaged else 2)


def test_damaged_file_is_set_aside(place: tuple[Files, str]) -> None:
    files, path = place
    ConfigFile(path, files).save('{"n": 1}')
    ConfigFile(path, files).save('{"n": 2}')
    files.write(path + ".bak", b'{"n": 1}')
    files.write(path, b'{"n": 3')
    file = ConfigFile(path, files)
    file.load(parse)
    file.save('{"n": 4}')
    assert (files.read(path + ".damaged"), files.read(path + ".bak")) == (b'{"n": 3', b'{"n": 1}')


def test_text_in_another_charset(place: tuple[Files, str]) -> None:
    """Up to 4.9 Java writes in the charset of its platform (docs/protocol/store.md 10.1)."""
    files, path = place
    ConfigFile(path, files).save("{}")
    files.write(path, '{"note": "Gr\u00fc\u00dfe", "n": 1}'.encode("latin-1"))
    assert ConfigFile(path, files).load(parse) == {"note": "Gr\u00fc\u00dfe", "n": 1}


@pytest.mark.parametrize("damaged", [False, True])
def test_one_generation_survives_between_every_pair_of_operations(damaged: bool) -> None:
    """REC-10: whatever the disk kept of the names, after the death of the process and of the machine."""
    path = "/c/offsets.json"
    crashes = 0

    def look(change: str, changed: str) -> None:
        nonlocal crashes
        copies = [files.process_death(), *(files.power_loss(names=count) for count in range(files.pending_names + 1))]
        for copy in copies:
            found = ConfigFile(path, copy).load(parse)
            assert found is not None, (change, changed)
            assert found["n"] >= oldest, (change, changed)
            crashes += 1

    files = MemoryFiles(forgetful=True)
    file = ConfigFile(path, files)
    file.save('{"n": 1}')
    file.save('{"n": 2}')
    oldest = 2
    if damaged:
        files.write(path, b'{"n"')
        file.load(parse)
        oldest = 1
    files.before_change = look
    for number in (3, 4):
        file.save(f'{{"n": {number}}}')
        oldest = number
    look("end", path)
    assert crashes > 20


def test_full_disk_keeps_the_old_generation(place: tuple[Files, str], monkeypatch: pytest.MonkeyPatch) -> None:
    files, path = place
    file = ConfigFile(path, files)
    file.save('{"n": 1}')

    def full(written: str, data: bytes) -> None:
        raise OSError(28, "No space left on device", written)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.save('{"n": 2}')
        assert ConfigFile(path, files).load(parse) == {"n": 1}
    file.save('{"n": 3}')
    assert ConfigFile(path, files).load(parse) == {"n": 3}
