# ruff: noqa: N818 - a name that says what happened needs no suffix
"""Errors of the store, with the facts as attributes.

StoreError
  StoreLocked        another broker works on the directory
  StoreDamaged       stored data is damaged or missing, and opening would have to drop it
  StoreUnreadable    there is no data directory to look at, or no right to
  StoreUnwritable    the directory cannot be used: rights, a full disk, a file in the way
  ConfigDamaged      a configuration file and its backup are both unreadable
  PutRefused         one message was not stored, and nothing else changed
"""

from __future__ import annotations

from enum import Enum

from mqproto.errors import MQError


class PutStatus(Enum):
    """Reason why a message was refused, by Apache's names (docs/protocol/store.md 2.7)."""

    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"


class StoreError(MQError):
    """Root of the store's errors."""


class StoreLocked(StoreError):
    """Directory in use: another process (ours or Apache's) or another store of this process holds its lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} is locked: another broker works on this directory")


class StoreDamaged(StoreError):
    """Damage: stored data is damaged or missing.

    `path` is the file, `offset` the physical offset (in the log) or position (elsewhere) where it begins, None for a
    whole file; `reasons` say how it is known that data was there, `remedy` what can be done and what it costs. Nothing
    was changed.
    """

    def __init__(self, path: str, offset: int | None, reasons: tuple[str, ...], remedy: str = "") -> None:
        self.path = path
        self.offset = offset
        self.reasons = reasons
        self.remedy = remedy
        place = path if offset is None else f"{path} at offset {offset}"
        help_text = f". Nothing was changed: {remedy}" if remedy else ""
        super().__init__(f"damaged store: {place}: {'; '.join(reasons)}{help_text}")


class StoreUnreadable(StoreError):
    """Directory that cannot be looked at: it is not there, is none of a store, or may not be read."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class StoreUnwritable(StoreError):
    """File or folder of the store that cannot be made or written."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"cannot write {path}: {why}")


class ConfigDamaged(StoreError):
    """Configuration file that cannot be read, and its backup cannot help."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        remedy = "Repair one of them, or move both away to begin with an empty table"
        super().__init__(f"configuration file {path} and its backup {path}.bak are unreadable: {why}. {remedy}")


class PutRefused(StoreError):
    """Message that was not stored. No queue offset was used up, later messages are not affected."""

    retriable = True

    def __init__(self, status: PutStatus, why: str) -> None:
        self.status = status
        self.why = why
        super().__init__(f"{status.value}: {why}")
