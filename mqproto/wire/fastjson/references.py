"""References within a JSON text: `{"$ref": path}` objects, as Java's library writes a value that it has written
already.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mqproto.wire.fastjson.values import JavaMap, JsonError, inner

#: References are followed only in texts that are small and have few of them, so that they cannot multiply without
#: bound.
MAX_REFERENCES: Final = 32
MAX_REFERRING_TEXT: Final = 1 << 16

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]", re.ASCII)


def follow_references(root: Any, text: str) -> Any:
    """Put what they mean in the place of `{"$ref": path}` objects.

    No peer was seen to send any; a path to nowhere is None.
    """
    if len(text) > MAX_REFERRING_TEXT or text.count("$ref") > MAX_REFERENCES:
        raise JsonError("too many references")
    places: list[tuple[Any, Any, str, Any]] = []
    stack: list[tuple[Any, Any]] = [(root, None)]
    while stack:
        holder, above = stack.pop()
        if isinstance(holder, JavaMap):
            stack.extend((one, holder) for one in inner(holder))
            continue
        for key, value in list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder)):
            if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$ref"), str):
                places.append((holder, key, value["$ref"], above))
            elif isinstance(value, (dict, list)):
                stack.append((value, holder))
    for holder, key, path, above in places:
        holder[key] = holder if path == "@" else above if path == ".." else _at(root, path)
    return root


def _at(root: Any, path: str) -> Any:
    if not path.startswith("$"):
        return None
    value = root
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        name, index = match.groups()
        if name is not None and isinstance(value, dict):
            value = value.get(name)
        elif index is not None and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
        at = match.end()
    return value
