"""Keys of accounts from files that Apache's tools use (docs/protocol/client.md 3.15).

`key=value` lines with AccessKey, SecretKey and SecurityToken, as Java's clients read them (`rocketmq.client.keyFile`),
or mqadmin's `tools.yml` with accessKey and secretKey.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from mqproto.acl import SessionCredentials
from mqproto.errors import InvalidSetting
from mqproto.wire.properties_text import PropertiesError, parse_properties

#: A file of keys is some lines long.
_SIZE_MAX: Final = 1 << 16
_YAML: Final = frozenset({".yml", ".yaml"})
#: A plain text ends where a comment begins; quotes may stand around it.
_YAML_LINE: Final = re.compile(
    r"""(\w+)\s*:(?:\s+("(?:[^"\\]|\\["\\])*"|'(?:[^']|'')*'|[^\s"'#\[\]{}&*!|>%@`].*?)?)?(?:\s+\#.*)?"""
)


def credentials_from_file(path: str | os.PathLike[str]) -> SessionCredentials:
    """The account in a file; `.yml` and `.yaml` are read as YAML, all others as properties. Every value is text exactly
    as written.

    The file is read once. Raises InvalidSetting, which names the line and never shows what stands there.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(_SIZE_MAX + 1)
    except OSError as error:
        raise InvalidSetting("credentials", file, f"cannot be read: {error.strerror}") from error
    if len(data) > _SIZE_MAX:
        raise InvalidSetting("credentials", file, f"more than {_SIZE_MAX} bytes: no file of keys")
    names = ("accessKey", "secretKey", "securityToken")
    if file.suffix in _YAML:
        values = _parse_yaml(file, data)
    else:
        names = ("AccessKey", "SecretKey", "SecurityToken")
        try:
            values = {name: value.strip() for name, value in parse_properties(data).items()}
        except PropertiesError as error:
            raise InvalidSetting("credentials", file, "no properties file: write one key=value a line") from error
    access_key, secret_key, token = (values.get(name, "") for name in names)
    for name, value in zip(names, (access_key, secret_key), strict=False):
        if not value:
            raise InvalidSetting("credentials", file, f"it has no {name}")
    return SessionCredentials(access_key, secret_key, token or None)


def _parse_yaml(file: Path, data: bytes) -> dict[str, str]:
    """`key: value` lines of plain or quoted text. YAML has much more; whatever could mean something else is refused."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidSetting("credentials", file, "it is not UTF-8") from error
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.rstrip() in ("---", "..."):
            continue
        found = _YAML_LINE.fullmatch(line.rstrip())
        if found is None:
            raise InvalidSetting("credentials", file, f"line {number} is no `key: value`; put quotes around the value")
        if found[1] in values:
            raise InvalidSetting("credentials", file, f"line {number} names {found[1]} again")
        values[found[1]] = _unquoted(found[2] or "")
    return values


def _unquoted(text: str) -> str:
    if text.startswith('"'):
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return text
