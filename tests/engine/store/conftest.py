"""Every test that asks for `rig` or `make_rig` runs over files on disk and over files in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.engine.store.harness import Rig, disk_rig, memory_rig


class MakeRig(Protocol):
    def __call__(self, **settings: Any) -> Rig:
        """A rig on a new directory, with small files and these settings."""


@pytest.fixture(params=["disk", "memory"])
def make_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**settings: Any) -> Rig:
        folder = tmp_path / str(len(rigs))
        folder.mkdir()
        rigs.append(disk_rig(folder, **settings) if request.param == "disk" else memory_rig(**settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.store.close(rig.wall)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    return make_rig()
