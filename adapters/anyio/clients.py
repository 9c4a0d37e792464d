"""Clients for asyncio and trio: methods that wait are coroutines, listeners run in tasks, or in threads."""

from __future__ import annotations

from mqproto.adapters.anyio.runtime import RUNTIME
from mqproto.adapters.coroutines.lite_pull_consumer import AsyncLitePullConsumer
from mqproto.adapters.coroutines.producer import AsyncProducer
from mqproto.adapters.coroutines.pull_consumer import AsyncPullConsumer
from mqproto.adapters.coroutines.push_consumer import AsyncPushConsumer
from mqproto.adapters.coroutines.simple_consumer import AsyncSimpleConsumer
from mqproto.adapters.coroutines.transaction_producer import AsyncTransactionProducer


class LitePullConsumer(AsyncLitePullConsumer):
    __doc__ = AsyncLitePullConsumer.__doc__
    _runtime = RUNTIME


class Producer(AsyncProducer):
    __doc__ = AsyncProducer.__doc__
    _runtime = RUNTIME


class PullConsumer(AsyncPullConsumer):
    __doc__ = AsyncPullConsumer.__doc__
    _runtime = RUNTIME


class PushConsumer(AsyncPushConsumer):
    __doc__ = (AsyncPushConsumer.__doc__ or "") + "A listener that is no coroutine function runs in a thread."
    _runtime = RUNTIME


class SimpleConsumer(AsyncSimpleConsumer):
    __doc__ = AsyncSimpleConsumer.__doc__
    _runtime = RUNTIME


class TransactionProducer(AsyncTransactionProducer):
    __doc__ = (
        AsyncTransactionProducer.__doc__ or ""
    ) + "Methods of the listener that are no coroutine functions run in threads."
    _runtime = RUNTIME
