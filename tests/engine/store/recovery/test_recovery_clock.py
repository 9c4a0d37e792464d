"""A wall clock that is set back, and a crash before anything on the disk tells of it."""

from __future__ import annotations

import pytest

from mqproto.engine.store import Recover, StoreDamaged
from tests.engine.store.harness import Rig

HOUR_MS = 3_600_000


def old_and_new(rig: Rig) -> list[bytes]:
    """Messages that the checkpoint knows to be durable, and then, an hour earlier, more: enough for own files."""
    bodies = rig.send_many(20, size=300)
    rig.settle()
    for number in range(40):
        bodies.append(b"%d" % number * 100)
        rig.send(body=bodies[-1], at=rig.wall - HOUR_MS + number)
    return bodies


def test_what_is_durable_may_lie_before_what_is_older(rig: Rig) -> None:
    """The last files say that they are old enough to begin with, but the latest message is in none of them (seed 1943
    of the scenarios).
    """
    bodies = old_and_new(rig)
    rig.kill()
    store = rig.open()
    assert rig.bodies() == bodies
    assert store.recovery.dropped == 0


def test_lost_messages_are_missed_all_the_same(rig: Rig) -> None:
    bodies = rig.send_many(20, size=300)
    rig.settle()
    last = rig.send(body=b"last", at=rig.wall)
    rig.settle()
    rig.kill()
    start = last - last % 4096
    rig.set_log(last - start, bytes(64), start)
    with pytest.raises(StoreDamaged, match="were durable"):
        rig.open()
    rig.open(recover=Recover.CUT)
    assert rig.bodies() == bodies
