"""Which requests use a broker's second port, two below the first, when a client is told to (VIP channel,
docs/protocol/client.md 1.8).
"""

from __future__ import annotations

from typing import Final

from mqproto.wire.codes import RequestCode
from mqproto.wire.hosts import vip_address

#: What goes to the ordinary port all the same; everything else that a client asks of brokers goes to the other.
ORDINARY: Final = frozenset(
    {
        int(RequestCode.HEART_BEAT),
        int(RequestCode.UNREGISTER_CLIENT),
        int(RequestCode.PULL_MESSAGE),
        int(RequestCode.LITE_PULL_MESSAGE),
        int(RequestCode.END_TRANSACTION),
        int(RequestCode.GET_BROKER_CONFIG),
    }
)
_UNLOCK: Final = int(RequestCode.UNLOCK_BATCH_MQ)


def vip_target(code: int, address: str, *, oneway: bool = False) -> str:
    """Where a request to the broker at `address` goes.

    Unlocking does so only with an answer. Raises HostError for an impossible port.
    """
    if code in ORDINARY or (oneway and code == _UNLOCK):
        return address
    return vip_address(address)
