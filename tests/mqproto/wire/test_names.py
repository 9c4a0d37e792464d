"""Names of topics and groups against Apache's own functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.wire import names
from tests.golden.golden import GOLDEN


def test_derived_and_system_topics() -> None:
    for vector in GOLDEN.vectors("retry-topic"):
        assert names.retry_topic(vector.input) == vector.output()
    for vector in GOLDEN.vectors("dlq-topic"):
        assert names.dlq_topic(vector.input) == vector.output()
    for vector in GOLDEN.vectors("system-topic"):
        assert names.is_system_topic(vector.input) == vector.output()
    for vector in GOLDEN.vectors("forbidden-to-send"):
        assert (vector.input in names.SENDING_FORBIDDEN) == vector.output()


def test_namespaces_wrap_and_unwrap_as_java_does() -> None:
    """Java takes off whatever namespace there is; ours is told which one."""
    for vector in GOLDEN.vectors("namespace-wrap"):
        assert names.wrap_namespace(*vector.input) == vector.output()
    for vector in GOLDEN.vectors("namespace-strip"):
        namespace = vector.input.removeprefix("%RETRY%").removeprefix("%DLQ%").partition("%")[0]
        assert names.unwrap_namespace(namespace, vector.input) == vector.output()


NAMESPACE = "MQ_INST_1_x"


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("T", "MQ_INST_1_x%T"),
        ("%RETRY%G", "%RETRY%MQ_INST_1_x%G"),
        ("%DLQ%G", "%DLQ%MQ_INST_1_x%G"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_wrapping_is_idempotent_and_undone(plain: str, wrapped: str) -> None:
    """NSP-01."""
    assert names.wrap_namespace(NAMESPACE, plain) == wrapped
    assert names.wrap_namespace(NAMESPACE, wrapped) == wrapped
    assert names.unwrap_namespace(NAMESPACE, wrapped) == plain
    assert names.unwrap_namespace("MQ_INST_1", wrapped) == wrapped, "only the exact namespace is removed"
    assert names.unwrap_namespace("", wrapped) == wrapped


@given(st.text(st.sampled_from("ab%"), max_size=8), st.text(st.sampled_from("ab%"), max_size=12))
def test_wrapping_twice_is_wrapping_once(namespace: str, name: str) -> None:
    once = names.wrap_namespace(namespace, name)
    assert names.wrap_namespace(namespace, once) == once
    names.unwrap_namespace(namespace, name)
