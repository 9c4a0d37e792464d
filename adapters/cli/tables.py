"""Tables, sizes and ages as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table: numbers to the right, the rest to the left."""
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(heads))]
    right = [all(isinstance(row[column], int) for row in rows) and bool(rows) for column in range(len(heads))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in texts
    ]


def size_text(count: int) -> str:
    """A number of bytes with a unit: `512 B`, `1.5 MiB`."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in _UNITS:
        value /= 1024
        if value < 1024 or unit == _UNITS[-1]:
            break
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def age_text(ms: int) -> str:
    """A span of time in its two largest units: `3 d 4 h`, `12 s`."""
    if ms < 0:
        return "in the future"
    seconds = ms // 1000
    units = (("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60))
    used = [f"{count} {unit}" for unit, count in units]
    first = next((place for place, (_, count) in enumerate(units) if count), len(units) - 1)
    return (
        " ".join(text for text, (_, count) in list(zip(used, units, strict=True))[first : first + 2] if count) or "0 s"
    )
