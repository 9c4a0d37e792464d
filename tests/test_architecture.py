"""The arrows of the house: who may import whom, and that the core is pure (docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
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
#: Optional compression libraries, imported where a body needs them (extra `compression`).
COMPRESSION = frozenset({"lz4", "zstandard"})
#: What single modules of `mqproto` may import besides. mypy_extensions is for type checkers alone; `__main__` is the
#: door of the command line.
EXTRA = {
    "mqproto/wire/compression.py": COMPRESSION,
    "mqproto/compiling.py": frozenset({"mypy_extensions"}),
    "mqproto/__main__.py": frozenset({"importlib", "runpy", "sys"}),
}

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
                for alias in node.names:
                    yield f"{module}.{alias.name}", node.lineno
            case ast.ImportFrom():
                raise AssertionError(f"{path}:{node.lineno}: relative import; write the whole name")
            case _:
                pass


def allowed(path: Path) -> frozenset[str]:
    """Root packages that a module may import."""
    place = path.relative_to(ROOT).as_posix()
    if place.startswith("engine/store/"):
        return PURE | FILES | {"mqproto"}
    return PURE | EXTRA.get(place, frozenset()) | {"mqproto"}


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


#: Words that a docstring of a module or class does not begin with: the thing itself comes first.
QUESTIONS = {"What", "Who", "Whose", "How", "When", "Where", "Which", "Whether", "Why"}


def test_docstrings_begin_with_the_thing() -> None:
    """As in a reference work: one finds an entry by its noun ("Registry of consumer groups: ...")."""
    questions = []
    for path in modules("mqproto") + modules("engine") + modules("adapters"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {"module": ast.get_docstring(tree)}
        texts |= {node.name: ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for name, text in texts.items():
            if text and text.split()[0] in QUESTIONS:
                questions.append(f"{path.relative_to(ROOT)}: {name}")
    assert questions == []


#: The rooms of each floor from the ground up, those of one line beside each other. A module knows its own room and the
#: lines below it. A single module may stand where a room does.
CHAINS = {
    "mqproto": [
        ["wire/codes", "wire/flags", "wire/hosts", "wire/names", "wire/properties", "wire/record_layout"],
        ["wire/ids"],
        ["message"],
        ["errors"],
        ["wire/fastjson", "wire/filters", "wire/headers"],
        ["wire/bodies", "wire/frame"],
        ["wire"],
        [""],
        ["state"],
    ],
    "mqproto/state": [
        ["node"],
        ["flows"],
        ["cluster"],
        ["producer"],
        ["client"],
        ["consumer"],
        ["consumer/allocation"],
        ["consumer/push", "consumer/pull"],
        ["admin"],
    ],
    "engine/store": [
        ["errors", "layout", "report", "results"],
        ["settings"],
        ["disk"],
        ["log", "queues"],
        ["index"],
        ["flush"],
        ["reads", "recovery", "retention"],
        [""],
    ],
    "engine/store/doctor": [["views"], ["checks"], [""]],
    # What handlers are given is described and kept below all that use it: interfaces, tables, statistics.
    "engine/broker": [
        ["interfaces"],
        ["tables", "statistics"],
        ["filters"],
        ["core"],
        ["sends"],
        ["transactions", "registration", "pulls", "clients"],
        ["operators"],
        [""],
    ],
    "adapters": [
        ["io"],
        ["base/hooks", "base/settings"],
        ["base", "servers"],
        ["sync", "coroutines", "simulated"],
        ["threaded", "gevent", "anyio"],
        ["cli"],
        ["cli/store"],
        [""],
    ],
}
#: The floors: what is below which folder may import what is below which others.
FLOORS = {
    "mqproto": [],
    "engine": ["mqproto"],
    "engine/store": ["mqproto", "engine"],
    "engine/namesrv": ["mqproto", "engine"],
    "engine/broker": ["mqproto", "engine", "engine/store"],
    "adapters": ["mqproto", "engine", "engine/store", "engine/broker", "engine/namesrv"],
}


def place_of(name: str) -> str | None:
    """The folder or module that a dotted name of ours leads to."""
    if name.split(".")[0] != "mqproto":
        return None
    parts = name.split(".")
    if parts[1:2] in (["adapters"], ["engine"]):
        parts = parts[1:]
    while parts:
        path = ROOT.joinpath(*parts)
        if (path / "__init__.py").exists() or path.with_suffix(".py").exists():
            return "/".join(parts)
        parts.pop()
    raise AssertionError(f"{name} leads nowhere")


def longest(folders: Iterable[str], place: str) -> str | None:
    """The innermost of some folders that a place lies in."""
    return max((each for each in folders if f"{place}/".startswith(f"{each}/")), key=len, default=None)


@pytest.mark.parametrize("floor", FLOORS)
def test_floors(floor: str) -> None:
    for path in modules(floor):
        if longest(FLOORS, path.parent.relative_to(ROOT).as_posix()) != floor or path == ROOT / "mqproto/__main__.py":
            continue
        for name, line in imported(path):
            target = place_of(name)
            if target is not None:
                other = longest(FLOORS, target)
                assert other == floor or other in FLOORS[floor], f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("floor", CHAINS)
def test_rooms(floor: str) -> None:
    """What does not wait knows nothing of what does, what serves two runtimes knows neither."""
    levels = {f"{floor}/{room}".rstrip("/"): level for level, rooms in enumerate(CHAINS[floor]) for room in rooms}
    for path in modules(floor):
        place = path.with_suffix("").relative_to(ROOT).as_posix()
        room = longest(levels, place)
        if room is None or path.name == "__init__.py" or longest(CHAINS, place) != floor:
            continue
        for name, line in imported(path):
            target = place_of(name)
            other = None if target is None else longest(levels, target)
            if other is not None and other != room and longest(CHAINS, target or "") in (floor, other):
                assert levels[other] < levels[room], f"{path}:{line}: {room} imports {name}"


MODULES_MAX = 16
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500


def test_sizes() -> None:
    """A folder that one looks through at a glance, a file that one reads in one go, a function that one sees whole."""
    large = []
    for floor in ("mqproto", "engine", "adapters"):
        for folder in sorted({path.parent for path in modules(floor)}):
            found = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
            if found > MODULES_MAX:
                large.append(f"{folder.relative_to(ROOT)}: {found} modules")
        for path in modules(floor):
            text = path.read_text(encoding="utf-8")
            if text.count("\n") > FILE_LINES_MAX:
                large.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = (node.end_lineno or 0) - node.lineno + 1
                    if lines > FUNCTION_LINES_MAX:
                        large.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines} lines")
    assert large == []


#: A public class has a name of its own, so that it is found by it and a traceback can be read. What a runtime offers
#: has the names of the other runtimes: clients, servers, futures, drivers.
RUNTIME_FOLDERS = ("adapters/anyio", "adapters/coroutines", "adapters/gevent", "adapters/threaded")


def test_public_classes_have_names_of_their_own() -> None:
    places: dict[str, set[str]] = {}
    for path in modules("mqproto") + modules("engine") + modules("adapters"):
        place = path.relative_to(ROOT).as_posix()
        home = "a runtime" if place.startswith(RUNTIME_FOLDERS) else place
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(home)
    assert {name: sorted(homes) for name, homes in places.items() if len(homes) > 1} == {}


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


#: Folders of modules that need a package.
OPTIONAL = ("mqproto.adapters.gevent", "mqproto.adapters.anyio", "mqproto.adapters.coroutines")


def test_base_install_needs_no_package() -> None:
    """Importing the base of the house works with the standard library alone (`-S` hides site-packages)."""
    code = (
        "import importlib, pkgutil, sys\n"
        "import mqproto\n"
        "for found in pkgutil.walk_packages(mqproto.__path__, 'mqproto.', onerror=print):\n"
        f"    if not found.name.startswith({OPTIONAL!r}):\n"
        "        importlib.import_module(found.name)\n"
        "print(len(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 300
