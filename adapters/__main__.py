"""`python3 -m adapters COMMAND`, the same as the console script `mqproto`."""

from __future__ import annotations

import sys

from adapters.cli import main

if __name__ == "__main__":
    sys.exit(main())
