"""`store export` and `store import` as a user meets them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mqproto.adapters.cli import main
from mqproto.engine.store import DiskFiles, Store, StoreSettings
from mqproto.wire.fastjson import loads
from mqproto.wire.record import decode_record
from tests.engine.store.harness import Rig, records
from tests.golden.golden import GOLDEN, VERSIONS

ROOT = Path(__file__).parent.parent.parent
Out = pytest.CaptureFixture[str]
#: Files of a new directory, small enough for a test.
SIZES = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxHashSlotNum=500", "--set", "maxIndexNum=2000")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(DiskFiles(), str(tmp_path / "store"))


def run(out: Out, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    code = main(("store", *arguments))
    printed = out.readouterr()
    return code, printed.out, printed.err


def filled(rig: Rig) -> None:
    for number in range(6):
        rig.send(("Orders", "Bills")[number % 2], b"body %d" % number, keys=f"k{number}")
    rig.close()
    config = Path(rig.root, "config")
    config.mkdir()
    topic = {"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    (config / "topics.json").write_text(
        json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": {"Orders": topic}})
    )
    group = {"groupName": "billing", "retryMaxTimes": 3}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"billing": group}}))
    offsets = {"Orders@billing": {"0": 2}, "Orders@other": {"0": 1}, "Bills@billing": {"0": 3}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def config(root: str, name: str) -> Any:
    return loads(Path(root, "config", name).read_text())


def test_topics_move(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file, new = str(tmp_path / "orders.mqx"), str(tmp_path / "new")
    code, text, errors = run(capsys, "export", rig.root, file, "--topic", "Orders")
    assert (code, text, errors) == (0, "3 messages (330 B) of 1 queues, 1 topics, 1 groups, 2 offsets\n", "")
    code, text, errors = run(capsys, "import", new, file, *SIZES)
    assert code == 1
    assert "Orders      0         3      0  330 B     0   3  keep their offsets" in text
    assert (text.splitlines()[-1], errors) == ("nothing was changed; --yes does it", "")
    assert not Path(new).exists()
    code, text, errors = run(capsys, "import", new, file, "--yes", *SIZES)
    assert (code, errors) == (0, "")
    assert text.endswith("3 messages were imported\n")
    assert list(config(new, "topics.json")["topicConfigTable"]) == ["Orders"]
    assert config(new, "topics.json")["topicConfigTable"]["Orders"]["readQueueNums"] == 4
    assert config(new, "subscriptionGroup.json")["subscriptionGroupTable"]["billing"]["retryMaxTimes"] == 3
    assert config(new, "consumerOffset.json")["offsetTable"] == {"Orders@billing": {0: 2}, "Orders@other": {0: 1}}
    assert run(capsys, "check", new)[0] == 0
    _, text, _ = run(capsys, "dump", new, "--json")
    assert [json.loads(line)["body"] for line in text.splitlines()] == ["body 0", "body 2", "body 4"]
    code, text, errors = run(capsys, "import", new, file)
    assert (code, errors) == (0, "")
    assert "are there" in text
    code, text, _ = run(capsys, "import", new, file, "--json")
    plan = json.loads(text)
    assert (plan["messages"], plan["queues"][0]["fate"], plan["offsets"]) == (
        0,
        "there",
        {"taken": 0, "kept": 2, "lost": 0},
    )


def test_other_messages_are_not_touched(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file, new = str(tmp_path / "orders.mqx"), str(tmp_path / "new")
    run(capsys, "export", rig.root, file, "--topic", "Orders", "--json")
    there = Rig(DiskFiles(), new)
    there.send("Orders", b"mine")
    there.close()
    code, text, errors = run(capsys, "import", new, file, "--yes")
    assert code == 1
    assert "REFUSED" in text
    assert "--append" in errors
    code, text, _ = run(
        capsys, "import", new, file, "--yes", "--append", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400"
    )
    assert code == 0
    assert "2 have no meaning here" in text
    assert not Path(new, "config", "consumerOffset.json").exists()
    there.open()
    assert there.bodies("Orders") == [b"mine", b"body 0", b"body 2", b"body 4"]
    there.close()
    code, text, _ = run(capsys, "import", new, file, "--yes", "--rename", "Orders=Old")
    assert code == 0
    there.open()
    assert there.bodies("Old") == [b"body 0", b"body 2", b"body 4"]
    assert there.found("k2", "Old") == [1]
    there.close()
    assert config(new, "consumerOffset.json")["offsetTable"] == {"Old@billing": {0: 2}, "Old@other": {0: 1}}


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_topics_of_apaches_directories_move(version: str, kind: str, tmp_path: Path, capsys: Out) -> None:
    sample = GOLDEN.store(version, kind)
    source, file, new = str(sample.unpack(tmp_path)), str(tmp_path / "file"), str(tmp_path / "new")
    expected = [
        each
        for each in sample.expected["messages"]
        if each["topic"] not in ("SCHEDULE_TOPIC_XXXX",) and "RMQ_SYS" not in each["topic"]
    ]
    topics = sorted({each["topic"] for each in expected})
    code, text, errors = run(
        capsys, "export", source, file, *(word for topic in topics for word in ("--topic", topic)), "--json"
    )
    assert (code, errors) == (0, "")
    assert json.loads(text)["messages"] == len(expected)
    assert run(capsys, "import", new, file, "--yes", *SIZES)[0] == 0
    assert run(capsys, "check", new)[0] == 0
    settings = StoreSettings(
        store_path_root_dir=new, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=500, max_index_num=2000
    )
    store = Store.open(settings, wall=0)
    for each in expected:
        entry = store.entry(store.queue(each["topic"], each["queueId"]), each["queueOffset"])
        assert entry is not None
        message = decode_record(store.record(entry[0]) or b"")
        assert (message.topic, message.queue_offset, message.flag) == (each["topic"], each["queueOffset"], each["flag"])
        assert (message.born_time, message.store_time, message.body_crc) == (
            each["bornTimestamp"],
            each["storeTimestamp"],
            each["bodyCRC"],
        )
        assert message.reconsume_times == each["reconsumeTimes"]
        for key in (each["properties"].get("UNIQ_KEY"), *each["properties"].get("KEYS", "").split()):
            if key:
                found = records(store.query(each["topic"], key, 64, 0, 1 << 62).views)
                assert (
                    any((one.queue_id, one.queue_offset) == (each["queueId"], each["queueOffset"]) for one in found)
                    or len(found) == 64
                )
    store.close(0)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--topic", "None"), "there is no topic None in"),
        (("--topic", "Orders", "--group", "None"), "there is no group None in"),
        (("--topic", "SCHEDULE_TOPIC_XXXX"), "belongs to the broker itself"),
        (("--topic", "x" * 128), "longer than 127 bytes"),
    ],
)
def test_exports_that_cannot_be(rig: Rig, tmp_path: Path, capsys: Out, arguments: tuple[str, ...], word: str) -> None:
    filled(rig)
    code, text, errors = run(capsys, "export", rig.root, str(tmp_path / "x"), *arguments)
    assert (code, text) == (2, "")
    assert word in errors
    assert errors.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


def test_files_are_not_replaced_by_accident(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file = tmp_path / "x"
    file.write_text("precious")
    code, _, errors = run(capsys, "export", rig.root, str(file), "--topic", "Orders")
    assert (code, file.read_text()) == (2, "precious")
    assert "--force" in errors
    assert run(capsys, "export", rig.root, str(tmp_path), "--topic", "Orders", "--force")[0] == 2
    assert run(capsys, "export", rig.root, str(tmp_path / "none" / "x"), "--topic", "Orders")[0] == 2
    assert run(capsys, "export", rig.root, str(file), "--topic", "Orders", "--force")[0] == 0
    assert file.read_bytes().startswith(b"MQEXPORT")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "x"]


def test_damaged_messages_are_told(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    rig.set_log(90, b"\xff")
    file = tmp_path / "x"
    code, _, errors = run(capsys, "export", rig.root, str(file), "--topic", "Orders")
    assert (code, file.exists()) == (2, False)
    assert "message 0 of Orders/0, at 0 of the log: its record is damaged" in errors
    code, text, errors = run(capsys, "export", rig.root, str(file), "--topic", "Orders", "--skip-damaged")
    assert (code, text.split()[0]) == (1, "2")
    assert "left out: message 0 of Orders/0" in errors


def test_altered_files_are_not_imported(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file, new = tmp_path / "x", str(tmp_path / "new")
    run(capsys, "export", rig.root, str(file), "--topic", "Orders")
    data = file.read_bytes()
    for altered in (data[:-1], data[:300], data.replace(b"body 2", b"body 3"), b"", b"something else" * 20):
        file.write_bytes(altered)
        code, text, errors = run(capsys, "import", new, str(file), "--yes", *SIZES)
        assert (code, text) == (2, "")
        assert "the export cannot be used: at byte" in errors
        assert not Path(new).exists()


def test_imports_that_cannot_be(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file, new = str(tmp_path / "x"), str(tmp_path / "new")
    run(capsys, "export", rig.root, file, "--topic", "Orders")
    for arguments, word in (
        ((new, "-"), "save it"),
        ((new, str(tmp_path / "none")), "No such file"),
        ((file, file), "it is a file"),
        ((str(tmp_path), file), "not a data directory"),
        ((new, file, "--rename", "A=B"), "the export has no topic A"),
        ((new, file, "--rename", "Orders=../x"), "no topic has the name"),
        ((new, file, "--yes", "--set", "mappedFileSizeComitLog=5"), "no such setting"),
        ((new, file, "--yes", "-c", str(tmp_path / "none")), "cannot read"),
    ):
        code, _, errors = run(capsys, "import", *arguments)
        assert code == 2, arguments
        assert word in errors
        assert errors.count("\n") == 1
    assert not Path(new).exists()


def test_a_directory_in_use_is_left_alone(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file = str(tmp_path / "x")
    run(capsys, "export", rig.root, file, "--topic", "Orders")
    rig.open()
    code, _, errors = run(capsys, "import", rig.root, file, "--yes")
    assert code == 2
    assert "a broker runs on" in errors
    rig.close()


def test_exports_go_through_pipes(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    filled(rig)
    file = tmp_path / "x"
    command = f"{sys.executable} -m adapters store export {rig.root} - --topic Orders --topic Bills | cat > {file}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "6 messages" in done.stderr
    assert run(capsys, "import", str(tmp_path / "new"), str(file), "--yes", *SIZES)[0] == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_it_asks_at_a_terminal(rig: Rig, tmp_path: Path, capsys: Out, answer: str, code: int) -> None:
    filled(rig)
    file, new = str(tmp_path / "x"), str(tmp_path / "new")
    run(capsys, "export", rig.root, file, "--topic", "Orders")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "adapters", "store", "import", new, file, *SIZES],
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(master, 4096)
    os.write(master, f"{answer}\n".encode())
    assert process.wait(60) == code
    os.close(master)
    assert Path(new).exists() is (code == 0)


def test_settings_of_the_broker(rig: Rig, tmp_path: Path, capsys: Out) -> None:
    """A directory whose log lies elsewhere, by the broker's own file of settings."""
    filled(rig)
    file, new, log = str(tmp_path / "x"), str(tmp_path / "new"), tmp_path / "log"
    run(capsys, "export", rig.root, file, "--topic", "Orders")
    conf = tmp_path / "broker.conf"
    lines = [f"storePathCommitLog={log}", "brokerName=b", *(word for word in SIZES if word != "--set")]
    conf.write_text("\n".join(lines))
    assert run(capsys, "import", new, file, "--yes", "-c", str(conf))[0] == 0
    assert [path.name for path in log.iterdir()] == [f"{0:020d}"]
    assert run(capsys, "dump", new, "--commitlog", str(log))[1].count("\n") == 3
