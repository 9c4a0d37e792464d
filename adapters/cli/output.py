"""Output of the command line: messages and errors as text."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime
from typing import Any

from mqproto.message import MessageExt, SendResult


def complain(text: str, code: int = 2) -> int:
    """One line on standard error; gives the exit code."""
    print(f"mqproto: {' '.join(text.split())}", file=sys.stderr)
    return code


def show(line: str) -> None:
    """One line on standard output, seen at once by the reader of a pipe."""
    print(line, flush=True)


def body_fields(body: bytes) -> dict[str, str]:
    """A body for JSON: as text where it is UTF-8, else in Base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def time_text(ms: int) -> str:
    """A wall time in ISO form, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_json(message: MessageExt) -> str:
    """A received message as one line of JSON."""
    return json.dumps({**message_fields(message), **body_fields(message.body)}, ensure_ascii=False)


def message_fields(message: MessageExt) -> dict[str, Any]:
    """All of a message for JSON but its body."""
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "flag": message.flag,
        "bornTimestamp": message.born_time,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_time,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
    }


def message_text(message: MessageExt) -> str:
    """A received message as one line for people: when and where it was stored, tag, keys, body."""
    return " ".join([*message_words(message), body_text(message.body)])


def message_words(message: MessageExt) -> list[str]:
    """All of a message for people but its body."""
    broker = f"{message.broker_name}/" if message.broker_name else ""
    words = [time_text(message.store_time), f"{broker}{message.topic}/{message.queue_id}@{message.queue_offset}"]
    if message.tags:
        words.append(f"tags={message.tags}")
    if message.keys:
        words.append(f"keys={','.join(message.keys)}")
    if message.reconsume_times:
        words.append(f"retry={message.reconsume_times}")
    return words


def body_text(body: bytes) -> str:
    """A body for people, on one line."""
    text = body.decode(errors="backslashreplace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def result_json(result: SendResult) -> str:
    return json.dumps(
        {
            "status": result.status.value,
            "msgId": result.msg_id,
            "offsetMsgId": result.offset_msg_id,
            "topic": result.queue.topic,
            "brokerName": result.queue.broker_name,
            "queueId": result.queue.queue_id,
            "queueOffset": result.queue_offset,
        }
    )


def result_text(result: SendResult) -> str:
    queue = result.queue
    place = f"{queue.broker_name}/{queue.topic}/{queue.queue_id}@{result.queue_offset}"
    return f"{result.status.value} {result.msg_id} {place}"
