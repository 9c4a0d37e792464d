"""States of a send: what it waits for, and what follows. The machine is `ProducerCore`: `send` and its kin, `go_on` for
a send whose first call was made without a flow, and `send_oneway`.

What the flow waits for is its state; this table names it. docs/states.md is drawn from it, and
tests/mqproto/state/producer/test_send_states.py compares it with what sends do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class SendState(Enum):
    """Values say what is done in a state."""

    BEGUN = "the message was checked and its request built, once for all attempts; nothing was asked yet"
    WAITING = "the send waits for room in the window"
    ROUTING = "name servers are asked for the topic, or for the master of a broker"
    UNREAD = "one-way: the broker has left too much unread of what was sent before"
    SENDING = "an attempt is with a broker; one-way: with the link to it"
    SENT = "the result is known: the message was stored, or handed to the link"
    FAILED = "an error is raised"


class SendEvent(Enum):
    """Values say what has happened."""

    BEGIN = "the send begins"
    ROOM = "there is room in the window"
    ROUTED = "name servers have answered, or failed to"
    READ = "it is time to look again what the broker has read"
    STORED = "the broker has the message; one-way: it is on the link"
    UNSAFE = "the broker has the message, but not as safe as it should be"
    REFUSED = "the broker has answered by an error"
    LOST = "the link could not be made or ended, or no answer came in time"
    UNREADABLE = "the broker took the message, but its answer cannot be read"
    LIMIT = "a limit of our own refuses the request"
    OVER = "the budget is used up"


FIRST: Final = (SendState.BEGUN, SendState.SENDING)
TRANSITIONS: Final[Mapping[SendState, Mapping[SendEvent, tuple[SendState, ...]]]] = {
    SendState.BEGUN: {
        SendEvent.BEGIN: (SendState.WAITING, SendState.ROUTING, SendState.UNREAD, SendState.SENDING),
    },
    SendState.WAITING: {
        SendEvent.ROOM: (SendState.ROUTING, SendState.UNREAD, SendState.SENDING),
        SendEvent.OVER: (SendState.FAILED,),
    },
    SendState.ROUTING: {
        # Of a topic that does not exist the template is looked up too. An earlier attempt may have stored the message.
        SendEvent.ROUTED: (
            SendState.ROUTING,
            SendState.UNREAD,
            SendState.SENDING,
            SendState.SENT,
            SendState.FAILED,
        ),
    },
    SendState.UNREAD: {
        SendEvent.READ: (SendState.UNREAD, SendState.SENDING),
        SendEvent.OVER: (SendState.FAILED,),
    },
    SendState.SENDING: {
        SendEvent.STORED: (SendState.SENT,),
        # Where another broker shall be tried then, what the first one said is kept, and is the result if no other
        # attempt succeeds.
        SendEvent.UNSAFE: (SendState.ROUTING, SendState.SENDING, SendState.SENT),
        SendEvent.REFUSED: (SendState.ROUTING, SendState.SENDING, SendState.SENT, SendState.FAILED),
        SendEvent.LOST: (SendState.ROUTING, SendState.SENDING, SendState.SENT, SendState.FAILED),
        SendEvent.UNREADABLE: (SendState.SENT, SendState.FAILED),
        SendEvent.LIMIT: (SendState.SENT, SendState.FAILED),
    },
    SendState.SENT: {},
    SendState.FAILED: {},
}
