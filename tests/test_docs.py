"""Documentation: what it points at and names exists, and each page says at its beginning what it is for."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mqproto.adapters.cli import build_parser
from tests.test_architecture import CHAINS

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS: Final = ("adapters", "engine", "mqproto", "tests", "examples", "benchmarks", "scripts", "docs")
#: A path from the top of the repository, or of any file of ours by the end of its path.
WHOLE_PATH: Final = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]*)`")
END_OF_PATH: Final = re.compile(r"`([\w./-]*\w\.(?:py|md|toml))`")
COLUMNS: Final = 120

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def parts(page: Path) -> Iterator[tuple[str | None, list[str]]]:
    """The page cut at its fences: the lines of each block of code with their language, those between with None."""
    language: str | None = None
    lines: list[str] = []
    for line in text_of(page).splitlines():
        if line.strip().startswith("```"):
            yield language, lines
            language, lines = (line.strip().removeprefix("```") if language is None else None), []
        else:
            lines.append(line)
    assert language is None, "a block of code that does not end"
    yield None, lines


def blocks(page: Path, *languages: str) -> list[str]:
    """The blocks of code in one of these languages."""
    return ["\n".join(lines) for language, lines in parts(page) if language in languages]


def prose(page: Path) -> Iterator[str]:
    """The lines of a page but for code and tables."""
    return (line for language, lines in parts(page) if language is None for line in lines if line.lstrip()[:1] != "|")


def files() -> list[str]:
    """The files of the repository, but for what lies in its top folder without being documented."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    return [str(path.relative_to(ROOT)) for path in [*found, *ROOT.glob("*.*")] if path.is_file()]


@pytest.fixture(scope="module")
def known() -> list[str]:
    return files()


def headings(page: Path) -> set[str]:
    """The anchors of a page: of each heading its words in lower case, with dashes between."""
    found = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", text_of(page)):
        if not target.startswith("http"):
            leads_to = (page.parent / target).resolve() if target else page
            assert leads_to.exists(), target
            assert not anchor or anchor in headings(leads_to), f"{target}#{anchor}"


@by_page
def test_paths_that_are_named_exist(page: Path, known: list[str]) -> None:
    text = text_of(page)
    for path in WHOLE_PATH.findall(text):
        assert any(True for _ in ROOT.glob(path.rstrip("/"))) or (ROOT / f"{path}.py").exists(), path
    for path in END_OF_PATH.findall(text):
        assert any(f"/{name}".endswith(f"/{path}") for name in known), path


def test_an_end_of_a_path_is_that_of_a_file(known: list[str]) -> None:
    assert END_OF_PATH.findall("`state/gone.py` `pyproject.toml` `a.b`") == ["state/gone.py", "pyproject.toml"]
    assert not any(name.endswith("/state/gone.py") for name in known)


def resolves(name: str) -> bool:
    """Whether a dotted name leads to a module, or to a member of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_names_resolve() -> None:
    assert resolves("mqproto.adapters.threaded.Producer.send")
    assert not resolves("mqproto.adapters.threaded.Producer.sends")
    assert not resolves("mqproto.state.gone")


@by_page
def test_names_of_ours_exist(page: Path) -> None:
    """Modules and their members, in the text and in what its examples import; but the loggers are no modules."""
    loggers = {"mqproto.client", "mqproto.driver", "mqproto.broker", "mqproto.namesrv"}
    text = text_of(page)
    if page.name == "CHANGELOG.md":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    for name in re.findall(r"`(mqproto(?:\.\w+)+)`", text):
        assert name in loggers or resolves(name), name
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "mqproto":
                for alias in node.names:
                    assert resolves(f"{node.module}.{alias.name}"), f"{node.module}.{alias.name}"


def test_the_changelog_names_what_there_is() -> None:
    """The right column of its tables: the new name of everything that was renamed."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    names = [name for _, new in rows for name in re.findall(r"`(mqproto(?:\.\w+)*)`", new)]
    assert len(names) > 10
    assert [name for name in names if not resolves(name)] == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_classes_that_are_named_exist(name: str, known: list[str]) -> None:
    """Pages about the code name its classes as they are called."""
    sources = "\n".join(
        text_of(ROOT / each) for each in known if each.endswith(".py") and each.split("/")[0] in FOLDERS[:4]
    )
    defined = set(re.findall(r"^ *class (\w+)|^(\w+)(?::[^=\n]*)? = ", sources, re.MULTILINE))
    classes = {one or other for one, other in defined}
    named = set(re.findall(r"`([A-Z][a-z]\w*[A-Za-z])(?:\(\w*\))?`", text_of(ROOT / name)))
    assert sorted(named - classes) == []


@by_page
def test_command_lines_are_ours(page: Path) -> None:
    """What a page gives to our command line is what it takes, and scripts lie where they are called."""
    text = "\n".join(blocks(page, "sh", "")).replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:3] in (["python3", "-m", "adapters"], ["python3", "-m", "mqproto"]):
            words = words[3:]
        elif words[:1] == ["mqproto"]:
            words = words[1:]
        else:
            for word in words:
                if word.split("/")[0] in ("tests", "benchmarks", "scripts") and "/" in word:
                    assert (ROOT / word.partition("::")[0]).exists(), line
            continue
        build_parser().parse_args(words)


@by_page
def test_code_is_python(page: Path) -> None:
    """Whether it also does what it says is a matter of the page's own tests."""
    for code in blocks(page, "python"):
        compile(code, page.name, "exec")


@by_page
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    title, _, rest = text_of(page).partition("\n\n")
    assert title.startswith("# ")
    assert "\n" not in title
    assert rest[0].isalnum() or rest[0] == "`", "a sentence"


@by_page
def test_lines_are_short(page: Path) -> None:
    """But for tables, code and what cannot be cut: one word, one piece of code."""
    whole = re.compile(r"\s*(?:\S+|`[^`]*`)")
    assert [line for line in prose(page) if len(line) > COLUMNS and not whole.fullmatch(line)] == []


def test_every_page_can_be_reached() -> None:
    """From the README, step by step."""
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            ahead += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:\s]+)", text_of(page))]
    assert set(PAGES) <= seen


def test_architecture_names_every_room() -> None:
    """In the first column of its tables of rooms, in an order that the chains allow."""
    page = text_of(ROOT / "docs" / "architecture.md").split("## Rooms")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
    named = [path.rstrip("/") for cell in cells for path in re.findall(r"`(.*?)`", cell)]
    rooms = {
        str(path.parent.relative_to(ROOT))
        for floor in ("mqproto", "engine", "adapters")
        for path in (ROOT / floor).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert sorted(named) == sorted(rooms)
    for floor, chain in CHAINS.items():
        levels = {f"{floor}/{room}".rstrip("/"): level for level, beside in enumerate(chain) for room in beside}
        found = [(levels[room], room) for room in named if room in levels]
        assert found == sorted(found, key=lambda pair: pair[0]), floor
