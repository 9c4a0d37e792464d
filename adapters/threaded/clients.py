"""Clients whose methods wait in the calling thread; listeners run in threads of a pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Concatenate, ParamSpec, TypeVar, cast

from mqproto.adapters.sync.admin import SyncAdmin
from mqproto.adapters.sync.lite_pull_consumer import SyncLitePullConsumer
from mqproto.adapters.sync.producer import SyncProducer
from mqproto.adapters.sync.pull_consumer import SyncPullConsumer
from mqproto.adapters.sync.push_consumer import SyncPushConsumer
from mqproto.adapters.sync.runtime import AnySendFuture
from mqproto.adapters.sync.simple_consumer import SyncConsumer
from mqproto.adapters.sync.transaction_producer import SyncTransactionProducer
from mqproto.adapters.threaded.runtime import RUNTIME

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def _futures(method: Callable[Concatenate[S, P], AnySendFuture[T]]) -> Callable[Concatenate[S, P], Future[T]]:
    """The method itself, with the type that it has here: futures of this kit are the standard library's, for `wait` and
    `as_completed`.
    """
    return cast("Callable[Concatenate[S, P], Future[T]]", method)


class Admin(SyncAdmin):
    __doc__ = SyncAdmin.__doc__
    _runtime = RUNTIME


class SimpleConsumer(SyncConsumer):
    __doc__ = SyncConsumer.__doc__
    _runtime = RUNTIME


class LitePullConsumer(SyncLitePullConsumer):
    __doc__ = SyncLitePullConsumer.__doc__
    _runtime = RUNTIME
    commit_async = _futures(SyncLitePullConsumer.commit_async)


class Producer(SyncProducer):
    __doc__ = SyncProducer.__doc__
    _runtime = RUNTIME
    submit = _futures(SyncProducer.submit)
    submit_request = _futures(SyncProducer.submit_request)


class PullConsumer(SyncPullConsumer):
    __doc__ = SyncPullConsumer.__doc__
    _runtime = RUNTIME
    pull_async = _futures(SyncPullConsumer.pull_async)
    pull_block_if_not_found_async = _futures(SyncPullConsumer.pull_block_if_not_found_async)


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _runtime = RUNTIME


class TransactionProducer(SyncTransactionProducer):
    __doc__ = SyncTransactionProducer.__doc__
    _runtime = RUNTIME
    submit = _futures(SyncTransactionProducer.submit)
    submit_request = _futures(SyncTransactionProducer.submit_request)
