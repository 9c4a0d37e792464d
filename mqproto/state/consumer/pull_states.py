"""States of an assigned queue: where its pull loop is, what it waits for, and what follows. The machine is
`ProcessQueue` with `pull_loop`.

What the loop waits for is its state; this table names it. docs/states.md is drawn from it, and
tests/mqproto/state/consumer/test_pull_states.py compares it with what the loop does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PullLoopState(Enum):
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


class PullLoopEvent(Enum):
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


_DROP: Final[Mapping[PullLoopEvent, tuple[PullLoopState, ...]]] = {PullLoopEvent.DROP: (PullLoopState.DROPPED,)}

FIRST: Final = (PullLoopState.ASSIGNED,)
TRANSITIONS: Final[Mapping[PullLoopState, Mapping[PullLoopEvent, tuple[PullLoopState, ...]]]] = {
    PullLoopState.ASSIGNED: {PullLoopEvent.STARTED: (PullLoopState.NEXT,), **_DROP},
    PullLoopState.NEXT: {
        PullLoopEvent.FULL: (PullLoopState.HELD,),
        PullLoopEvent.ADDRESS_UNKNOWN: (PullLoopState.LOOKING_UP,),
        PullLoopEvent.ASKED: (PullLoopState.PULLING,),
        PullLoopEvent.NOT_SUBSCRIBED: (PullLoopState.PAUSED,),
    },
    PullLoopState.HELD: {PullLoopEvent.ROOM: (PullLoopState.NEXT,), **_DROP},
    PullLoopState.LOOKING_UP: {
        PullLoopEvent.ASKED: (PullLoopState.PULLING,),
        PullLoopEvent.NO_ADDRESS: (PullLoopState.PAUSED,),
        **_DROP,
    },
    PullLoopState.PULLING: {
        # Pulls may have an interval; else the next one follows.
        PullLoopEvent.FOUND: (PullLoopState.NEXT, PullLoopState.PAUSED),
        PullLoopEvent.FOUND_ONE: (PullLoopState.HANDING_OVER, PullLoopState.PAUSED),
        # What was filtered away moves the queue on at once.
        PullLoopEvent.NOTHING: (PullLoopState.NEXT, PullLoopState.PAUSED),
        PullLoopEvent.OUTSIDE: (PullLoopState.DROPPED,),
        PullLoopEvent.UNKNOWN: (PullLoopState.LEARNING,),
        PullLoopEvent.FAILED: (PullLoopState.PAUSED,),
        **_DROP,
    },
    PullLoopState.HANDING_OVER: {PullLoopEvent.HANDED_OVER: (PullLoopState.NEXT,), **_DROP},
    # A broker that still does not know it is asked after a pause.
    PullLoopState.LEARNING: {PullLoopEvent.KNOWN: (PullLoopState.NEXT, PullLoopState.PAUSED), **_DROP},
    PullLoopState.PAUSED: {PullLoopEvent.TIME: (PullLoopState.NEXT,), **_DROP},
    PullLoopState.DROPPED: {},
}
