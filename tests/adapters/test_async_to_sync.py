"""Generator of the plain methods from the coroutines: what it made is up to date, and it follows marks and names."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "async_to_sync.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("async_to_sync", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_modules_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_of_both_sides(script: Any) -> None:
    """A module is generated, or written by hand on both sides; what gives futures has no counterpart."""
    generated = {path.stem for path in script.SOURCE.glob("*.py")} - script.BY_HAND
    header = script.HEADER.partition("{")[0]
    plain = {path.stem: path.read_text(encoding="utf-8") for path in script.TARGET.glob("*.py")}
    assert {name for name, text in plain.items() if text.startswith(header)} == generated
    assert plain.keys() - generated == script.BY_HAND | {"producer_futures", "pull_futures"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("async def f() -> AsyncThing:\n    return await g(1)\n", "def f() -> SyncThing:\n    return g(1)\n"),
        ("async with a as b:\n    pass\n", "with a as b:\n    pass\n"),
        ("raise StopAsyncIteration from None\n", "raise StopIteration from None\n"),
        ("def __aiter__(self): ...\n", "def __iter__(self): ...\n"),
        ("from mqproto.adapters.coroutines.x import y\n", "from mqproto.adapters.sync.x import y\n"),
        ("a = b  # it awaits\n", "a = b  # it awaits\n"),
        ('"""An `AsyncThing`."""\n', '"""An `SyncThing`."""\n'),
        ("a\n# why\nb(1)  # async only\nc\n", "a\nc\n"),
        ("a\n# sync: x\nb(1)  # async only\nc\n", "a\nx\nc\n"),
        ("if a:  # async only\n    b\nelse:\n    c\nd\n", "d\n"),
        (
            "try:\n    # why\n    with a:  # async only\n        b\n        c\nfinally:\n    d\n",
            "try:\n    b\n    c\nfinally:\n    d\n",
        ),
        ("def f():\n    # sync: import x\n    pass\n", "def f():\n    import x\n    pass\n"),
    ],
)
def test_marks_and_names(script: Any, source: str, expected: str) -> None:
    assert script.renamed(script.unmarked(source)) == expected


def test_a_mark_inside_a_statement(script: Any) -> None:
    with pytest.raises(script.Unclear, match="not the first of a statement"):
        script.unmarked("b(\n    1,\n)  # async only\n")
