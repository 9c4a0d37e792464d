"""Consumers that filter by SQL92, for the tests of the broker."""

from __future__ import annotations

import json
from typing import Any

from tests.engine.broker.harness import Peer, pull_fields


def heartbeat(
    expression: str = "n > 1",
    version: int = 5,
    *,
    group: str = "G",
    topic: str = "T",
    kind: str | None = "SQL92",
    more: str = "",
) -> bytes:
    """A heartbeat with one subscription, and one of everything in a topic of the name `more`."""
    wanted: dict[str, Any] = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind}
    subscriptions = [wanted] if topic else []
    if more:
        subscriptions.append({"topic": more, "subString": "*", "subVersion": version, "expressionType": "TAG"})
    consumer = {
        "groupName": group,
        "consumeType": 1,
        "messageModel": 1,
        "consumeFromWhere": 0,
        "subscriptionDataSet": subscriptions,
    }
    return json.dumps({"clientID": "c1", "consumerDataSet": [consumer]}).encode()


def subscribed(offset: int = 0, version: int = 5, *, wait: bool = False, **changes: Any) -> dict[str, str]:
    """A pull of a group by its own subscription."""
    flag = "2" if wait else "0"
    return (
        pull_fields(offset=offset, sysFlag=flag, subscription="-", subVersion=str(version), expressionType="SQL92")
        | changes
    )


def carried(expression: str = "n > 1", offset: int = 0, *, wait: bool = False, **changes: Any) -> dict[str, str]:
    """A pull that brings its expression."""
    return pull_fields(
        offset=offset, sysFlag="6" if wait else "4", subscription=expression, expressionType="SQL92", **changes
    )


def send_numbers(peer: Peer, *numbers: int, topic: str = "T") -> None:
    """Messages whose body and property `n` are these numbers."""
    for number in numbers:
        assert peer.send(topic, b"%d" % number, f"n\x01{number}\x02color\x01red\x02").code == 0
