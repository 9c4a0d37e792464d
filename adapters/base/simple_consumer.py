"""Simple consumers as users see them, which receive and acknowledge: what is independent of waiting."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Unpack

from mqproto.adapters.base.hooks.filter_hooks import Filters
from mqproto.adapters.base.hooks.taken_hooks import TakenHooks
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.adapters.base.subscriber import BaseSubscriber
from mqproto.consume_hooks import ConsumeMessageHook, ConsumeOutcome, FilterMessageHook
from mqproto.errors import InvalidSetting, StateError
from mqproto.message import ConsumeStatus, MessageExt
from mqproto.state.consumer.push.held_messages import HeldClaim
from mqproto.state.consumer.push.simple_consumer import ClaimExpired, SimpleConsumerCore
from mqproto.state.consumer.settings import THREADS_MAX
from mqproto.state.node.contract import Ticket
from mqproto.validation import check_range

#: Messages that may be out, or fetched ahead for the next who asks, unless the application says otherwise.
MAX_UNACKED: Final = 100


class BaseSimpleConsumer(BaseSubscriber):
    """Consumer that receives messages for a group and gives them to whoever iterates over it, in any threads or tasks.

    Each message is acknowledged (`ack`) once it is processed, or refused (`retry_later`). What is not comes again:
    after `consume_timeout` minutes, and when the consumer is closed or the queue goes to another member of the group;
    so a message may come twice, and is never lost. At most `max_unacked` messages are out or fetched ahead; whoever
    forgets so many waits for that time-out. With `orderly` a queue goes on when its message is acknowledged. Iteration
    ends when the consumer is closed.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    Further settings are those of `PushConsumer` (`ConsumerOptions`) but for lists of messages and threads. Raises
    InvalidName and InvalidSetting.
    """

    _core_class = SimpleConsumerCore
    _core: SimpleConsumerCore

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] | None = None,
        *,
        max_unacked: int = MAX_UNACKED,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        for name in ("consume_thread_min", "consume_message_batch_max_size"):
            if name in options:
                raise InvalidSetting(name, options[name], "messages are taken one by one: see max_unacked")
        check_range("max_unacked", max_unacked, 1, THREADS_MAX)
        options["consume_thread_min"] = max_unacked
        super().__init__(group, namesrv, options)
        self._filters = Filters(group, unit_mode=self._consumer_settings.unit_mode)
        self._hooks = TakenHooks(group, self._settings.namespace)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have a hook see every message from now on: before the application gets it, in the thread or task that asks
        for it, and after.

        After `ack` (SUCCESS) and `retry_later` (FAILED), in the thread or task that calls them; FAILED also where the
        answer no longer counts because the queue is another member's. What nobody settles has TIME_OUT after
        `consume_timeout`, beside the application, and FAILED when the consumer is closed. EXCEPTION when whoever asked
        was interrupted meanwhile: the message is for the next.
        """
        self._hooks.add(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have a hook sort messages out before the application gets them, in the thread or task that asks for them;
        what it takes out is done with.
        """
        self._filters.add(hook)

    def ack(self, message: MessageExt) -> bool:
        """The message is processed. False when that does not count: it was settled before, it took too long, its queue
        is another member's now, or the consumer is closed; then it comes again, or has come already.
        """
        return self._settle(message, ConsumeStatus.SUCCESS, 0)

    def retry_later(self, message: MessageExt, delay_level: int = 0) -> bool:
        """The message shall come again: after a time that the broker chooses (longer each time), or that `delay_level`
        names; -1 makes it a dead letter. With `orderly` its queue pauses instead; broadcasting drops it. False as
        with `ack`.
        """
        return self._settle(message, ConsumeStatus.RECONSUME_LATER, delay_level)

    def _settle(self, message: MessageExt, result: ConsumeStatus, delay_level: int) -> bool:
        if not self._lifecycle.closed:
            self._lifecycle.check()
        elif self._instance is None or not self._lifecycle.began_here:
            return False
        try:  # also while it is being closed, which may wait for this
            counts, taken_at = self._enter(self._settled, message, result, delay_level)
        except StateError:  # it is closed
            return False
        if taken_at is not None:  # else whoever has settled it says so
            self._hooks.end(message, taken_at, ConsumeOutcome.FAILED)
        return counts

    def _is_wanted(self, message: MessageExt, claim: HeldClaim) -> bool:
        """Whether the filters leave a message, which then goes to the application; else it is acknowledged."""
        if not self._filters.left_of_any([message]):
            self.ack(message)
            return False
        if self._hooks:
            self._hooks.begin(message, claim.queue, claim.taken_at)
            if self._lifecycle.closed:  # meanwhile: perhaps nobody looks any more at what has begun
                self._hooks.end(message, claim.taken_at, ConsumeOutcome.FAILED)
        return True

    def _nothing_comes(self, failure: StateError) -> None:
        """How waiting ends when the consumer is closed meanwhile; else raises the failure."""
        if not self._lifecycle.closed:
            raise failure

    def _interrupted(self, claim: HeldClaim, error: BaseException) -> None:
        """Whoever waited will not see what came."""
        try:
            if claim.message is not None:
                self._hooks.end(claim.message, claim.taken_at, ConsumeOutcome.EXCEPTION, error)
        finally:
            with suppress(StateError):
                self._enter(self._give_back, claim)

    def _took_too_long(self, task: ClaimExpired) -> None:
        self._hooks.end(task.message, task.taken_at, ConsumeOutcome.TIME_OUT)

    def _given_up(self) -> None:
        """The consumer is closed: nothing that is out can be settled any more."""
        self._hooks.end_all(ConsumeOutcome.FAILED)

    # Verbs for the driver.

    def _settled(
        self, message: MessageExt, result: ConsumeStatus, delay_level: int, now: int
    ) -> tuple[bool, int | None]:
        """Whether it counts, and when the message was taken, unless it was settled before."""
        core = self._core
        taken_at = core.taken_at(message)
        counts = (
            core.ack(message, now) if result is ConsumeStatus.SUCCESS else core.retry_later(message, now, delay_level)
        )
        if taken_at is not None:
            outcome = ConsumeOutcome.SUCCESS if counts and result is ConsumeStatus.SUCCESS else ConsumeOutcome.FAILED
            self._hooks.answer(message, taken_at, outcome, result)
        return counts, taken_at

    def _take(self, claim: HeldClaim, now: int) -> MessageExt | None:
        return self._core.held.take(claim, now)

    def _give_back(self, claim: HeldClaim, now: int) -> None:
        self._core.held.give_back(claim, now)

    def _begin_receive(self, claim: HeldClaim, timeout_ms: int | None, now: int) -> Ticket[MessageExt | None]:
        return self._node.start(self._core.held.receive(claim, timeout_ms, now), now)
