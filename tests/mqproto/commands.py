"""Commands and their frames."""

from __future__ import annotations

import struct
from typing import Any

from mqproto.codec import (
    JSON,
    NO_LANGUAGE,
    NO_OPAQUE,
    Command,
)
from mqproto.wire.codes import Language


def frame_of(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    """A frame without its length word."""
    return struct.pack(">I", kind << 24 | len(header)) + header + body


def facts(command: Command) -> dict[str, Any]:
    """A command in the form of the vectors."""
    return {
        "code": command.code,
        "language": None if command.language == NO_LANGUAGE else Language(command.language).name,
        "version": command.version,
        "opaque": "receiver's own" if command.opaque == NO_OPAQUE else command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "extFields": command.fields,
        "body": bytes(command.body).hex() or None,
        "type": "JSON" if command.serialize_type == JSON else "ROCKETMQ",
    }
