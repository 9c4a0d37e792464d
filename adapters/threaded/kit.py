"""What the waiting faces (`adapters.sync`) need of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from socket import socket
from typing import Any, TypeVar

from adapters.threaded.driver import Driver
from adapters.threaded.workers import Workers
from mqproto.state.node import Node, Ticket

T = TypeVar("T")


class ThreadKit:
    """See `adapters.sync.Kit`."""

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        remarks: deque[str] | None,
        name: str,
    ) -> Driver:
        return Driver(node, listeners, deliver, cancel, remarks, name=name)

    def pool(self, name: str, limit: int) -> Workers:
        return Workers(name, limit)

    def beside(self, work: Callable[[], T]) -> T:
        return work()  # other threads go on meanwhile
