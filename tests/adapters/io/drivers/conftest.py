"""Drivers under test: with every poller that they can have, each with a node of one listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqproto.adapters.io.sockets import listen, port_of
from tests.adapters.conftest import runtime_without_threads_left
from tests.adapters.harness import NAMES, PATIENCE, PORTABLE, Proxy, Runtime
from tests.adapters.io.drivers.peers import Start
from tests.adapters.toys import Echo


@pytest.fixture(params=[*NAMES, *PORTABLE])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """Drivers are tested with every poller that they can have."""
    with runtime_without_threads_left(request.param) as opened:
        yield opened


@pytest.fixture
def start(runtime: Runtime) -> Iterator[Start]:
    """Start a driver for a node with one listener "main"; gives the driver and the port."""
    drivers: list[Proxy] = []

    def start_driver(node: Echo, **settings: Any) -> tuple[Any, int]:
        listener = listen("127.0.0.1", 0, "toy")
        port = port_of(listener)
        driver = Proxy(runtime, runtime.call(runtime.module.Driver, node, {"main": listener}, **settings))
        drivers.append(driver)
        driver.start()
        return driver, port

    yield start_driver
    for driver in drivers:
        driver.stop(PATIENCE)
