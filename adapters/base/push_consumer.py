"""Push consumers as users see them: what is independent of waiting."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, Unpack

from mqproto.adapters.base.hooks.consume_hooks import ConsumeHooks, Hearing
from mqproto.adapters.base.settings.options import ConsumerOptions
from mqproto.adapters.base.subscriber import BaseSubscriber
from mqproto.consume_hooks import ConsumeMessageHook, FilterMessageHook
from mqproto.errors import InvalidSetting, StateError
from mqproto.state.consumer.push.concurrent import ConsumeTask
from mqproto.state.consumer.settings import check_places

#: Deliveries in a row by one task, thread or greenlet, which may let nothing else run meanwhile.
AT_A_STRETCH: Final = 16

log: Final = logging.getLogger("mqproto.client")

#: Set where a delivery has just ended, while the node hears of it: the consumer, and room for the delivery that follows
#: in the same place.
_following: Final[ContextVar[tuple[object, list[ConsumeTask]] | None]] = ContextVar("mqproto_following", default=None)
#: The consumer whose listener runs here and now. Set and reset by hand around each call: a context manager of a
#: generator takes longer than many a listener.
consuming: Final[ContextVar[object]] = ContextVar("mqproto_consuming", default=None)


class BasePushConsumer(BaseSubscriber):
    """Consumer that receives messages for a group and hands them to a listener.

    The listener is called with a list of up to `consume_message_batch_max_size` `MessageExt` and, if it takes a second
    argument, a `ConsumeContext`. It returns `ConsumeStatus.SUCCESS`, for the whole list or, with `context.ack_index`,
    for its front only; RECONSUME_LATER, an exception of any kind, None or anything else mean that the messages come
    again later. A listener of a consumer with `orderly` may take the commits over (`context.auto_commit`, COMMIT,
    ROLLBACK). At most `consume_thread_min` lists are out at a time.

    `namesrv` are the name servers, `host:port;host:port` or a sequence; None means the environment's NAMESRV_ADDR.
    Further settings are Apache's in snake_case (`ConsumerOptions`). Raises InvalidName and InvalidSetting.
    """

    def __init__(
        self,
        group: str,
        listener: Callable[..., Any],
        namesrv: str | Sequence[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        takes = takes_context(listener)
        super().__init__(group, namesrv, options)
        self._listener = listener
        self._takes_context = takes
        self._awaits_as_set = "await_termination_millis_when_shutdown" in options
        settings = self._consumer_settings
        self._hooks = ConsumeHooks(
            group, self._settings.namespace, timeout_minutes=settings.consume_timeout, unit_mode=settings.unit_mode
        )

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have a hook see every delivery from now on, before and after, in the thread or task of the listener
        (docs/protocol/client.md 3.12).
        """
        self._hooks.add(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have a hook sort messages out before the listener gets them, in its thread or task: these are consumed."""
        self._hooks.filters.add(hook)

    def update_core_pool_size(self, count: int) -> None:
        """Let up to `count` lists of messages be with the listener at a time, 1 to 1,000: a new `consume_thread_min`.

        With fewer than before, those that are with it are waited for. Raises InvalidSetting.
        """
        check_places(count)
        self._room_for(count)
        self._resize(count)

    def _room_for(self, count: int) -> None:
        """Have threads, greenlets or tasks for so many calls of the listener."""
        raise NotImplementedError

    def _consumed(self, enter: Callable[..., object], task: ConsumeTask, result: object) -> ConsumeTask | None:
        """Report to the node what came of a delivery; gives the next one for whoever has just become free, if any.

        Handing it over in any other way costs two switches between threads.
        """
        following: list[ConsumeTask] = []
        token = _following.set((self, following))
        try:
            with suppress(StateError):  # closed meanwhile: the messages come again
                enter(self._node.consumed, task, result)
        finally:
            _following.reset(token)
        return following[0] if following else None

    def _follows(self, task: ConsumeTask) -> bool:
        """Whether a delivery goes to whoever has just become free here."""
        place = _following.get()
        if place is None or place[0] is not self or place[1]:
            return False
        place[1].append(task)
        return True

    @property
    def _is_listening(self) -> bool:
        """Whether the caller is the listener, or something that it has called."""
        return consuming.get() is self

    def _call(self, task: ConsumeTask) -> Any:
        """Call the listener: its result, or something that has it once it was awaited.

        Raises whatever the listener raises.
        """
        return self._listener(task.messages, task.context) if self._takes_context else self._listener(task.messages)

    def _hear(self, task: ConsumeTask) -> Hearing:
        """The same with the hooks around it, for listeners that are plain functions."""
        hearing = self._hooks.begin(task)
        if hearing.wanted:
            with hearing:
                hearing.result = self._call(task)
        return hearing

    def _failed(self, error: BaseException) -> None:
        """Log an exception of the listener with its place; the core decides what follows."""
        log.warning("the listener of group %s failed", self.group, exc_info=error)

    def _close_within(self, timeout_ms: int) -> float:
        """Running deliveries get half of the time, so that enough is left to store what they achieved; but a listener
        that closes its own consumer is not waited for.
        """
        if not self._awaits_as_set:
            self._consumer_settings.await_termination_millis_when_shutdown = (
                0 if self._is_listening else timeout_ms // 2
            )
        return super()._close_within(timeout_ms)


def takes_context(listener: Callable[..., Any]) -> bool:
    """Whether a listener takes a second argument.

    Raises InvalidSetting when it can be called with neither one nor two.
    """
    try:
        signature = inspect.signature(listener)
    except ValueError:
        return False  # some built-in functions have no signature: they get the messages alone
    except TypeError:
        raise InvalidSetting("listener", listener, "it must be callable") from None
    for count in (2, 1):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count == 2
    raise InvalidSetting("listener", listener, "it must take a list of messages, and a context if it likes")
