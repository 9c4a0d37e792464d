"""Servers in this process, each driven by a greenlet of its own."""

from __future__ import annotations

from mqproto.adapters.gevent.runtime import RUNTIME
from mqproto.adapters.sync.servers import SyncBroker, SyncNameServer, SyncStandalone


class NameServer(SyncNameServer):
    __doc__ = SyncNameServer.__doc__
    _runtime = RUNTIME


class Broker(SyncBroker):
    __doc__ = SyncBroker.__doc__
    _runtime = RUNTIME


class Standalone(SyncStandalone):
    __doc__ = SyncStandalone.__doc__
    _runtime = RUNTIME
