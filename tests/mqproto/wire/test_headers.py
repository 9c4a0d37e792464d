"""Header classes against the table of headers, Apache's own decoding, and every recorded request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.errors import HeaderError
from mqproto.wire.headers import (
    REQUESTS,
    RESPONSES,
    Field,
    Header,
    PullMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
    UnregisterClientRequest,
)
from tests.golden.golden import GOLDEN, VERSIONS, Golden

TYPES = {"string": "str", "int": "I32", "long": "I64", "boolean": "bool"}
#: What Java marks as required, and some peers leave out all the same.
LENIENT = {("PullMessageRequest", "subVersion"), ("UpdateGlobalWhiteAddrsConfigRequest", "aclFileFullPath")}
#: Answers with nothing that a 4.x peer reads, and the heartbeat's, whose fields are 5.x's.
WITHOUT_CLASS = {34}
IN_4X = {"4.4.0", "4.9.8"}


def rows(description: dict[str, Any] | None) -> list[dict[str, Any]]:
    fields = (description or {}).get("fields", [])
    return [field for field in fields if IN_4X & set(field["in"]) and field.get("group") != "rpc"]


@pytest.mark.parametrize(("side", "table"), [("request", REQUESTS), ("response", RESPONSES)])
def test_classes_are_those_of_the_table(golden: Golden, side: str, table: dict[int, type[Header]]) -> None:
    """Every 4.x header that has fields has a class with exactly these: names, types, required, defaults."""
    checked = set()
    for name, request in golden.headers["requests"].items():
        code = request["code"]
        if (
            not IN_4X & set(request["used_in"])
            or request["direction"] == "client->filter server"
            or code in WITHOUT_CLASS
        ):
            continue
        theirs = rows(request.get(side))
        if not theirs:
            assert code not in table, name
            continue
        cls = table[code]
        checked.add(code)
        ours: dict[str, Field] = {field.name: field for field in cls.table}
        assert set(ours) == {field["name"] for field in theirs}, name
        for field in theirs:
            row = ours[field["name"]]
            assert row.kind == TYPES[field["type"]], (name, row)
            needed = field["required"] and field["default"] is None
            assert row.required == (needed and (cls.__name__, row.name) not in LENIENT), (name, row)
            if not needed:
                assert row.default == field["default"], (name, row)
    assert set(table) - checked <= {361}  # the pull of 5.x, with the header of 4.x's


def test_one_letter_names(golden: Golden) -> None:
    mapping = golden.headers["send_message_v2_mapping"]
    long_names = {field.attribute: field.name for field in SendMessageRequest.table}
    for field in SendMessageRequestV2.table:
        means = mapping[field.name].split(" ")[0]
        assert means == long_names.get(field.attribute, "brokerName")


HEADERS: dict[str, type[Header]] = {
    "PullMessageRequestHeader": PullMessageRequest,
    "SendMessageRequestHeader": SendMessageRequest,
}


def test_custom_header_decode(golden: Golden) -> None:
    """Numbers and booleans exactly as 4.9 takes them."""
    for vector in golden.vectors("custom-header-decode"):
        cls = HEADERS[vector.input["header"]]
        fields = {field.name: "1" for field in cls.table if field.required}
        fields[vector.input["field"]] = vector.input["value"]
        (attribute,) = [field.attribute for field in cls.table if field.name == vector.input["field"]]
        if vector.fails():
            with pytest.raises(HeaderError) as caught:
                cls.decode(fields)
            assert (caught.value.field, caught.value.value) == (vector.input["field"], vector.input["value"])
        else:
            assert getattr(cls.decode(fields), attribute) == vector.output()


PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "1",
    "queueOffset": "5",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("queueId", value)
            for value in (
                "abc",
                "2147483648",
                "-2147483649",
                " 1",
                "1 ",
                "1_0",
                "1.0",
                "",
                "+",
                "-",
                "\u0661",
                "1" * 5000,
            )
        ),
        ("queueOffset", "9223372036854775808"),
        ("consumerGroup", None),
        ("sysFlag", None),
    ],
)
def test_malformed_fields(name: str, value: str | None) -> None:
    """COD-05: one typed error that names the field."""
    fields = {key: text for key, text in {**PULL, name: value}.items() if text is not None}
    with pytest.raises(HeaderError) as caught:
        PullMessageRequest.decode(fields)
    assert caught.value.field == name
    assert caught.value.value == value
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "number"), [("+1", 1), ("-1", -1), ("007", 7), ("2147483647", 2147483647), ("-2147483648", -2147483648)]
)
def test_numbers_that_java_takes(text: str, number: int) -> None:
    assert PullMessageRequest.decode({**PULL, "queueId": text}).queue_id == number


def test_nothing_at_all() -> None:
    with pytest.raises(HeaderError):
        PullMessageRequest.decode({})


def test_decode_and_encode() -> None:
    pull = PullMessageRequest.decode({**PULL, "subscription": "*", "unheard": "of"})
    assert pull == PullMessageRequest("g", "t", 1, 5, 32, 6, 0, 15000, subscription="*")
    assert pull.encode() == {**PULL, "subscription": "*", "subVersion": "0"}
    send = SendMessageRequestV2("PG", "T", "TBW102", 4, 1, 0, 1700000000000, 0, batch=True, broker_name="b")
    assert send.encode() == {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "k": "false",
        "m": "true",
        "n": "b",
    }
    assert isinstance(send, SendMessageRequest)
    assert UnregisterClientRequest("c").encode() == {"clientID": "c"}
    answer = SendMessageResponse.decode(
        {"msgId": "00", "queueId": "3", "queueOffset": "9", "MSG_REGION": "r", "TRACE_ON": "true"}
    )
    assert answer == SendMessageResponse("00", 3, 9, msg_region="r", trace_on="true")


CLASSES: list[type[Header]] = sorted({*REQUESTS.values(), *RESPONSES.values()}, key=lambda cls: cls.__name__)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "I32": st.integers(-(1 << 31), (1 << 31) - 1),
    "I64": st.integers(-(1 << 63), (1 << 63) - 1),
    "bool": st.booleans(),
}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: str(cls.__name__))
@settings(max_examples=20)
@given(data=st.data())
def test_decoding_undoes_encoding(cls: type[Header], data: st.DataObject) -> None:
    values = [
        data.draw(KINDS[field.kind] if field.required or field.default is not None else st.none() | KINDS[field.kind])
        for field in cls.table
    ]
    make: Any = cls
    header: Header = make(*values)
    assert cls.decode(header.encode()) == header


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_request_and_answer(version: str) -> None:
    """All requests of 4.x and 5.x peers, and all answers that carry what was asked for, decode and encode to the
    same.
    """
    requests = answers = 0
    for name in GOLDEN.capture_names(version):
        for exchange in GOLDEN.exchanges(version, name):
            code = exchange.request.code
            if code in REQUESTS:
                requests += 1
                agrees(REQUESTS[code], exchange.request.fields)
            answer = exchange.answer
            if (
                answer is not None
                and answer.code == 0
                and code in RESPONSES
                and not (code == 322 and not answer.fields)
            ):
                answers += 1
                agrees(RESPONSES[code], answer.fields)
    assert requests > 1000
    assert answers > 300


def agrees(cls: type[Header], fields: dict[str, str]) -> None:
    encoded = cls.decode(fields).encode()
    for name, value in fields.items():
        if any(field.name == name for field in cls.table):
            assert encoded[name] == value
