"""Types of the futures of threads: `concurrent.futures` takes them as they are. They are checked with the tree's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from typing import assert_type

import pytest

from mqproto import LocalTransactionState, Message, MessageExt, MessageQueue, PullResult, SendResult, SendStatus
from mqproto.adapters.threaded import LitePullConsumer, Producer, PullConsumer, Standalone, TransactionProducer
from tests.adapters.harness import PATIENCE


@pytest.fixture
def names() -> Iterator[str]:
    with Standalone() as server:
        yield server.namesrv_address


def submit(producer: Producer | TransactionProducer) -> list[MessageQueue]:
    """Send and wait with the standard library; the queues, in the order of the sends."""
    futures = [producer.submit(Message("T", b"x")) for _ in range(3)]
    assert_type(futures, list[Future[SendResult]])
    done, left = wait(futures, PATIENCE)
    assert_type(done, set[Future[SendResult]])
    assert (done, left) == (set(futures), set())
    assert {future.result().status for future in as_completed(futures)} == {SendStatus.SEND_OK}
    return [future.result().queue for future in futures]


def judge(message: object, argument: object = None) -> LocalTransactionState:
    return LocalTransactionState.UNKNOW


def test_sends_and_requests(names: str) -> None:
    with Producer("p", names) as producer:
        submit(producer)
        request = producer.submit_request(Message("T", b"x"), timeout_ms=1)
        assert_type(request, Future[MessageExt])
        assert wait([request], PATIENCE).done == {request}
        assert request.exception() is not None, "nobody answers"
    with TransactionProducer("t", (judge, judge), names) as transactions:
        submit(transactions)


def test_pulls_and_commits(names: str) -> None:
    with Producer("p", names) as producer:
        queue = submit(producer)[0]
    with PullConsumer("g", names) as consumer:
        pulls = [consumer.pull_async(queue, "*", 0), consumer.pull_block_if_not_found_async(queue, "*", 0, max_nums=1)]
        assert_type(pulls, list[Future[PullResult]])
        assert [future.result(PATIENCE).messages[0].body for future in pulls] == [b"x", b"x"]
        assert len(list(as_completed(pulls))) == 2
    polling = LitePullConsumer("l", names)
    polling.assign([queue])
    with polling:
        committed = polling.commit_async({queue: 1})
        assert_type(committed, Future[None])
        assert wait([committed], PATIENCE).done == {committed}
        assert committed.exception() is None
