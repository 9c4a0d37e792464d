"""Requests as handlers see them: the peer that asks, and the error that is its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from mqproto.codec import Command
from mqproto.errors import MQError
from mqproto.state.node.contract import Buffer

#: Remark of the code SYSTEM_BUSY.
OVERLOAD: Final = "[OVERLOAD]system busy, start flow control for a while"

#: What a call to a peer ends with: its answer, or None when the link was lost or the time was up.
Waiter: TypeAlias = Callable[[Command | None], None]


class Refused(MQError):  # noqa: N818 - a name that says what happened needs no suffix
    """Error that a handler raises: the request gets an error answer with this code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code
        self.remark = remark


class Receiver(Protocol):
    """Receiver of what is sent, at the other end of a link."""

    @property
    def address(self) -> str:
        """`host:port` of the peer."""

    @property
    def ended(self) -> bool:
        """Whether the link is over; nothing can be sent any more."""

    @property
    def unsent(self) -> int:
        """Bytes that the peer has not taken yet."""

    def __hash__(self) -> int:
        """Each is itself: tables of what waits have receivers as keys."""


class Peer(Receiver, Protocol):
    """Peer that asked something (`ClientLink`)."""

    def write(self, data: Buffer) -> None:
        """Send bytes, frames that are made already."""

    def reply(
        self,
        request: Command,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: Buffer = b"",
        *,
        remark: str | None = None,
    ) -> None:
        """Answer a request in the form it used. One-way requests and links that are over get nothing."""
