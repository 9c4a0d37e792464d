"""Clients whose methods wait in the calling greenlet; listeners run in greenlets."""

from __future__ import annotations

from mqproto.adapters.gevent.runtime import RUNTIME
from mqproto.adapters.sync.admin import SyncAdmin
from mqproto.adapters.sync.lite_pull_consumer import SyncLitePullConsumer
from mqproto.adapters.sync.producer import SyncProducer
from mqproto.adapters.sync.pull_consumer import SyncPullConsumer
from mqproto.adapters.sync.push_consumer import SyncPushConsumer
from mqproto.adapters.sync.simple_consumer import SyncConsumer
from mqproto.adapters.sync.transaction_producer import SyncTransactionProducer


class Admin(SyncAdmin):
    __doc__ = SyncAdmin.__doc__
    _runtime = RUNTIME


class SimpleConsumer(SyncConsumer):
    __doc__ = SyncConsumer.__doc__
    _runtime = RUNTIME


class LitePullConsumer(SyncLitePullConsumer):
    __doc__ = SyncLitePullConsumer.__doc__
    _runtime = RUNTIME


class Producer(SyncProducer):
    __doc__ = SyncProducer.__doc__
    _runtime = RUNTIME


class PullConsumer(SyncPullConsumer):
    __doc__ = SyncPullConsumer.__doc__
    _runtime = RUNTIME


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _runtime = RUNTIME


class TransactionProducer(SyncTransactionProducer):
    __doc__ = SyncTransactionProducer.__doc__
    _runtime = RUNTIME
