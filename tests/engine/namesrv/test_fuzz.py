"""Whatever peers send to a name server: answers or a closed link, never an error of ours."""

from __future__ import annotations

from random import Random

import pytest

from mqproto.codec import encode
from mqproto.engine.settings import NamesrvSettings
from mqproto.state.node.contract import Link
from tests.engine.namesrv.harness import Rig
from tests.golden.mutations import broken_fields, mutated, recorded

REQUESTS = recorded("namesrv")
CODES = sorted({request.code for request in REQUESTS})


@pytest.mark.parametrize("code", CODES)
def test_missing_malformed_negative_and_huge_fields(code: int) -> None:
    """An answer with its opaque, and the link lives."""
    rig = Rig(NamesrvSettings(order_message_enable=True))
    link = rig.connect()
    number = 1
    for request in (one for one in REQUESTS if one.code == code):
        for what, broken in broken_fields(request):
            number += 1
            broken.opaque = number
            answers = rig.send(link, encode(broken))
            if not answers:
                rig.advance(0)
                answers = rig.taken(link)
            assert [answer.opaque for answer in answers] == [number], what
            assert not link.ended, what


@pytest.mark.parametrize("seed", range(10))
def test_swarms(seed: int) -> None:
    """Peers come, send damaged requests in pieces, and go."""
    random = Random(seed)
    rig = Rig()
    links: list[Link] = []
    for _ in range(400):
        if len(links) < 3 or (len(links) < 12 and random.random() < 0.1):
            links.append(rig.connect())
        link = random.choice(links)
        frame = encode(random.choice(REQUESTS))
        data = frame if random.random() < 0.3 else mutated(random, frame)
        while data and not link.ended:
            size = random.randint(1, len(data))
            rig.send(link, data[:size])
            data = data[size:] if random.random() < 0.9 else b""
        if random.random() < 0.1:
            rig.advance(random.choice((0, 100, 70_000)))
        if random.random() < 0.05 and not link.ended:
            rig.node.closed(link, "closed by the peer", rig.now)
        links = [one for one in links if not one.ended]
    for link in links:
        rig.node.closed(link, "closed by the peer", rig.now)
    rig.advance(200_000)
    assert rig.node.next_deadline() is None
    assert rig.node.state.registry.all_topics() == []
    assert rig.ask(rig.connect(), 206).code == 0
