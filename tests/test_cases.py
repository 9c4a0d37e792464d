"""Faults that people reported against other clients and brokers: each that could be ours is the business of some test.

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

TESTS: Final = Path(__file__).parent

#: By kind. Left out are those of what our brokers do not have: replicas (HA), and accounts with lists of addresses
#: (ACL-06, ACL-07).
NUMBERS: Final = {
    "COD": (1, 3, 5, 6, 8, 10, 11, 12, 13),  # codec and connection
    "MSG": (1, 3, 4, 6, 8, 9, 11, 12, 14),  # message encoding
    "LIM": (1,),  # limits and names
    "NSP": (1,),  # namespaces
    "PRO": (1, 3, 5, 7, 8, 9, 10, 11),  # producer
    "CON": (1, 3, 4, 6, 8, 9, 10, 12, 13, 14, 16, 17, 19, 20, 21),  # consumer
    "BRO": (1, 2, 3, 5),  # broadcasting
    "REB": (1, 3, 5, 6, 8, 9),  # rebalancing and offsets
    "ORD": (1, 3, 5),  # order
    "TXN": (1, 3, 5, 6, 8),  # transactions
    "DLY": (1, 3, 4),  # delay
    "STO": (1, 3, 5, 6),  # store
    "REC": (1, 3, 5, 6, 8, 10),  # recovery
    "NSV": (1, 3, 5),  # name server
    "ACL": (1, 3, 5),  # access control
    "FLT": (1, 3, 5),  # filters
    "ADM": (1, 3, 5, 6),  # admin and dead letters
    "TRC": (1, 3, 4),  # trace
    "TLS": (1,),  # TLS
}
CASES: Final = [f"{kind}-{number:02}" for kind, numbers in NUMBERS.items() for number in numbers]
#: Of which clients see nothing. All others are named by tests of clients too, or of what clients are made of.
OF_SERVERS: Final = frozenset(
    {
        *(case for case in CASES if case.startswith(("DLY", "REC"))),
        *(
            "COD-12",
            "MSG-12",
            "CON-04",
            "REB-03",
            "REB-08",
            "REB-09",
            "TXN-01",
            "TXN-03",
            "TXN-08",
            "STO-03",
            "STO-05",
            "ADM-05",
        ),
    }
)

_NAMED: Final = re.compile(rf"\b(?:{'|'.join(NUMBERS)})-\d\d\b")


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


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_a_test(named: dict[str, set[str]], case: str) -> None:
    assert named[case], "no docstring of a test names it"


@pytest.mark.parametrize("case", [case for case in CASES if case not in OF_SERVERS])
def test_cases_of_clients_have_tests_of_clients(named: dict[str, set[str]], case: str) -> None:
    assert any(not path.startswith("engine/") for path in named[case]), (
        f"only tests of servers name it: {sorted(named[case])}"
    )


def test_tests_name_cases_that_there_are(named: dict[str, set[str]]) -> None:
    assert {case: paths for case, paths in named.items() if paths and case not in CASES} == {}
