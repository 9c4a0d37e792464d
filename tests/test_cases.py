"""Cases of public reports (docs/protocol/cases.md): each that could be ours is the business of some test.

A test names the case in its docstring. This module only sees to it that none loses its last test.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.protocol_pages import PROTOCOL, cases

TESTS: Final = Path(__file__).parent

#: Each case of docs/protocol/cases.md that some part of ours is concerned with.
OURS: Final = [case for case in cases() if case.ours]
_NAMED: Final = re.compile(rf"\b(?:{'|'.join(sorted({case.name.partition('-')[0] for case in cases()}))})-\d\d\b")


def docstrings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    """Where each case is named."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for text in docstrings(path):
            for case in _NAMED.findall(text):
                found[case].add(path.relative_to(TESTS).as_posix())
    return found


@pytest.mark.parametrize("case", [case.name for case in OURS])
def test_each_case_has_a_test(named: dict[str, set[str]], case: str) -> None:
    assert named[case], "no docstring of a test names it"


@pytest.mark.parametrize("case", [case.name for case in OURS if not case.servers_only])
def test_cases_of_clients_have_tests_of_clients(named: dict[str, set[str]], case: str) -> None:
    assert any(not path.startswith("engine/") for path in named[case]), (
        f"only tests of servers name it: {sorted(named[case])}"
    )


def test_tests_name_cases_that_there_are(named: dict[str, set[str]]) -> None:
    ours = {case.name for case in OURS}
    assert {case: paths for case, paths in named.items() if paths and case not in ours} == {}


def test_the_page_of_cases_is_read_whole() -> None:
    """Each heading of the third level is a case; those that are not ours are few."""
    headings = re.findall(r"^### (.*)$", (PROTOCOL / "cases.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [case.name for case in cases()] == headings
    assert len(headings) == len(set(headings)) == 95
    assert [case.name for case in cases() if not case.ours] == ["HA-01", "HA-03", "ACL-06", "ACL-07"]
