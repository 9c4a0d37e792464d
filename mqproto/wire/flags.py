"""Flag words of messages, pulls and topics (docs/protocol/wire.md 13)."""

from __future__ import annotations

from typing import Final

# --- sysFlag of a message ---
COMPRESSED: Final = 0x001
MULTI_TAGS: Final = 0x002
TRANSACTION_MASK: Final = 0x00C
TRANSACTION_NONE: Final = 0x000
TRANSACTION_PREPARED: Final = 0x004
TRANSACTION_COMMIT: Final = 0x008
TRANSACTION_ROLLBACK: Final = 0x00C
BORN_HOST_V6: Final = 0x010
STORE_HOST_V6: Final = 0x020
NEED_UNWRAP: Final = 0x040
INNER_BATCH: Final = 0x080
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8

# --- sysFlag of a pull ---
PULL_COMMIT_OFFSET: Final = 1
PULL_SUSPEND: Final = 2
PULL_SUBSCRIPTION: Final = 4
PULL_CLASS_FILTER: Final = 8
PULL_LITE: Final = 16

# --- permissions of a topic or broker ---
PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

# --- sysFlag of a topic ---
TOPIC_UNIT: Final = 1
TOPIC_UNIT_SUB: Final = 2


def pull_flag(
    *, commit_offset: bool, suspend: bool, subscription: bool, class_filter: bool = False, lite: bool = False
) -> int:
    """The sysFlag of a pull request."""
    return (
        PULL_COMMIT_OFFSET * commit_offset
        | PULL_SUSPEND * suspend
        | PULL_SUBSCRIPTION * subscription
        | PULL_CLASS_FILTER * class_filter
        | PULL_LITE * lite
    )


def permission_text(perm: int) -> str:
    """A permission as tools print it: `R`, `W` and `X` (inherit) or `-` in their places."""
    return (
        ("R" if perm & PERM_READ else "-") + ("W" if perm & PERM_WRITE else "-") + ("X" if perm & PERM_INHERIT else "-")
    )
