"""Dead letters of a lite pull consumer: messages whose body cannot be read, so that no poll can bring them."""

from __future__ import annotations

from typing import Final, Protocol

from mqproto.errors import MQError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull.settings import LitePullSettings
from mqproto.state.consumer.pull_loop import reason_of
from mqproto.state.consumer.send_back import send_back
from mqproto.state.consumer.settings import RECONSUME_TIMES_CONCURRENT
from mqproto.state.flows.effects import Flow, Sleep, current
from mqproto.wire.bodies import MessageModel

#: The delay level that means: straight to the dead letters (docs/protocol/client.md 4.12).
_DEAD: Final = -1


class DeadLetterNode(Protocol):
    """Members of the node that dead letters need."""

    def notice(self, text: str) -> None: ...

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]: ...


def make_dead_letter(
    queue: ProcessQueue, message: MessageExt, settings: LitePullSettings, node: DeadLetterNode, now: int
) -> Flow[None]:
    """Send a message to the dead letters of the group, however often that takes, so that it neither gets lost nor holds
    its queue up.

    In BROADCASTING there are no dead letters: it is skipped, with a notice. Ends early when the queue is dropped.
    """
    group = settings.group
    where = (
        f"group {group}: the message at offset {message.queue_offset} of {queue.queue}, "
        f"whose body cannot be read{reason_of(message)},"
    )
    if settings.message_model is MessageModel.BROADCASTING:
        node.notice(f"{where} is skipped")
        return
    while not queue.dropped:
        try:
            address, now = yield from node.master(queue.queue, now)
            now = yield from send_back(message, group, _DEAD, RECONSUME_TIMES_CONCURRENT, address, now)
            node.notice(f"{where} is a dead letter now")
            return
        except MQError as error:
            node.notice(f"{where} cannot be made a dead letter yet: {error}")
            now = yield from current(now)
        _, now = yield Sleep(now + settings.pull_time_delay_millis_when_exception)
