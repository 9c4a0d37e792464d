"""The broker node.

Owns: its links, what each of their requests means, topics, groups, offsets, parked pulls and delayed messages.
Leaves to others: bytes on disk (`engine.store`), sockets, clocks and threads (the driver).

Listeners: "main" (`listenPort`) and "fast" (`listenPort` - 2: everything but pulls).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqproto.state.node import Job, Link, NodeBase

if TYPE_CHECKING:
    from engine.settings import BrokerSettings
    from engine.store import Store


class Broker(NodeBase):
    """One broker over one store.

    `host` and `port` are the numeric address that clients are told (brokerIP1 and the port that the "main" listener is really
    bound to; part of every message id). `seed` feeds the choice of queues. The store is open already; the broker closes it.
    """

    def __init__(self, settings: BrokerSettings, store: Store, *, host: str, port: int, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.store = store
        self.address = f"{host}:{port}"

    @property
    def ended(self) -> bool:
        return False

    def begin(self, now: int) -> None: ...

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        return Link(address, listener)

    def opened(self, link: Link, now: int) -> None: ...

    def received(self, link: Link, data: bytes, now: int) -> None: ...

    def closed(self, link: Link, reason: str, now: int) -> None: ...

    def timer(self, now: int) -> None: ...

    def done(self, job: Job, failure: Exception | None, now: int) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    def close(self, now: int) -> None: ...
