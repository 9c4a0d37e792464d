"""Java's dialect of JSON (docs/protocol/wire.md 14): read whatever the peers' libraries read, write what all of them
accept.

Strict text goes through the scanner of the standard library; text with bare or object keys, single quotes, comments,
stray commas and the like through `TolerantReader`. What comes out is plain: dict, list, str, int, float, bool, None,
and `JavaMap` for maps whose keys are objects. Bare whole numbers as keys stay numbers, so that writing gives the same
text again.

Every str that is read can be encoded: half a surrogate pair, which no UTF-8 has, becomes `?` as in Java.
"""

from __future__ import annotations

from mqproto.wire.fastjson.reader import MAX_TOLERANT, constant, loads
from mqproto.wire.fastjson.values import MAX_DEPTH, JavaMap, JsonError, NumberText, truncate, whole_text
from mqproto.wire.fastjson.writer import dumps, dumps_pretty, dumps_standard, quote, to_text

__all__ = [
    "MAX_DEPTH",
    "MAX_TOLERANT",
    "JavaMap",
    "JsonError",
    "NumberText",
    "constant",
    "dumps",
    "dumps_pretty",
    "dumps_standard",
    "loads",
    "quote",
    "to_text",
    "truncate",
    "whole_text",
]
