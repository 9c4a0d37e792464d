"""Broken clients are found by scenarios: each test breaks the code in one place and names what is found then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mqproto.adapters.simulated import client_scenario, pull_clients
from mqproto.adapters.simulated.client_scenario import ClientScenario
from mqproto.codec import Command
from mqproto.message import ConsumeStatus, MessageExt, SendResult, SendStatus
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull.in_hand import MessagesInHand
from mqproto.state.consumer.push.concurrent import ConcurrentConsumption
from mqproto.state.consumer.push.held_messages import HeldMessages
from mqproto.state.consumer.push.orderly import OrderlyConsumption
from mqproto.state.consumer.push.queue_locks import HeldQueueLocks
from mqproto.state.flows.effects import Flow, Sleep
from mqproto.state.flows.tasks import TaskNode
from mqproto.state.node.contract import Ticket
from mqproto.state.producer import transactions
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.request_reply import RequestReply
from mqproto.state.producer.send_window import SendWindow
from mqproto.transactions import LocalTransactionState
from mqproto.wire.flags import TRANSACTION_COMMIT

Patch = pytest.MonkeyPatch


def acknowledges_what_was_lost(patch: Patch) -> None:
    good = ProducerCore._result

    def broken(self: ProducerCore, outcome: Any, queue: Any, parcel: Any, address: str) -> Any:
        if isinstance(outcome, Command):
            return good(self, outcome, queue, parcel, address)
        return SendResult(SendStatus.SEND_OK, parcel.msg_id, queue, 10_000)

    patch.setattr(ProducerCore, "_result", broken)


def settles_twice(patch: Patch) -> None:
    good = TaskNode._end

    def broken(self: TaskNode, task: Any, failure: Any, now: int) -> None:
        good(self, task, failure, now)
        if task.of_application and failure is not None:
            self.actions.append(task.ticket)

    patch.setattr(TaskNode, "_end", broken)


def keeps_room_of_failed_sends(patch: Patch) -> None:
    good = ProducerCore._attempts

    def broken(self: ProducerCore, *arguments: Any) -> Flow[SendResult]:
        try:
            return (yield from good(self, *arguments))
        except Exception:
            self.window.enter(1, 1)
            raise

    patch.setattr(ProducerCore, "_attempts", broken)


def lets_everybody_into_the_window(patch: Patch) -> None:
    patch.setattr(SendWindow, "_fits", lambda self, messages, size: True)


def sends_again_what_is_settled(patch: Patch) -> None:
    good = ProducerCore._attempts

    def again(self: ProducerCore, now: int, *arguments: Any) -> Flow[None]:
        _, now = yield Sleep(now + 500)
        parcel, _, target, _, *others = arguments
        yield from good(self, parcel, now, target, now + 3_000, *others)

    def broken(self: ProducerCore, *arguments: Any) -> Flow[SendResult]:
        result = yield from good(self, *arguments)
        self._host.spawn(again(self, arguments[1], *arguments[:7]), arguments[1])  # type: ignore[attr-defined]
        return result

    patch.setattr(ProducerCore, "_attempts", broken)


def commits_before_processing(patch: Patch) -> None:
    patch.setattr(ProcessQueue, "commit_offset", property(lambda self: self.next_offset))


def loses_what_an_interrupted_poll_got(patch: Patch) -> None:
    patch.setattr(MessagesInHand, "put_back", lambda self, batch: None)


def loses_what_an_interrupted_iteration_got(patch: Patch) -> None:
    def broken(self: HeldMessages, claim: Any, now: int) -> None:
        if claim.message is not None:
            self._host.ack(claim.message, now)  # type: ignore[attr-defined]

    patch.setattr(HeldMessages, "give_back", broken)


def forgets_what_failed(patch: Patch) -> None:
    good = ConcurrentConsumption.consumed

    def broken(self: ConcurrentConsumption, task: Any, result: object, now: int) -> None:
        good(self, task, ConsumeStatus.SUCCESS, now)

    patch.setattr(ConcurrentConsumption, "consumed", broken)


def passes_over_what_failed_in_order(patch: Patch) -> None:
    good = OrderlyConsumption.consumed

    def broken(self: OrderlyConsumption, task: Any, result: object, now: int) -> None:
        good(self, task, ConsumeStatus.SUCCESS, now)

    patch.setattr(OrderlyConsumption, "consumed", broken)


def commits_what_was_rolled_back(patch: Patch) -> None:
    good = OrderlyConsumption._conclude

    def broken(self: OrderlyConsumption, task: Any, result: object, *others: Any) -> None:
        good(self, task, ConsumeStatus.COMMIT if result is ConsumeStatus.ROLLBACK else result, *others)

    patch.setattr(OrderlyConsumption, "_conclude", broken)


def consumes_without_a_lock(patch: Patch) -> None:
    def acquire(self: HeldQueueLocks, queue: Any, now: int) -> Flow[tuple[bool, int]]:
        yield from ()
        self._locked_at[queue] = now
        return True, now

    patch.setattr(HeldQueueLocks, "acquire", acquire)
    patch.setattr(HeldQueueLocks, "is_valid", lambda self, queue, now: True)


def never_renews_its_locks(patch: Patch) -> None:
    def renew(self: HeldQueueLocks, queues: Any, now: int) -> Flow[tuple[list[Any], int]]:
        yield from ()
        return [], now

    patch.setattr(HeldQueueLocks, "renew", renew)
    patch.setattr(HeldQueueLocks, "is_valid", lambda self, queue, now: queue in self._locked_at)


def commits_every_transaction(patch: Patch) -> None:
    patch.setattr(transactions, "_WIRE", dict.fromkeys(LocalTransactionState, TRANSACTION_COMMIT))


def gives_any_reply(patch: Patch) -> None:
    good = RequestReply.replied

    def broken(self: RequestReply, header: Any, body: bytes, now: int) -> None:
        first = next(iter(self._waiting), None)
        good(self, header, body, now) if first is None else self._host.wake(self._taken(first, header, body), now)  # type: ignore[attr-defined]

    def taken(self: RequestReply, first: str, header: Any, body: bytes) -> Ticket[None]:
        waiting = self._waiting[first]
        waiting.reply = MessageExt(header.topic, body, {})
        return waiting.over

    patch.setattr(RequestReply, "_taken", taken, raising=False)
    patch.setattr(RequestReply, "replied", broken)


def pulls_on_in_a_queue_of_others(patch: Patch) -> None:
    """The application's mistake, so that the check itself is tried: it commits what it has not worked on."""
    good = pull_clients.PullClient._worked

    def broken(self: pull_clients.PullClient, delivery: Any, loop: object, next_offset: int) -> None:
        good(self, delivery, loop, next_offset + 5)

    patch.setattr(pull_clients.PullClient, "_worked", broken)


def shares_out_in_two_ways(patch: Patch) -> None:
    good = ClientScenario._member

    def broken(self: ClientScenario, group: str) -> Any:
        self.strategies[group] = "AVG" if self.strategies[group] != "AVG" else "AVG_BY_CIRCLE"
        return good(self, group)

    patch.setattr(client_scenario.ClientScenario, "_member", broken)


BREAKS: list[tuple[Callable[[Patch], None], str, tuple[str, ...], str]] = [
    (acknowledges_what_was_lost, "crash broker", ("readers",), "not ["),
    (settles_twice, "crash broker", ("readers",), "was settled 2 times"),
    (keeps_room_of_failed_sends, "crash broker", ("readers",), "still counts"),
    (lets_everybody_into_the_window, "slow disk", ("readers",), "in flight, by its"),
    (sends_again_what_is_settled, "answers twice", ("readers",), "was sent at"),
    (commits_before_processing, "join", ("readers",), "has not finished"),
    (commits_before_processing, "join", ("keepers",), "has not finished"),
    (commits_before_processing, "join", ("pollers",), "has not finished"),
    (loses_what_an_interrupted_poll_got, "join", ("pollers",), "has not finished"),
    (loses_what_an_interrupted_iteration_got, "join", ("walkers",), "has not finished"),
    (forgets_what_failed, "join", ("readers",), "was never consumed"),
    (passes_over_what_failed_in_order, "join", ("clerks",), "had succeeded"),
    (commits_what_was_rolled_back, "join", ("cashiers",), "had succeeded"),
    (consumes_without_a_lock, "join", ("keepers",), "was with"),
    (never_renews_its_locks, "join", ("keepers",), "was with"),
    (commits_every_transaction, "crash broker", ("readers",), "was not committed and is there"),
    (gives_any_reply, "crash broker", ("readers",), "was answered by"),
    (pulls_on_in_a_queue_of_others, "crash broker", ("pullers",), "has not finished"),
    (shares_out_in_two_ways, "join", ("pullers",), "is with"),
]


@pytest.mark.parametrize(
    ("break_it", "fault", "groups", "wanted"),
    BREAKS,
    ids=[f"{one.__name__}-{groups[0]}" for one, _, groups, _ in BREAKS],
)
def test_a_broken_client_is_found(
    break_it: Callable[[Patch], None], fault: str, groups: tuple[str, ...], wanted: str, monkeypatch: Patch
) -> None:
    break_it(monkeypatch)
    violations: list[str] = []
    for seed in range(6):
        scenario = ClientScenario(seed, steps=25, faults=(fault, "burst"), groups=groups)
        scenario.failure_rate, scenario.slowness_ms = 0.3, 500
        violations += scenario.play()
        if any(wanted in violation for violation in violations):
            return
    raise AssertionError(violations or "nothing is found")
