"""`--recover`: a damaged data directory, as an operator meets it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mqproto.adapters.sync.servers import SyncServer
from mqproto.adapters.threaded import Broker
from mqproto.engine.store import Store, StoreDamaged, StoreSettings
from mqproto.errors import InvalidSetting
from tests.adapters.cli.test_cli import ADAPTERS, LIMIT, run, server

SIZES = {"mappedFileSizeCommitLog": "65536", "maxHashSlotNum": "100", "maxIndexNum": "400"}


def damaged_store(root: Path) -> Path:
    """A store of three messages, the second of them damaged."""
    settings = StoreSettings(
        store_path_root_dir=str(root), mapped_file_size_commit_log=65_536, max_hash_slot_num=100, max_index_num=400
    )
    store = Store.open(settings, wall=1000)
    host = bytes(8)
    offsets = [
        store.writer.append(
            store.queue("T", 0), b"body %d" % number, b"", 0, 0, 1, host, host, 0, 0, 0, None, None, 1000 + number
        )
        for number in range(3)
    ]
    store.close(2000)
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[offsets[1] + 90] ^= 1
    log.write_bytes(data)
    return root


def options(root: Path) -> list[str]:
    return [
        "--port",
        "0",
        "--store",
        str(root),
        *(part for key, value in SIZES.items() for part in ("--set", f"{key}={value}")),
    ]


@pytest.mark.parametrize("command", ["broker", "standalone"])
def test_refusal_names_the_place_and_both_ways_out(tmp_path: Path, command: str) -> None:
    root = damaged_store(tmp_path / "store")
    more = ["--namesrv-port", "0"] if command == "standalone" else []
    done = run(tmp_path, command, *more, *options(root))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{0:020d} at offset " in line
    assert "--recover skip steps over the damage and keeps the 1 good messages behind it" in line
    assert "--recover cut lets the log end here and drops them" in line
    assert done.stdout == ""


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("recover", ["skip", "cut"])
def test_operator_decides(tmp_path: Path, adapter: str, recover: str) -> None:
    root = damaged_store(tmp_path / "store")
    arguments = ("standalone", "--adapter", adapter, "--namesrv-port", "0", "--recover", recover, *options(root))
    with server(tmp_path, *arguments) as (process, line):
        assert line.startswith("ready: ")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors
    if recover == "skip":
        assert "messages 1 to 1 of T, queue 0, are gone" in errors
        assert len(list((root / "recovered").iterdir())) == 1
    assert "a good record follows" in errors
    done = run(tmp_path, "standalone", "--namesrv-port", "0", "--recover", "perhaps", *options(root))
    assert done.returncode == 2
    assert "perhaps" in done.stderr


def test_embedded_broker(tmp_path: Path) -> None:
    root = damaged_store(tmp_path / "store")

    def broker(recover: str) -> SyncServer:
        return Broker(store=root, recover=recover, settings=SIZES)

    with pytest.raises(StoreDamaged):
        broker("refuse").start()
    with pytest.raises(InvalidSetting, match="recover"):
        broker("perhaps").start()
    with broker("skip"):
        pass
    with broker("refuse"):
        pass


def test_damaged_tables_are_told(tmp_path: Path) -> None:
    """A good backup: a warning. None: no start, and both files are named."""
    root = tmp_path / "store"
    with Broker(store=root, settings=SIZES):
        pass
    table = root / "config" / "topics.json"
    table.with_name("topics.json.bak").write_bytes(table.read_bytes())
    table.write_bytes(b"{")
    with server(tmp_path, "broker", *options(root)) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=LIMIT)
    assert f"{table} is damaged" in errors
    table.write_bytes(b"{")
    table.with_name("topics.json.bak").write_bytes(b"")
    done = run(tmp_path, "broker", *options(root))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{table} and its backup {table}.bak are unreadable" in line
