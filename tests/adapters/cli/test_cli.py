"""The command line as a user meets it: each command in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
ADAPTERS = ["threaded", "gevent", "asyncio", "trio"]
READY = re.compile(r"ready: name server (\S+), broker (\S+), data in (.*)")
LIMIT = 60.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "adapters", *arguments]


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    return {**kept, "HOME": str(home), "PYTHONWARNINGS": "error"}


def run(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(home),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line that a process prints, without waiting for ever."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(LIMIT), "it printed nothing"
    return process.stdout.readline()


@contextlib.contextmanager
def server(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process, first_line(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_standalone_serves_and_stops(tmp_path: Path, adapter: str, number: signal.Signals) -> None:
    store = tmp_path / "store"
    arguments = ("standalone", "--adapter", adapter, "--namesrv-port", "0", "--port", "0", "--store", str(store))
    with server(tmp_path, *arguments) as (process, line):
        ready = READY.fullmatch(line.strip())
        assert ready, line
        assert ready[3] == str(store)
        sent = run(
            tmp_path,
            "send",
            "-n",
            ready[1],
            "Orders",
            "one",
            "zwei ß",
            "--tags",
            "eu",
            "--keys",
            "k1 k2",
            "--property",
            "a=b",
            "--json",
        )
        assert sent.returncode == 0, sent.stderr
        results = [json.loads(text) for text in sent.stdout.splitlines()]
        assert [result["status"] for result in results] == ["SEND_OK", "SEND_OK"]
        got = run(tmp_path, "consume", "-n", ready[1], "Orders", "--count", "2", "--json")
        assert got.returncode == 0, got.stderr
        messages = {message["msgId"]: message for message in map(json.loads, got.stdout.splitlines())}
        for result, body in zip(results, ["one", "zwei ß"], strict=True):
            message = messages[result["msgId"]]
            assert message["body"] == body
            assert message["tags"] == "eu"
            assert message["keys"] == ["k1", "k2"]
            assert message["properties"]["a"] == "b"
            assert {name: message[name] for name in ("offsetMsgId", "brokerName", "queueId", "queueOffset")} == {
                name: result[name] for name in ("offsetMsgId", "brokerName", "queueId", "queueOffset")
            }
        process.send_signal(number)
        rest, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors
        assert rest == ""
        assert errors == ""
    assert not (store / "abort").exists()


def test_separate_servers_and_lines_of_standard_input(tmp_path: Path) -> None:
    with server(tmp_path, "namesrv", "--port", "0") as (_, line):
        names = line.split()[-1]
        assert line == f"ready: name server {names}\n"
        with server(tmp_path, "broker", "-n", names, "--port", "0", "--json") as (_, line):
            facts = json.loads(line)
            assert facts["store"] == str(tmp_path / "store")
            sent = run(tmp_path, "send", "-n", names, "Orders", stdin="a\nb\n\nc\n")
            assert sent.returncode == 0, sent.stderr
            assert len(sent.stdout.splitlines()) == 3
            got = run(tmp_path, "consume", "-n", names, "Orders", "--count", "3")
            assert sorted(text.split()[-1] for text in got.stdout.splitlines()) == ["a", "b", "c"]


def test_configuration_file_and_settings(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    lines = [
        "brokerName = broker-z",
        "# a comment",
        f"storePathRootDir={tmp_path / 'data'}",
        "listenPort=0",
        "noSuchKey=1",
    ]
    config.write_text("\n".join([*lines, "sendMessageThreadPoolNums=4", ""]))
    arguments = ("standalone", "--namesrv-port", "0", "-c", str(config), "--set", "autoCreateTopicEnable=false")
    with server(tmp_path, *arguments) as (process, line):
        ready = READY.fullmatch(line.strip())
        assert ready, line
        assert ready[3] == str(tmp_path / "data")
        sent = run(tmp_path, "send", "-n", ready[1], "Nowhere", "x")
        assert sent.returncode == 1
        assert "Nowhere" in sent.stderr
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert errors.splitlines() == ["mqproto: setting noSuchKey is not known and has no effect"]


def refused(tmp_path: Path, *arguments: str) -> str:
    """What a command says that could not begin: one line, exit code 2, nothing on standard output."""
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    return lines[-1]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused(tmp_path, "standalone", "--namesrv-port", "0", "--port", port, "--store", str(tmp_path / "s"))
        assert port in said
        assert "in use" in said
        assert port in refused(tmp_path, "namesrv", "--port", port)
        assert port in refused(
            tmp_path, "standalone", "--namesrv-port", port, "--port", "0", "--store", str(tmp_path / "s")
        )


def test_a_data_directory_that_is_locked(tmp_path: Path) -> None:
    arguments = ("standalone", "--namesrv-port", "0", "--port", "0", "--store", str(tmp_path / "s"))
    with server(tmp_path, *arguments):
        said = refused(tmp_path, *arguments)
        assert str(tmp_path / "s") in said
        assert "another" in said


def test_a_data_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    said = refused(tmp_path, "standalone", "--namesrv-port", "0", "--port", "0", "--store", str(blocked / "store"))
    assert str(blocked) in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["--adapter", "threads"], "threads"),
        (["--port", "70000"], "70000"),
        (["--port", "ten"], "ten"),
        (["--set", "brokerId"], "brokerId"),
        (["--set", "noSuchKey=1"], "noSuchKey"),
        (["--set", "fileReservedTime=soon"], "fileReservedTime"),
        (["--set", "flushDiskType=SOMETIMES"], "flushDiskType"),
        (["--set", "maxMessageSize=-1"], "maxMessageSize"),
        (["--set", "messageDelayLevel=1s 5x"], "messageDelayLevel"),
        (["--host", "256.1.1.1"], "256.1.1.1"),
        (["-c", "/no/such/broker.conf"], "/no/such/broker.conf"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, arguments: list[str], words: str) -> None:
    common = ["standalone", "--namesrv-port", "0", "--store", str(tmp_path / "s")]
    assert words in refused(tmp_path, *common, *([] if "--port" in arguments else ["--port", "0"]), *arguments)


def test_a_malformed_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=\\u00zz\n")
    said = refused(tmp_path, "broker", "-c", str(config), "--port", "0")
    assert str(config) in said


def test_send_without_a_name_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    done = run(tmp_path, "send", "-n", f"127.0.0.1:{port}", "Orders", "x", "--timeout", "500")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_version_and_help(tmp_path: Path) -> None:
    assert run(tmp_path, "version").stdout.startswith("mqproto 0.")
    shown = run(tmp_path, "--help")
    assert shown.returncode == 0
    for name in ("standalone", "namesrv", "broker", "send", "consume", "version"):
        assert name in shown.stdout
    assert run(tmp_path).returncode == 2
