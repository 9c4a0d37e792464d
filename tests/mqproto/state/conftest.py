"""Fixtures that tests of machines share."""

from __future__ import annotations

import pytest

from tests.mqproto.state.scripted_broker import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """A broker with a topic of two queues, and a node on the stage that knows their name server."""
    cluster = Cluster("b")
    cluster.topic("T")
    return cluster
