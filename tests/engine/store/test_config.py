"""Configuration files and their backups (store.md 10.3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.store import ConfigDamaged, ConfigFile, DiskFiles, Files, MemoryFiles
from tests.engine.store.harness import memory_rig


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


def test_store_names_its_files() -> None:
    rig = memory_rig()
    rig.store.config_file("topics.json").save("{}")
    assert rig.files.read("/store/config/topics.json") == b"{}"
    rig.store.close(0)
