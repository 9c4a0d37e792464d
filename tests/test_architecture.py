"""The arrows of the house: who may import whom, and that the core is pure (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: What the floors may take from the standard library. Nothing here does I/O, keeps time or is random.
PURE = frozenset(
    [
        "__future__",
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "calendar",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "io",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
        "unicodedata",
        "zlib",
    ]
)
#: The store is the only place that touches files.
FILES = frozenset(["os", "mmap", "fcntl", "msvcrt", "errno", "stat", "pathlib", "shutil", "ctypes"])
#: Optional compression libraries, imported where a body needs them (DESIGN: extra `compression`).
COMPRESSION = frozenset({"lz4", "zstandard"})
#: What single modules of `mqproto` may import besides. mypy_extensions is for type checkers alone.
EXTRA = {"compression.py": COMPRESSION, "compiling.py": frozenset({"mypy_extensions"})}

FORBIDDEN = frozenset(
    [
        "time",
        "socket",
        "threading",
        "asyncio",
        "select",
        "selectors",
        "random",
        "secrets",
        "multiprocessing",
        "subprocess",
        "queue",
        "signal",
        "concurrent",
        "gevent",
        "anyio",
        "trio",
        "uuid",
        "ssl",
        "socketserver",
        "tempfile",
        "logging",
    ]
)


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no modules under {folder}"
    return found


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that a module imports, anywhere in it, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield alias.name, node.lineno
            case ast.ImportFrom(module=str(module), level=0):
                yield module, node.lineno
                for alias in node.names:
                    yield f"{module}.{alias.name}", node.lineno
            case ast.ImportFrom():
                raise AssertionError(f"{path}:{node.lineno}: relative import; write the whole name")
            case _:
                pass


def allowed(path: Path) -> frozenset[str]:
    """Root packages that a module may import."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "mqproto":
        extra = EXTRA.get(parts[-1], frozenset()) if len(parts) == 2 else frozenset()
        return PURE | extra | {"mqproto"}
    if parts[:2] == ("engine", "store"):
        return PURE | FILES | {"mqproto", "engine"}
    return PURE | {"mqproto", "engine"}


@pytest.mark.parametrize("path", modules("mqproto") + modules("engine"), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_is_pure(path: Path) -> None:
    for name, line in imported(path):
        root = name.partition(".")[0]
        assert root in allowed(path), f"{path}:{line}: imports {name}"
        assert root not in FORBIDDEN, f"{path}:{line}: imports {name}"
        assert not name.startswith("os.environ"), f"{path}:{line}: reads the environment"
    assert "os.environ" not in path.read_text(encoding="utf-8"), f"{path}: reads the environment"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("mqproto", "engine", "adapters")
        for path in modules(folder)
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert silent == []


def test_store_stands_alone() -> None:
    """The store knows nothing of brokers and name servers, and these two nothing of each other."""
    for folder, strangers in (
        ("engine/store", ("mqproto.engine.broker", "mqproto.engine.namesrv", "mqproto.state")),
        ("engine/broker", ("mqproto.engine.namesrv",)),
        ("engine/namesrv", ("mqproto.engine.broker", "mqproto.engine.store")),
    ):
        for path in modules(folder):
            for name, line in imported(path):
                if name == "mqproto.state" or name.startswith("mqproto.state.node.contract"):
                    continue
                assert not name.startswith(strangers), f"{path}:{line}: imports {name}"


#: Inside the floors: what the modules that match may not know, because it stands on them or beside them.
STOREYS = [
    ("mqproto/[!_]*.py", ("mqproto.state",)),  # `mqproto` itself hands out names of all its modules
    ("mqproto/*/*.py", ("mqproto.state",)),
    ("engine/*.py", ("mqproto.engine.broker", "mqproto.engine.namesrv", "mqproto.engine.store")),
    ("engine/store/*.py", ("mqproto.engine.store.doctor",)),
    (
        "adapters/[!_]*.py",
        (
            "mqproto.adapters.base",
            "mqproto.adapters.sync",
            "mqproto.adapters.threaded",
            "mqproto.adapters.gevent",
            "mqproto.adapters.anyio",
            "mqproto.adapters.cli",
        ),
    ),
    (
        "adapters/faces/*.py",
        (
            "mqproto.adapters.sync",
            "mqproto.adapters.threaded",
            "mqproto.adapters.gevent",
            "mqproto.adapters.anyio",
            "mqproto.adapters.cli",
        ),
    ),
    (
        "adapters/sync/*.py",
        ("mqproto.adapters.threaded", "mqproto.adapters.gevent", "mqproto.adapters.anyio", "mqproto.adapters.cli"),
    ),
    ("adapters/threaded/*.py", ("mqproto.adapters.gevent", "mqproto.adapters.anyio", "mqproto.adapters.cli")),
    ("adapters/gevent/*.py", ("mqproto.adapters.threaded", "mqproto.adapters.anyio", "mqproto.adapters.cli")),
    (
        "adapters/anyio/*.py",
        ("mqproto.adapters.threaded", "mqproto.adapters.gevent", "mqproto.adapters.sync", "mqproto.adapters.cli"),
    ),
    (
        "adapters/simulated/*.py",
        (
            "mqproto.adapters.threaded",
            "mqproto.adapters.gevent",
            "mqproto.adapters.sync",
            "mqproto.adapters.anyio",
            "mqproto.adapters.cli",
        ),
    ),
]


@pytest.mark.parametrize(("pattern", "strangers"), STOREYS, ids=[pattern for pattern, _ in STOREYS])
def test_arrows_inside_a_floor(pattern: str, strangers: tuple[str, ...]) -> None:
    """What does not wait knows nothing of what does, what serves two runtimes knows neither."""
    found = [path for path in sorted(ROOT.glob(pattern)) if path.parts[-3:-1] != ("mqproto", "state")]
    assert found
    for path in found:
        for name, line in imported(path):
            assert not f"{name}.".startswith(tuple(f"{stranger}." for stranger in strangers)), (
                f"{path}:{line}: imports {name}"
            )


def test_every_machine_is_on_the_map() -> None:
    """The table of `mqproto/state` in docs/architecture.md."""
    _, _, table = (
        (ROOT / "docs" / "architecture.md")
        .read_text(encoding="utf-8")
        .partition("| what | modules of `mqproto/state` |")
    )
    named = set(re.findall(r"`(\w+)/?`", table.partition("\n\n")[0]))
    assert named == {path.stem for path in (ROOT / "mqproto" / "state").iterdir()} - {"__init__", "__pycache__"}


RUNTIMES = {"gevent": {"gevent", "greenlet"}, "anyio": {"anyio", "trio", "asyncio", "uvloop", "sniffio"}}


def test_runtimes_do_not_mix() -> None:
    """A runtime's library is imported by its own adapter alone, so that the others start without it."""
    for path in modules("adapters"):
        home = path.relative_to(ROOT).parts[1]
        for name, line in imported(path):
            for runtime, libraries in RUNTIMES.items():
                if home != runtime and name.partition(".")[0] in libraries:
                    raise AssertionError(f"{path}:{line}: imports {name} outside adapters/{runtime}")


def test_adapters_know_no_request_code() -> None:
    for path in modules("adapters"):
        for name, line in imported(path):
            assert not name.startswith(("mqproto.wire.codes.RequestCode", "mqproto.wire.headers")), (
                f"{path}:{line}: protocol in an adapter ({name})"
            )


@pytest.mark.parametrize("package", ["mqproto", "engine", "mqproto.adapters.threaded", "mqproto.adapters.cli"])
def test_base_install_needs_no_package(package: str) -> None:
    """Importing the base of the house works with the standard library alone (`-S` hides site-packages)."""
    code = (
        "import importlib, pkgutil, sys\n"
        f"top = importlib.import_module({package!r})\n"
        "for found in pkgutil.walk_packages(top.__path__, top.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
