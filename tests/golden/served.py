"""Answers of Apache's broker over a recorded directory, against ours."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from mqproto.message import MessageExt
from mqproto.wire.flags import COMPRESSED
from mqproto.wire.hosts import encode_host
from mqproto.wire.ids import offset_msg_id
from mqproto.wire.record import inflated

#: Added by the Java client that was asked: bounds of the queue.
_CLIENTS_OWN = ("MIN_OFFSET", "MAX_OFFSET")


def assert_apaches(message: MessageExt, expected: Mapping[str, Any], version: str) -> None:
    """One message, decoded and not inflated, with every field that Java's client of that release showed."""
    # The client of 5.3.3 shows the flags of the body that it gives, those of 4.x the stored ones.
    flags = message.sys_flag & ~COMPRESSED if version == "5.3.3" else message.sys_flag
    plain = inflated(message)
    found = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.properties.get("UNIQ_KEY"),
        "offsetMsgId": offset_msg_id(message.store_host_bytes, message.physical_offset),
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": flags,
        "flag": message.flag,
        "bornTimestamp": message.born_time,
        "storeTimestamp": message.store_time,
        "bornHost": message.born_host_bytes,
        "storeHost": message.store_host_bytes,
        "bodyCRC": message.body_crc,
        "storeSize": message.store_size,
        "preparedTransactionOffset": message.prepared_offset,
        "bodySize": len(plain.body),
        "bodySha1": hashlib.sha1(plain.body).hexdigest(),
        "body": None if len(plain.body) > 64 else plain.body.decode(),
        "properties": message.properties,
    }
    shown = dict(expected)
    shown["properties"] = {name: value for name, value in expected["properties"].items() if name not in _CLIENTS_OWN}
    for host in ("bornHost", "storeHost"):
        shown[host] = encode_host(expected[host].strip("/"))
    if not message.properties.get("UNIQ_KEY"):
        shown["msgId"] = None  # Java's client gives the place for it
    differences = {name: (value, shown.get(name)) for name, value in found.items() if value != shown.get(name)}
    assert not differences, differences
    assert found.keys() == shown.keys()
