"""The compiled wheel: it is built from a copy of this checkout, unpacked, and the tests of what is in it run there.

Minutes of work, so by itself: `python -m pytest -m compiled`. Needs a C compiler and Python's headers. With
MQPROTO_WHEELS, a folder that `scripts/wheels` filled, it is the one from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compiled, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parent.parent
SOURCE = ["mqproto", "engine", "adapters", "README.md", "LICENSE", "pyproject.toml", "setup.py"]
#: What the tests need beside the packages.
BESIDE = ["tests", "docs", "examples", "benchmarks", "scripts", "README.md", "pyproject.toml", "setup.py", "LICENSE"]
#: What is tried on compiled modules: the tests of these, and some of all that stands on them.
TRIED = [
    *(f"tests/mqproto/test_{name}.py" for name in ("codec", "frames", "message")),
    *(f"tests/mqproto/wire/test_{name}.py" for name in ("batch", "ids", "properties", "record", "registration_body")),
    "tests/mqproto/state",
    "--ignore=tests/mqproto/state/admin",
    "--ignore=tests/mqproto/state/conformance",
    "tests/engine/broker",
    "tests/engine/namesrv/test_node.py",
    "tests/engine/store",
    "--ignore=tests/engine/store/doctor",
    "tests/engine/test_metrics.py",
    "tests/engine/test_requests.py",
    "tests/adapters/clients/test_clients.py",
    "tests/adapters/clients/test_producers.py",
    "tests/adapters/clients/test_push_consumer.py",
    "tests/adapters/io/drivers",
]


def build(source: Path, to: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Make a wheel of the tree at `source`, without the network."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(to),
        str(source),
    ]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def copy(names: list[str], to: Path) -> Path:
    """Copy parts of the checkout, without what was made in it."""
    to.mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
            )
        else:
            shutil.copy(ROOT / name, to / name)
    return to


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel brings, with the tests beside it."""
    folder = tmp_path_factory.mktemp("compiled")
    made = folder
    if given := os.environ.get("MQPROTO_WHEELS"):
        made = Path(given)
    else:
        built = build(copy(SOURCE, folder / "source"), folder, MQPROTO_COMPILED="1", MYPYC_OPT_LEVEL="1")
        assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (each for each in made.glob("*.whl") if not each.name.endswith("-py3-none-any.whl"))
    found = copy(BESIDE, folder / "tree")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(found)
    return found


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=tree, capture_output=True, text=True, check=False)


def test_it_says_what_it_is(tree: Path) -> None:
    assert ", compiled)" in run(tree, "-m", "mqproto", "version").stdout
    assert ", compiled)" not in run(ROOT, "-m", "adapters", "version").stdout


def test_every_hot_module_is_compiled_and_in_the_wheel_as_source_too(tree: Path) -> None:
    modules = sorted(
        str(path.relative_to(tree)).removesuffix(EXTENSION_SUFFIXES[0])
        for path in tree.glob("*/**/*" + EXTENSION_SUFFIXES[0])
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert modules == sorted(each.removesuffix(".py") for each in project["tool"]["mqproto"]["compiled"])
    for each in modules:
        assert (tree / f"{each}.py").read_bytes() == (ROOT / f"{each}.py").read_bytes()


def test_its_tests(tree: Path) -> None:
    tests = run(
        tree,
        "-m",
        "pytest",
        "-m",
        "not peer",
        "-n",
        os.environ.get("TEST_WORKERS", "2"),
        "-p",
        "no:cacheprovider",
        *TRIED,
    )
    assert tests.returncode == 0, tests.stdout[-20_000:] + tests.stderr[-2000:]


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ("CC", "there is no C compiler: no-such-compiler is not on the PATH"),
        ("PYTHONPATH", "mypyc is not installed: python -m pip install mypy=="),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, lacks: str, why: str) -> None:
    (tmp_path / "mypyc.py").write_text("raise ImportError\n")
    built = build(
        copy(SOURCE, tmp_path / "source"),
        tmp_path,
        MQPROTO_COMPILED="1",
        **{lacks: {"CC": "no-such-compiler"}.get(lacks, str(tmp_path))},
    )
    assert built.returncode != 0
    assert f"MQPROTO_COMPILED is set, but {why}" in built.stdout + built.stderr


def test_the_usual_wheel_is_pure(tmp_path: Path) -> None:
    source = copy(SOURCE, tmp_path / "source")
    built = build(source, tmp_path, MQPROTO_COMPILED="")
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
