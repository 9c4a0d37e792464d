"""States of a link: which there are, what ends each, and what follows. The machine is `Connection`, and for links of a
client `DialledLink` with `FlowNode`.

The flags of a link are its state; this table names their combinations. docs/states.md is drawn from it, and
tests/mqproto/state/flows/test_link_states.py compares it with what links do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class LinkState(Enum):
    """Values say what is possible in a state."""

    DIALLING = "the driver connects; calls wait beside the link, until their deadline"
    OPEN = "requests and answers go both ways"
    LEAVING = "the peer is about to stop: no new calls, those that it has taken are still answered"
    BROKEN = "the peer's bytes cannot be read any further; the owner hangs up after what came before them"
    ENDED = "nothing is sent or expected any more; calls that were open end with it"


class LinkEvent(Enum):
    """Values say what has happened."""

    OPENED = "the driver is connected"
    GO_AWAY = "the peer has answered a call by GO_AWAY"
    UNREADABLE = "bytes came that break the protocol"
    CLOSED = "the driver reports the end, or that it could not connect"
    HUNG_UP = (
        "the owner ends the link: it closes, the peer was silent or unreadable, or a leaving link has no call left"
    )


#: A link that is dialled, and one that came in.
FIRST: Final = (LinkState.DIALLING, LinkState.OPEN)
TRANSITIONS: Final[Mapping[LinkState, Mapping[LinkEvent, tuple[LinkState, ...]]]] = {
    LinkState.DIALLING: {
        LinkEvent.OPENED: (LinkState.OPEN,),
        LinkEvent.CLOSED: (LinkState.ENDED,),
        LinkEvent.HUNG_UP: (LinkState.ENDED,),
    },
    LinkState.OPEN: {
        LinkEvent.GO_AWAY: (LinkState.LEAVING,),
        LinkEvent.UNREADABLE: (LinkState.BROKEN,),
        LinkEvent.CLOSED: (LinkState.ENDED,),
        LinkEvent.HUNG_UP: (LinkState.ENDED,),
    },
    LinkState.LEAVING: {
        LinkEvent.UNREADABLE: (LinkState.BROKEN,),
        LinkEvent.CLOSED: (LinkState.ENDED,),
        LinkEvent.HUNG_UP: (LinkState.ENDED,),
    },
    LinkState.BROKEN: {LinkEvent.HUNG_UP: (LinkState.ENDED,)},
    LinkState.ENDED: {},
}
