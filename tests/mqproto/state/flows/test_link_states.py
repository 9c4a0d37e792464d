"""Links do what their table of states says, and nothing besides."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mqproto.codec import encode_response
from mqproto.state.flows import calls
from mqproto.state.flows.effects import Call, Flow
from mqproto.state.flows.link_states import FIRST, TRANSITIONS, LinkEvent, LinkState
from mqproto.state.flows.tasks import DialledLink
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import NodeBase
from mqproto.wire.codes import RequestCode, ResponseCode
from tests.mqproto.state.stage import Stage
from tests.transitions import Observed

ADDRESSES = ("x:1", "y:1")


def state_of(link: Connection[Any]) -> LinkState:
    if link.ended:
        return LinkState.ENDED
    if link.broken is not None:
        return LinkState.BROKEN
    if not link.connected:
        return LinkState.DIALLING
    return LinkState.LEAVING if isinstance(link, DialledLink) and link.leaving else LinkState.OPEN


def calling(address: str, deadline: int) -> Flow[object]:
    outcome, _ = yield Call(address, RequestCode.SEND_MESSAGE_V2, {"e": "0"}, b"x", deadline)
    return outcome


class Links:
    """A client node whose links do as chance wills."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.links: list[DialledLink] = []
        self.stage = Stage(name_servers=())
        self.stage.dark.update(ADDRESSES)

    def call(self) -> None:
        self.stage.start(calling(self.random.choice(ADDRESSES), self.stage.now + self.random.choice((100, 5_000))))

    def connect(self, link: DialledLink) -> None:
        if not link.connected:
            self.stage.connect(link)
            self.stage.settle()

    def answer(self, link: DialledLink) -> None:
        if link.calls:
            code = self.random.choice((0, int(ResponseCode.GO_AWAY)))
            opaque = self.random.choice(list(link.calls))
            self._receive(link, encode_response(opaque, code))

    def unreadable(self, link: DialledLink) -> None:
        self._receive(link, b"\xff" * 8)

    def _receive(self, link: DialledLink, data: bytes) -> None:
        if link.connected:
            self.stage.node.received(link, data, self.stage.now)
            self.stage.settle()

    def close(self, link: DialledLink) -> None:
        self.stage.node.closed(link, "reset by peer", self.stage.now)
        self.stage.settle()

    def go_on(self) -> None:
        """One thing happens, to the node or to one of its links."""
        live = [link for link in self.links if not link.ended]
        if not live or self.random.random() < 0.4:
            self.call()
        elif self.random.random() < 0.1:
            self.stage.advance(200)
        else:
            act = self.random.choice(
                (self.connect, self.connect, self.answer, self.answer, self.unreadable, self.close)
            )
            act(self.random.choice(live))


@pytest.mark.pure
def test_links_change_as_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed(TRANSITIONS)
    links: list[DialledLink] = []

    class Watched(DialledLink):
        """Its flags cannot change unseen."""

        state: LinkState | None = None
        reported = False

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "greeted" and self.state is None:  # the last thing that is set of a new one
                links.append(self)
                self.state = LinkState.DIALLING
            if name in ("state", "reported") or self.state is None:
                return
            state = state_of(self)
            if state is not self.state:
                self.state = observed.step(self.state, self._event(name), state)

        def _event(self, name: str) -> LinkEvent:
            if name != "ended":
                return {
                    "connected": LinkEvent.OPENED,
                    "leaving": LinkEvent.GO_AWAY,
                    "broken": LinkEvent.UNREADABLE,
                }[name]
            return LinkEvent.CLOSED if self.reported else LinkEvent.HUNG_UP

        def end(self) -> list[Any]:
            self.reported = not self.ended  # whoever hangs up says so first
            return super().end()

    monkeypatch.setattr(calls, "DialledLink", Watched)
    for seed in range(200):
        play = Links(Random(seed))
        play.links = links
        play.stage.begin()
        for _ in range(40):
            play.go_on()
        play.stage.node.finish("the client is closed", play.stage.now)
        assert all(state_of(link) is LinkState.ENDED for link in links)
        links.clear()
    assert observed.unseen == []


def test_how_links_begin() -> None:
    node = NodeBase()
    shared: Calls[object] = Calls()
    assert (
        state_of(Connection(node, shared, "x:1", connected=False)),
        state_of(Connection(node, shared, "x:1", "main")),
    ) == FIRST
