"""Memory limit of this process, where a container allows it less than the machine has (Linux control groups, both
versions).

The pages of files that it has read and written count, so this bounds what the system keeps of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

_ROOT: Final = "/sys/fs/cgroup"


def memory_limit(read: Callable[[str], str | None]) -> int | None:
    """The lowest limit in bytes of the groups that this process belongs to; None if there is none. `read` gives the
    text of a file, or None.
    """
    limits = [
        int(text)
        for path in _limit_files(read("/proc/self/cgroup") or "")
        if (text := (read(path) or "").strip()).isdecimal()
    ]
    return min(limits, default=None)


def _limit_files(groups: str) -> Iterator[str]:
    """The files with the limits of a process's groups, and of those around them. In a container the paths may be those
    of the machine, which are not there; the outermost file is the container's then.
    """
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            root, name = _ROOT, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = f"{_ROOT}/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = path.rstrip("/")
        while folder:
            yield f"{root}{folder}/{name}"
            folder = folder.rpartition("/")[0]
        yield f"{root}/{name}"
