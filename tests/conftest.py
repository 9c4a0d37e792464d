"""Fixtures shared by all suites."""

from __future__ import annotations

import pytest

from tests.golden.golden import GOLDEN, Golden


@pytest.fixture(scope="session")
def golden() -> Golden:
    """The recorded data of real RocketMQ programs."""
    return GOLDEN
