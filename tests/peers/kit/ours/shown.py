"""Output of our probe: one JSON object a line, for results and messages the same as java/Probe.java prints."""

from __future__ import annotations

import hashlib
import json
import threading

from mqproto.message import MessageExt, SendResult

_printing = threading.Lock()


def show(**fields: object) -> None:
    """Print one JSON object, whole, from any thread."""
    text = json.dumps(fields)
    with _printing:
        print(text, flush=True)


def show_result(result: SendResult) -> None:
    """Print what a send was answered."""
    show(
        status=result.status.name,
        msgId=result.msg_id,
        offsetMsgId=result.offset_msg_id,
        broker=result.queue.broker_name,
        queueId=result.queue.queue_id,
        queueOffset=result.queue_offset,
    )


def show_message(message: MessageExt, **more: object) -> None:
    """Print a received message, and `more` about it."""
    show(
        topic=message.topic,
        queueId=message.queue_id,
        queueOffset=message.queue_offset,
        physicalOffset=message.physical_offset,
        msgId=message.msg_id,
        tags=message.tags,
        keys=message.properties.get("KEYS"),
        reconsumeTimes=message.reconsume_times,
        sysFlag=message.sys_flag,
        flag=message.flag,
        bornTimestamp=message.born_time,
        storeTimestamp=message.store_time,
        bornHost=message.born_host,
        storeHost=message.store_host,
        bodyCRC=message.body_crc,
        storeSize=message.store_size,
        preparedTransactionOffset=message.prepared_offset,
        size=len(message.body),
        sha1=hashlib.sha1(message.body).hexdigest(),
        body=message.body.decode(errors="replace") if len(message.body) <= 256 else "",
        properties=message.properties,
        **more,
    )
