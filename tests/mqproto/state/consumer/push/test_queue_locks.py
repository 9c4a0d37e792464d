"""Locks of queues for ordered consumption."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.errors import BrokerError, CallExpired, MQError, NoRoute, RemoteProtocolError, TooManyRequests
from mqproto.message import MessageQueue
from mqproto.state.consumer.push.queue_locks import HeldQueueLocks
from mqproto.state.flows.effects import Call, Expired, Flow, Sleep
from mqproto.wire.bodies import LockAnswer, LockRequest
from mqproto.wire.codes import RequestCode

A0, A1, B0 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)


class Host:
    group = "g"
    client_id = "me"

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
        yield from ()
        if queue.broker_name == "gone":
            raise NoRoute(queue.topic)
        return f"{queue.broker_name}:1", now


def body(*queues: MessageQueue) -> bytes:
    return LockRequest("g", "me", list(queues)).to_json()


def granted(*queues: MessageQueue) -> Command:
    return Command(code=0, flag=1, body=LockAnswer(list(queues)).to_json())


def ended(flow: Flow[object], outcome: object, now: int) -> object:
    with pytest.raises(StopIteration) as stop:
        flow.send((outcome, now))
    return stop.value.value


@pytest.fixture
def locks() -> HeldQueueLocks:
    return HeldQueueLocks(Host())


def acquire(locks: HeldQueueLocks, queue: MessageQueue, now: int, *others: MessageQueue) -> object:
    flow = locks.acquire(queue, now)
    next(flow)
    return ended(flow, granted(queue, *others), now + 5)


def test_the_request_is_that_of_java(locks: HeldQueueLocks) -> None:
    """docs/protocol/wire.md 15: a small d in clientId."""
    flow = locks.acquire(A0, 7)
    sent = b'{"clientId":"me","consumerGroup":"g","mqSet":[{"brokerName":"a","queueId":0,"topic":"T"}]}'
    assert next(flow) == Call("a:1", RequestCode.LOCK_BATCH_MQ, {}, sent, deadline=1_007)
    assert ended(flow, granted(A0), 9) == (True, 9)


def test_a_lock_is_trusted_for_half_a_minute_from_when_it_was_asked_for(locks: HeldQueueLocks) -> None:
    assert not locks.is_valid(A0, 0)
    assert acquire(locks, A0, 1_000) == (True, 1_005)
    assert locks.locked_at(A0) == 1_000
    assert locks.is_valid(A0, 31_000)
    assert not locks.is_valid(A0, 31_001)
    assert not locks.is_valid(A1, 1_000)


def test_what_another_member_has_is_not_ours(locks: HeldQueueLocks) -> None:
    flow = locks.acquire(A0, 0)
    next(flow)
    assert ended(flow, granted(), 5) == (False, 5)
    assert locks.locked_at(A0) is None


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Command(code=1, flag=1), BrokerError),
        (Expired("a:1", 1_000), CallExpired),
        (Command(code=0, flag=1, body=b"?"), RemoteProtocolError),
    ],
)
def test_trouble_is_an_error_and_no_lock(locks: HeldQueueLocks, outcome: object, error: type[MQError]) -> None:
    flow = locks.acquire(A0, 0)
    next(flow)
    with pytest.raises(error):
        flow.send((outcome, 5))
    assert locks.locked_at(A0) is None


def test_renewal_asks_each_broker_once_for_what_is_locked(locks: HeldQueueLocks) -> None:
    for queue in (A0, A1, B0):
        acquire(locks, queue, 0)
    flow = locks.renew([B0, A1, A0, MessageQueue("T", "a", 9)], 20_000)
    assert next(flow) == Call("a:1", RequestCode.LOCK_BATCH_MQ, {}, body(A0, A1), deadline=21_000)
    assert flow.send((granted(A0), 20_010)) == Call("b:1", RequestCode.LOCK_BATCH_MQ, {}, body(B0), deadline=21_010)
    assert ended(flow, granted(B0), 20_020) == ([A1], 20_020)
    assert [locks.locked_at(queue) for queue in (A0, A1, B0)] == [20_000, None, 20_010]


def test_a_broker_that_does_not_answer_leaves_locks_to_run_out(locks: HeldQueueLocks) -> None:
    acquire(locks, A0, 0)
    acquire(locks, B0, 0)
    flow = locks.renew([A0, B0], 20_000)
    next(flow)
    assert flow.send((Expired("a:1", 1_000), 21_000)) == Sleep(20_000)
    assert flow.send((None, 21_001)) == Call("b:1", RequestCode.LOCK_BATCH_MQ, {}, body(B0), deadline=22_001)
    assert ended(flow, granted(B0), 21_002) == ([], 21_002)
    assert locks.is_valid(A0, 30_000)
    assert not locks.is_valid(A0, 30_001)


def test_unlocking_names_what_is_locked(locks: HeldQueueLocks) -> None:
    for queue in (A0, A1, B0):
        acquire(locks, queue, 0)
    flow = locks.release([A0, A1, MessageQueue("T", "a", 9), B0], 5)
    assert next(flow) == Call("a:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(A0, A1), deadline=1_005)
    assert flow.send((None, 6)) == Call("b:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(B0), deadline=1_006)
    assert ended(flow, None, 7) is None
    assert locks.locked_at(A0) is None
    with pytest.raises(StopIteration):
        next(locks.release([A0], 8))


@pytest.mark.parametrize("outcome", [None, Expired("a:1", 1_000)], ids=["given up meanwhile", "no answer"])
def test_what_was_asked_for_is_unlocked_although_nobody_knows_whether_it_is_ours(
    locks: HeldQueueLocks, outcome: Expired | None
) -> None:
    """The broker has locked it, and for a minute no other member would get it."""
    flow = locks.acquire(A0, 0)
    next(flow)
    if outcome is None:
        flow.close()
    else:
        with pytest.raises(CallExpired):
            flow.send((outcome, 1_000))
    assert next(locks.release([A0], 1_000)) == Call("a:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(A0), deadline=2_000)
    with pytest.raises(StopIteration):
        next(locks.release([A0], 1_001))


def test_what_another_member_has_is_not_unlocked(locks: HeldQueueLocks) -> None:
    flow = locks.acquire(A0, 0)
    next(flow)
    ended(flow, granted(), 5)
    with pytest.raises(StopIteration):
        next(locks.release([A0], 6))


def test_unlocking_goes_on_behind_a_broker_that_does_not_answer(locks: HeldQueueLocks) -> None:
    for queue in (A0, B0):
        acquire(locks, queue, 0)
    flow = locks.release([A0, B0], 5)
    assert next(flow) == Call("a:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(A0), deadline=1_005)
    assert flow.send((Expired("a:1", 1_000), 1_005)) == Call(
        "b:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(B0), deadline=2_005
    )
    assert ended(flow, granted(), 1_006) is None


def test_unlocking_passes_over_a_broker_that_is_gone(locks: HeldQueueLocks) -> None:
    gone = MessageQueue("S", "gone", 0)
    locks._locked_at = {gone: 0, A0: 0}
    flow = locks.release([gone, A0], 5)
    assert next(flow) == Sleep(5)
    assert flow.send((None, 6)) == Call("a:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(A0), deadline=1_006)


def test_what_is_released_while_it_is_renewed_stays_released(locks: HeldQueueLocks) -> None:
    """Its renewal was granted before the broker was told: to believe that would keep the queue from everybody else for
    ever.
    """
    acquire(locks, A0, 0)
    acquire(locks, A1, 0)
    renewal = locks.renew(locks.held(), 20_000)
    next(renewal)
    release = locks.release([A0], 20_010)
    assert isinstance(next(release), Call)
    again = renewal.send((granted(A0, A1), 20_020))
    assert again == Call("a:1", RequestCode.UNLOCK_BATCH_MQ, {}, body(A0), deadline=21_020), (
        "it may have been renewed later than that"
    )
    assert ended(renewal, granted(), 20_030) == ([], 20_030)
    assert locks.held() == [A1]
    assert locks.locked_at(A1) == 20_000


def test_renewing_goes_on_where_such_a_lock_cannot_be_given_back(locks: HeldQueueLocks) -> None:
    acquire(locks, A0, 0)
    acquire(locks, B0, 0)
    renewal = locks.renew(locks.held(), 20_000)
    next(renewal)
    next(locks.release([A0], 20_010))
    assert isinstance(renewal.send((granted(A0), 20_020)), Call)
    assert renewal.throw(TooManyRequests("full")) == Sleep(20_020)
    assert renewal.send((None, 20_021)) == Call("b:1", RequestCode.LOCK_BATCH_MQ, {}, body(B0), deadline=21_021)
    assert ended(renewal, granted(B0), 20_030) == ([], 20_030)


def test_what_is_locked_anew_while_it_is_renewed_stays_locked(locks: HeldQueueLocks) -> None:
    acquire(locks, A0, 0)
    renewal = locks.renew(locks.held(), 20_000)
    next(renewal)
    next(locks.release([A0], 20_010))
    acquiring = locks.acquire(A0, 20_011)
    next(acquiring)
    assert ended(renewal, granted(A0), 20_020) == ([], 20_020)
    assert ended(acquiring, granted(A0), 20_021) == (True, 20_021)
    assert locks.held() == [A0]
