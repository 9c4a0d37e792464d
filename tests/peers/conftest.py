"""Servers and clients of other people's making, for the tests of this folder.

Every test here is marked `peer` and is skipped, with a reason, where the programs it needs are missing; with
PEERS_REQUIRED=1 in the environment it fails instead. `--peer-server apache:4.9.7` puts Apache's server in the place of
ours, which proves the tests themselves.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.peers.kit import peers, probes
from tests.peers.kit.directories.hands import JAVA, Hands
from tests.peers.kit.mqadmin.mqadmin import VERSION, Mqadmin, Tool
from tests.peers.kit.pairs import Pair
from tests.peers.kit.probes import Clients
from tests.peers.kit.servers import Server, serve

REQUIRED = bool(os.environ.get("PEERS_REQUIRED"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer-server", metavar="KIND", help="in the place of our server: apache:VERSION")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("peer")
            if item.get_closest_marker("timeout") is None:
                # a busy machine may take minutes for the start of a server, which counts
                item.add_marker(pytest.mark.timeout(600))
    impossible = [item for item in items for lacking in item.iter_markers("not_with") if lacking.args[0] in item.name]
    if impossible:
        config.hook.pytest_deselected(items=impossible)
        items[:] = [item for item in items if item not in impossible]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.peers.kit.spreading import Spreading

    return Spreading(config, log)


class Servers:
    """Running servers by kind, each started when first asked for and shared by all tests of this process.

    `settings` are the brokers'.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder, self._settings = folder, settings
        self._stack = ExitStack()
        self._running: dict[str, Server] = {}
        self._started: list[Server] = []

    def __getitem__(self, kind: str) -> Server:
        server = self._running.get(kind)
        if server is None:
            home = self._folder / f"{kind.replace(':', '-')}-{len(self._started)}"
            server = self._running[kind] = self._stack.enter_context(serve(kind, home, 0, **self._settings))
            self._started.append(server)
        for process in server.processes:
            if process.poll() is not None:
                del self._running[kind]  # the next test gets a new one
                raise AssertionError(
                    f"{kind} ended with {process.returncode} during an earlier test; see {server.home}"
                )
        return server

    def close(self) -> None:
        """End all of them, Apache's without its slow farewell."""
        for server in self._started:
            if not server.ours:
                server.crash()
        self._stack.close()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    running = Servers(tmp_path_factory.mktemp("servers"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def clients() -> Iterator[Clients]:
    with probes.all_clients() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_goes_on(clients: Clients) -> Iterator[None]:
    """A test that fails leaves no consumers behind, which would slow down the others."""
    yield
    clients.abandon()


@pytest.fixture(scope="session")
def hands(clients: Clients, tmp_path_factory: pytest.TempPathFactory) -> Hands:
    """Directories of ours, to be given to other brokers."""
    need(JAVA)
    return Hands(clients, tmp_path_factory.mktemp("handover"))


@pytest.fixture(scope="session")
def tool() -> Iterator[Tool]:
    """Apache's mqadmin, for every server."""
    with Tool() as made:
        yield made


@pytest.fixture
def mqadmin(pair: Pair, tool: Tool) -> Callable[..., str]:
    """What a command of mqadmin prints of the pair's server."""
    need(f"java-{VERSION}")
    return Mqadmin(tool, pair.server).run


_numbers = itertools.count(1)


def need(kind: str) -> None:
    """Skip, or fail where peers are required, unless what `kind` names (a client, or apache:VERSION) can be had."""
    try:
        if kind.startswith("apache:"):
            peers.install_java(kind.partition(":")[2])
        elif not kind.startswith("ours:"):
            probes.install(kind)
    except peers.PeerMissingError as missing:
        if REQUIRED:
            pytest.fail(f"{kind}: {missing}")
        pytest.skip(f"{kind}: {missing}")


@pytest.fixture
def pair(request: pytest.FixtureRequest, servers: Servers, clients: Clients) -> Pair:
    """Parametrised with "CLIENT @ SERVER", see `pairs`."""
    client, _, server = request.param.partition(" @ ")
    instead = request.config.getoption("--peer-server", None)
    if instead and server.startswith("ours:"):
        if server != "ours:threaded":
            pytest.skip("one server takes the place of all of ours")
        server = instead
    need(client)
    need(server)
    return Pair(servers[server], clients[client], clients, _numbers)
