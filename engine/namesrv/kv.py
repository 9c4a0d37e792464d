"""Key/value configuration: texts by namespace and key, the only state of a name server that is kept on disk
(docs/protocol/broker.md 6.1, 6.2).
"""

from __future__ import annotations

from json import JSONEncoder
from typing import Final

from mqproto.wire.bodies import KVTable
from mqproto.wire.fastjson import JsonError, loads

#: Namespace of the lines `broker:queues;broker:queues` that make topics ordered ones.
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
#: Characters of all namespaces, keys and values together.
SIZE_MAX: Final = 8 << 20

#: Texts alone need no special writer, and the table is written whole at each change: this one takes a millisecond for
#: 10,000 keys.
_write: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class KvConfig:
    """Table of texts by namespace and key, with its size bounded."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self._size = 0

    @classmethod
    def from_text(cls, text: str) -> KvConfig:
        """Out of the text of kvConfig.json. Raises JsonError."""
        value = loads(text) if text.strip() else {}
        table = value.get("configTable") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(table, dict | None):
            raise JsonError("the key/value configuration is no object with a member configTable")
        made = cls()
        for namespace, pairs in (table or {}).items():
            made._table[str(namespace)] = KVTable.from_value({"table": pairs}).table
            made._size += len(namespace) + sum(len(key) + len(text) for key, text in made._table[namespace].items())
        return made

    def to_text(self) -> str:
        """The text of kvConfig.json."""
        return _write({"configTable": self._table})

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set a value; False, and nothing changed, when the table would grow beyond its limit."""
        pairs = self._table.get(namespace)
        old = None if pairs is None else pairs.get(key)
        growth = (
            len(value) - len(old)
            if old is not None
            else len(key) + len(value) + (len(namespace) if pairs is None else 0)
        )
        if self._size + growth > SIZE_MAX:
            return False
        self._table.setdefault(namespace, {})[key] = value
        self._size += growth
        return True

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a key; its namespace stays, even empty."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self._size -= len(key) + len(value)

    def namespace(self, namespace: str) -> KVTable | None:
        """All pairs of a namespace, None for one that never was."""
        pairs = self._table.get(namespace)
        return None if pairs is None else KVTable(dict(pairs))
