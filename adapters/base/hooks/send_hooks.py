"""Send hooks of a producer, called around a send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Final, TypeVar

from mqproto.hooks import (
    CheckForbiddenHook,
    CommunicationMode,
    EndTransactionContext,
    EndTransactionHook,
    SendContext,
    SendMessageHook,
)
from mqproto.message import Message, MessageExt, MessageQueue, SendResult
from mqproto.transactions import LocalTransactionState

C = TypeVar("C", SendContext, EndTransactionContext)

log: Final = logging.getLogger("mqproto.client")


class SendHooks:
    """List of the send hooks of one producer.

    Hooks can be added at any time, from any thread; a send has those that were there when it began.
    """

    def __init__(self, group: str, namespace: str) -> None:
        self._group = group
        self._namespace = namespace
        self._checks: tuple[CheckForbiddenHook, ...] = ()
        self._hooks: tuple[SendMessageHook, ...] = ()
        self._end_hooks: tuple[EndTransactionHook, ...] = ()
        #: Whether there is anything to call around a send.
        self.any = False

    def add_check(self, hook: CheckForbiddenHook) -> None:
        self._checks += (hook,)
        self.any = True

    def add(self, hook: SendMessageHook) -> None:
        self._hooks += (hook,)
        self.any = True

    def add_end(self, hook: EndTransactionHook) -> None:
        self._end_hooks += (hook,)

    def ending(
        self,
        message: Message | MessageExt,
        msg_id: str,
        transaction_id: str | None,
        state: LocalTransactionState,
        broker_name: str | None,
        *,
        asked: bool,
    ) -> None:
        """Call what comes before the end of a transaction."""
        for hook in self._end_hooks:
            context = EndTransactionContext(
                self._group, self._namespace, message, msg_id, transaction_id, state, asked, broker_name
            )
            self._call(hook.end_transaction, context)

    def before(self, message: Any, queue: MessageQueue | None, mode: CommunicationMode) -> SendContext:
        """Call what comes before a send: its context, whose message is the one to send.

        Raises whatever a hook raises that forbids the send; then no other hook was called.
        """
        checks, hooks = self._checks, self._hooks
        context = SendContext(self._group, self._namespace, _copied(message), mode, queue)
        for check in checks:
            check.check_forbidden(context)
        for hook in hooks:
            self._call(hook.send_message_before, context)
        return context

    def after(self, context: SendContext) -> None:
        """Call what comes after a send, once the context holds what came of it."""
        for hook in self._hooks:
            self._call(hook.send_message_after, context)

    @contextmanager
    def around(self, context: SendContext) -> Iterator[None]:
        """The send itself, whose result the caller puts into the context."""
        try:
            yield
        except BaseException as error:
            context.error = error
            raise
        finally:
            self.after(context)

    def _call(self, function: Callable[[C], None], context: C) -> None:
        try:
            function(context)
        except Exception:  # a hook watches: its failures are not the send's (docs/protocol/client.md 3.12)
            log.exception("a hook of producer %s failed", self._group)

    def after_future(self, context: SendContext, future: Any) -> None:
        """The same for a send whose outcome is in a future."""
        context.error = future.exception()
        result = None if context.error is not None else future.result()
        if isinstance(result, SendResult):
            context.result = result
        self.after(context)


def _copied(message: Any) -> Any:
    """Hooks may change what is sent, and not what belongs to the application.

    What is no message is refused later, by the send.
    """
    if isinstance(message, Message):
        one = copy(message)
        if isinstance(message.properties, dict):
            one.properties = dict(message.properties)
        return one
    if isinstance(message, Sequence):
        return [_copied(one) if isinstance(one, Message) else one for one in message]
    return message
