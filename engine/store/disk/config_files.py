"""Configuration files: tables of topics, groups and offsets, as text with a backup beside it (docs/protocol/store.md
10.3).

A file is replaced in one step: the new text is made durable beside it, the old file becomes the backup, the new one
takes its name. At every moment one whole generation can be read. A damaged file never becomes the backup, never reads
as an empty table, and is set aside as `<path>.damaged` when a new one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mqproto.engine.store.disk.disk import DiskFiles
from mqproto.engine.store.disk.files import Files
from mqproto.engine.store.disk.folders import make_durable_folder
from mqproto.engine.store.errors import ConfigDamaged
from mqproto.errors import MQError

T = TypeVar("T")


class SaveConfig:
    """Job: replace a configuration file."""

    __slots__ = ("_file", "_text")

    def __init__(self, file: ConfigFile, text: str) -> None:
        self._file = file
        self._text = text

    def run(self) -> None:
        self._file.save(self._text)


class ConfigFile:
    """Configuration file and its backup `<path>.bak`."""

    __slots__ = ("_files", "_folder_made", "_good", "found", "path", "warning")

    def __init__(self, path: str, files: Files | None = None) -> None:
        self.path = path
        self._files: Files = files or DiskFiles()
        self._folder_made = False
        #: The file is worth being kept as the backup.
        self._good = False
        #: The last `load` found the file or its backup.
        self.found = False
        #: What an operator should know of the last `load`; empty: nothing.
        self.warning = ""

    def load(self, parse: Callable[[str], T]) -> T | None:
        """The value of the file, or of its backup if the file is missing or damaged; None if there is neither.

        `parse` makes a value of a text, or raises ValueError or MQError; then the text counts as damaged. Raises
        ConfigDamaged when what is there cannot be read, and OSError. Blocks.
        """
        self.warning = ""
        self.found = True
        backup = self.path + ".bak"
        why = ""
        if self._files.exists(self.path):
            try:
                value = self._read(self.path, parse)
                self._good = True
                return value
            except (ValueError, MQError) as failure:
                self._good = False
                why = str(failure) or type(failure).__name__
        if not self._files.exists(backup):
            if why:
                raise ConfigDamaged(self.path, f"{why}; there is no backup")
            self.found = False
            return None
        try:
            value = self._read(backup, parse)
        except (ValueError, MQError) as failure:
            raise ConfigDamaged(self.path, f"{why or 'the first is missing'}; backup: {failure}") from failure
        self.warning = f"{self.path} {'is damaged (' + why + ')' if why else 'is missing'}: its backup is used"
        return value

    def _read(self, path: str, parse: Callable[[str], T]) -> T:
        data = self._files.read(path)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            # up to 4.9 Java writes in the charset of its platform; names are ASCII in any of them
            text = data.decode("latin-1")
        if not text.strip("\0 \t\r\n"):
            raise ValueError("it is empty")
        return parse(text)

    def save(self, text: str) -> None:
        """Replace the file and make it durable.

        Blocks; one save at a time. Raises OSError, the old file is in place then.
        """
        files, path = self._files, self.path
        folder = path.rpartition("/")[0]
        if not self._folder_made:
            make_durable_folder(files, folder)
            self._folder_made = True
        files.write(path + ".tmp", text.encode())
        if files.exists(path):
            files.rename(path, path + (".bak" if self._good else ".damaged"))
        files.rename(path + ".tmp", path)
        files.sync_folder(folder)
        self._good = True

    def save_job(self, text: str) -> SaveConfig:
        """The same as a job. The next one must not be run before this one has ended."""
        return SaveConfig(self, text)
