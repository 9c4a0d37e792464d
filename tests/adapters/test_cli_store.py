"""`store inspect`, `check` and `repair` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adapters.cli import main
from engine.store import DiskFiles
from tests.engine.store.harness import Rig
from tests.golden.golden import GOLDEN, VERSIONS

Out = pytest.CaptureFixture[str]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(DiskFiles(), str(tmp_path / "store"))


def run(out: Out, *arguments: str) -> tuple[int, str, str]:
    """Exit code and what was printed, on standard output and standard error."""
    code = main(("store", *arguments))
    printed = out.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_inspect_shows_what_apache_left(version: str, kind: str, tmp_path: Path, capsys: Out) -> None:
    sample = GOLDEN.store(version, kind)
    root = sample.unpack(tmp_path)
    code, text, _ = run(capsys, "inspect", str(root), "--json")
    found = json.loads(text)
    assert (code, found["clean"], found["running"]) == (0, kind == "clean", False)
    assert found["log"]["file_size"] == 1 << 20
    runtime = json.loads(sample.expected["answers"]["runtime"])["table"]
    assert found["log"]["start"] == int(runtime["commitLogMinOffset"])
    if kind == "clean":
        assert found["log"]["end"] == int(runtime["commitLogMaxOffset"])
        expected = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in sample.expected["queues"]}
        for queue in found["queues"]:
            assert (queue["begin"], queue["end"]) == expected[queue["topic"], queue["queue_id"]]
    assert {config["name"]: (config["warning"], config["damage"]) for config in found["configs"]}["topics.json"] == ("", "")
    for arguments in ((), ("--queues",)):
        code, text, _ = run(capsys, "inspect", str(root), *arguments)
        assert code == 0
        assert "orderly way" in text.splitlines()[0]
        assert "SCHEDULE_TOPIC_XXXX" in text


def test_inspect_sees_the_broker_that_runs(rig: Rig, capsys: Out) -> None:
    rig.send_many(3)
    code, text, _ = run(capsys, "inspect", rig.root)
    assert code == 0
    assert "a broker runs on it (process " in text
    rig.close()
    code, text, _ = run(capsys, "inspect", rig.root)
    assert "stopped in an orderly way" in text


@pytest.mark.parametrize("subcommand", ["inspect"])
def test_what_is_no_data_directory_is_said_in_a_line(subcommand: str, tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name, why in (("none", "there is no such directory"), ("file", "it is a file"), ("empty", "it is not a data directory")):
        code, text, complaint = run(capsys, subcommand, str(tmp_path / name))
        assert (code, text) == (2, "")
        assert why in complaint
        assert len(complaint.splitlines()) == 1
