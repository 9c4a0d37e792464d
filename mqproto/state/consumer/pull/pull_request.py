"""Pull requests of pull consumers of both kinds (docs/protocol/client.md 5.1, 5.2)."""

from __future__ import annotations

from mqproto.errors import ClientError
from mqproto.message import MessageQueue
from mqproto.state.consumer.pull_loop import Subscribed
from mqproto.wire.filters.tags import TAG
from mqproto.wire.flags import pull_flag
from mqproto.wire.headers import PullMessageRequest


def pull_fields(
    group: str,
    queue: MessageQueue,
    offset: int,
    max_nums: int,
    subscribed: Subscribed,
    *,
    suspend_ms: int,
    hold: bool,
    lite: bool,
) -> dict[str, str]:
    """The extFields of PULL_MESSAGE. With `hold` the broker may wait for a message.

    Such a pull brings its expression along, so it names a version only where the broker keeps what it makes of it: of
    SQL92.
    """
    header = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_nums,
        sys_flag=pull_flag(commit_offset=False, suspend=hold, subscription=True, lite=lite),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscribed.expression,
        sub_version=0 if subscribed.kind == TAG else subscribed.version,
        expression_type=subscribed.kind,
    )
    return {**header.encode(), "bname": queue.broker_name}


def check_offset(queue: MessageQueue, offset: int) -> None:
    """Raises ClientError for an offset that no queue can have."""
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ClientError(f"{queue} can have no offset {offset!r}")
