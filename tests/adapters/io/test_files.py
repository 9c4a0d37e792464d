"""Small files that are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.adapters.io.files import LocalOffsetFile, Replace


def test_the_old_text_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    Replace(path, "one").run()
    assert (path.read_text(), path.with_name("file.json.bak").exists()) == ("one", False)
    before = path.stat().st_ino
    Replace(path, "two ü").run()
    assert path.stat().st_ino != before, "another file under the name, so that no reader sees half of it"
    Replace(path, "three").run()
    assert path.read_text(encoding="utf-8") == "three"
    assert path.with_name("file.json.bak").read_text(encoding="utf-8") == "two ü"
    assert sorted(each.name for each in path.parent.iterdir()) == ["file.json", "file.json.bak"]


def test_a_damaged_text_is_set_aside_and_the_backup_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.with_name("file.bak").write_text("good")
    for number in (1, 2):
        path.write_text(f"damaged {number}")
        Replace(path, "new", aside=True).run()
        assert path.with_name(f"file.damaged-{number}").read_text() == f"damaged {number}"
    assert path.with_name("file.bak").read_text() == "good"
    assert path.read_text() == "new"


def test_a_failure_leaves_the_text_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("kept")
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(OSError, match=r"file\.tmp"):
        Replace(path, "new").run()
    assert path.read_text() == "kept"


def test_offsets_of_a_broadcasting_group(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "192.0.2.1@DEFAULT", "group")
    assert (file.main, file.backup) == (None, None)
    file.save(lambda held: f"a after {held!r}", set_aside=False).run()
    file.save(lambda held: f"b after {held!r}", set_aside=False).run()
    again = LocalOffsetFile(tmp_path, "192.0.2.1@DEFAULT", "group")
    assert (again.main, again.backup) == (b"b after b'a after None'", b"a after None")
    assert (tmp_path / "192.0.2.1@DEFAULT" / "group" / "offsets.json").exists()
