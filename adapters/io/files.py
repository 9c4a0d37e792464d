"""Small files that are replaced as a whole, by jobs: a reader finds the old text or the new one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mqproto.state.node.contract import Job


def read_if_there(path: Path) -> bytes | None:
    """The contents, None when there is no such file. Raises OSError when it cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


class Replace:
    """Job that gives `path` a new text (UTF-8) or new bytes, or what a function makes of what it holds (None: nothing).
    The file keeps its mode.

    What it held becomes `<path>.bak`, or with `aside` goes to the first free `<path>.damaged-N`.
    """

    def __init__(self, path: Path, text: str | bytes | Callable[[bytes | None], str], *, aside: bool = False) -> None:
        self._path = path
        self._text = text
        self._aside = aside

    def run(self) -> None:
        """Raises OSError; the file then is as it was."""
        path = self._path
        path.parent.mkdir(parents=True, exist_ok=True)
        held = read_if_there(path)
        text = self._text(held) if callable(self._text) else self._text
        new = path.with_name(path.name + ".tmp")
        with new.open("wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        if held is not None:
            new.chmod(path.stat().st_mode & 0o777)
        if held is not None and self._aside:
            path.rename(_free_name(path))
        elif held is not None:
            backup = path.with_name(path.name + ".bak")
            copy = path.with_name(path.name + ".bak.tmp")
            copy.write_bytes(held)
            copy.replace(backup)
        new.replace(path)


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return candidate


class LocalOffsetFile:
    """File of the offsets of a broadcasting consumer: `<folder>/<client id>/<group>/offsets.json`
    (docs/protocol/client.md 5.4).
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        """Reads the file and its backup; raises OSError when one is there and cannot be read."""
        self._path = folder / client_id / group / "offsets.json"
        self.main = read_if_there(self._path)
        self.backup = read_if_there(self._path.with_name("offsets.json.bak"))

    def save(self, text_of: Callable[[bytes | None], str], *, set_aside: bool) -> Job:
        return Replace(self._path, text_of, aside=set_aside)
