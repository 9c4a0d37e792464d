"""The packages of all runtimes have the same names with the same arguments; where waiting is awaited, the methods that
wait are coroutine functions, and what gives a future elsewhere is missing.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any, Final

import pytest

import mqproto.adapters.anyio
import mqproto.adapters.gevent
import mqproto.adapters.threaded

OTHERS: Final = [mqproto.adapters.gevent, mqproto.adapters.anyio]
NAMES: Final = sorted(set(mqproto.adapters.threaded.__all__) - {"Driver"})
#: What gives a future; with tasks nobody needs it.
FUTURES: Final = {
    "Producer": {"submit", "submit_request"},
    "TransactionProducer": {"submit", "submit_request"},
    "PullConsumer": {"pull_async", "pull_block_if_not_found_async"},
    "LitePullConsumer": {"commit_async"},
}
#: How plain calls spell what tasks spell in another way.
SPELLINGS: Final = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}


def methods(kind: type) -> dict[str, Any]:
    """What users call or read, by the name that it has with threads."""
    plain = {there: here for here, there in SPELLINGS.items()}
    wanted = {"__init__", *plain, *plain.values()}
    found = inspect.getmembers(kind, callable)
    return {plain.get(name, name): one for name, one in found if name in wanted or not name.startswith("_")}


def arguments(function: Any) -> list[tuple[str, Any, Any, str]]:
    """Name, kind, default and type of each."""
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default, str(one.annotation)) for one in found]


@pytest.mark.parametrize("other", OTHERS, ids=lambda module: module.__name__)
def test_packages_have_the_same_names(other: ModuleType) -> None:
    assert sorted(other.__all__) == sorted(mqproto.adapters.threaded.__all__)


@pytest.mark.parametrize("other", OTHERS, ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(mqproto.adapters.threaded, name))])
def test_classes_have_the_same_methods_with_the_same_arguments(name: str, other: ModuleType) -> None:
    ours, theirs = methods(getattr(mqproto.adapters.threaded, name)), methods(getattr(other, name))
    missing = FUTURES.get(name, set()) if other is mqproto.adapters.anyio else set()
    assert theirs.keys() == ours.keys() - missing
    for method, one in theirs.items():
        assert arguments(one) == arguments(ours[method]), method


@pytest.mark.parametrize("name", sorted(FUTURES))
def test_what_waits_is_awaited(name: str) -> None:
    """What each package has in its own way waits in one and is a coroutine function in the other."""
    here, there = methods(getattr(mqproto.adapters.threaded, name)), methods(getattr(mqproto.adapters.anyio, name))
    own = {method for method, one in there.items() if one is not here[method]}
    waits = own - {"__init__", "__iter__", "update_name_server_addresses"}
    assert {method for method, one in there.items() if inspect.iscoroutinefunction(one)} == waits
    assert {"start", "close", "__enter__", "__exit__"} < waits
