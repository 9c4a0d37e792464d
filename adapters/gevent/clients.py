"""Clients whose methods wait in the calling greenlet; listeners run in greenlets."""

from __future__ import annotations

from mqproto.adapters.gevent.runtime import RUNTIME
from mqproto.adapters.sync.producer import SyncProducer
from mqproto.adapters.sync.producer_futures import ProducerFutures
from mqproto.adapters.sync.pull_futures import LitePullFutures, PullFutures
from mqproto.adapters.sync.push_consumer import SyncPushConsumer
from mqproto.adapters.sync.simple_consumer import SyncSimpleConsumer
from mqproto.adapters.sync.transaction_producer import SyncTransactionProducer


class LitePullConsumer(LitePullFutures):
    __doc__ = LitePullFutures.__doc__
    _runtime = RUNTIME


class Producer(ProducerFutures):
    __doc__ = SyncProducer.__doc__
    _runtime = RUNTIME


class PullConsumer(PullFutures):
    __doc__ = PullFutures.__doc__
    _runtime = RUNTIME


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _runtime = RUNTIME


class SimpleConsumer(SyncSimpleConsumer):
    __doc__ = SyncSimpleConsumer.__doc__
    _runtime = RUNTIME


class TransactionProducer(ProducerFutures, SyncTransactionProducer):
    __doc__ = SyncTransactionProducer.__doc__
    _runtime = RUNTIME
