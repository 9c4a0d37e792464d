"""Key/value configuration: requests, the text that is kept, and answers that wait for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import Command, encode
from mqproto.engine import saver
from mqproto.engine.namesrv import KvConfig, kv
from mqproto.state.node.contract import Link
from mqproto.wire.bodies import KVTable
from mqproto.wire.codes import RequestCode
from mqproto.wire.fastjson import JsonError
from tests.engine.namesrv.harness import Rig, SaveJob

PUT, GET, DELETE, LIST = (
    RequestCode.PUT_KV_CONFIG,
    RequestCode.GET_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
)


def test_pairs_come_and_go() -> None:
    rig = Rig()
    link = rig.connect()
    key = {"namespace": "N", "key": "k"}
    answer = rig.ask(link, GET, key)
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: N Key: k")
    answer = rig.ask(link, LIST, {"namespace": "N"})
    assert (answer.code, answer.remark) == (22, "No config item, Namespace: N")
    assert rig.ask(link, PUT, {**key, "value": "v"}).code == 0
    assert rig.ask(link, PUT, {"namespace": "N", "key": "l", "value": ""}).code == 0
    assert rig.ask(link, GET, key).fields == {"value": "v"}
    assert KVTable.from_json(rig.ask(link, LIST, {"namespace": "N"}).body).table == {"k": "v", "l": ""}
    assert rig.ask(link, DELETE, key).code == 0
    assert rig.ask(link, DELETE, key).code == 0, "gone already"
    assert rig.ask(link, GET, key).code == 22
    assert bytes(rig.ask(link, LIST, {"namespace": "N"}).body) == b'{"table":{"l":""}}'


@pytest.mark.parametrize("code", [PUT, GET, DELETE, LIST])
def test_missing_fields_are_told(code: int) -> None:
    rig = Rig()
    answer = rig.ask(rig.connect(), code)
    assert (answer.code, answer.remark) == (1, "header field namespace: is missing")


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "SIZE_MAX", 10)
    table = KvConfig()
    assert table.put("N", "k", "12345678")
    assert not table.put("N", "k", "123456789")
    assert not table.put("N", "l", "")
    assert table.get("N", "k") == "12345678"
    assert table.put("N", "k", "1")
    assert table.put("N", "l", "123456")
    table.delete("N", "l")
    assert not table.put("M", "12345678", "")
    assert table.put("M", "123456", "")
    assert table.get("M", "123456") == ""
    rig = Rig()
    answer = rig.ask(rig.connect(), PUT, {"namespace": "N", "key": "k", "value": "123456789"})
    assert (answer.code, answer.remark) == (1, "the key/value configuration takes 10 characters and not more")


# --- the file ---


def test_the_file_that_apache_writes_is_read_and_written() -> None:
    text = '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"},"empty":{}}}'
    table = KvConfig.from_text(text)
    assert table.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"
    assert table.namespace("empty") == KVTable({})
    assert table.to_text() == text
    assert KvConfig.from_text("").to_text() == KvConfig.from_text("{}").to_text() == '{"configTable":{}}'


@pytest.mark.parametrize("text", ["[]", "7", "{", '{"configTable":[]}', '{"configTable":{"N":[]}}'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        KvConfig.from_text(text)


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), st.text(st.characters(exclude_categories=["Cs"])))))
def test_round_trip(pairs: dict[str, dict[str, str]]) -> None:
    table = KvConfig()
    for namespace, keys in pairs.items():
        for key, value in keys.items():
            assert table.put(namespace, key, value)
    again = KvConfig.from_text(table.to_text())
    assert again.to_text() == table.to_text()
    for namespace, keys in pairs.items():
        for key, value in keys.items():
            assert again.get(namespace, key) == value
            again.delete(namespace, key)


# --- waiting for the disk ---


def put(rig: Rig, link: Link, value: str) -> int:
    """A PUT that is not answered yet; its opaque."""
    request = rig.request(PUT, {"namespace": "N", "key": "k", "value": value})
    assert rig.send(link, encode(request)) == []
    return request.opaque


def test_a_change_is_answered_when_it_is_saved_and_changes_meanwhile_share_the_next_save() -> None:
    rig = Rig(save_kv_config=SaveJob)
    link = rig.connect()
    first = put(rig, link, "1")
    (job,) = rig.jobs()
    second, third = put(rig, link, "2"), put(rig, link, "3")
    assert rig.jobs() == []
    assert isinstance(job, SaveJob)
    assert job.text == '{"configTable":{"N":{"k":"1"}}}'
    rig.node.done(job, None, rig.now)
    assert [(answer.opaque, answer.code) for answer in rig.taken(link)] == [(first, 0)]
    (job,) = rig.jobs()
    assert isinstance(job, SaveJob)
    assert job.text == '{"configTable":{"N":{"k":"3"}}}'
    rig.node.done(job, None, rig.now)
    assert [(answer.opaque, answer.code) for answer in rig.taken(link)] == [(second, 0), (third, 0)]
    assert rig.jobs() == []


def test_a_failed_save_is_told() -> None:
    rig = Rig(save_kv_config=SaveJob)
    link = rig.connect()
    opaque = put(rig, link, "1")
    rig.node.done(rig.jobs()[0], OSError("disk full"), rig.now)
    (answer,) = rig.taken(link)
    assert (answer.opaque, answer.code, answer.remark) == (opaque, 1, "not saved: disk full")


def test_a_peer_that_left_gets_nothing_and_hurts_nobody() -> None:
    rig = Rig(save_kv_config=SaveJob)
    gone, there = rig.connect(), rig.connect()
    put(rig, gone, "1")
    opaque = put(rig, there, "2")
    rig.node.closed(gone, "reset by peer", rig.now)
    for _ in range(2):
        rig.node.done(rig.jobs()[0], None, rig.now)
    assert rig.node.data_to_send(gone) == []
    assert [answer.opaque for answer in rig.taken(there)] == [opaque]


def test_too_many_waiting_changes_are_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "WAITING_MAX", 2)
    rig = Rig(save_kv_config=SaveJob)
    link = rig.connect()
    for value in "123":
        put(rig, link, value)
    answer = rig.ask(link, PUT, {"namespace": "N", "key": "k", "value": "4"})
    assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")


def test_the_end_waits_for_the_save() -> None:
    rig = Rig(save_kv_config=SaveJob)
    link = rig.connect()
    put(rig, link, "1")
    put(rig, link, "2")
    (job,) = rig.jobs()
    rig.node.close(rig.now)
    assert rig.hung_up() == [link]
    assert not rig.node.ended
    rig.node.done(job, None, rig.now)
    (job,) = rig.jobs()
    rig.node.done(job, None, rig.now)
    assert rig.node.ended


def test_one_way_changes_are_saved_and_not_answered() -> None:
    rig = Rig(save_kv_config=SaveJob)
    link = rig.connect()
    assert rig.send(link, encode(Command(PUT, {"namespace": "N", "key": "k", "value": "1"}, flag=2))) == []
    rig.node.done(rig.jobs()[0], None, rig.now)
    assert rig.taken(link) == []
