"""Client node with an account: all that it sends is signed, and a refusal of the account is final."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, VERSION_FLAG_UNSIGNED, SessionCredentials, signature
from mqproto.codec import Command, encode
from mqproto.errors import AccessDenied, AclError
from mqproto.message import Message, SendResult, SendStatus
from mqproto.state.flows.effects import Call, Flow, success
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import VERSION, RequestCode
from tests.mqproto.state.stage import NS, Peer, Stage, broker, name_server, refused, route

B1, B2 = "b1:10911", "b2:10911"
SECRET = "a secret"
DENIED = "org.apache.rocketmq.acl.common.AclException: No default permission for topic:t, ..."


def stage(account: Any, *brokers: str) -> tuple[Stage, Peer]:
    made = Stage(credentials=account)
    made.peers[NS] = name_server(
        {"t": route(*(f"{name}={address}" for name, address in (one.split("=") for one in brokers)))}
    )
    peer = broker()
    for one in brokers:
        made.peers[one.partition("=")[2]] = peer
    return made.begin(), peer


def assert_signed(requests: list[Command]) -> None:
    assert requests
    for request in requests:
        assert request.fields[ACCESS_KEY] == "key"
        assert request.fields[SIGNATURE] == signature(request.fields, request.body, SECRET)


def test_every_request_is_signed() -> None:
    made, peer = stage(SessionCredentials("key", SECRET), f"b1={B1}")
    producer = made.node.add_producer(ProducerSettings(group="g"), made.now)
    body = bytes(range(256)) * 256
    sent: SendResult = made.run(producer.send(Message("t", b"small"), made.now))
    assert sent.status is SendStatus.SEND_OK
    made.run(producer.send(Message("t", body), made.now))
    made.run(producer.send_oneway(Message("t", b"one-way"), made.now))
    made.advance(60_000)
    made.node.close(made.now)
    made.settle()
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT} == set(peer.codes())
    assert_signed(peer.got)
    assert_signed(made.peers[NS].got)
    assert {request.version for request in peer.got} == {VERSION}


def test_a_body_that_is_sent_apart_is_signed_too() -> None:
    made, peer = stage(SessionCredentials("key", SECRET), f"b1={B1}")
    producer = made.node.add_producer(ProducerSettings(group="g", compress_body_over=1 << 20), made.now)
    made.run(producer.send(Message("t", b"x" * 100_000), made.now))
    assert len(peer.of(RequestCode.SEND_MESSAGE_V2)[0].body) == 100_000
    assert_signed(peer.got)


def test_without_an_account_nothing_is_added() -> None:
    made, peer = stage(None, f"b1={B1}")
    producer = made.node.add_producer(ProducerSettings(group="g"), made.now)
    made.run(producer.send(Message("t", b"x"), made.now))
    assert all(
        ACCESS_KEY not in request.fields and SIGNATURE not in request.fields
        for request in peer.got + made.peers[NS].got
    )


def test_a_denied_send_is_one_request() -> None:
    """PRO-11: not tried elsewhere, and raised with the broker's own code and words."""
    made, peer = stage(SessionCredentials("key", SECRET), f"b1={B1}", f"b2={B2}")
    peer.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: refused(request, 1, DENIED)
    producer = made.node.add_producer(ProducerSettings(group="g"), made.now)
    with pytest.raises(AccessDenied, match="No default permission for topic:t") as caught:
        made.run(producer.send(Message("t", b"x"), made.now))
    assert (caught.value.code, caught.value.remark) == (1, DENIED)
    assert peer.codes().count(RequestCode.SEND_MESSAGE_V2) == 1


def query(address: str) -> Flow[Command]:
    outcome, _ = yield Call(address, RequestCode.QUERY_MESSAGE, {"topic": "t", UNIQUE_KEY_QUERY: "true"}, b"", 10_000)
    return success(outcome, address)


def test_a_peer_of_4_4_is_known_by_its_answers() -> None:
    """ACL-01: from then on the flag of a query by unique key is signed, for its neighbours too."""
    made, peer = stage(SessionCredentials("key", SECRET), f"b1={B1}", f"b2={B2}")
    peer.answers[RequestCode.QUERY_MESSAGE] = lambda request: encode(
        Command(0, opaque=request.opaque, flag=1, version=293)
    )
    made.run(query(B1))
    made.run(query(B1))
    made.run(query(B2))
    first, second, third = peer.of(RequestCode.QUERY_MESSAGE)
    assert (first.version, second.version, third.version) == (VERSION_FLAG_UNSIGNED, VERSION, VERSION)
    unflagged = {name: value for name, value in first.fields.items() if name != UNIQUE_KEY_QUERY}
    assert first.fields[SIGNATURE] == signature(unflagged, b"", SECRET)
    assert_signed([second, third])


def test_an_account_that_fails_later_fails_the_operation_alone() -> None:
    account = SessionCredentials("key", SECRET)
    made, peer = stage(account, f"b1={B1}")
    producer = made.node.add_producer(ProducerSettings(group="g"), made.now)
    made.run(producer.send(Message("t", b"x"), made.now))
    account.secret_key = ""
    count = len(peer.got)
    with pytest.raises(AclError, match="secret_key"):
        made.run(producer.send(Message("t", b"y"), made.now))
    assert len(peer.got) == count
    account.secret_key = SECRET
    made.run(producer.send(Message("t", b"z"), made.now))
    assert_signed(peer.got)


def test_an_account_that_cannot_sign_is_refused_at_once() -> None:
    with pytest.raises(AclError, match="access_key"):
        stage(SessionCredentials("", SECRET))
