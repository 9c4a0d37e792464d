"""The file of a server's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.adapters.io.config_file import ChangeSettings, SettingsUnreadable, read_settings


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    """The file is read when it is written: what was edited by hand meanwhile stays. Its mode stays as well."""
    path = tmp_path / "broker.conf"
    path.write_bytes(b"# mine \xe9\nbrokerId=1\nmystery = 7\n")
    path.chmod(0o600)
    ChangeSettings(path, {"brokerId": "2", "regionId": "ü"}).run()
    assert path.read_bytes() == b"# mine \xe9\nbrokerId=2\nmystery = 7\nregionId=\\u00FC\n"
    assert path.with_name("broker.conf.bak").read_bytes() == b"# mine \xe9\nbrokerId=1\nmystery = 7\n"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# mine now\n")
    ChangeSettings(path, {"brokerId": "3"}).run()
    assert path.read_text() == "# mine now\nbrokerId=3\n"
    assert read_settings(path) == {"brokerId": "3"}


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "broker.properties"
    assert read_settings(path, missing_ok=True) == {}
    ChangeSettings(path, {"brokerId": "3"}).run()
    assert read_settings(path) == {"brokerId": "3"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path = tmp_path / "link"
    (tmp_path / "file").write_text("a=1\n")
    path.symlink_to(tmp_path / "file")
    ChangeSettings(path, {"a": "2"}).run()
    assert path.is_symlink()
    assert (tmp_path / "file").read_text() == "a=2\n"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsUnreadable, match=r"cannot read .*nowhere: No such file"):
        read_settings(tmp_path / "nowhere")
    with pytest.raises(SettingsUnreadable, match="Is a directory"):
        read_settings(tmp_path, missing_ok=True)
    (tmp_path / "file").write_text("a=1\nb=\\u00zz\n")
    with pytest.raises(SettingsUnreadable, match=r"file: line 2: .*; write one key=value a line"):
        read_settings(tmp_path / "file", missing_ok=True)
    assert read_settings(None) == {}


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        ChangeSettings(tmp_path / "file" / "broker.properties", {"a": "1"}).run()
