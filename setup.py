"""Builds the compiled wheel; without `MQPROTO_COMPILED` in the environment there is nothing to do here, and pyproject.toml says it all.

    MQPROTO_COMPILED=1 python -m pip wheel .          the hot modules compiled by mypyc from the very same source; needs a C compiler

See docs/benchmarks.md for what it brings and docs/decisions.md for why it is these modules. `MYPYC_OPT_LEVEL` (default 3) is what the C
compiler gets as -O.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Final

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

ROOT: Final = Path(__file__).parent
#: What is compiled. A class and its subclasses are compiled together, or the class is marked (`mqproto/compiling.py`).
HOT: Final = """
mqproto: codec ids properties record
mqproto/state: client connection deadlines holding node plain_answers plain_send runner send_window tasks
engine: counting
engine/broker: core node pull quick shapes stored
engine/namesrv: node
engine/store: coldfiles commitlog consumequeue index indexfile logfiles marks pieces queue reading records store
"""
#: Nothing of pyproject.toml's: the code is judged by the type checker elsewhere, and optional packages may be missing here.
MYPY_OPTIONS: Final = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases"]


def hot_modules() -> list[str]:
    """Paths of the modules to compile, from the root."""
    lines = (line.partition(": ") for line in HOT.split("\n") if line)
    return [f"{folder}/{name}.py" for folder, _, names in lines for name in names.split()]


def pinned_mypy() -> str:
    """The release that the sources are checked with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return next(each for each in project["optional-dependencies"]["dev"] if each.startswith("mypy=="))


class BuildCompiled(build_ext):
    """Makes C of the modules and compiles it, once it is known that something is to be built at all."""

    def finalize_options(self) -> None:
        try:
            from mypyc.build import mypycify
        except ImportError:
            sys.exit(f"MQPROTO_COMPILED is set, but mypyc is not installed: python -m pip install {pinned_mypy()}")
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            sys.exit("MQPROTO_COMPILED is set, but Python's headers are not installed (Debian: python3-dev)")
        level = os.environ.get("MYPYC_OPT_LEVEL", "3")
        modules = mypycify([*MYPY_OPTIONS, *hot_modules()], opt_level=level, debug_level="0", group_name="mqproto", multi_file=True)
        self.distribution.ext_modules = modules
        super().finalize_options()

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler_so", None)
        if command and shutil.which(command[0]) is None:
            sys.exit(f"MQPROTO_COMPILED is set, but there is no C compiler: {command[0]} is not on the PATH")
        super().build_extensions()


class CompiledDistribution(Distribution):
    """One that has something to compile, although what is not known yet."""

    def has_ext_modules(self) -> bool:
        return True


if os.environ.get("MQPROTO_COMPILED", "") in ("", "0"):
    setup()
else:
    asked = sys.argv[1:2] == ["egg_info"]  # what a build needs is asked for in this way; later on it is there, or it is not
    setup(distclass=CompiledDistribution, cmdclass={"build_ext": BuildCompiled}, setup_requires=[pinned_mypy()] if asked else [])
