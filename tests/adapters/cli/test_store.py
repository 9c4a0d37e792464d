"""`store inspect`, `check` and `repair` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqproto.adapters.cli import main
from mqproto.engine.store import DiskFiles
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
        expected = {
            (queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in sample.expected["queues"]
        }
        for queue in found["queues"]:
            assert (queue["begin"], queue["end"]) == expected[queue["topic"], queue["queue_id"]]
    assert {config["name"]: (config["warning"], config["damage"]) for config in found["configs"]}["topics.json"] == (
        "",
        "",
    )
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


@pytest.mark.parametrize("subcommand", ["inspect", "check", "repair"])
def test_what_is_no_data_directory_is_said_in_a_line(subcommand: str, tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name, why in (
        ("none", "there is no such directory"),
        ("file", "it is a file"),
        ("empty", "it is not a data directory"),
    ):
        code, text, complaint = run(capsys, subcommand, str(tmp_path / name))
        assert (code, text) == (2, "")
        assert why in complaint
        assert len(complaint.splitlines()) == 1


def test_check_says_what_is_wrong(rig: Rig, capsys: Out) -> None:
    rig.send_many(5)
    rig.close()
    code, text, _ = run(capsys, "check", rig.root)
    assert (code, text.splitlines()[-1]) == (0, "nothing is wrong")
    assert "5 records from 0 to" in text
    for place in (1, 3):
        rig.set_bytes(f"consumequeue/Topic/0/{0:020d}", 20 * place, bytes(20))
    code, text, _ = run(capsys, "check", rig.root)
    assert (code, text.splitlines()[-1]) == (1, "2 things are wrong")
    assert f"wrong: {rig.root}/consumequeue/Topic/0/{0:020d} at 20: place 1 of Topic/0 has no entry" in text
    code, text, _ = run(capsys, "check", rig.root, "--limit", "1")
    assert (code, text.count("wrong: "), "1 more" in text) == (1, 2, True)
    code, text, _ = run(capsys, "check", rig.root, "--json")
    found = json.loads(text)
    assert (code, found["clean"], found["count"], found["findings"][0]["offset"]) == (1, False, 2, 20)


def test_check_refuses_what_cannot_be(rig: Rig, capsys: Out) -> None:
    rig.close()
    assert run(capsys, "check", rig.root, "--limit", "-1")[0] == 2
    code, _, complaint = run(capsys, "check", rig.root, "--commitlog", f"{rig.root}/none")
    assert (code, complaint) == (2, f"mqproto: {rig.root}/none: there is no such directory\n")


def test_repair_shows_first_and_then_does(rig: Rig, capsys: Out) -> None:
    bodies = rig.send_many(30)
    rig.close()
    assert run(capsys, "repair", rig.root) == (0, "nothing is wrong, nothing to do\n", "")
    rig.set_bytes(f"consumequeue/Topic/0/{0:020d}", 20, bytes(20))
    rig.files.remove_tree(f"{rig.root}/index")
    tree = rig.tree()
    code, text, _ = run(capsys, "repair", rig.root, "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
    assert (code, text.splitlines()[-1], rig.tree()) == (1, "nothing was changed; --yes does it", tree)
    assert (
        "to do: make queues and index again from 30 records of the log (queue files of 200 bytes; index: 100 slots"
        in text
    )
    code, text, _ = run(capsys, "repair", rig.root, "--yes", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400")
    assert (code, text.splitlines()[-1]) == (0, "repaired")
    assert run(capsys, "check", rig.root)[0] == 0
    rig.open()
    assert rig.bodies() == bodies
    assert rig.found("Topic-17") == [17]
    rig.close()


def test_repair_of_a_damaged_log_wants_a_choice(rig: Rig, capsys: Out) -> None:
    rig.send_many(30)
    rig.close()
    rig.set_log(600, bytes(30))
    code, _, complaint = run(capsys, "repair", rig.root, "--yes")
    assert (code, complaint) == (
        1,
        "mqproto: the log is damaged: choose --recover skip or --recover cut; nothing was changed\n",
    )
    code, text, _ = run(capsys, "repair", rig.root, "--yes", "--recover", "skip")
    assert (code, text.splitlines()[-1]) == (0, "repaired")
    assert "lost: Topic/0 " in text
    rig.open()
    assert len(rig.read(start=5)) == 25
    rig.close()


def test_repair_says_where_it_put_what_it_took(rig: Rig, capsys: Out) -> None:
    rig.send_many(30)
    rig.close()
    rig.set_log(600, bytes(30))
    code, text, _ = run(capsys, "repair", rig.root, "--yes", "--recover", "cut")
    assert code == 0
    assert f"what was taken away is in {rig.root}/set-aside-1" in text
    assert any(path.startswith("set-aside-1/commitlog/") for path in rig.tree())


def test_repair_asks_on_a_terminal(rig: Rig, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.send_many(3)
    rig.close()
    rig.set_bytes(f"consumequeue/Topic/0/{0:020d}", 20, bytes(20))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for answer, expected in (("n", 1), ("", 1), ("y", 0)):
        monkeypatch.setattr("builtins.input", lambda prompt, answer=answer: answer)
        assert run(capsys, "repair", rig.root)[0] == expected


def test_repair_leaves_a_running_broker_alone(rig: Rig, capsys: Out) -> None:
    code, text, complaint = run(capsys, "repair", rig.root, "--yes", "--rebuild")
    assert (code, text) == (2, "")
    assert "is locked" in complaint
    assert len(complaint.splitlines()) == 1
    rig.close()


def test_repair_with_settings_that_cannot_be(rig: Rig, capsys: Out) -> None:
    rig.close()
    for arguments in (("--set", "messageDelayLevel=often"), ("-c", f"{rig.root}/none")):
        code, _, complaint = run(capsys, "repair", rig.root, *arguments)
        assert (code, len(complaint.splitlines())) == (2, 1)
