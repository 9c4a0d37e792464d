"""What the waiting faces (`adapters.sync`) need of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from socket import socket
from typing import Any, Final, TypeVar

from adapters.faces.instances import Instance, Instances, deliver
from adapters.stacks import thread_stacks
from adapters.sync.kit import Pool
from adapters.threaded.driver import Driver
from adapters.threaded.workers import Workers
from mqproto.state.node import Node, Ticket

T = TypeVar("T")


class SendFuture(Future[T]):
    """A future that runs its callbacks in a pool: they may wait for the producer, which the driver's thread must not."""

    def __init__(self, pool: Pool) -> None:
        super().__init__()
        self._pool = pool
        self.set_running_or_notify_cancel()  # it is under way: there is no cancelling

    def add_done_callback(self, function: Callable[[Future[T]], object], /) -> None:
        super().add_done_callback(lambda future: self._pool.submit(lambda: function(future)))


class ThreadKit:
    """See `adapters.sync.kit.Kit`."""

    def __init__(self) -> None:
        self.instances: Instances[Any] = Instances(self._driver_of)

    def _driver_of(self, instance: Instance[Any], name: str) -> Driver:
        node = instance.node
        node.stacks = thread_stacks
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

    def future(self, pool: Pool) -> SendFuture[Any]:
        return SendFuture(pool)

    def beside(self, work: Callable[[], T]) -> T:
        return work()  # other threads go on meanwhile


KIT: Final = ThreadKit()
