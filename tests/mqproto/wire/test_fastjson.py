"""Java's dialect: what its library wrote and took (version 1.2.69, that of 4.9.7), and nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire.fastjson import (
    MAX_DEPTH,
    MAX_TOLERANT,
    JavaMap,
    JsonError,
    dumps,
    dumps_pretty,
    dumps_standard,
    loads,
    quote,
    to_text,
    truncate,
)
from tests.golden.golden import VERSIONS, Golden

QUEUE = '{"brokerName":"b","queueId":0,"topic":"t"}'


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # 1: keys of every form, white space anywhere
        ('{0:"10.0.0.1:10911",1:"b"}', {0: "10.0.0.1:10911", 1: "b"}),
        ("{'a':'it''s'}".replace("''", "\\'"), {"a": "it's"}),
        ("{clientID:1,$x_1 : 2}", {"clientID": 1, "$x_1": 2}),
        ("{null:1,true:2,1.5:3}", {"null": 1, "true": 2, "1.5": 3}),
        ("{{" + QUEUE[1:] + ":5}", JavaMap([({"brokerName": "b", "queueId": 0, "topic": "t"}, 5)])),
        ("{ 0 :\t1\r\n}", {0: 1}),
        ("{[1]:2,'a':3}", JavaMap([([1], 2), ("a", 3)])),
        # 2: values
        ("{a:NaN,b:null,c:undefined}", {"a": None, "b": None, "c": None}),
        ('{"consumeTps":NaN}', {"consumeTps": None}),
        ("{a:1.,b:-2.5e1,c:+1,d:01,e:1L,f:true}", {"a": 1.0, "b": -25.0, "c": 1, "d": 1, "e": 1, "f": True}),
        # 3: commas, comments, a mark in front, white space behind
        ("{,,a:1,,b:2,}", {"a": 1, "b": 2}),
        ("[,1,,2,]", [1, 2]),
        ('{/* note */"a" /*x*/ :1}// end', {"a": 1}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{"a":1} \r\n', {"a": 1}),
        # 4: strings
        ('{"a":"raw\x01\x02\n"}', {"a": "raw\x01\x02\n"}),
        ("{a:'\\x41\\v\\0\\F\\/\\u4e2d'}", {"a": "A\v\0\f/\u4e2d"}),
        ("{a:'\\ud83d\\ude00'}", {"a": "\U0001f600"}),
        ("{a:'\\ud83d',b:'\\ude00\\ud83d'}", {"a": "?", "b": "??"}),
        ('["\\ud83d"]', ["?"]),
        ('{{a:"\\ud83d"}:1}', JavaMap([({"a": "?"}, 1)])),
        # 5: the last one wins
        ('{"a":1,"a":2}', {"a": 2}),
        ("{a:1,a:2}", {"a": 2}),
    ],
)
def test_tolerance(text: str, value: Any) -> None:
    """docs/protocol/wire.md 14, points 1 to 5."""
    read = loads(text)
    assert read == value
    assert type(read) is type(value)
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", '{"a":1', '{"a"', '{"a":', "[1", '["a', "['a\\", '{"a":"b', "/*", "{/*"),
        *(
            '{"a":1}x',
            "{a:1}}",
            "[1]2",
            '{"a":1 "b":2}',
            "[1 2]",
            '{"a":0x1F}',
            '{"a":TRUE}',
            '{"a":.5}',
            '{"a":-}',
            "{a}",
            "{:1}",
            "{a:}",
            "}",
        ),
        *(
            "{a:'\\8'}",
            "{a:'\\u12'}",
            "{a:'\\xg'}",
            "Infinity",
            "[-Infinity]",
            '{"a":Infinity}',
            "a",
            "{a:b}",
            "{\u00e9:1}",
        ),
        *("1" * 5000, "[" + "1" * 5000 + "]", "{a:" + "1" * 5000 + "}"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_json_in_any_dialect(text: str) -> None:
    with pytest.raises(JsonError) as caught:
        loads(text)
    assert len(str(caught.value)) < 200


def test_references() -> None:
    """docs/protocol/wire.md 14, point 7."""
    read = loads(
        '{"a":{"b":[1,{"c":2}]},"x":{"$ref":"$.a.b[1]"},"y":[{"$ref":"$.a"}],"z":{"$ref":"$.nowhere"},"q":{"$ref":"a"}}'
    )
    assert read["x"] is read["a"]["b"][1]
    assert read["y"][0] is read["a"]
    assert (read["z"], read["q"]) == (None, None)
    read = loads('{"a":{"self":{"$ref":"@"},"up":{"$ref":".."},"root":{"$ref":"$"}}}')
    assert read["a"]["self"] is read["a"]
    assert read["a"]["up"] is read["a"]["root"] is read
    with pytest.raises(JsonError):
        dumps(read)
    read = loads("{" + QUEUE + ':{"$ref":"$"},"a":1}')
    assert read == JavaMap([(json.loads(QUEUE), {"$ref": "$"}), ("a", 1)])
    assert loads('{"a":{"$ref":1},"b":{"$ref":"$[0]"},"c":{"$ref":"$.a[0]"},"d":{"$ref":"$.."}}') == {
        "a": {"$ref": 1},
        "b": None,
        "c": None,
        "d": None,
    }


def test_references_do_not_multiply_without_bound() -> None:
    ref = '{"$ref":"$.a"}'
    with pytest.raises(JsonError):
        loads('{"a":[],"b":[' + ",".join([ref] * 33) + "]}")
    with pytest.raises(JsonError):
        loads('{"a":"' + "x" * 70000 + '","b":' + ref + "}")


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("{a:", "}"), ("[", "]"), ("{{a:1}:", "}")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    read = loads(nested(MAX_DEPTH - 1))
    assert loads(dumps(read)) == read
    for depth in (MAX_DEPTH + 1, 500, 5000, 100_000):
        with pytest.raises(JsonError):
            loads(nested(depth))
        with pytest.raises(JsonError):
            loads(opening * depth)
    deeper: Any = [read]
    with pytest.raises(JsonError):
        dumps([deeper])
    with pytest.raises(JsonError):
        dumps_pretty([deeper])


def test_much_text_must_be_strict() -> None:
    """The tolerant reader is slow, so nobody can keep a node busy with it."""
    text = "[" + " " * MAX_TOLERANT + "1]"
    assert loads(text) == [1]
    with pytest.raises(JsonError, match="strict"):
        loads(text.replace("1", "'1'"))
    assert loads(text.replace("1", "'1'"), 2 * MAX_TOLERANT) == ["1"]


def test_bytes_that_are_no_utf8() -> None:
    assert loads(b'{"a":"\xff"}') == {"a": "\ufffd"}


@given(st.text("{}[]:,\"'\\/*tfn01e.- au$N") | st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_a_value_or_one_error(text: str) -> None:
    try:
        value = loads(text)
    except JsonError:
        return
    dumps(value).encode()
    dumps_pretty(value).encode()


NAMES = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), 1 << 63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: (
        st.lists(inner) | st.dictionaries(NAMES, inner) | st.dictionaries(st.integers(0, 99), inner, min_size=1)
    ),
    max_leaves=30,
)


@given(VALUES)
def test_reading_undoes_writing(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps_pretty(value)) == value


@given(VALUES)
def test_the_tolerant_reader_agrees_with_the_strict_one(value: Any) -> None:
    text = json.dumps(value)
    assert loads(text + "/**/") == loads(text) == json.loads(text)


# --- writing ----------------------------------------------------------------------------------------------------------

#: Every character below U+00A5, and some above.
ODD = "".join(map(chr, range(0xA5))) + "\u2028\u2029\u4e2d\u00e9\U0001f600x/<>()"
ODD_WRITTEN = (
    r'"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F\u0010\u0011\u0012\u0013\u0014\u0015'
    r"\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F !\"#$%&'()*+,-./"
    r"0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
    r"abcdefghijklmnopqrstuvwxyz{|}~\u007F\u0080\u0081\u0082\u0083\u0084\u0085\u0086\u0087"
    r"\u0088\u0089\u008A\u008B\u008C\u008D\u008E\u008F"
    r"\u0090\u0091\u0092\u0093\u0094\u0095\u0096\u0097\u0098\u0099\u009A\u009B\u009C\u009D\u009E\u009F"
    "\u00a0\u00a1\u00a2\u00a3\u00a4"
    r"\u2028\u2029"
    "\u4e2d\u00e9\U0001f600x/<>()" + '"'
)


def test_strings_as_java_writes_them() -> None:
    assert quote(ODD) == ODD_WRITTEN
    assert dumps([ODD]) == f"[{ODD_WRITTEN}]"
    assert loads(ODD_WRITTEN) == ODD
    assert quote("\\u00af") == '"\\\\u00af"'


def test_standard_form() -> None:
    """What a 4.9.7 name server answers when standard JSON is asked for."""
    value = {"orderTopicConf": ODD, "brokerAddrs": {10: "a", 9: "x/y"}, "filterServerTable": {}}
    ascii_only = ODD_WRITTEN.replace("/", "\\/")
    for character in "\u00a0\u00a1\u00a2\u00a3\u00a4\u4e2d\u00e9":
        ascii_only = ascii_only.replace(character, f"\\u{ord(character):04X}")
    ascii_only = ascii_only.replace("\U0001f600", "\\uD83D\\uDE00")
    text = '{"brokerAddrs":{"9":"x\\/y","10":"a"},"filterServerTable":{},"orderTopicConf":' + ascii_only + "}"
    assert dumps_standard(value) == text
    assert json.loads(text)["orderTopicConf"] == ODD


def test_compact_form() -> None:
    queue = json.loads(QUEUE)
    cases: list[tuple[Any, str]] = [
        ({"brokerAddrs": {0: "a", 1: "b"}}, '{"brokerAddrs":{0:"a",1:"b"}}'),
        ({"offsetTable": JavaMap([(queue, 5)])}, '{"offsetTable":{' + QUEUE + ":5}}"),
        ({"offsetTable": JavaMap()}, '{"offsetTable":{}}'),
        ({"a": [], "b": ("x", None), "c": {}}, '{"a":[],"b":["x",null],"c":{}}'),
        ([0.0, 1.5, 1e20, -2.5e-7, float("nan"), float("inf")], "[0.0,1.5,1.0E20,-2.5E-7,null,null]"),
        ([True, False, None, 1 << 62], "[true,false,null,4611686018427387904]"),
    ]
    for value, text in cases:
        assert dumps(value) == text


def test_pretty_form() -> None:
    """Lines are broken between named members only; an object as a key is itself laid out."""
    queue = json.loads(QUEUE)
    value = {
        "offsetTable": JavaMap([(queue, 5), ({**queue, "queueId": 1}, 6)]),
        "set": ["a", "b"],
        "e": [],
        "d": 1e20,
        "nan": float("nan"),
        "em": {},
    }
    text = (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"t"\n\t\t}:5,'
        '{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":1,\n\t\t\t"topic":"t"\n\t\t}:6\n\t},\n'
        '\t"set":["a","b"],\n\t"e":[],\n\t"d":1.0E20,\n\t"nan":null,\n\t"em":{}\n}'
    )
    assert dumps_pretty(value) == text
    assert dumps_pretty({"t@g": {0: 17, 1: 20}}) == '{\n\t"t@g":{0:17,1:20\n\t}\n}'
    assert dumps_pretty({}) == "{}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["clean", "crashed"])
def test_configuration_files_come_out_as_they_went_in(golden: Golden, version: str, kind: str) -> None:
    for path in golden.store(version, kind).config.glob("*.json"):
        text = path.read_text()
        assert dumps_pretty(loads(text)) == text, path.name


def test_recorded_bodies_can_be_read(golden: Golden) -> None:
    """Laid out for reading, with blanks between all tokens."""
    read = 0
    for body in golden.bodies():
        text = body.text.split("\n", 1)[1]
        if text.startswith(("{", "[")):
            value = loads(text)
            assert loads(dumps(value)) == value
            read += 1
    assert read > 80


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1, 1), (True, 1), (6.9, 6), (-6.9, -6), ("6", 6), ("-6", -6), ("+6", 6)),
        *((text, None) for text in ("", "x", "6.9", " 6", "6_0", "\u0661", "1" * 5000)),
        *((other, None) for other in (1e300, float("nan"), None, [1], {"a": 1})),
    ],
    ids=lambda value: str(value)[:12],
)
def test_truncate(value: Any, number: int | None) -> None:
    assert truncate(value) == number


def test_to_text() -> None:
    assert [to_text(value) for value in ("a", 1, True, [1, {"a": 2}])] == ["a", "1", "true", '[1,{"a":2}]']
