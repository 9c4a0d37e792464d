"""Answers that handlers give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqproto.engine.saver import Saver
from mqproto.wire.bodies import Body
from mqproto.wire.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request. A body that may be long is not made to bytes yet: that is done in slices.

    With `saver` it is held back until the change that it confirms is saved.
    """

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    fields: Mapping[str, str] | None = None
    body: bytes | Body = b""
    saver: Saver[Any] | None = None


OK = Answer()


def failed(why: str, code: int = ResponseCode.SYSTEM_ERROR) -> Answer:
    return Answer(code, why)
