"""Every test that asks for `rig` or `make_rig` runs over files on disk and over files in memory, and those at the core
of the store also over files on a disk whose system lacks everything that a system may lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.engine.store.harness import Rig, disk_rig, memory_rig, take_calls_away


class MakeRig(Protocol):
    def __call__(self, **settings: Any) -> Rig:
        """A rig on a new directory, with small files and these settings."""


CORE = frozenset(
    [
        "test_reading",
        "test_flushing",
        "test_recovery",
        "test_extension",
        "test_layout",
        "test_closing",
        "test_many_queues",
    ]
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "make_rig" in metafunc.fixturenames:
        bare = metafunc.module.__name__.rpartition(".")[2] in CORE
        metafunc.parametrize("make_rig", ["disk", "memory", *["bare disk"] * bare], indirect=True)


@pytest.fixture
def make_rig(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeRig]:
    rigs: list[Rig] = []
    if request.param == "bare disk":
        take_calls_away(monkeypatch)

    def make(**settings: Any) -> Rig:
        folder = tmp_path / str(len(rigs))
        folder.mkdir()
        rigs.append(disk_rig(folder, **settings) if request.param != "memory" else memory_rig(**settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.store.close(rig.wall)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()
