"""`python3 -m mqproto COMMAND`, the same as the console script `mqproto`."""

from __future__ import annotations

import importlib.util
import runpy
import sys

if __name__ == "__main__":
    if importlib.util.find_spec("mqproto.adapters") is None:
        sys.exit(
            "mqproto: this checkout came without its symbolic links: run `python3 -m adapters`, or install it (README.md)"
        )
    runpy.run_module("mqproto.adapters", run_name="__main__")
