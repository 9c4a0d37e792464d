"""docs/requests.md says what is served; all else is answered so that newer peers fall back (docs/protocol/broker.md
0.3, 2.0, 6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mqproto.codec import Command
from mqproto.engine.namesrv.node import HANDLERS
from mqproto.wire.codes import RequestCode
from tests.engine.broker.harness import Peer, World
from tests.engine.namesrv.harness import Rig

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/requests.md").read_text(encoding="utf-8")
BROKER, NAME_SERVER, ASKED, UNSERVED = "Broker", "Name server", "What the broker asks others", "What is not served"
STATUSES = {"4.9", "4.9, better", "5.x"}
#: What only 5.x's clients and tools send to brokers (docs/protocol/broker.md 0.3).
NEWER = [
    *(
        18,
        47,
        60,
        61,
        217,
        225,
        343,
        345,
        *range(351, 356),
        361,
        370,
        400,
        401,
        402,
        513,
        *range(901, 909),
        *range(1001, 1019),
    ),
    *(*range(2001, 2005), *range(3001, 3011), *range(200050, 200057), 200151),
]


def rows(title: str) -> dict[int, list[str]]:
    """The rows of the table below a heading, by code."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if re.match(r"\| \d", line)
    ]
    found = {int(row[0]): row[1:] for row in cells}
    assert len(found) == len(cells), "a code stands there twice"
    return found


def module_of(handler: Callable[..., Any]) -> str:
    function = getattr(handler, "__func__", handler)
    module: str = function.__module__ or type(handler.__self__).__module__  # type: ignore[attr-defined]  # a compiled method says it less directly
    return module.removeprefix("mqproto.").replace(".", "/") + ".py"


def names(text: str, code: int) -> bool:
    """Whether a test names a request, by number or by name."""
    return re.search(rf"(?<![\w.]){code}(?!\w|\.\d)|\b{RequestCode(code).name}\b", text) is not None


@pytest.mark.parametrize("title", [BROKER, NAME_SERVER])
def test_what_is_served(title: str) -> None:
    handlers: Mapping[int, Callable[..., Any]] = World().broker.handlers if title == BROKER else HANDLERS
    table = rows(title)
    assert set(table) == set(map(int, handlers))
    assert list(table) == sorted(table)
    for code, (name, status, module, test) in table.items():
        assert name == RequestCode(code).name
        assert status in STATUSES, code
        assert module == module_of(handlers[code]), code
        assert names((ROOT / test).read_text(encoding="utf-8"), code), (code, test)


def test_what_the_broker_asks() -> None:
    for code, (name, _, module, test) in rows(ASKED).items():
        assert name == RequestCode(code).name
        assert names((ROOT / test).read_text(encoding="utf-8"), code), (code, test)
        assert (ROOT / "mqproto" / module).is_file()  # where a wheel has it too


def test_every_code_stands_there() -> None:
    served = rows(BROKER).keys() | rows(NAME_SERVER).keys() | rows(ASKED).keys()
    unserved = rows(UNSERVED)
    assert not served & unserved.keys()
    assert served | unserved.keys() == set(map(int, RequestCode))
    assert all(name == RequestCode(code).name and why for code, (name, why) in unserved.items())


class TestFallingBack:
    """Code 3 is what clients of 5.x fall back on; 4.x brokers of old say nothing, and their callers wait for ever."""

    def test_the_broker(self) -> None:
        world = World()
        peer = world.connect()
        peer.send("T")
        broker = world.broker
        before = (
            broker.topics.version.counter,
            broker.subscription_groups.version.counter,
            broker.offsets.table,
            world.store.end,
        )
        handlers = broker.handlers
        for code in [code for code in map(int, RequestCode) if code not in handlers]:
            for fields in ({}, {"topic": "T", "group": "G", "queueId": "-1"}):
                answer = peer.ask(code, fields, b"\x00{")
                assert (answer.code, answer.remark, answer.body) == (3, f" request type {code} not supported", b""), (
                    code
                )
            peer.tell(code, flag=2)
            assert peer.read() == [], "nothing for who wants no answer"
        assert before == (
            broker.topics.version.counter,
            broker.subscription_groups.version.counter,
            {},
            world.store.end,
        )
        assert len(peer.messages("T")) == 1

    @pytest.mark.parametrize("code", NEWER)
    def test_what_newer_peers_ask_is_always_answered(self, code: int) -> None:
        """With nothing in it: an answer of some kind, with its opaque, and the link lives."""
        peer: Peer = World().connect()
        answer: Command = peer.ask(code)
        assert answer.code in (1, 3), "nothing is done without fields"
        assert answer.remark
        assert peer.send("T").code == 0

    def test_the_name_server(self) -> None:
        rig = Rig()
        link = rig.connect()
        for code in [code for code in map(int, RequestCode) if code not in HANDLERS]:
            answer = rig.ask(link, code)
            assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
