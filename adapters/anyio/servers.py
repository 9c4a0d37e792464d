"""Servers in this process, each driven by tasks of its own."""

from __future__ import annotations

from mqproto.adapters.anyio.runtime import RUNTIME
from mqproto.adapters.coroutines.servers import AsyncBroker, AsyncNameServer, AsyncStandalone


class NameServer(AsyncNameServer):
    __doc__ = AsyncNameServer.__doc__
    _runtime = RUNTIME


class Broker(AsyncBroker):
    __doc__ = AsyncBroker.__doc__
    _runtime = RUNTIME


class Standalone(AsyncStandalone):
    __doc__ = AsyncStandalone.__doc__
    _runtime = RUNTIME
