"""Trace records, against those that Apache's clients wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqproto.codec import decode
from mqproto.wire.tracing import ConsumeCode, Traced, TracedKind, consumed, consuming, published, transaction_ended
from tests.golden.golden import GOLDEN


def recorded(version: str) -> Iterator[str]:
    """The records of the captures with a trace, with the marks at their ends."""
    for name in ("trace", "trace-sendMessage"):
        if name in GOLDEN.capture_names(version):
            for exchange in GOLDEN.exchanges(version, name):
                command = decode(exchange.request.frame[4:])
                if command.code == 310 and command.fields["b"] == "RMQ_SYS_TRACE_TOPIC":
                    yield from (text + "\x02" for text in bytes(command.body).decode().split("\x02") if text)


def text_of(field: str) -> str | None:
    return None if field == "null" else field


def again(record: str) -> str:
    """The same facts in our words."""
    kind, *rest = record.removesuffix("\x02").split("\x01")
    match kind, rest:
        case "Pub", [
            begun,
            region,
            group,
            topic,
            msg_id,
            tags,
            keys,
            host,
            size,
            cost,
            message_kind,
            offset_id,
            success,
        ]:
            message = Traced(msg_id, text_of(tags), text_of(keys), int(size), TracedKind(int(message_kind)))
            return published(message, int(begun), region, group, topic, host, int(cost), offset_id, success == "true")
        case "SubBefore", [begun, region, group, request_id, msg_id, retries, keys]:
            return consuming(int(begun), text_of(region), group, request_id, msg_id, int(retries), text_of(keys))
        case "SubAfter", [request_id, msg_id, cost, success, keys, code, ended, group]:
            return consumed(
                request_id,
                msg_id,
                int(cost),
                success == "true",
                text_of(keys),
                ConsumeCode(int(code)),
                int(ended),
                group,
            )
    raise AssertionError(record)


@pytest.mark.parametrize(("version", "kinds"), [("4.4.0", {"Pub"}), ("4.9.7", None), ("5.3.3", None)])
def test_records_are_those_of_apaches_clients(version: str, kinds: set[str] | None) -> None:
    records = list(recorded(version))
    assert {record.partition("\x01")[0] for record in records} == (kinds or {"Pub", "SubBefore", "SubAfter"})
    for record in records:
        assert again(record) == record


def test_the_end_of_a_transaction() -> None:
    """Fields in the order of docs/protocol/client.md 3.14."""
    message = Traced("ID", "tag", None, 0)
    record = transaction_ended(message, 1000, "DefaultRegion", "g", "t", "b:1", "TX", "COMMIT_MESSAGE", True)
    fields = [
        "EndTransaction",
        "1000",
        "DefaultRegion",
        "g",
        "t",
        "ID",
        "tag",
        "null",
        "b:1",
        "2",
        "TX",
        "COMMIT_MESSAGE",
        "true",
    ]
    assert record == "\x01".join(fields) + "\x02"


def test_marks_inside_texts_do_not_break_a_record() -> None:
    record = published(Traced("ID", "a\x01b", "k\x021", 1), 1, "r", "g", "t", "b:1", 1, "O", False)
    assert record.count("\x01") == 13
    assert record.count("\x02") == 1
    assert "a b" in record
