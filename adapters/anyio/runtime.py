"""Runtime of asyncio and trio: what `mqproto.adapters.coroutines` needs of anyio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from socket import socket
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from mqproto.adapters.anyio.driver import Driver, in_trio
from mqproto.adapters.anyio.stacks import task_stacks
from mqproto.adapters.base.instances import Instance, Instances, deliver
from mqproto.state.node.contract import Node, Ticket

T = TypeVar("T")


class AnyioRuntime:
    """The `AsyncRuntime` of tasks."""

    checkpoint = staticmethod(anyio.lowlevel.checkpoint)
    scope = staticmethod(anyio.CancelScope)
    turns = staticmethod(anyio.Semaphore)
    threads = staticmethod(anyio.CapacityLimiter)

    def __init__(self) -> None:
        #: Clients of different event loops cannot share.
        self.instances: Instances[Any] = Instances(self._driver_of, anyio.Lock, anyio.lowlevel.current_token)

    def _driver_of(self, instance: Instance[Any], name: str) -> Driver:
        node = instance.node
        node.broker_requests.stacks = task_stacks
        return Driver(node, {}, deliver, node.cancel, node.notices, name=name)

    @property
    def cancelled(self) -> type[BaseException]:
        return anyio.get_cancelled_exc_class()

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

    def shield(self) -> AbstractContextManager[object]:
        return anyio.CancelScope(shield=True)

    async def in_thread(
        self, work: Callable[[], T], *, threads: anyio.CapacityLimiter | None = None, abandon: bool = False
    ) -> T:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=abandon, limiter=threads)

    def interrupted(self, interrupt: BaseException) -> None:
        if not in_trio():  # where none comes to these tasks
            asyncio.get_running_loop().call_soon(_raise, interrupt)

    async def beside(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)


def _raise(interrupt: BaseException) -> None:
    raise interrupt


RUNTIME: Final = AnyioRuntime()
