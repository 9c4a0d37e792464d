"""Clients whose methods wait in the calling thread; listeners run in threads of a pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Concatenate, ParamSpec, TypeVar, cast

from mqproto.adapters.sync.producer import SyncProducer
from mqproto.adapters.sync.producer_futures import ProducerFutures
from mqproto.adapters.sync.pull_futures import LitePullFutures, PullFutures
from mqproto.adapters.sync.push_consumer import SyncPushConsumer
from mqproto.adapters.sync.runtime import AnySendFuture
from mqproto.adapters.sync.simple_consumer import SyncSimpleConsumer
from mqproto.adapters.sync.transaction_producer import SyncTransactionProducer
from mqproto.adapters.threaded.runtime import RUNTIME

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def _futures(method: Callable[Concatenate[S, P], AnySendFuture[T]]) -> Callable[Concatenate[S, P], Future[T]]:
    """The method itself, with the type that it has here: futures of this runtime are the standard library's, for `wait`
    and `as_completed`.
    """
    return cast("Callable[Concatenate[S, P], Future[T]]", method)


class LitePullConsumer(LitePullFutures):
    __doc__ = LitePullFutures.__doc__
    _runtime = RUNTIME
    commit_async = _futures(LitePullFutures.commit_async)


class Producer(ProducerFutures):
    __doc__ = SyncProducer.__doc__
    _runtime = RUNTIME
    submit = _futures(ProducerFutures.submit)
    submit_request = _futures(ProducerFutures.submit_request)


class PullConsumer(PullFutures):
    __doc__ = PullFutures.__doc__
    _runtime = RUNTIME
    pull_async = _futures(PullFutures.pull_async)
    pull_block_if_not_found_async = _futures(PullFutures.pull_block_if_not_found_async)


class PushConsumer(SyncPushConsumer):
    __doc__ = SyncPushConsumer.__doc__
    _runtime = RUNTIME


class SimpleConsumer(SyncSimpleConsumer):
    __doc__ = SyncSimpleConsumer.__doc__
    _runtime = RUNTIME


class TransactionProducer(ProducerFutures, SyncTransactionProducer):
    __doc__ = SyncTransactionProducer.__doc__
    _runtime = RUNTIME
    submit = _futures(ProducerFutures.submit)
    submit_request = _futures(ProducerFutures.submit_request)
