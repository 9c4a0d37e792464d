"""No value that may change while a server runs is kept where nobody renews it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mqproto.engine.settings import BrokerSettings, NamesrvSettings, table
from mqproto.engine.store import StoreSettings

ENGINE: Final = Path(__file__).parent.parent.parent / "engine"
#: Names by which settings go.
HOLDERS: Final = frozenset({"settings", "_settings"})
#: Methods that renew what was made from settings.
RENEWERS: Final = frozenset({"configure", "_settings_changed", "settings_changed"})
LIVE: Final = {
    each.attribute: each.key
    for settings in (BrokerSettings, NamesrvSettings, StoreSettings)
    for each in table(settings).values()
    if each.live
} | {"delete_hours": "deleteWhen", "largest_record": "maxMessageSize", "register_period": "registerNameServerPeriod"}
#: What is made anew for each link keeps what it was made with.
OWN_LIFE: Final = {("broker/core/core.py", "ClientLink", "write_buffer_high_water_mark")}


def reads(function: ast.FunctionDef) -> Iterator[str]:
    """Live settings that a function reads from something that is called settings."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in LIVE:
            holder = node.value
            name = (
                holder.attr if isinstance(holder, ast.Attribute) else holder.id if isinstance(holder, ast.Name) else ""
            )
            if name in HOLDERS:
                yield node.attr


def methods(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Methods of the classes of a file, each with its class."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    yield node.name, member


def test_what_constructors_keep_is_renewed() -> None:
    """A constructor that reads a live setting keeps what it made of it: then a hook in the same module has to read it
    again.
    """
    kept: set[tuple[str, str, str]] = set()
    renewed: set[tuple[str, str]] = set()
    for path in sorted(ENGINE.rglob("*.py")):
        file = path.relative_to(ENGINE).as_posix()
        for owner, method in methods(path):
            if method.name == "__init__":
                kept |= {(file, owner, name) for name in reads(method)}
            elif method.name in RENEWERS:
                renewed |= {(file, name) for name in reads(method)}
    assert len(kept) > 3
    assert {each for each in kept if (each[0], each[2]) not in renewed} == OWN_LIFE
