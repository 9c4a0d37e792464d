"""Lines that the recorded program printed of messages and results, made of ours, so that both can be compared."""

from __future__ import annotations

from typing import Any

from mqproto.message import MessageExt, SendResult
from mqproto.wire.flags import COMPRESSED, COMPRESSION_MASK

#: Properties of which the printed messages and ours need not be the same: when the listener was called, and how long
#: the queue was.
OWN = ("CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET", "RECONSUME_TIME")


def message(one: MessageExt) -> dict[str, Any]:
    """All that `Probe.java` prints of a message but for properties of the moment."""
    return {
        "topic": one.topic,
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "physicalOffset": one.physical_offset,
        "msgId": one.msg_id,
        "tags": one.tags,
        "keys": " ".join(one.keys) or None,
        "reconsumeTimes": one.reconsume_times,
        "sysFlag": _plain(one.sys_flag),
        "flag": one.flag,
        "bornTimestamp": one.born_time,
        "storeTimestamp": one.store_time,
        "bornHost": f"/{one.born_host}",
        "storeHost": f"/{one.store_host}",
        "bodyCRC": one.body_crc,
        "storeSize": one.store_size,
        "preparedTransactionOffset": one.prepared_offset,
        "size": len(one.body),
        "body": "" if len(one.body) > 256 else one.body.decode(),
        "properties": {name: text for name, text in one.properties.items() if name not in OWN},
    }


def result(one: SendResult) -> dict[str, Any]:
    """All that is printed of a send but for ids that the sender makes up."""
    return {
        "status": one.status.name,
        "offsetMsgId": one.offset_msg_id,
        "broker": one.queue.broker_name,
        "queueId": one.queue.queue_id,
        "queueOffset": one.queue_offset,
        "region": one.region_id,
    }


def printed_message(one: dict[str, Any]) -> dict[str, Any]:
    """A message as Apache's client showed it.

    The bodies are plain there too; it leaves some of the flags that say otherwise.
    """
    properties = {name: text for name, text in one["properties"].items() if name not in OWN}
    return {**one, "properties": properties, "sysFlag": _plain(one["sysFlag"])}


def printed_result(one: dict[str, Any]) -> dict[str, Any]:
    """A result as Apache's client showed it, without what it does not know of transactions."""
    return {name: value for name, value in one.items() if name not in ("msgId", "transactionId") and value is not None}


def _plain(sys_flag: int) -> int:
    return sys_flag & ~(COMPRESSED | COMPRESSION_MASK)
