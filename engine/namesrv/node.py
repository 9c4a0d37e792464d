"""The name server node.

Owns: its links, which brokers are alive, which topics they hold, and the key/value configuration.
Leaves to others: files (jobs that the caller makes), sockets, clocks and threads (the driver).

Listener: "main" (`listenPort`).
"""

from __future__ import annotations

from collections.abc import Callable

from engine.settings import NamesrvSettings
from mqproto.state.node import Job, Link, NodeBase


class NameServer(NodeBase):
    """One name server.

    `kv_config` is the text of the key/value configuration as it was saved last, None for none. `save_kv_config` and `save_settings`
    make the job that saves a text; without them nothing outlives the process.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        *,
        kv_config: str | None = None,
        save_kv_config: Callable[[str], Job] | None = None,
        save_settings: Callable[[str], Job] | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings

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
