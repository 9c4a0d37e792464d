"""States of a pull at the broker: what it waits for, and what follows. The machine is `PullRequests` with `ParkedPulls`
and `WaitingReads`.

Where a pull is kept is its state; this table names it. docs/states.md is drawn from it, and
tests/engine/broker/pulls/test_pull_states.py compares it with what the broker does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PullState(Enum):
    """Values say what is done in a state."""

    ASKED = "the request is checked, and what is in memory is read; nothing waits"
    READING = "a job reads what may not be in memory"
    PARKED = "the pull waits at the end of its queue"
    QUEUED = "messages have arrived, but a crowd waits for them: the pull is looked at in a later slice"
    ANSWERED = "the answer is written: messages, or that there are none, or another offset"
    REFUSED = "an error is written"
    GONE = "nobody waits for the answer any more"


class PullEvent(Enum):
    """Values say what has happened."""

    SERVED = "there is something to answer at once, or the pull may not wait"
    COLD = "what it asks for may not be in memory"
    EMPTY = "nothing is there yet"
    READ = "the job has ended, and there is something to answer"
    ARRIVED = "messages for it have arrived"
    CROWD = "messages have arrived for more pulls than one entry looks at"
    PASSED_OVER = "what arrived is not for it"
    TIME_UP = "it has waited as long as it may"
    DELETED = "its queue was deleted"
    REFUSAL = "a check fails, there is no place for it, or the read fails or begins too late"
    LINK_OVER = "the link of its consumer is over"


_WAITING: Final[Mapping[PullEvent, tuple[PullState, ...]]] = {
    PullEvent.REFUSAL: (PullState.REFUSED,),
    PullEvent.LINK_OVER: (PullState.GONE,),
}

FIRST: Final = (PullState.ASKED,)
TRANSITIONS: Final[Mapping[PullState, Mapping[PullEvent, tuple[PullState, ...]]]] = {
    PullState.ASKED: {
        PullEvent.SERVED: (PullState.ANSWERED,),
        PullEvent.COLD: (PullState.READING,),
        PullEvent.EMPTY: (PullState.PARKED,),
        PullEvent.REFUSAL: (PullState.REFUSED,),
    },
    PullState.READING: {
        PullEvent.READ: (PullState.ANSWERED,),
        PullEvent.EMPTY: (PullState.PARKED,),
        **_WAITING,
    },
    PullState.PARKED: {
        PullEvent.ARRIVED: (PullState.ANSWERED,),
        PullEvent.CROWD: (PullState.QUEUED,),
        PullEvent.TIME_UP: (PullState.ANSWERED,),
        PullEvent.DELETED: (PullState.ANSWERED,),
        **_WAITING,
    },
    PullState.QUEUED: {
        PullEvent.ARRIVED: (PullState.ANSWERED,),
        PullEvent.PASSED_OVER: (PullState.PARKED,),
        PullEvent.TIME_UP: (PullState.ANSWERED,),
        PullEvent.DELETED: (PullState.ANSWERED,),
        **_WAITING,
    },
    PullState.ANSWERED: {},
    PullState.REFUSED: {},
    PullState.GONE: {},
}
