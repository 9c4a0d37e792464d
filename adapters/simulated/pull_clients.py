"""Simulated consumers without a listener: those that take message by message, those that poll, and those that pull
queue by queue.

Each is a program that gets messages, works on them for a while and says so, again and again. It is interrupted now and
then, as real callers are: it gives up a call that waits, or never learns what came of one, and its messages must come
again.

Owns: what such programs do, and what of it goes on record.
Leaves to others: the consumers themselves (`mqproto.state`), what must be true of them (`checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from mqproto.adapters.base.settings.client_settings import (
    consumer_settings,
    lite_pull_settings,
    pull_consumer_settings,
    strategy_option,
)
from mqproto.adapters.base.settings.options import ConsumerOptions, LitePullOptions, PullConsumerOptions
from mqproto.adapters.simulated.clients import Listener, SimulatedConsumer, SimulatedMember, Takes
from mqproto.adapters.simulated.records import Delivery, RecordedOperation
from mqproto.errors import MQError
from mqproto.message import ConsumeStatus, MessageExt, MessageQueue, PullResult
from mqproto.state.consumer.life import Phase
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull.base import ListenerCall
from mqproto.state.consumer.pull.in_hand import Claim as PollClaim
from mqproto.state.consumer.pull.lite_pull_consumer import LitePullConsumerCore
from mqproto.state.consumer.pull.pull_consumer import PullConsumerCore
from mqproto.state.consumer.push.held_messages import HeldClaim
from mqproto.state.consumer.push.simple_consumer import ClaimExpired, SimpleConsumerCore
from mqproto.state.flows.effects import Flow
from mqproto.state.node.contract import Deliver, Ticket
from mqproto.wire.filters.tags import TAG

if TYPE_CHECKING:
    from mqproto.adapters.simulated.cluster import Cluster

#: How long a poll waits.
POLL_MS: Final = 1_000
#: How soon a program tries again what failed.
PAUSE_MS: Final = 1_000
#: Chance of a caller to be interrupted.
INTERRUPTED: Final = 0.05


def never() -> bool:
    return False


class SimpleClient(SimulatedConsumer):
    """A push consumer without a listener, with `tasks` loops that take a message, work on it and acknowledge it, or let
    it come again.

    The `verdict` is given a list of one message, as a listener is. Where `forgets` says so a message is never settled.
    """

    core: SimpleConsumerCore

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        verdict: Listener,
        topics: Sequence[str],
        takes_ms: Takes,
        options: ConsumerOptions,
        *,
        tasks: int = 2,
        forgets: Callable[[], bool] = never,
    ) -> None:
        self.tasks = tasks
        self.forgets = forgets
        self._working: dict[int, Delivery] = {}
        super().__init__(cluster, group, verdict, topics, "*", takes_ms, options)

    def make_core(self, group: str, options: ConsumerOptions) -> SimpleConsumerCore:
        return SimpleConsumerCore(
            self.node, consumer_settings(group, options), self.listener, strategy=strategy_option(options)
        )

    def begin_of_life(self, now: int) -> Flow[None]:
        yield from self.core.start(now)
        for _ in range(self.tasks):
            self.later(0, self._take)

    def _take(self) -> None:
        claim = HeldClaim()
        operation = self.operate(
            "receive",
            lambda now: self.core.held.receive(claim, None, now),
            None,
            lambda ticket: self._took(ticket, claim),
        )
        if operation is not None:
            interrupt_sometimes(self, operation)

    def _took(self, ticket: Ticket[MessageExt | None], claim: HeldClaim) -> None:
        random = self.cluster.simulator.random
        if ticket.failure is not None or random.random() < INTERRUPTED:  # the program does not know what it got
            self.host.enter(lambda now: self.core.held.give_back(claim, now))
            if self.core.phase is Phase.RUNNING:
                self.later(1, self._take)
            return
        message = ticket.result()
        if message is None:  # closed
            return
        task = self.core.held.taken[id(message)]
        self._working[id(message)] = self.delivered(task.context.queue, task.process_queue, [message])
        if self.forgets():
            self.later(1, self._take)
        else:
            self.later(self.work_ms(), lambda: self._settle(message))

    def _settle(self, message: MessageExt) -> None:
        result = self.verdict(message)

        def settle(now: int) -> None:
            if result is ConsumeStatus.SUCCESS:
                counts = self.core.ack(message, now)
            else:
                counts = self.core.retry_later(message, now, self.cluster.simulator.random.choice((0, 1)))
            delivery = self._working.pop(id(message), None)
            if delivery is not None and counts:
                self.cluster.records.ended(delivery, result, now)
            elif delivery is not None:
                delivery.ended = now

        self.host.enter(settle)
        self._take()

    def verdict(self, message: MessageExt) -> ConsumeStatus:
        try:
            return (
                ConsumeStatus.SUCCESS
                if self.listener([message]) is ConsumeStatus.SUCCESS
                else ConsumeStatus.RECONSUME_LATER
            )
        except RuntimeError:
            return ConsumeStatus.RECONSUME_LATER

    def _deliver(self, action: Deliver) -> None:
        assert isinstance(action.task, ClaimExpired)
        delivery = self._working.pop(id(action.task.message), None)
        if delivery is not None:
            self.cluster.records.ended(delivery, ConsumeStatus.RECONSUME_LATER, self.cluster.now)


def interrupt_sometimes(member: SimulatedMember, operation: RecordedOperation) -> None:
    """Now and then the caller of something that waits gives up."""
    random = member.cluster.simulator.random
    if random.random() < INTERRUPTED:
        member.later(random.randint(0, 3_000), lambda: member.cancel(operation))


class PollingClient(SimulatedMember):
    """A lite pull consumer: polls, works on what came, polls again, which says that the work is done; it commits by
    itself now and then unless that goes automatically, pauses a queue, or goes back to its beginning.
    """

    core: LitePullConsumerCore

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], takes_ms: Takes, options: LitePullOptions
    ) -> None:
        super().__init__(cluster, takes_ms, options)
        settings = lite_pull_settings(group, options)
        self.core = LitePullConsumerCore(self.node, settings, "face", strategy=strategy_option(options))
        self.restless: Callable[[], bool] = never
        self._working: list[Delivery] = []
        for topic in topics:
            self.host.enter(lambda now, topic=topic: self.core.subscribe(topic, "*", TAG, None, now))  # type: ignore[misc]
            self.note_expression(topic, "*")

    @property
    def queues(self) -> dict[MessageQueue, ProcessQueue]:
        return self.core._assignment.queues

    def begin_of_life(self, now: int) -> Flow[None]:
        yield from self.core.start(now)
        self.later(0, self._poll)

    def _poll(self) -> None:
        random = self.cluster.simulator.random
        claim = PollClaim()
        limit = random.choice((None, None, 1, 5))

        def begin(now: int) -> Flow[list[MessageExt]]:
            self._worked()
            return self.core.poll(claim, POLL_MS, limit, now)

        operation = self.operate("poll", begin, POLL_MS, lambda ticket: self._polled(ticket, claim))
        if operation is not None:
            interrupt_sometimes(self, operation)

    def _worked(self) -> None:
        """Everything that was handed out is done."""
        for delivery in self._working:
            self.cluster.records.ended(delivery, ConsumeStatus.SUCCESS, self.cluster.now)
        self._working.clear()

    def _polled(self, ticket: Ticket[list[MessageExt]], claim: PollClaim) -> None:
        if ticket.failure is not None or self.cluster.simulator.random.random() < INTERRUPTED:
            self.host.enter(lambda now: self.core.put_back(claim, now))
            if self.core.phase is Phase.RUNNING:
                self.later(1, self._poll)
            return
        batch, messages = claim.batch, ticket.result()
        if batch is not None:
            queue = self.cluster.namespace.unwrap_queue(batch.queue.queue)
            self._working.append(self.delivered(queue, batch.queue, messages))
        self.later(self.work_ms() if messages else 1, self._after)

    def _after(self) -> None:
        """Between two polls."""
        random = self.cluster.simulator.random
        if self.core.phase is not Phase.RUNNING:
            return
        if not self.core.settings.auto_commit and random.random() < 0.3:

            def commit(now: int) -> Flow[None]:
                self._worked()
                return self.core.commit_sync(None, now)

            self.operate("commit", commit)
        if self.restless() and self.core.assignment():
            queue = random.choice(self.core.assignment())
            if random.random() < 0.5:
                self.operate("seek", lambda now: self.core.seek_to_begin(queue, now))
            else:
                self.core.pause([queue])
                self.later(random.randint(1, 10_000), lambda: self._go_on(queue))
        self._poll()

    def _go_on(self, queue: MessageQueue) -> None:
        def resume(now: int) -> None:
            if queue in self.core.assignment() and self.core.phase is Phase.RUNNING:
                self.core.resume([queue], now)

        self.host.enter(resume)


class PullClient(SimulatedMember):
    """A pull consumer: for each queue of its own it asks for the offset, then pulls, works and commits, while it has
    the queue.
    """

    core: PullConsumerCore

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], takes_ms: Takes, options: PullConsumerOptions
    ) -> None:
        super().__init__(cluster, takes_ms, options)
        settings = pull_consumer_settings(group, options)
        self.core = PullConsumerCore(self.node, settings, "face", strategy=strategy_option(options))
        #: A loop each, known by what stands for it.
        self._loops: dict[MessageQueue, object] = {}
        self.host.on_deliver = self._called
        for topic in topics:
            self.host.enter(lambda now, topic=topic: self.core.register(topic, self._shared, now))  # type: ignore[misc]
            self.note_expression(topic, "*")

    @property
    def queues(self) -> dict[MessageQueue, ProcessQueue | None]:
        return {queue: None for share in self.core._own.values() for queue in share}

    def begin_of_life(self, now: int) -> Flow[None]:
        return self.core.start(now)

    def _called(self, action: Deliver) -> None:
        call = action.task
        assert isinstance(call, ListenerCall)
        call.function(*call.arguments)

    def _shared(self, topic: str, every: tuple[MessageQueue, ...], own: tuple[MessageQueue, ...]) -> None:
        for queue in [queue for queue in self._loops if queue.topic == topic and queue not in own]:
            del self._loops[queue]
        for queue in own:
            if queue not in self._loops:
                loop = self._loops[queue] = object()
                self.later(0, lambda queue=queue, loop=loop: self._begin(queue, loop))  # type: ignore[misc]

    def _goes_on(self, queue: MessageQueue, loop: object) -> bool:
        return self._loops.get(queue) is loop and self.core.phase is Phase.RUNNING

    def _begin(self, queue: MessageQueue, loop: object) -> None:
        def fetched(ticket: Ticket[int | None]) -> None:
            if ticket.failure is not None:
                assert isinstance(ticket.failure, MQError), repr(ticket.failure)
                self.later(PAUSE_MS, lambda: self._begin(queue, loop))
            else:
                self._pull(queue, loop, ticket.result() or 0)

        if self._goes_on(queue, loop):
            self.operate("fetch offset", lambda now: self.core.fetch_consume_offset(queue, True, now), None, fetched)

    def _pull(self, queue: MessageQueue, loop: object, offset: int) -> None:
        def pulled(ticket: Ticket[PullResult]) -> None:
            if ticket.failure is not None:
                assert isinstance(ticket.failure, MQError), repr(ticket.failure)
                self.later(PAUSE_MS, lambda: self._pull(queue, loop, offset))
                return
            result = ticket.result()
            if result.messages:
                delivery = self.delivered(queue, loop, result.messages)
                self.later(self.work_ms(), lambda: self._worked(delivery, loop, result.next_begin_offset))
            else:
                self.later(1, lambda: self._pull(queue, loop, result.next_begin_offset))

        if self._goes_on(queue, loop):
            self.operate("pull", lambda now: self.core.pull(queue, "*", offset, 16, TAG, True, None, now), None, pulled)

    def _worked(self, delivery: Delivery, loop: object, next_offset: int) -> None:
        self.cluster.records.ended(delivery, ConsumeStatus.SUCCESS, self.cluster.now)
        oneway = self.cluster.simulator.random.random() < 0.3
        if self._goes_on(delivery.queue, loop):
            self.operate("commit", lambda now: self.core.commit(delivery.queue, next_offset, oneway, now))
            self._pull(delivery.queue, loop, next_offset)
