"""File of a server's settings, read at its start, written on request (docs/protocol/broker.md 2.16, 8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mqproto.adapters.io.files import Replace, read_if_there
from mqproto.errors import ClientError
from mqproto.wire.properties_text import PropertiesError, edit_properties, parse_properties

#: As Java reads properties.
_CHARSET: Final = "latin-1"


class SettingsUnreadable(ClientError):  # noqa: N818 - a name that says what happened needs no suffix
    """Failure to read a file of settings."""


def read_settings(path: Path | None, *, missing_ok: bool = False) -> dict[str, str]:
    """The settings of a file; none without a file. Raises SettingsUnreadable."""
    if path is None:
        return {}
    try:
        data = path.read_bytes()
    except OSError as error:
        if missing_ok and isinstance(error, FileNotFoundError | NotADirectoryError):
            return {}
        raise SettingsUnreadable(f"cannot read {path}: {error.strerror}") from error
    try:
        return parse_properties(data)
    except PropertiesError as error:
        raise SettingsUnreadable(f"{path}: {error}; write one key=value a line") from error


class ChangeSettings:
    """Job that gives keys of a file new values. What else stands in it stays; what it held becomes `<path>.bak`."""

    def __init__(self, path: Path, changes: Mapping[str, str]) -> None:
        self._path = path
        self._changes = changes

    def run(self) -> None:
        """Raises OSError; the file then is as it was."""
        path = self._path.resolve()  # a link stays one
        text = (read_if_there(path) or b"").decode(_CHARSET)
        Replace(path, edit_properties(text, self._changes).encode(_CHARSET)).run()


__all__ = ["ChangeSettings", "SettingsUnreadable", "read_settings"]
