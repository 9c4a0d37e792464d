"""Command line of a checkout: `python3 -m adapters COMMAND`, the same as `python3 -m mqproto COMMAND`."""

from __future__ import annotations

import sys
from pathlib import Path

import mqproto

if __name__ == "__main__":
    folder = Path(mqproto.__file__).parent
    if not (folder / "adapters").is_dir():
        # A checkout on a file system without links: there `mqproto/adapters` is a small text file, and the packages lie
        # beside `mqproto`.
        mqproto.__path__.append(str(folder.parent))
    from mqproto.adapters.cli import main

    sys.exit(main())
