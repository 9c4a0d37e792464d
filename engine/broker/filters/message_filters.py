"""Filters of pulls: by the hash of a tag, or by an expression over properties (docs/protocol/broker.md 2.4, 4).

Owns: expressions that were read already, what a read asks of each message, how much one read may work.
Leaves to others: which expression applies (`pulls.pull_checks`, `consumer_filters`), what expressions mean
(`mqproto.wire.filters`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from mqproto.engine.store import NOWHERE, ReadFilter, properties_of
from mqproto.wire import properties as names
from mqproto.wire.filters.bloom import passes
from mqproto.wire.filters.sql import Condition, compile_sql
from mqproto.wire.filters.tags import SQL92, InvalidExpressionError, parse_tags

#: Expressions of either kind that are remembered, and how long they may be together: one takes up to a hundred times
#: its length.
_EXPRESSIONS_MAX: Final = 4096
_LENGTH_MAX: Final = 1 << 20
#: What one read may spend on judging: some 5 ms, enough for the 800 entries of a read with ordinary messages and
#: expressions.
#: One unit is about a word of an expression, or 16 bytes of properties.
_WORK_MAX: Final = 24_000
_BYTES_A_UNIT: Final = 16
_BYTES_A_ROUND: Final = 1024


def is_tag_type(kind: str | None) -> bool:
    """Whether an expression is one of tags. Clients that know no other kind leave the type out."""
    return not kind or kind == "TAG"


def not_supported(kind: str | None) -> str:
    """The remark to whoever filters by properties where that is off."""
    return f"The broker does not support consumer to filter message by {kind}"


class Filter:
    """Filter of a pull: by the hashes of their tags, where this is not a subclass.

    It never changes, so reads beside the loop may use it.
    """

    __slots__ = ("codes", "judged", "length")

    def __init__(self, codes: frozenset[int] | None, length: int = 0, judged: bool = False) -> None:
        #: None takes all.
        self.codes = codes
        #: Each message has to be looked at.
        self.judged = judged
        #: Characters of its expressions, a measure of the memory it takes.
        self.length = length

    def judge(self) -> ReadFilter | None:
        """For one read."""
        return None


EVERYTHING: Final = Filter(None)


class SqlFilter(Filter):
    """Filter by an expression. `mask`: its group's bits in bitmaps of messages that were stored from `bits_from` on."""

    __slots__ = ("_bits_from", "_condition", "_mask", "_size")

    def __init__(self, condition: Condition, bits_from: int = NOWHERE, mask: int = 0, size: int = 0) -> None:
        super().__init__(None, len(condition.expression), judged=True)
        self._condition = condition
        self._bits_from = bits_from
        self._mask = mask
        self._size = size

    def judge(self) -> ReadFilter:
        return _SqlJudge(self._condition, self._bits_from, self._mask, self._size)


class RetryFilter(Filter):
    """Filter by the expression of the topic that a message had before it came back: the group's conditions by topic."""

    __slots__ = ("_conditions",)

    def __init__(self, conditions: Mapping[str, Condition], codes: frozenset[int] | None) -> None:
        super().__init__(codes, sum(len(condition.expression) for condition in conditions.values()), judged=True)
        self._conditions = conditions

    def judge(self) -> ReadFilter:
        return _RetryJudge(self._conditions)


class _PropertyJudge(ReadFilter):
    """Judge of messages by their properties, which counts what that costs."""

    __slots__ = ()

    def _holds(self, condition: Condition, properties: dict[str, str], size: int) -> bool:
        self.work_left -= condition.words * (1 + size // _BYTES_A_ROUND)
        return condition.matches(properties)

    def _read(self, record: memoryview) -> tuple[dict[str, str], int]:
        """The properties of a record, and about how many characters they have."""
        properties = properties_of(record)
        size = sum(map(len, properties.values()))
        self.work_left -= 2 + 2 * size // _BYTES_A_UNIT
        return properties, size


class _SqlJudge(_PropertyJudge):
    """Judge by an expression."""

    __slots__ = ("_condition", "_mask", "_size")

    def __init__(self, condition: Condition, bits_from: int, mask: int, size: int) -> None:
        super().__init__(_WORK_MAX, bits_from)
        self._condition = condition
        self._mask = mask
        self._size = size

    def may_take(self, bits: bytes) -> bool:
        return len(bits) != self._size or passes(bits, self._mask)

    def takes(self, record: memoryview) -> bool:
        return self._holds(self._condition, *self._read(record))


class _RetryJudge(_PropertyJudge):
    """Judge by the expressions for the topics that messages came from."""

    __slots__ = ("_conditions",)

    def __init__(self, conditions: Mapping[str, Condition]) -> None:
        super().__init__(_WORK_MAX)
        self._conditions = conditions

    def takes(self, record: memoryview) -> bool:
        properties, size = self._read(record)
        condition = self._conditions.get(properties.get(names.RETRY_TOPIC, ""))
        return condition is None or self._holds(condition, properties, size)


class TagFilters:
    """Filters of tag expressions. Codes are worked out here: one client sends wrong ones."""

    def __init__(self) -> None:
        self._known: dict[str, Filter] = {}
        self._length = 0

    def find(self, expression: str | None) -> Filter:
        """The filter of an expression. Raises InvalidExpressionError."""
        if not expression or expression == "*":
            return EVERYTHING
        found = self._known.get(expression)
        if found is None:
            found = Filter(parse_tags(expression).codes, len(expression))
            if len(self._known) >= _EXPRESSIONS_MAX or self._length > _LENGTH_MAX:
                self._known.clear()
                self._length = 0
            self._known[expression] = found
            self._length += len(expression)
        return found


class Conditions:
    """Compiled expressions, the ones used last. Those that do not compile are remembered too."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Condition | str] = OrderedDict()
        self._length = 0

    def compile(self, kind: str | None, expression: str) -> Condition:
        """The condition of an expression. Raises InvalidExpressionError, also for a kind that nobody knows."""
        if kind != SQL92:
            raise InvalidExpressionError(expression[:40], f"there are no expressions of the type {kind}")
        found = self._known.get(expression)
        if found is None:
            found = self._compile(expression)
        else:
            self._known.move_to_end(expression)
        if isinstance(found, str):
            raise InvalidExpressionError(expression[:200], found)
        return found

    def _compile(self, expression: str) -> Condition | str:
        found: Condition | str
        try:
            found = compile_sql(expression)
        except InvalidExpressionError as error:
            found = error.why
        known = self._known
        known[expression] = found
        self._length += len(expression)
        while len(known) > _EXPRESSIONS_MAX or (self._length > _LENGTH_MAX and len(known) > 1):
            self._length -= len(known.popitem(last=False)[0])
        return found
