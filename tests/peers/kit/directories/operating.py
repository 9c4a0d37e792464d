"""Changes that operators and time make in a data directory at rest: old files go, damage is stepped over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mqproto.engine.settings import apply
from mqproto.engine.store import Recover, Store, StoreSettings
from tests.peers.kit.directories.filling import LOG_FILE, SMALL_FILES
from tests.peers.kit.directories.hands import FAR, SETTINGS
from tests.peers.kit.servers import ROOT

_HOUR = 3600


def _settings(folder: Path, **changes: str) -> StoreSettings:
    settings = StoreSettings()
    apply(settings, {**SETTINGS, **changes})
    settings.store_path_root_dir = str(folder)
    return settings


def delete_first_files(folder: Path, count: int) -> None:
    """Let the first files of the log be old, and the store delete them as it does every day."""
    wall = int(time.time() * 1000)
    for number in range(count):
        path = folder / "commitlog" / f"{number * LOG_FILE:020d}"
        os.utime(path, times=(time.time() - 100 * _HOUR,) * 2)
    every_hour = ";".join(f"{hour:02d}" for hour in range(24))
    store = Store.open(_settings(folder, deleteWhen=every_hour, fileReservedTime="72"), wall=wall)
    now = 0
    while (due := store.next_deadline()) is not None and now < 600_000:
        now = max(now, due)
        store.timer(now, wall + now)
        while store.jobs:
            job = store.jobs.pop(0)
            job.run()
            store.done(job, None, now, wall + now)
    assert store.min_physical == count * LOG_FILE
    store.close(wall + now)


def damage(folder: Path, line: dict[str, Any]) -> None:
    """Turn over the first bits of a message's body where it lies in the log."""
    start = line["physicalOffset"] // LOG_FILE * LOG_FILE
    with (folder / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(line["physicalOffset"] - start + 88)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes((byte ^ 0xFF,)))


def skip_damage(folder: Path) -> None:
    """Open and close, stepping over what is damaged."""
    wall = int(time.time() * 1000)
    store = Store.open(_settings(folder), wall=wall, recover=Recover.SKIP)
    assert not store.recovery.clean
    store.close(wall)


def store_command(command: str, folder: Path, *words: object) -> None:
    """Run `store COMMAND FOLDER ...` of the command line with the settings of the brokers; it must end well."""
    settings = {**SMALL_FILES, "messageDelayLevel": FAR}
    pairs = [f"--set={key}={value}" for key, value in settings.items()]
    arguments = [sys.executable, "-m", "adapters", "store", command, str(folder), *map(str, words), *pairs]
    done = subprocess.run(arguments, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
