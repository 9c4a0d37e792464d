"""`python3 -m mqproto COMMAND`, the same as the console script `mqproto`."""

from __future__ import annotations

import importlib.util
import runpy
import sys

if __name__ == "__main__":
    if importlib.util.find_spec("mqproto.adapters") is None:
        sys.exit(
            "mqproto: this checkout has no symbolic links: run `python3 -m adapters` here, or `git config core.symlinks"
            " true` and check it out again"
        )
    runpy.run_module("mqproto.adapters", run_name="__main__")
