"""Bodies with long tables, written piece by piece: the same text as `to_json` and `to_pretty` give, an entry at a time.

A table of ten thousand topics takes 100 ms to write. Whoever takes the pieces decides how many at a time, and does
other things between. Which entries there are is settled when the first piece is taken; what changes within an entry
meanwhile may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from mqproto.wire.bodies.members import Body, Table
from mqproto.wire.fastjson import dumps, dumps_pretty

#: Where members of a body and entries of its tables stand in a configuration file.
_MEMBER: Final = "\n\t"
_ENTRY: Final = "\n\t\t"


def json_pieces(body: Body) -> Iterator[str]:
    """The text of `body.to_json()`."""
    comma = ""
    yield "{"
    for name, value in body.to_members():
        yield f"{comma}{dumps(name)}:"
        comma = ","
        if isinstance(value, Table):
            yield from _table(value, dumps, dumps, "")
        else:
            yield dumps(value)
    yield "}"


def pretty_pieces(body: Body) -> Iterator[str]:
    """The text of `body.to_pretty()`."""
    members = body.to_members()
    comma = ""
    yield "{"
    for name, value in members:
        yield f"{comma}{_MEMBER}{dumps(name)}:"
        comma = ","
        if isinstance(value, Table):
            yield from _table(value, _pretty_member, _pretty_entry, _ENTRY)
        else:
            yield _pretty_member(value)
    yield "\n}" if members else "}"


def _pretty_member(value: Any) -> str:
    """Line breaks within texts are escaped, so those that there are are the layout's."""
    return dumps_pretty(value).replace("\n", _MEMBER)


def _pretty_entry(value: Any) -> str:
    return dumps_pretty(value).replace("\n", _ENTRY)


def _table(table: Table, write: Callable[[Any], str], write_inner: Callable[[Any], str], line: str) -> Iterator[str]:
    """A list, whose entries stand where it stands itself, or a map, whose entries stand further in."""
    comma = ""
    if not table.paired:
        yield "["
        for value in table.entries:
            yield comma + write(value)
            comma = ","
        yield "]"
        return
    yield "{"
    for key, value in table.entries:
        yield f"{comma}{line if isinstance(key, str) else ''}{write_inner(key)}:{write_inner(value)}"
        comma = ","
    yield line[:-1] + "}" if comma else "}"
