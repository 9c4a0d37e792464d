"""Fixtures of the broker's suite."""

from __future__ import annotations

import pytest

from tests.engine.broker.harness import Peer, World


@pytest.fixture
def world() -> World:
    """A broker with Apache's defaults, begun, without name servers."""
    return World()


@pytest.fixture
def peer(world: World) -> Peer:
    """A client's link to it."""
    return world.connect()
