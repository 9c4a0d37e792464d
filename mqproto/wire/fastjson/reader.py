"""Reader of JSON texts: strict ones by the standard library, others by the tolerant reader."""

from __future__ import annotations

import json
from typing import Any, Final

from mqproto.wire.fastjson.references import follow_references
from mqproto.wire.fastjson.tolerant_reader import TolerantReader
from mqproto.wire.fastjson.values import MAX_DEPTH, JavaMap, JsonError, inner, whole_text

#: Text that is no strict JSON is read at some 4 MB a second, so a node takes only this much of it from a peer.
MAX_TOLERANT: Final = 1 << 20


def constant(name: str) -> None:
    """For `parse_constant`: NaN is nothing; the infinities, which the standard library would also take, are no JSON at
    all.
    """
    if name != "NaN":
        raise ValueError(f"not JSON: {name}")


_strict: Final = json.JSONDecoder(strict=False, parse_constant=constant)


def loads(text: str | bytes, limit: int = MAX_TOLERANT) -> Any:
    """The value of a whole text; bytes are UTF-8, and what is no UTF-8 is replaced. Raises `JsonError`.

    Text of more than `limit` characters must be strict JSON.
    """
    if isinstance(text, bytes):
        text = str(text, "utf-8", "replace")
    if text.startswith("\ufeff"):
        text = text[1:]
    try:
        value = _strict.decode(text)
        if text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(value)
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    except JsonError:
        raise
    except ValueError:
        if len(text) > limit:
            raise JsonError(
                f"text of {len(text)} characters is no strict JSON, the limit of other is {limit}"
            ) from None
        value = TolerantReader(text).document()
    if _has_surrogates(text):
        value = _scrub(value)
    if "$ref" in text:
        value = follow_references(value, text)
    return value


def _has_surrogates(source: str) -> bool:
    """Whether the source text of JSON may hold escaped surrogates."""
    return "\\ud" in source or "\\uD" in source


def _scrub(value: Any) -> Any:
    """The value with whole texts only; its depth has been checked."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, JavaMap):
        return JavaMap((_scrub(key), _scrub(one)) for key, one in value)
    if isinstance(value, list):
        return [_scrub(one) for one in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(one) for key, one in value.items()}
    return value


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [deeper for one in level for deeper in inner(one)]
        if not level:
            return
    raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
