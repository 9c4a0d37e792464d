"""Citations of docs/protocol, its cases and docs/decisions.md: each leads to what the repository holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.protocol_pages import DECISIONS, PROTOCOL, ROOT, cases, citations, decisions, sections, unresolved

FOLDERS: Final = ("mqproto", "engine", "adapters", "tests", "benchmarks", "examples", "scripts", "docs", ".ci")
#: This file has citations that lead nowhere.
OWN: Final = Path(__file__)


def texts() -> Iterator[tuple[Path, str]]:
    """All files that people write, but for data."""
    for path in [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]:
        if path.is_file() and path != OWN and path.suffix in (".py", ".md", ".toml", ".yml", ".sh", ".c", ""):
            yield path, path.read_text(encoding="utf-8")


def test_citations_lead_somewhere() -> None:
    lost = [f"{path.relative_to(ROOT)}:{each}" for path, text in texts() for each in unresolved(text, path.parent)]
    assert lost == []


def test_cases_that_are_named_exist() -> None:
    known = {case.name for case in cases()}
    kinds = "|".join({name.partition("-")[0] for name in known})
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts()
        for name in re.findall(rf"\b(?:{kinds})-\d\d\b", text)
        if name not in known
    ]
    assert lost == []


def test_numbers_of_decisions() -> None:
    """They rise within each section: a new one has the next free number, at the end of its section."""
    assert all(decisions().values())
    for section in DECISIONS.read_text(encoding="utf-8").split("\n## "):
        numbers = [int(number) for number in re.findall(r"^- \*\*D(\d+)\*\* ", section, re.MULTILINE)]
        assert numbers == sorted(numbers)


def test_code_cites_decisions_by_number() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, text in texts()
        if path.suffix == ".py" and path.name != "protocol_pages.py"
        for line, page, cited in citations(text)
        if page == "decisions.md" and not cited
    ]
    assert bare == []


def test_pages_refer_to_their_own_sections() -> None:
    lost = [
        f"{page.name}: §{number}"
        for page in PROTOCOL.glob("*.md")
        for number in re.findall(r"§(\d+(?:\.\d+)*)", page.read_text(encoding="utf-8"))
        if number not in sections(page.name)
    ]
    assert lost == []


#: Texts, and what is missing of what they cite.
EXAMPLES: Final = [
    ("docs/protocol/store.md 13.6", []),
    ("(docs/protocol/client.md 1.2, 4)", []),
    ("docs/protocol/store.md 15 and 1 to 7.", []),
    ("docs/protocol/client.md CI-9: all", []),
    ("docs/protocol/broker.md 2.4, steps 1 to 99", []),
    ("docs/protocol/wire.md, all of it", []),
    ("docs/decisions.md D1", []),
    ("docs/protocol/store.md 99", ["1: docs/protocol/store.md 99"]),
    ("    #: As docs/protocol/store.md\n    #: 13.99 has it", ["1: docs/protocol/store.md 13.99"]),
    ("\n(docs/protocol/client.md 1.2,\n    4.99)", ["2: docs/protocol/client.md 4.99"]),
    ("docs/protocol/client.md 1.2, 4 and 77", ["1: docs/protocol/client.md 77"]),
    ("docs/protocol/client.md CI-99", ["1: docs/protocol/client.md CI-99"]),
    ("docs/decisions.md D1, D9999", ["1: docs/decisions.md D9999"]),
    ("see wire.md 7", ["1: wire.md"]),
    ("see style.md", ["1: style.md"]),
    ("docs/store.md 13.6", ["1: docs/store.md 13.6, a page without numbers"]),
    ("tests/test_citations.py and scripts/none.py", ["1: scripts/none.py"]),
    ("DESIGN 8: what one message costs", ["1: DESIGN"]),
]


@pytest.mark.parametrize(("text", "missing"), EXAMPLES, ids=[text.strip() for text, _ in EXAMPLES])
def test_what_is_missing(text: str, missing: list[str]) -> None:
    assert unresolved(text) == missing
    below = [re.sub(r"^\d+", lambda line: str(int(line[0]) + 2), each) for each in missing]
    assert unresolved(f"A line.\n\n{text}") == below


def test_sections_of_pages() -> None:
    assert {"1", "13", "13.6"} <= sections("store.md")
    assert {"1.9.3", "7", "CI-2"} <= sections("client.md")
