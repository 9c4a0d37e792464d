"""Tag expressions: `TagA || TagB` (docs/protocol/client.md 4.1).

A broker filters by the hash of a tag, which others may share; the client filters by the tag itself once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqproto.errors import ClientError
from mqproto.wire.ids import java_hash

ALL: Final = "*"
OR: Final = "||"
#: The kinds of expressions, by their names on the wire.
TAG: Final = "TAG"
SQL92: Final = "SQL92"


class InvalidExpressionError(ClientError):
    """A filter expression that cannot be used."""

    def __init__(self, expression: str, why: str) -> None:
        self.expression = expression
        self.why = why
        super().__init__(f"filter expression {expression!r}: {why}")


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A parsed tag expression. Without tags it takes every message."""

    #: As it was written; `*` for everything.
    expression: str
    #: In the order in which they were written.
    tags: tuple[str, ...]
    #: The hashes of the tags, which the broker compares.
    codes: frozenset[int]

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag (None: without one) is wanted."""
        return not self.tags or tag in self.tags


EVERYTHING: Final = TagFilter(ALL, (), frozenset())


def parse_tags(expression: str | None) -> TagFilter:
    """Parse tags with `||` between; None, the empty text and `*` mean everything. Blanks around a tag do not count.

    Raises InvalidExpressionError for an expression that names no tag (`||`, blanks), which would match nothing.
    """
    if expression is not None and not isinstance(expression, str):
        raise InvalidExpressionError(repr(expression), "a text expected, with || between two tags")
    if not expression or expression == ALL:
        return EVERYTHING
    tags = tuple(dict.fromkeys(tag for part in expression.split(OR) if (tag := part.strip())))
    if not tags:
        raise InvalidExpressionError(expression, "it names no tag")
    return TagFilter(expression, tags, frozenset(map(java_hash, tags)))
