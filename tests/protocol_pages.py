"""Pages that comments cite: the sections of docs/protocol, its cases, the decisions, and the citations themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PROTOCOL: Final = ROOT / "docs" / "protocol"
DECISIONS: Final = ROOT / "docs" / "decisions.md"

#: A line may end inside a citation; the next one of a comment begins with its sign.
_GAP: Final = r"(?:[ \t]*\n[ \t]*(?:#:?[ \t]*)?|[ \t]+)"
_JOIN: Final = rf"(?:,{_GAP}(?:and{_GAP})?|{_GAP}(?:and|to){_GAP})"
_SECTION: Final = r"(?:CI-\d+|\d+(?:\.\d+)*)(?!\w)"
_CITED: Final = re.compile(
    rf"docs/protocol/(?P<page>[\w-]+\.\w+)(?P<sections>{_GAP}{_SECTION}(?:{_JOIN}{_SECTION})*)?"
    rf"|docs/decisions\.md(?P<decisions>{_GAP}D\d+(?:{_JOIN}D\d+)*)?"
)
#: A page that a text names, with whatever folders stand before it and a number behind it. What is quoted is a path of
#: a program, and tests/test_docs.py follows links.
_NAMED: Final = re.compile(
    rf"(?<![\w/.#*-])((?:[\w.-]+/)*[\w-]+\.md)\b(?!\"|\]\()(?:{_GAP}(?:§{_GAP}?)?(\d+(?:\.\d+)*)(?!\w))?"
)
#: A module or script that a text names by its path from the root.
_PATH: Final = re.compile(
    r"(?<![\w/.])(?:adapters|engine|mqproto|tests|examples|benchmarks|scripts)/[\w./-]*\w\.(?:py|json|txt)\b"
)
#: Documents that are no part of the repository, by names that look like none.
_FOREIGN: Final = re.compile(r"\bDESIGN\b")


@dataclass(frozen=True)
class Case:
    """A report of docs/protocol/cases.md."""

    name: str
    servers_only: bool
    ours: bool


@cache
def sections(page: str) -> frozenset[str]:
    """The numbers of the headings of a page of docs/protocol, and the rules that have a name there."""
    text = (PROTOCOL / page).read_text(encoding="utf-8")
    numbers = re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)
    rules = re.findall(r"^(?:\| )?(CI-\d+)\b", text, re.MULTILINE)
    return frozenset([*numbers, *rules])


@cache
def cases() -> tuple[Case, ...]:
    text = (PROTOCOL / "cases.md").read_text(encoding="utf-8")
    found = re.findall(r"^### ([A-Z]{2,3}-\d\d)\n\n(.+(?:\n.+)*)", text, re.MULTILINE)
    return tuple(
        Case(name, "servers" in words, not any(word.startswith("not ours: ") for word in words))
        for name, line in found
        for words in [" ".join(line.split()).split(" · ")]
    )


@cache
def decisions() -> dict[str, str]:
    """The decisions of docs/decisions.md by number, each on one line."""
    found = re.findall(r"^- (.*\n(?:  .*\n)*)", DECISIONS.read_text(encoding="utf-8"), re.MULTILINE)
    entries = [re.fullmatch(r"\*\*(D\d+)\*\* (.*)", " ".join(each.split())) for each in found]
    numbered = {entry[1]: entry[2] for entry in entries if entry}
    assert len(numbered) == len(found), "each entry of docs/decisions.md has a number of its own"
    return numbered


def citations(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line, page (from docs/) and sections of each citation of a text."""
    for found in _CITED.finditer(text):
        page = f"protocol/{found['page']}" if found["page"] else "decisions.md"
        cited = re.findall(r"CI-\d+|D\d+|\d+(?:\.\d+)*", found["sections"] or found["decisions"] or "")
        yield text.count("\n", 0, found.start()) + 1, page, cited


def unresolved(text: str, folder: Path = ROOT) -> list[str]:
    """What a text of a folder cites and the repository does not hold."""
    missing = []
    for line, page, cited in citations(text):
        path = ROOT / "docs" / page
        if not path.exists():
            missing.append(f"{line}: docs/{page}")
        elif page == "decisions.md":
            missing += [f"{line}: docs/{page} {each}" for each in cited if each not in decisions()]
        else:
            missing += [f"{line}: docs/{page} {each}" for each in cited if each not in sections(path.name)]
    for found in _NAMED.finditer(text):
        name, number = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        paths = [base / name for base in (ROOT, folder) if (base / name).exists()]
        if not paths:
            missing.append(f"{line}: {name}")
        elif number is not None and paths[0].resolve().parent != PROTOCOL:
            missing.append(f"{line}: {name} {number}, a page without numbers")
    for found in _PATH.finditer(text):
        if not (ROOT / found[0]).exists():
            missing.append(f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]}")
    missing += [f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in _FOREIGN.finditer(text)]
    return missing
