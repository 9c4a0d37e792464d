"""Direct consumption (CONSUME_MESSAGE_DIRECTLY, docs/protocol/client.md 6): an operator has the listener consume one
message; its answer goes back, and nothing else comes of it.

Owns: the deliveries of that kind that are with the application, and the text of the answer.
Leaves to others: the request (`broker_requests`), what listeners are (adapter), other deliveries (`concurrent`,
`orderly`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from mqproto.errors import StateError
from mqproto.message import ConsumeContext, ConsumeStatus, MessageExt, MessageQueue
from mqproto.namespaces import Namespace
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.push.concurrent import ConsumeTask, judge
from mqproto.state.consumer.push.orderly import judge_ordered
from mqproto.state.consumer.send_back import restore_topic
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.wire.bodies import ConsumeDirectlyResult, DirectConsumeResult
from mqproto.wire.record import RecordError, inflated

#: Messages that operators may have under way to the listener at once, beside the ordinary deliveries.
DIRECT_MAX: Final = 16

#: Takes the JSON body of the answer and the time.
Reply: TypeAlias = Callable[[bytes, int], None]


class DirectConsumption:
    """Direct consumption by one consumer, of at most `DIRECT_MAX` messages at a time."""

    def __init__(
        self, settings: ConsumerSettings, listener: object, namespace: Namespace, deliver: Callable[[ConsumeTask], None]
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._namespace = namespace
        self._deliver = deliver
        self._replies: dict[ConsumeTask, Reply] = {}

    def begin(self, message: MessageExt, broker_name: str, reply: Reply, refusal: str | None, now: int) -> None:
        """Deliver one message, or answer at once why not: `refusal`, a body that cannot be read, too many under way."""
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        context = ConsumeContext(self._namespace.unwrap_queue(queue))
        task = ConsumeTask(self._settings.group, self._listener, [message], context, ProcessQueue(queue, now), now)
        try:
            inflated(message)
            if refusal is not None or len(self._replies) >= DIRECT_MAX:
                raise StateError(
                    refusal or f"{len(self._replies)} such messages are under way to group {self._settings.group}"
                )
        except (RecordError, StateError) as error:
            reply(self._answer(task, error, now), now)
            return
        restore_topic(message, self._settings.group, self._namespace)
        self._replies[task] = reply
        self._deliver(task)

    def consumed(self, task: ConsumeTask, result: object, now: int) -> bool:
        """The application's answer; False when the task is none of these."""
        reply = self._replies.pop(task, None)
        if reply is None:
            return False
        reply(self._answer(task, result, now), now)
        return True

    def _answer(self, task: ConsumeTask, result: object, now: int) -> bytes:
        """Java's names for what a listener may answer.

        Only SUCCESS and COMMIT of an ordered listener are different.
        """
        orderly = self._settings.orderly
        outcome = DirectConsumeResult.CR_THROW_EXCEPTION
        if result is None:
            outcome = DirectConsumeResult.CR_RETURN_NULL
        elif isinstance(result, ConsumeStatus):
            outcome = (_ORDERED if orderly else _CONCURRENT).get(result, outcome)
        return ConsumeDirectlyResult(
            order=orderly,
            auto_commit=task.context.auto_commit,
            result=outcome,
            remark=(judge_ordered if orderly else judge)(result, task).complaint,
            spent_ms=now - task.started_at,
        ).to_json()


_CONCURRENT: Final = {
    ConsumeStatus.SUCCESS: DirectConsumeResult.CR_SUCCESS,
    ConsumeStatus.RECONSUME_LATER: DirectConsumeResult.CR_LATER,
}
_ORDERED: Final = {
    **_CONCURRENT,
    ConsumeStatus.COMMIT: DirectConsumeResult.CR_COMMIT,
    ConsumeStatus.ROLLBACK: DirectConsumeResult.CR_ROLLBACK,
}
