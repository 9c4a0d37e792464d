"""Every test of this directory runs once for each runtime."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.adapters.harness import NAMES, Runtime, open_runtime


@pytest.fixture(params=NAMES)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with open_runtime(request.param) as opened:
        yield opened
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("mqproto")]
    assert not left, f"threads left behind: {left}"
