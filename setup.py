"""Builds the compiled wheel; without `MQPROTO_COMPILED` in the environment there is nothing to do here, and
pyproject.toml says it all.

    MQPROTO_COMPILED=1 python -m pip wheel .          the hot modules compiled by mypyc from the very same source

Needs a C compiler and Python's headers. See docs/benchmarks.md for what it brings, and docs/decisions.md D226 for
which modules are compiled. `MYPYC_OPT_LEVEL` (3 unless given) is what the C compiler gets as -O.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Final, NoReturn

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext

PROJECT: Final = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))
#: Paths of the modules to compile.
HOT: Final[list[str]] = PROJECT["tool"]["mqproto"]["compiled"]
#: The release that the sources are checked with.
MYPY: Final = next(each for each in PROJECT["project"]["optional-dependencies"]["dev"] if each.startswith("mypy=="))
#: Nothing of pyproject.toml's: the types are judged elsewhere, and optional packages may be missing here.
OPTIONS: Final = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases"]


def fail(why: str) -> NoReturn:
    sys.exit(f"MQPROTO_COMPILED is set, but {why}")


class BuildCompiled(build_ext):
    """Turns the modules into C and compiles that, once it is certain that something is to be built."""

    def finalize_options(self) -> None:
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "").split()
        if compiler and shutil.which(compiler[0]) is None:
            fail(f"there is no C compiler: {compiler[0]} is not on the PATH")
        if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
            fail("Python's headers are not installed (Debian: python3-dev)")
        try:
            from mypyc.build import mypycify
        except ImportError:
            fail(f"mypyc is not installed: python -m pip install {MYPY}")
        level = os.environ.get("MYPYC_OPT_LEVEL", "3")
        modules = mypycify([*OPTIONS, *HOT], opt_level=level, debug_level="0", group_name="mqproto", multi_file=True)
        self.distribution.ext_modules = modules
        super().finalize_options()


class CompiledDistribution(Distribution):
    """One that has something to compile, although what is not known yet."""

    def has_ext_modules(self) -> bool:
        return True


if not (Path(__file__).parent / "mqproto" / "adapters").is_dir():
    sys.exit(
        "this checkout has no symbolic links: `git config core.symlinks true` and check it out again, or install a"
        " wheel of a release"
    )
if os.environ.get("MQPROTO_COMPILED", "") in ("", "0"):
    setup()
else:
    # so it is found out what a build needs; later on that is there, or it is not
    is_asked = sys.argv[1:2] == ["egg_info"]
    setup(
        distclass=CompiledDistribution, cmdclass={"build_ext": BuildCompiled}, setup_requires=[MYPY] if is_asked else []
    )
