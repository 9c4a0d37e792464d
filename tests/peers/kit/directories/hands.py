"""Data directories that go from one broker to the next, and what each of them served."""

from __future__ import annotations

import copy
import itertools
import shutil
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.peers.kit import wire
from tests.peers.kit.directories.filling import QUEUES, SMALL_FILES, Filled, check_filled, fill
from tests.peers.kit.directories.survey import SCHEDULE, Place, Survey, survey
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Clients
from tests.peers.kit.servers import Server, free_port, serve

JAVA = "java-4.9.7"
OURS = "ours:threaded"
#: The last level is over when a test says so, by taking a shorter one.
FAR, NEAR = " ".join(["1s"] * 17 + ["1h"]), " ".join(["1s"] * 18)
#: Tables are saved soon, so that a test need not wait long before it kills a broker. Nobody is asked about pending
#: transactions, which adds messages, unless a test wants it.
SETTINGS = {
    **SMALL_FILES,
    "messageDelayLevel": FAR,
    "flushConsumerOffsetInterval": "500",
    "flushDelayOffsetInterval": "500",
    "transactionCheckInterval": "3600000",
}
#: Release 5 writes its op messages at once.
APACHES = {"transactionOpBatchInterval": "10"}


@dataclass
class Directory:
    """A data directory, what was sent to the broker over it, and what that served last."""

    home: Path
    port: int
    filled: Filled
    served: Survey

    def copied(self, home: Path) -> Directory:
        """The same somewhere else, modification times included."""
        shutil.copytree(self.home / "store", home / "store")
        return Directory(home, self.port, copy.deepcopy(self.filled), self.served)

    def under(self, kind: str, **settings: str) -> AbstractContextManager[Server]:
        """Start a server over it."""
        own = {} if kind.startswith("ours:") else APACHES
        return serve(kind, self.home, self.port, **{**SETTINGS, **own, **settings})


class Hands:
    """Passage of directories from broker to broker."""

    def __init__(self, clients: Clients, folder: Path) -> None:
        self._clients, self._folder = clients, folder
        self._numbers = itertools.count(1)
        self._written: dict[str, Directory] = {}

    def pair(self, server: Server) -> Pair:
        """The Java client beside a server."""
        return Pair(server, self._clients[JAVA], self._clients, self._numbers)

    def written(self, end: str) -> Directory:
        """A directory of our broker's, `stopped` under ASYNC_FLUSH or `killed` under SYNC_FLUSH; made once, to be
        copied.
        """
        if end not in self._written:
            made = self.fresh(self._folder / end)
            with made.under(OURS, flushDiskType="SYNC_FLUSH" if end == "killed" else "ASYNC_FLUSH") as server:
                self.add(made, server)
                if end == "killed":
                    wait_saved(made)
                    server.crash()
            self._written[end] = made
        return self._written[end]

    def fresh(self, home: Path) -> Directory:
        """A directory that nobody has written to."""
        return Directory(home, free_port(), Filled(), Survey(OURS))

    def look(self, server: Server, holes: Collection[Place] = ()) -> Survey:
        """All that the server serves; `holes` are places that have lost their messages."""
        return survey(self.pair(server), QUEUES, "Orders", holes)

    def add(self, directory: Directory, server: Server) -> None:
        """Messages of every kind more, and what the server serves then."""
        pair = self.pair(server)
        fill(pair, directory.filled)
        directory.served = self.look(server)
        check_filled(pair, directory.served, directory.filled)


def wait_saved(directory: Directory) -> None:
    """Return when the files hold the offsets that were served, and the places of what waits; brokers write them every
    so often.
    """
    until = time.monotonic() + 60
    for name, table in (("consumerOffset.json", "offsets"), ("delayOffset.json", "delays")):
        file = directory.home / "store" / "config" / name
        while not file.exists() or _saved(file) != directory.served.tables[table]:
            assert time.monotonic() < until, f"{name} is not saved: {file.read_text()}"
            time.sleep(0.02)
    waiting = directory.home / "store" / "consumequeue" / SCHEDULE / "17" / f"{0:020d}"
    last = 20 * directory.served.queues[SCHEDULE, 17]["max"]
    while not waiting.exists() or not any(waiting.read_bytes()[last - 20 : last]):
        assert time.monotonic() < until, "4.9.7 would deliver what waits at once (docs/protocol/store.md 8.6)"
        time.sleep(0.02)


def _saved(file: Path) -> object:
    try:
        return wire.read_table(file.read_text())["offsetTable"]
    except (OSError, ValueError):  # it is being replaced
        return None
