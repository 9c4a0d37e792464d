"""Runtime of threads: what `mqproto.adapters.sync` needs of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from socket import socket
from typing import Any, Final, TypeVar

from mqproto.adapters.base.instances import Instance, Instances, deliver
from mqproto.adapters.io.stacks import thread_stacks
from mqproto.adapters.threaded.driver import Driver
from mqproto.adapters.threaded.futures import SendFuture
from mqproto.adapters.threaded.workers import Workers
from mqproto.state.node.contract import Node, Ticket

T = TypeVar("T")


class ThreadRuntime:
    """The `SyncRuntime` of threads."""

    future = SendFuture

    def __init__(self) -> None:
        self.instances: Instances[Any] = Instances(self._driver_of)

    def _driver_of(self, instance: Instance[Any], name: str) -> Driver:
        node = instance.node
        node.broker_requests.stacks = thread_stacks
        return Driver(node, {}, deliver, node.cancel, node.notices, name=name)

    def driver(
        self,
        node: Node,
        listeners: Mapping[str, socket],
        deliver: Callable[[object], None] | None,
        cancel: Callable[[Ticket[Any], int], None] | None,
        notices: deque[str] | None,
        name: str,
    ) -> Driver:
        return Driver(node, listeners, deliver, cancel, notices, name=name)

    def pool(self, name: str, limit: int) -> Workers:
        return Workers(name, limit)

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        pass  # it was raised there: signals come to the main thread alone

    def beside(self, work: Callable[[], T]) -> T:
        return work()  # other threads go on meanwhile


RUNTIME: Final = ThreadRuntime()
