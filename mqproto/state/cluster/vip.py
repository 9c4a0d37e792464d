"""VIP channel: the broker's second port, two below the first, for requests that may go there when a client is told so
(docs/protocol/client.md 1.8).
"""

from __future__ import annotations

from typing import Final

from mqproto.state.flows.effects import Call, Oneway
from mqproto.state.flows.name_servers import NameServerList
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


def rerouted(effect: Call | Oneway, name_servers: NameServerList) -> str:
    """Where a request goes with the VIP channel. Raises HostError as `vip_target`."""
    address = effect.address
    assert address is not None
    if isinstance(effect, Oneway):
        return vip_target(effect.code, address, oneway=True)
    return address if effect.first_port or address in name_servers.addresses else vip_target(effect.code, address)
