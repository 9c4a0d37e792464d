"""States of an assigned queue: where its pull loop is, what it waits for, and what follows. The machine is
`ProcessQueue` with `pull_loop`.

What the loop waits for is its state; this table names it. docs/states.md is drawn from it, and
tests/mqproto/state/test_states.py compares it with what the loop does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class QueueState(Enum):
    """Values say what is done in a state."""

    ASSIGNED = "the queue is ours, but where to begin is not known yet"
    NEXT = "a round begins: the loop looks whether the next pull may be made, and does not wait"
    HELD = "nothing is pulled: as much as may be is cached, or the consumer is suspended"
    LOOKING_UP = "the address to pull from is looked up"
    PULLING = "a pull is with the broker, which may hold it at the end of the queue"
    HANDING_OVER = "a single message goes to its listener before the next pull is made"
    LEARNING = "the broker does not know the subscription: a heartbeat is on its way"
    PAUSED = "the next pull waits for its time"
    DROPPED = "the queue is not ours any more: what was cached is forgotten, late answers change nothing"


class QueueEvent(Enum):
    """Values say what has happened."""

    STARTED = "it is known where to begin"
    FULL = "the consumer holds the queue"
    ROOM = "the consumer lets the queue go on"
    ADDRESS_UNKNOWN = "the route has no broker to pull from"
    NO_ADDRESS = "no address was found"
    ASKED = "the pull was sent"
    NOT_SUBSCRIBED = "the topic is not subscribed any more"
    FOUND = "the answer brought several messages"
    FOUND_ONE = "the answer brought one message"
    NOTHING = "the answer brought nothing new"
    OUTSIDE = "the queue does not have the offset that was asked for"
    UNKNOWN = "the broker does not know the subscription, or an old one"
    FAILED = "the broker refused, or no answer came, or none that can be read"
    HANDED_OVER = "the driver has carried out what was decided"
    KNOWN = "the heartbeat was answered, or took too long"
    TIME = "the pause is over"
    DROP = "the queue is taken away"


_DROP: Final[Mapping[QueueEvent, tuple[QueueState, ...]]] = {QueueEvent.DROP: (QueueState.DROPPED,)}

FIRST: Final = (QueueState.ASSIGNED,)
TRANSITIONS: Final[Mapping[QueueState, Mapping[QueueEvent, tuple[QueueState, ...]]]] = {
    QueueState.ASSIGNED: {QueueEvent.STARTED: (QueueState.NEXT,), **_DROP},
    QueueState.NEXT: {
        QueueEvent.FULL: (QueueState.HELD,),
        QueueEvent.ADDRESS_UNKNOWN: (QueueState.LOOKING_UP,),
        QueueEvent.ASKED: (QueueState.PULLING,),
        QueueEvent.NOT_SUBSCRIBED: (QueueState.PAUSED,),
    },
    QueueState.HELD: {QueueEvent.ROOM: (QueueState.NEXT,), **_DROP},
    QueueState.LOOKING_UP: {
        QueueEvent.ASKED: (QueueState.PULLING,),
        QueueEvent.NO_ADDRESS: (QueueState.PAUSED,),
        **_DROP,
    },
    QueueState.PULLING: {
        # Pulls may have an interval; else the next one follows.
        QueueEvent.FOUND: (QueueState.NEXT, QueueState.PAUSED),
        QueueEvent.FOUND_ONE: (QueueState.HANDING_OVER, QueueState.PAUSED),
        # What was filtered away moves the queue on at once.
        QueueEvent.NOTHING: (QueueState.NEXT, QueueState.PAUSED),
        QueueEvent.OUTSIDE: (QueueState.DROPPED,),
        QueueEvent.UNKNOWN: (QueueState.LEARNING,),
        QueueEvent.FAILED: (QueueState.PAUSED,),
        **_DROP,
    },
    QueueState.HANDING_OVER: {QueueEvent.HANDED_OVER: (QueueState.NEXT,), **_DROP},
    # A broker that still does not know it is asked after a pause.
    QueueState.LEARNING: {QueueEvent.KNOWN: (QueueState.NEXT, QueueState.PAUSED), **_DROP},
    QueueState.PAUSED: {QueueEvent.TIME: (QueueState.NEXT,), **_DROP},
    QueueState.DROPPED: {},
}
