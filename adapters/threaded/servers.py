"""Servers in this process, each driven by a thread of its own."""

from __future__ import annotations

from mqproto.adapters.sync.servers import SyncBroker, SyncNameServer, SyncStandalone
from mqproto.adapters.threaded.runtime import RUNTIME


class NameServer(SyncNameServer):
    __doc__ = SyncNameServer.__doc__
    _runtime = RUNTIME


class Broker(SyncBroker):
    __doc__ = SyncBroker.__doc__
    _runtime = RUNTIME


class Standalone(SyncStandalone):
    __doc__ = SyncStandalone.__doc__
    _runtime = RUNTIME
