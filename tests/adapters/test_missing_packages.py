"""Runtimes whose package is not installed say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["gevent", "anyio"])
def test_a_missing_package_is_named(name: str) -> None:
    program = f"""
import sys
sys.modules["{name}"] = None
try:
    import mqproto.adapters.{name}
except ImportError as error:
    print(error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} mqproto.adapters.{name} needs the package {name}: install mqproto[{name}]\n"
