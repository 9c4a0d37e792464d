"""Files of one sequence, as a folder has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.layout import is_offset_name


def offset_files(files: Files, folder: str, strange: list[str]) -> Iterator[tuple[int, str, int]]:
    """Offset, path and size of each file that is named by one, sorted; other names are added to `strange`.

    Raises OSError.
    """
    for name in files.names(folder):
        path = f"{folder}/{name}"
        if not is_offset_name(name) or files.is_folder(path):
            strange.append(name)
            continue
        try:
            size = files.size(path)
        except FileNotFoundError:  # a broker has just deleted it
            continue
        yield int(name), path, size


def most_common(sizes: list[int], default: int) -> int:
    """The size that most of them have, the larger one of equally many."""
    counts = Counter(sizes)
    return max(counts, key=lambda size: (counts[size], size)) if counts else default
