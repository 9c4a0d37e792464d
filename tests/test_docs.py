"""What the documentation points at is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
NAMED: Final = re.compile(r"`((?:adapters|engine|mqproto|tests|examples|benchmarks|scripts)/[\w./*-]*)`")
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def headings(page: Path) -> set[str]:
    """The anchors of a page: of each heading its words in lower case, with dashes between."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            leads_to = (page.parent / target).resolve() if target else page
            assert leads_to.exists(), target
            assert not anchor or anchor in headings(leads_to), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    for path in NAMED.findall(page.read_text(encoding="utf-8")):
        assert any(True for _ in ROOT.glob(path.rstrip("/"))) or (ROOT / f"{path}.py").exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_is_python(page: Path) -> None:
    """Whether it also does what it says is a matter of the page's own tests."""
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        compile(code, page.name, "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_end_at_120_columns(page: Path) -> None:
    """So that one reads them in an editor, and a change shows as a small difference. Tables, code, links and words that
    cannot be broken are as long as they are.
    """
    prose = re.sub(
        r"^ *```.*?^ *```", lambda code: "\n" * code.group().count("\n"), page.read_text("utf-8"), flags=re.S | re.M
    )
    long = [
        (number, line)
        for number, line in enumerate(prose.splitlines(), 1)
        if len(line) > 120
        and not line.startswith(("|", "    "))
        and "](" not in line
        and max(map(len, line.split())) < 100
    ]
    assert long == []


def test_every_page_can_be_reached() -> None:
    """From the README, step by step."""
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            ahead += [
                (page.parent / target).resolve()
                for target in re.findall(r"\]\(([^)#:]+)", page.read_text(encoding="utf-8"))
            ]
    assert set(PAGES) <= seen
