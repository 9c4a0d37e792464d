"""Clients whose methods wait in the calling greenlet; listeners run in greenlets."""

from __future__ import annotations

from adapters.gevent.kit import GeventKit
from adapters.sync import SyncProducer, SyncPushConsumer


class Producer(SyncProducer):
    __doc__ = SyncProducer.__doc__
    _kit = GeventKit()


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _kit = GeventKit()
