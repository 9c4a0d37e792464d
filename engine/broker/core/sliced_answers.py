"""Answers that take long to build, made in slices between other requests, so that none holds the loop for long.

Owns: when slices run, what a link gets when its answer is ready or cannot be given.
Leaves to others: whose slice is next (`mqproto.engine.slices`), what an answer says (the handlers).

    sliced_answers.reply(link, request, body)            a body with tables of any length
    sliced_answers.answer(link, request, steps, then)    any other work: a generator that yields after about a
                                                         millisecond of it

A short answer is there when `reply` returns. A long one holds what the tables had when its first slice was made. A link
whose peer does not take its answers waits with further ones; when it leaves, its work is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from mqproto.codec import ONEWAY_FLAG, Command
from mqproto.engine.broker.core.core import ClientLink
from mqproto.engine.broker.interfaces.clock import Timers
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Peer, Refused
from mqproto.engine.slices import Slices, Steps, joined
from mqproto.errors import HeaderError
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT
from mqproto.wire.bodies import Body, json_pieces
from mqproto.wire.codes import ResponseCode
from mqproto.wire.fastjson import JsonError

T = TypeVar("T")

#: Bytes that may be unsent to a link when its next answer begins.
LINK_UNSENT_MAX: Final = SERVER_UNSENT_LIMIT // 4
#: Pause before it is looked again whether peers took their answers.
_PAUSE_MS: Final = 50


class SlicedAnswers:
    """Long answers and other work, made in slices by the broker's alarms."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.work = Slices(_takes_answers)

    def reply(self, link: Peer, request: Command, body: Body) -> None:
        """Answer with success and a body, now or later. Raises Refused when too much waits."""
        if not request.flag & ONEWAY_FLAG:
            self.answer(
                link,
                request,
                joined(json_pieces(body)),
                lambda data: link.reply(request, ResponseCode.SUCCESS, body=data),
            )

    def answer(self, link: Peer, request: Command, steps: Steps[T], then: Callable[[T], None]) -> None:
        """Call `then` with the outcome of some work, unless the link is over by then.

        The work may raise what a handler may (Refused and what bad input raises): that is answered. Raises Refused when
        too much waits.
        """
        request.body = b""  # who needs it has read it, and it may be long
        if not self.work.begin(link, _guarded(link, request, steps, then), lambda _: None):
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        self._arm()

    def run(self, owner: Hashable, steps: Steps[T], then: Callable[[T], None], own: bool = False) -> bool:
        """The same for other work; False when too much waits, never for the broker's `own` work."""
        begun = self.work.begin(owner, steps, then, own)
        self._arm()
        return begun

    def _arm(self) -> None:
        if self.work:
            self._timers.after(_PAUSE_MS if self.work.stalled else 0, self.step)

    def step(self) -> None:
        """Alarm, at once while there is something to do: the next slice."""
        self.work.step()
        self._arm()

    def link_over(self, link: ClientLink) -> None:
        """The link is over: nobody waits for its answers any more."""
        self.work.drop(link)


def _takes_answers(owner: Hashable) -> bool:
    return not isinstance(owner, ClientLink) or owner.unsent <= LINK_UNSENT_MAX


def _guarded(link: Peer, request: Command, steps: Steps[T], then: Callable[[T], None]) -> Steps[None]:
    """Work for a request, to its end: what it raises is its answer."""
    try:
        then((yield from steps))
    except Refused as refused:
        link.reply(request, refused.code, remark=refused.remark)
    except (HeaderError, JsonError) as error:
        link.reply(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
