"""Runtime of greenlets: what `mqproto.adapters.sync` needs of gevent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from socket import socket
from typing import Any, Final, TypeVar

import gevent
import gevent.lock
import gevent.pool
import gevent.util

from mqproto.adapters.base.instances import Instance, Instances, deliver
from mqproto.adapters.gevent.driver import Driver
from mqproto.adapters.gevent.futures import SendFuture
from mqproto.adapters.io.lifecycle import log
from mqproto.state.node.contract import Node, Ticket

T = TypeVar("T")


def greenlet_stacks() -> str:
    """The stack of every greenlet and thread."""
    return "\n".join(gevent.util.format_run_info())


def bring_to_main(interrupt: KeyboardInterrupt) -> None:
    """Signals find whichever greenlet runs, and mean the main one."""
    hub = gevent.get_hub()
    hub.loop.run_callback(hub.handle_system_error, KeyboardInterrupt, interrupt)


class Greenlets:
    """Pool of greenlets: `limit` pieces of work at a time, the others wait their turn."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._turns = gevent.lock.Semaphore(limit)
        self._limit = limit
        self._group = gevent.pool.Group()
        self._closed = False

    def submit(self, work: Callable[[], object]) -> bool:
        if self._closed:
            return False
        self._group.spawn(self._run, work)
        return True

    def grow(self, limit: int) -> None:
        for _ in range(self._limit, limit):
            self._turns.release()
        self._limit = max(self._limit, limit)

    def _run(self, work: Callable[[], object]) -> None:
        with self._turns:
            try:
                work()
            except KeyboardInterrupt as interrupt:
                bring_to_main(interrupt)
            except BaseException:  # even SystemExit ends the work and nothing else (CON-01)
                log.exception("%s: a piece of work failed", self._name)

    def close(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for what was submitted (but for the calling greenlet); whether it has ended."""
        self._closed = True
        current = gevent.getcurrent()
        others = [greenlet for greenlet in self._group if greenlet is not current]
        return len(gevent.joinall(others, timeout)) == len(others)


class GeventRuntime:
    """The `SyncRuntime` of greenlets."""

    future = SendFuture

    def __init__(self) -> None:
        self.instances: Instances[Any] = Instances(self._driver_of, scope=lambda: id(gevent.get_hub()))

    def _driver_of(self, instance: Instance[Any], name: str) -> Driver:
        node = instance.node
        node.broker_requests.stacks = greenlet_stacks
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

    def pool(self, name: str, limit: int) -> Greenlets:
        return Greenlets(name, limit)

    def interrupted(self, interrupt: KeyboardInterrupt) -> None:
        bring_to_main(interrupt)

    def beside(self, work: Callable[[], T]) -> T:
        result: T = gevent.get_hub().threadpool.apply(work)
        return result


RUNTIME: Final = GeventRuntime()
