"""Instances of clients in a process: which clients share a node (docs/protocol/client.md 1.1).

Clients with the same client id that reach the same cluster in the same way are one client for brokers: one node, one
connection to each broker, one heartbeat. By default every client has an id, and so an instance, of its own, as with
Apache's clients since 4.9.0; who gives an `instance_name` shares. Where Apache's client looks at the id alone, and then
talks to the first cluster for both (CI-7), here the name servers and the credentials count too.

A process that forks has instances of which its child owns nothing, so the child begins with an empty table.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mqproto.adapters.base.client import BaseClient
from mqproto.state.client.node import ClientNode

if TYPE_CHECKING:
    from mqproto.adapters.io.tls import TlsClient


class InstanceDriver(Protocol):
    """Driver as the table needs it."""

    tls: TlsClient | None

    def is_over(self) -> bool: ...


D = TypeVar("D", bound=InstanceDriver)


class Instance(Generic[D]):
    """Instance: a client node, its driver, and the clients that use them."""

    def __init__(self, key: Hashable, node: ClientNode) -> None:
        self.key = key
        self.node = node
        self.driver: D
        self.clients: set[BaseClient] = set()
        #: Held by whoever starts the driver, of the runtime's kind: who comes second waits until it has started.
        self.lock: Any
        self.started = False


class Instances(Generic[D]):
    """Table of the instances of one runtime. `scope` separates what cannot share a driver (event loops, hubs)."""

    def __init__(
        self,
        make_driver: Callable[[Instance[D], str], D],
        make_lock: Callable[[], Any] = threading.Lock,
        scope: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self._make_driver = make_driver
        self._make_lock = make_lock
        self._scope = scope
        self._lock = threading.Lock()
        self._table: dict[Hashable, Instance[D]] = {}
        _tables.add(self)

    def join(self, client: BaseClient) -> Instance[D]:
        """The instance that the client belongs to from now on (`_instance`); its driver may not have started."""
        key = (self._scope(), client._instance_key)
        with self._lock:
            for other in list(self._table.values()):
                if other.driver.is_over():  # it has failed, or its event loop has ended under it
                    del self._table[other.key]
            instance = self._table.get(key)
            if instance is None:
                instance = Instance(key, client._new_node())
                instance.lock = self._make_lock()
                instance.driver = self._make_driver(instance, client._name())
                instance.driver.tls = client._tls
            client._instance = instance  # first: wherever an interrupt comes, leaving undoes the rest
            client._node = instance.node
            instance.clients.add(client)
            self._table[key] = instance
        client._joined(instance.node)
        client._has_joined = True
        return instance

    def leave(self, instance: Instance[D], client: BaseClient) -> bool:
        """The client is about to end; whether it is the last, who stops the driver.

        Nobody joins an instance that is being stopped.
        """
        with self._lock:
            instance.clients.discard(client)
            if instance.clients:
                return False
            if self._table.get(instance.key) is instance:
                del self._table[instance.key]
            return True

    def forget_after_fork(self) -> None:
        """In the child of a fork."""
        self._lock = threading.Lock()
        self._table = {}


def deliver(task: object) -> None:
    """Hand a task of a `Deliver` action to its client: the one that its core was given as the listener."""
    task.listener._deliver(task)  # type: ignore[attr-defined]


_tables: weakref.WeakSet[Instances[Any]] = weakref.WeakSet()


def _forget() -> None:
    for table in list(_tables):
        table.forget_after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget)
