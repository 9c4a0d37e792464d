"""Filter of a read, for messages about which the hash of the tag does not decide alone."""

from __future__ import annotations

from typing import Final

#: No message lies there.
NOWHERE: Final = 1 << 62


class ReadFilter:
    """Filter: decides which messages a read gives. It serves a single read, which may run beside the loop, and keeps
    nothing of it.

    The base class takes everything.
    """

    __slots__ = ("bits_from", "work_left")

    def __init__(self, work_left: int, bits_from: int = NOWHERE) -> None:
        #: The read ends before the next message once this is used up; the filter counts it down.
        self.work_left = work_left
        #: From this physical offset on the bitmap in the extension of the consume queue may show that a message is not
        #: wanted.
        self.bits_from = bits_from

    def may_take(self, bits: bytes) -> bool:
        """Whether a message with that bitmap (empty: it has none) may be wanted."""
        return True

    def takes(self, record: memoryview) -> bool:
        """Whether a message is wanted."""
        return True
