"""Fixtures shared by all suites."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from mqproto.compiling import is_compiled
from tests.golden.golden import GOLDEN, Golden

# A busy machine is no fault of the code: no example is judged by its time.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", metavar="N", type=int, default=30, help="how often a broker under load is killed (default: 30)"
    )
    parser.addoption(
        "--proof",
        metavar="N",
        type=int,
        default=1,
        help="so many times as many crashes of the store are tried (default: 1)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    compiled, asked = is_compiled(), "compiled" in config.option.markexpr
    for item in items:
        if compiled and item.get_closest_marker("pure"):
            item.add_marker(pytest.mark.skip("changes from outside what is fixed in compiled modules"))
        if not asked and item.get_closest_marker("compiled"):
            item.add_marker(pytest.mark.skip("takes minutes: -m compiled"))


def pytest_collection_finish() -> None:
    """Ten thousand tests are a million objects that live to the end: no collection looks at them again, asked for or
    not.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Golden:
    """The recorded data of real RocketMQ programs."""
    return GOLDEN
