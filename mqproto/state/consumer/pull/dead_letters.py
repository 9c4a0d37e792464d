"""What becomes of a message that a consumer without a listener cannot hand out: its body cannot be read."""

from __future__ import annotations

from typing import Final, Protocol

from mqproto.errors import MQError
from mqproto.message import MessageExt, MessageQueue
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.pull_loop import reason_of
from mqproto.state.consumer.send_back import send_back
from mqproto.state.consumer.settings import RECONSUME_TIMES_CONCURRENT
from mqproto.state.flows.effects import Flow, Sleep, current

#: The delay level that means: straight to the dead letters (docs/protocol/client.md 4.12).
_DEAD: Final = -1


class DeadLetterHost(Protocol):
    """What burying needs of its consumer."""

    @property
    def group(self) -> str: ...

    @property
    def broadcasts(self) -> bool: ...

    @property
    def failure_pause_ms(self) -> int: ...

    def notice(self, text: str) -> None: ...

    def master(self, queue: MessageQueue, now: int) -> Flow[tuple[str, int]]: ...


def bury(queue: ProcessQueue, message: MessageExt, host: DeadLetterHost, now: int) -> Flow[None]:
    """Make the message a dead letter of the group, however often that takes, so that it neither gets lost nor holds its
    queue up.

    In BROADCASTING there are no dead letters: it is skipped, and told. Ends early when the queue is dropped.
    """
    where = f"group {host.group}: the message at offset {message.queue_offset} of {queue.queue}, whose body cannot be read{reason_of(message)},"
    if host.broadcasts:
        host.notice(f"{where} is skipped")
        return
    while not queue.dropped:
        try:
            address, now = yield from host.master(queue.queue, now)
            now = yield from send_back(message, host.group, _DEAD, RECONSUME_TIMES_CONCURRENT, address, now)
            host.notice(f"{where} is a dead letter now")
            return
        except MQError as error:
            host.notice(f"{where} cannot be made a dead letter yet: {error}")
            now = yield from current(now)
        _, now = yield Sleep(now + host.failure_pause_ms)
