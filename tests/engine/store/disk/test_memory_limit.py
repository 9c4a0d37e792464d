"""The memory of a container, from files as Linux shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.engine.store import DiskFiles
from mqproto.engine.store.disk import disk
from mqproto.engine.store.disk.memory_limit import memory_limit

MB = 1 << 20


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"/proc/self/cgroup": ""}, None),
        # Version 2: in a container, in a service of a machine, without a limit.
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 * MB),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "/proc/self/cgroup": "0::/system.slice/mq.service\n",
                "/sys/fs/cgroup/system.slice/mq.service/memory.max": "max\n",
                "/sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
            },
            1024 * MB,
        ),
        # Version 1: paths of the machine in a container; no limit is a very high one.
        (
            {
                "/proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
            },
            256 * MB,
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            0x7FFFFFFFFFFFF000,
        ),
        ({"/proc/self/cgroup": "nonsense\n\n:::\n", "/sys/fs/cgroup/memory.max": "x"}, None),
    ],
)
def test_limits(files: dict[str, str], limit: int | None) -> None:
    assert memory_limit(files.get) == limit


def test_the_less_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = DiskFiles()
    machine = files.memory()
    assert machine is None or machine > MB
    for limit in (300 * MB, None, 1 << 62):
        monkeypatch.setattr(disk, "memory_limit", lambda read, limit=limit: limit)
        found = files.memory()
        assert found is None or found == min(limit or 1 << 62, found)
        assert limit != 300 * MB or found is None or found <= 300 * MB


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert disk.text_of(str(tmp_path / "none")) is None
    assert disk.text_of(str(tmp_path)) is None
