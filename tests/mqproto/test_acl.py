"""Signatures, against those of Apache's clients."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from mqproto.acl import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    UNIQUE_KEY_QUERY,
    VERSION_FLAG_UNSIGNED,
    SessionCredentials,
    canonical_text,
    check_credentials,
    sign,
    signature,
)
from mqproto.errors import AccessDenied, AclError, BrokerError, refusal
from mqproto.wire.codes import VERSION
from tests.golden.golden import GOLDEN

SECRETS = {"GoldenUser": "golden-secret", "GoldenAdmin": "golden-admin-secret", "NoSuchUser": "golden-secret"}
CAPTURES = [
    (version, name)
    for version in ("4.4.0", "4.9.7")
    for name in GOLDEN.capture_names(version)
    if name.startswith("acl-")
]


@pytest.mark.parametrize(("version", "name"), CAPTURES)
def test_signatures_of_recorded_clients(version: str, name: str) -> None:
    """What Java signed, with the bodies that it sent: ours is the same, whatever the order of the fields (ACL-01)."""
    secrets = {**SECRETS, "GoldenUser": "not-the-secret"} if name == "acl-produce-wrong-secret" else SECRETS
    for exchange in GOLDEN.exchanges(version, name):
        request = exchange.request
        if SIGNATURE not in request.fields:
            continue
        secret = secrets[request.fields[ACCESS_KEY]]
        fields = dict(reversed(request.fields.items()))
        unsigned = {field: value for field, value in fields.items() if field not in (ACCESS_KEY, SIGNATURE)}
        signed, said = sign(SessionCredentials(request.fields[ACCESS_KEY], secret), unsigned, request.body)
        assert (signed, said) == (request.fields, VERSION)


def test_enough_was_recorded() -> None:
    signed = [
        exchange.request.code
        for version, name in CAPTURES
        for exchange in GOLDEN.exchanges(version, name)
        if SIGNATURE in exchange.request.fields
    ]
    assert len(signed) > 50
    assert {11, 34, 37, 105, 310, 320} <= set(signed)


def test_the_known_signature() -> None:
    """ACL-01: values in the order of names, capitals first."""
    fields = {ACCESS_KEY: "RocketMQ", "topic": "TopicTest"}
    assert canonical_text(fields) == b"RocketMQTopicTest"
    assert signature(fields, b"", "12345678") == "0jiwhsaYp5ObE5GObbZH1I8/FT4="
    for names in itertools.permutations(("topic", "b", "A", ACCESS_KEY)):
        assert canonical_text({name: name for name in names}) == b"AAccessKeybtopic"


def test_names_are_in_the_order_of_java() -> None:
    """By UTF-16 units: a pair of surrogates comes before U+FFFD, although its code point is higher."""
    assert canonical_text({"\ufffd": "2", "\U0001f600": "1"}) == b"12"
    assert canonical_text({"a": "\U0001f600", SIGNATURE: "no part of it"}) == "\U0001f600".encode()


def test_token_and_body_are_signed() -> None:
    fields, _ = sign(SessionCredentials("key", "secret", "token"), {"x": "1"}, b"body")
    assert fields == {
        "x": "1",
        ACCESS_KEY: "key",
        SECURITY_TOKEN: "token",
        SIGNATURE: signature(fields, b"body", "secret"),
    }
    assert (
        signature(fields, b"body", "secret")
        != signature(fields, b"", "secret")
        != signature({**fields, "x": "2"}, b"", "secret")
    )
    assert signature(fields, memoryview(b"body"), "secret") == signature(fields, b"body", "secret")
    assert SECURITY_TOKEN not in sign(SessionCredentials("key", "secret", ""), {})[0]


def test_signing_again_signs_anew() -> None:
    first, _ = sign(SessionCredentials("key", "secret"), {"x": "1"})
    assert sign(SessionCredentials("key", "secret"), first) == (first, VERSION)
    assert sign(SessionCredentials("other", "secret"), first)[0][ACCESS_KEY] == "other"


@pytest.mark.parametrize(("peer", "counts"), [(293, True), (332, True), (333, False), (VERSION, False), (479, False)])
def test_the_flag_of_a_query_by_unique_key(peer: int, counts: bool) -> None:
    """ACL-01: a broker of 4.4 reads it as part of what is signed; others do not, 5.x because of the release that the
    request names.
    """
    credentials = SessionCredentials("key", "secret")
    fields, said = sign(credentials, {"topic": "t", UNIQUE_KEY_QUERY: "true"}, b"", peer)
    assert fields[UNIQUE_KEY_QUERY] == "true"
    known = fields if counts else {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    assert fields[SIGNATURE] == signature(known, b"", "secret")
    assert said == (VERSION if counts else VERSION_FLAG_UNSIGNED)
    assert VERSION_FLAG_UNSIGNED <= 399


def test_secrets_do_not_show() -> None:
    shown = repr(SessionCredentials("key", "the secret", "the token")) + str(
        SessionCredentials("key", "the secret", "the token")
    )
    assert "key" in shown
    assert "the secret" not in shown
    assert "the token" not in shown


class Renewed:
    """An account of the application's own."""

    access_key = "key"
    secret_key = "secret"

    def __init__(self) -> None:
        self.tokens = iter(("first", "second"))

    @property
    def security_token(self) -> str:
        return next(self.tokens)


def test_an_object_of_the_application_is_asked_each_time() -> None:
    account = Renewed()
    assert [sign(account, {})[0][SECURITY_TOKEN] for _ in range(2)] == ["first", "second"]
    with pytest.raises(AclError, match="cannot be read: StopIteration"):
        sign(account, {})


@dataclass
class Odd:
    access_key: object = "key"
    secret_key: object = "secret value"
    security_token: object = None


@pytest.mark.parametrize(
    "odd",
    [
        Odd(access_key=""),
        Odd(access_key=None),
        Odd(secret_key=12345678),
        Odd(secret_key=""),
        Odd(security_token=7),
        object(),
    ],
)
def test_what_cannot_sign(odd: object) -> None:
    with pytest.raises(AclError) as caught:
        check_credentials(odd)  # type: ignore[arg-type]
    assert caught.value.code == 10015
    assert "secret value" not in str(caught.value)


def test_refusals_of_an_account() -> None:
    """PRO-11: known by the remark of 4.x, by code 16 of 5.x; a topic or broker that takes nothing is something else."""
    denied = refusal(1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, ...", "b:1")
    assert isinstance(denied, AccessDenied)
    assert (denied.code, denied.address) == (1, "b:1")
    assert isinstance(refusal(16, "User:golden has no permission to access Topic:t", "b:1"), AccessDenied)
    for code, remark in (
        (16, "the broker[10.0.0.1] sending message is forbidden"),
        (16, "the topic[t] sending message is forbidden"),
        (16, "Sending message to topic[t] is forbidden."),
        (16, "subscription group no permission, g"),
        (16, "the consumer group[g] can not consume by broadcast way"),
        (16, None),
        (1, "CODE: 1"),
        (1, None),
    ):
        assert type(refusal(code, remark, "b:1")) is BrokerError, remark
