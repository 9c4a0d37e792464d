"""The example of the documentation runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parent.parent.parent / "docs" / "simulation.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "docs/simulation.md", "exec"), {})
