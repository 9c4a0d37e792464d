"""Remarks of answers that both servers give (docs/protocol/broker.md 0.2, 0.3)."""

from __future__ import annotations

from typing import Final

#: Several remarks end with this.
FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


def code_not_supported(code: int) -> str:
    """Remark of the answer to a request code that is not served. It begins with a space, as Apache's does."""
    return f" request type {code} not supported"
