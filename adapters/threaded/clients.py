"""Clients whose methods wait in the calling thread; listeners run in threads of a pool."""

from __future__ import annotations

from adapters.sync import SyncProducer, SyncPushConsumer
from adapters.threaded.kit import ThreadKit


class Producer(SyncProducer):
    __doc__ = SyncProducer.__doc__
    _kit = ThreadKit()


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _kit = ThreadKit()
