"""Print the pinned development packages of pyproject.toml, the one place that names them."""

from __future__ import annotations

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
print(*project["optional-dependencies"]["dev"])
