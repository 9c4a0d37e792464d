"""Settings of servers as an operator meets them: options, files, changes by request, the next start."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from mqproto.codec import Command, FrameSplitter, decode, encode
from mqproto.engine.settings import parse_properties
from mqproto.wire.hosts import split_address
from tests.adapters.cli.test_cli import LIMIT, ROOT, command, environment, run, server

UPDATE_BROKER, GET_BROKER, UPDATE_NAMES, GET_NAMES = 25, 26, 318, 319


def ask(address: str, code: int, body: str = "") -> Command:
    """One request, one answer."""
    host, port = split_address(address)
    splitter = FrameSplitter()
    with socket.create_connection((host, port), timeout=LIMIT) as stream:
        stream.sendall(encode(Command(code, {}, body.encode(), 1)))
        while True:
            data = stream.recv(65536)
            assert data, "the server hung up"
            for frame in splitter.feed(data):
                return decode(frame)


def shown(address: str, code: int) -> dict[str, str]:
    return parse_properties(bytes(ask(address, code).body))


def printed(home: Path, *arguments: str, variables: dict[str, str] | None = None) -> dict[str, str]:
    """What a server prints that is asked for its settings alone."""
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(home) | (variables or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return parse_properties(done.stdout)


def stop(process: subprocess.Popen[str]) -> list[str]:
    """End a server; the lines of its standard error."""
    process.terminate()
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    return errors.splitlines()


def test_a_change_is_in_the_file_and_in_the_next_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(
        f"# ours\nbrokerName=broker-z\nlistenPort=0\nstorePathRootDir={tmp_path / 'data'}\n"
        "mystery=1\nfileReservedTime=48\n"
    )
    with server(tmp_path, "broker", "-c", str(config), "--json") as (process, line):
        address = json.loads(line)["broker"]
        assert ask(address, UPDATE_BROKER, "fileReservedTime=24\n").remark is None
        assert (
            ask(address, UPDATE_BROKER, "brokerName=broker-y\n").remark == "brokerName takes effect at the next start"
        )
        refused = ask(address, UPDATE_BROKER, "fileReservedTime=soon\n")
        assert (refused.code, refused.remark) == (1, "setting fileReservedTime=soon: a whole number expected")
        lines = config.read_text().splitlines()
        assert lines == [
            "# ours", "brokerName=broker-y", "listenPort=0", f"storePathRootDir={tmp_path / 'data'}", "mystery=1",
            "fileReservedTime=24",
        ]  # fmt: skip
        assert "brokerName=broker-z" in config.with_name("broker.conf.bak").read_text()
        assert stop(process) == [
            "mqproto: setting mystery is not known and has no effect",
            "mqproto-broker: setting fileReservedTime was changed from '48' to '24'",
            (
                "mqproto-broker: setting brokerName was changed from 'broker-z' to 'broker-y'; "
                "it takes effect at the next start"
            ),
        ]
    with server(tmp_path, "broker", "-c", str(config), "--json") as (process, line):
        pairs = shown(json.loads(line)["broker"], GET_BROKER)
        assert (pairs["brokerName"], pairs["fileReservedTime"], pairs["mystery"]) == ("broker-y", "24", "1")


def test_without_a_file_the_data_directory_has_one(tmp_path: Path) -> None:
    arguments = ("broker", "--store", str(tmp_path / "s"), "--port", "0", "--json")
    with server(tmp_path, *arguments) as (_, line):
        assert ask(json.loads(line)["broker"], UPDATE_BROKER, "traceOn=false\nstorePathRootDir=/elsewhere").code == 0
    assert "traceOn=false" in (tmp_path / "s" / "config" / "broker.properties").read_text()
    with server(tmp_path, *arguments, "--recover", "skip") as (_, line):
        assert shown(json.loads(line)["broker"], GET_BROKER)["traceOn"] == "false"
    found = printed(tmp_path, "broker", "--store", str(tmp_path / "s"), "-p")
    assert (found["traceOn"], found["storePathRootDir"]) == ("false", str(tmp_path / "s"))
    found = printed(tmp_path, "broker", "--store", str(tmp_path / "s"), "--set", "traceOn=true", "-p")
    assert found["traceOn"] == "true"
    (tmp_path / "s").rename(tmp_path / "store")
    assert printed(tmp_path, "broker", "-p")["storePathRootDir"] == str(tmp_path / "store"), "it is where it is"


@pytest.mark.parametrize("own_file", [True, False])
def test_name_server(tmp_path: Path, own_file: bool) -> None:
    config = tmp_path / "names.conf"
    config.write_text(f"listenPort=0\nkvConfigPath={tmp_path / 'kv' / 'table.json'}\n")
    arguments = ["namesrv", "-c", str(config)] if own_file else ["namesrv", "--port", "0"]
    with server(tmp_path, *arguments) as (process, line):
        address = line.split()[-1]
        pairs = shown(address, GET_NAMES)
        folder = tmp_path / "namesrv"
        assert pairs["kvConfigPath"] == str(tmp_path / "kv" / "table.json" if own_file else folder / "kvConfig.json")
        assert pairs["configStorePath"] == str(config if own_file else folder / "namesrv.properties")
        assert ask(address, UPDATE_NAMES, "orderMessageEnable=true\n").code == 0
        assert ask(address, UPDATE_NAMES, "kvConfigPath=/x\n").code == 16
        assert Path(pairs["configStorePath"]).read_text().splitlines()[-1] == "orderMessageEnable=true"
        assert stop(process) == ["mqproto-name-server: setting orderMessageEnable was changed from 'false' to 'true'"]
    with server(tmp_path, *arguments) as (_, line):
        assert shown(line.split()[-1], GET_NAMES)["orderMessageEnable"] == "true"


def test_settings_are_printed(tmp_path: Path) -> None:
    """Nothing is opened for it, and the later comes before the earlier: defaults, environment, file, `--set`, options
    of their own.
    """
    config = tmp_path / "broker.conf"
    config.write_text("namesrvAddr=10.0.0.1:9876\nregionId=a\nlistenPort=1\nnoSuchKey=1\nbrokerId=1\n")
    variables = {"NAMESRV_ADDR": "10.0.0.2:9876", "ROCKETMQ_HOME": "/opt/rocketmq"}
    every = printed(tmp_path, "broker", "-p", variables=variables)
    assert len(every) > 180
    facts = ("namesrvAddr", "rocketmqHome", "listenPort", "storePathRootDir", "brokerRole")
    assert [every[key] for key in facts] == [
        "10.0.0.2:9876",
        "/opt/rocketmq",
        "10911",
        str(tmp_path / "store"),
        "ASYNC_MASTER",
    ]
    options = ("broker", "--configFile", str(config), "--set", "regionId=b", "--port", "2")
    found = printed(tmp_path, *options, "--printConfigItem", variables=variables)
    facts = ("namesrvAddr", "regionId", "listenPort", "noSuchKey", "brokerId")
    assert [found[key] for key in facts] == ["10.0.0.1:9876", "b", "2", "1", "0"]
    important = printed(tmp_path, *options, "-m", "--namesrvAddr", "10.0.0.3:9876")
    assert important["namesrvAddr"] == "10.0.0.3:9876"
    assert "brokerName" in important
    assert "regionId" not in important
    assert printed(tmp_path, "namesrv", "-p")["listenPort"] == "9876"
    assert json.loads(run(tmp_path, "standalone", "-p", "--json").stdout)["brokerRole"] == "ASYNC_MASTER"
    assert not any((tmp_path / name).exists() for name in ("store", "namesrv"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("brokerRole=SLAVE", "setting brokerRole=SLAVE: only ASYNC_MASTER is supported"),
        ("aclEnable=true", "setting aclEnable=true: only false is supported"),
        ("useTLS=true", "setting useTLS=true: only false is supported"),
        ("namesrvAddr=nowhere", "setting namesrvAddr=nowhere: "),
        ("listenPort=x", "setting listenPort=x: a whole number expected"),
    ],
)
def test_promises_that_cannot_be_kept(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path / 'data'}\n{text}\n")
    for arguments in (["--port", "0"] if "listenPort" not in text else [], ["-p"]):
        done = run(tmp_path, "broker", "-c", str(config), *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The change is in effect, and the answer says that it will not last."""
    config = tmp_path / "conf" / "broker.conf"
    config.parent.mkdir()
    config.write_text("listenPort=0\n")
    with server(tmp_path, "broker", "-c", str(config), "--store", str(tmp_path / "s"), "--json") as (process, line):
        address = json.loads(line)["broker"]
        (config.parent / "broker.conf.tmp").mkdir()  # a name that cannot be written, even for root
        answer = ask(address, UPDATE_BROKER, "traceOn=false")
        assert answer.code == 1
        assert "made, but not saved" in str(answer.remark)
        assert shown(address, GET_BROKER)["traceOn"] == "false"
        (config.parent / "broker.conf.tmp").rmdir()
        assert ask(address, UPDATE_BROKER, "regionId=b").code == 0
        assert config.read_text() == "listenPort=0\ntraceOn=false\nregionId=b\n"
        assert any("changed settings were not saved" in text for text in stop(process))
