"""Which messages a subscription takes: tag expressions, and what stands in for others as long as there is no other filter."""

from __future__ import annotations

from typing import Final

from mqproto.filters.tags import InvalidExpressionError, parse_tags

NO_SQL: Final = "The broker does not support consumer to filter message by SQL92"
#: Expressions that are remembered with their codes.
_EXPRESSIONS_MAX: Final = 4096
_EXPRESSION_LENGTH_MAX: Final = 1024


def is_tag_type(kind: str | None) -> bool:
    """Whether an expression is one of tags. Clients that know no other kind leave the type out."""
    return not kind or kind == "TAG"


class TagFilters:
    """Codes of tag expressions, worked out here: one client sends wrong ones."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[int] | None] = {}

    def codes(self, expression: str | None) -> frozenset[int] | None:
        """The codes that an expression takes, None for all. Raises InvalidExpressionError."""
        if not expression or expression == "*":
            return None
        try:
            return self._known[expression]
        except KeyError:
            codes = parse_tags(expression).codes or None
        if len(expression) <= _EXPRESSION_LENGTH_MAX:
            if len(self._known) >= _EXPRESSIONS_MAX:
                self._known.clear()
            self._known[expression] = codes
        return codes


__all__ = ["NO_SQL", "InvalidExpressionError", "TagFilters", "is_tag_type"]
