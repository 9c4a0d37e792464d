"""Bodies from any JSON: a body or one error, whatever the members hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqproto.wire.bodies import (
    Body,
    OffsetMoved,
)
from mqproto.wire.fastjson import JavaMap, JsonError, dumps
from tests.mqproto.wire.bodies.test_bodies import ANSWERS, CLASSES, REQUESTS

ALL: list[type[Body]] = sorted(
    {*REQUESTS.values(), *ANSWERS.values(), *CLASSES.values(), OffsetMoved}, key=lambda cls: cls.__name__
)


NAMES = sorted({name for cls in ALL for name in cls._names})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "true", "MULTI_TAG", "CLUSTERING"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=6)
        | st.dictionaries(st.integers(-9, 9), inner, max_size=2)
        | st.lists(st.tuples(inner, inner), max_size=2).map(JavaMap)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: str(cls.__name__))
@settings(max_examples=30)
@given(data=st.data())
def test_any_json_gives_a_body_or_one_error(cls: type[Body], data: st.DataObject) -> None:
    """And what was taken can be written and reads back the same."""
    names = sorted(cls._names)
    value = data.draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=len(names)) | VALUES)
    try:
        body = cls.from_json(dumps(value).encode("utf-8", "replace"))
    except JsonError:
        return
    written = body.to_json()
    assert cls.from_json(written).to_json() == written
    body.to_pretty().encode()


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: str(cls.__name__))
def test_null_members_are_absent_ones(cls: type[Body]) -> None:
    """A null set makes a 4.4.0 broker fail; nothing fails here."""
    nulls = "{" + ",".join(f'"{name}":null' for name in cls._names) + "}"
    assert cls.from_json(nulls) == cls.from_json("{}") == cls()
    for text in ("[]", "null", "", "7", '"x"'):
        with pytest.raises(JsonError):
            cls.from_json(text)
