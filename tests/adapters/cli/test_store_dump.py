"""`store dump` as a user meets it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.adapters.cli import main
from mqproto.engine.store import DiskFiles
from mqproto.errors import CompressionMissing
from mqproto.wire.compression import Compression, deflate
from tests.engine.store.harness import START, Rig

ROOT = Path(__file__).parent.parent.parent.parent
Out = pytest.CaptureFixture[str]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(DiskFiles(), str(tmp_path / "store"))


def run(out: Out, *arguments: str) -> tuple[int, list[str], str]:
    """Exit code, lines of standard output, standard error."""
    code = main(("store", "dump", *arguments))
    printed = out.readouterr()
    return code, printed.out.splitlines(), printed.err


def filled(rig: Rig) -> None:
    for number in range(6):
        rig.wall = START + number * 1000
        rig.send("Orders", b"body %d\n" % number, number % 2, tags="eu", keys=f"k{number}", uniq_key=f"{number:032X}")
    waiting = {"REAL_TOPIC": "Orders", "REAL_QID": "1", "DELAY": "1"}
    rig.send("SCHEDULE_TOPIC_XXXX", b"later", more=waiting, tags_code=rig.wall)
    rig.close()


def test_messages_are_lines(rig: Rig, capsys: Out) -> None:
    filled(rig)
    code, lines, errors = run(capsys, rig.root)
    assert (code, len(lines), errors) == (0, 7, "")
    assert lines[0].startswith("2027-01-15T08:00:00.000Z Orders/0@0 at=0 tags=eu keys=k0 retry=3 body 0\\n")
    assert lines[6].endswith("for=Orders/1 later")
    code, lines, _ = run(capsys, rig.root, "--topic", "Orders", "--queue", "1", "--from", "1", "--json")
    found = [json.loads(line) for line in lines]
    assert [(each["queueOffset"], each["body"], each["msgId"]) for each in found] == [
        (1, "body 3\n", f"{3:032X}"),
        (2, "body 5\n", f"{5:032X}"),
    ]
    assert {"physicalOffset", "sysFlag", "offsetMsgId", "storeTimestamp", "properties"} <= set(found[0])
    _, lines, _ = run(capsys, rig.root, "--topic", "SCHEDULE_TOPIC_XXXX", "--json")
    assert (json.loads(lines[0])["realTopic"], json.loads(lines[0])["realQueueId"]) == ("Orders", 1)


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (("--from", "2"), [2, 2]),
        (("--to", "1"), [0, 0]),
        (("--from", "2027-01-15T08:00:03Z"), [1, 2, 2]),
        (("--from", "2027-01-15T09:00:03+01:00", "--to", "2027-01-15T08:00:05"), [1, 2]),
        (("--time", f"{START + 3000}..{START + 5000}"), [1, 2]),
        (("--time", "..2027-01-15T08:00:02"), [0, 0]),
        (("--time", f"{START + 5000}.."), [2]),
        (("--key", "k4"), [2]),
        (("--key", f"{1:032X}"), [0]),
        (("--key", "nothing"), []),
        (("--limit", "3"), [0, 0, 1]),
        (("--physical", "--from", "1", "--limit", "1"), [0]),
    ],
)
def test_what_is_wanted(rig: Rig, capsys: Out, arguments: tuple[str, ...], offsets: list[int]) -> None:
    filled(rig)
    code, lines, errors = run(capsys, rig.root, "--topic", "Orders", "--json", *arguments)
    assert (code, errors) == (0, "")
    assert [json.loads(line)["queueOffset"] for line in lines] == offsets


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--from", "yesterday"), "'yesterday' is no time"),
        (("--to", "2027-13-01"), "is no time"),
        (("--from", "-5"), "is no time"),
        (("--time", "5"), "FROM..TO expected"),
        (("--time", ".."), "FROM..TO expected"),
        (("--time", "a..b"), "'a' is no time"),
        (("--time", "5..6", "--from", "2027-01-01"), "no times in --from"),
        (("--from", "7", "--to", "6"), "the end lies before the beginning"),
        (("--limit", "-1"), "must be 0 or more"),
    ],
)
def test_bad_ranges(rig: Rig, capsys: Out, arguments: tuple[str, ...], word: str) -> None:
    filled(rig)
    code, lines, errors = run(capsys, rig.root, *(f"{arguments[0]}={arguments[1]}", *arguments[2:]))
    assert (code, lines) == (2, [])
    assert word in errors
    assert errors.count("\n") == 1


def test_no_directory(tmp_path: Path, capsys: Out) -> None:
    code, lines, errors = run(capsys, str(tmp_path / "none"))
    assert (code, lines) == (2, [])
    assert "there is no such directory" in errors


def test_beside_a_running_broker(rig: Rig, capsys: Out) -> None:
    rig.send("Orders", b"one")
    rig.settle()
    rig.send("Orders", b"two")
    code, lines, errors = run(capsys, rig.root, "--topic", "Orders")
    assert (code, [line.rpartition(" ")[2] for line in lines]) == (0, ["one", "two"])
    assert "a broker runs on it" in errors
    rig.close()


def test_bodies_are_inflated(rig: Rig, capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"text " * 50
    for kind in (Compression.ZLIB, Compression.LZ4, Compression.ZSTD):
        packed, flag = deflate(body, kind)
        rig.send("Orders", packed, sys_flag=flag)
    rig.send("Orders", b"no stream", sys_flag=0x301)
    rig.close()
    code, lines, errors = run(capsys, rig.root, "--json")
    found = [json.loads(line) for line in lines]
    assert code == 0
    assert [each.get("body") for each in found] == [body.decode()] * 3 + [None]
    assert base64.b64decode(found[3]["bodyBase64"]) == b"no stream"
    assert "no zlib stream" in errors

    def missing(data: bytes, limit: int) -> bytes:
        raise CompressionMissing("LZ4")

    monkeypatch.setattr("mqproto.wire.compression._lz4_inflate", missing)
    code, lines, errors = run(capsys, rig.root, "--limit", "2")
    assert code == 0
    assert lines[0].rpartition(" ")[2] != lines[1].rpartition(" ")[2]
    assert base64.b64decode(lines[1].rpartition(" ")[2]) == deflate(body, Compression.LZ4)[0]
    assert errors.count("\n") == 1
    assert "mqproto[compression]" in errors


def test_damage_is_told(rig: Rig, capsys: Out) -> None:
    for number in range(5):
        rig.send("Orders", bytes((number,)) * 50)
    rig.close()
    rig.set_log(2 * (91 + 50 + 6) + 100, b"\xff")
    code, lines, errors = run(capsys, rig.root, "--topic", "Orders", "--json")
    assert (code, [json.loads(line)["queueOffset"] for line in lines]) == (1, [0, 1, 3, 4])
    assert "message Orders/0@2, at 294 of the log cannot be read: its record is damaged" in errors


def test_head_may_leave(rig: Rig) -> None:
    rig.send_many(2000)
    rig.close()
    command = f"{sys.executable} -m adapters store dump {rig.root} | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
