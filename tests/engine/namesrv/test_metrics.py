"""The name server's numbers."""

from __future__ import annotations

from mqproto.engine.metrics import Collected
from mqproto.engine.namesrv.metrics import collect
from tests.engine.namesrv.harness import Rig


def numbers(rig: Rig) -> dict[str, list[tuple[tuple[str, ...], float]]]:
    steps = collect(rig.node.state.registry)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Collected = end.value
            return {family.name: family.samples for family in found.families}


def test_what_is_registered() -> None:
    rig = Rig()
    nothing = {
        "rocketmq_namesrv_brokers": [],
        "rocketmq_namesrv_live_brokers": [((), 0)],
        "rocketmq_namesrv_topics": [((), 0)],
    }
    assert numbers(rig) == nothing
    rig.register(rig.connect())
    assert numbers(rig) == {
        "rocketmq_namesrv_brokers": [(("c",), 1)],
        "rocketmq_namesrv_live_brokers": [((), 1)],
        "rocketmq_namesrv_topics": [((), 2)],
    }
