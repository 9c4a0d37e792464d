"""Recipes of CONTRIBUTING.md: what has to be named in several places is named in all of them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import mqproto.adapters.threaded
from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.cli.servers import ADAPTERS
from tests.adapters import kinds
from tests.adapters.cli import test_cli
from tests.adapters.harness import NAMES
from tests.adapters.test_same_names import OTHERS
from tests.test_architecture import CHAINS, FILE_LINES_MAX, FUNCTION_LINES_MAX, MODULES_MAX, OPTIONAL, RUNTIMES

ROOT = Path(__file__).parent.parent


def packages() -> set[str]:
    """The packages of real time that have public clients."""
    found = [
        path.parent.name for path in (ROOT / "adapters").glob("*/__init__.py") if '"PushConsumer"' in path.read_text()
    ]
    return set(found)


def test_every_runtime_is_in_all_tables() -> None:
    assert "threaded" in packages()
    others = packages() - {"threaded"}
    assert {module.__name__.rpartition(".")[2] for module in OTHERS} == others
    assert set(RUNTIMES) == others
    assert {f"mqproto.adapters.{name}" for name in others} <= set(OPTIONAL)
    assert packages() <= {room for rooms in CHAINS["adapters"] for room in rooms}
    assert {module.split(".")[2] for module, _ in ADAPTERS.values()} == packages()
    assert list(ADAPTERS) == list(NAMES) == test_cli.ADAPTERS


def test_every_kind_of_client_is_tried_in_the_suites_of_all_kinds() -> None:
    public = {
        one
        for name in mqproto.adapters.threaded.__all__
        if inspect.isclass(one := getattr(mqproto.adapters.threaded, name)) and issubclass(one, BaseClient)
    }
    assert len(public) >= 7
    assert {getattr(mqproto.adapters.threaded, name) for name in kinds.MAKERS} == public
    assert kinds.MAKERS.keys() == kinds.USES.keys()


def test_the_numbers_of_the_page_are_those_of_the_tests() -> None:
    """How large a folder, a file and a function may be."""
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    found = re.search(r"at most (\d+) modules, a file (\d+) lines, a function (\d+) lines", text)
    assert found is not None
    assert tuple(map(int, found.groups())) == (MODULES_MAX, FILE_LINES_MAX, FUNCTION_LINES_MAX)
