# ruff: noqa: N818 - a name that says what happened needs no suffix
"""Errors of the whole project as one tree, with the facts as attributes.

    MQError
      LocalProtocolError     we were asked for something illegal; nothing was changed, nothing was sent
      RemoteProtocolError    the peer broke the protocol; its link is over (`fastjson.JsonError` is one)
      HeaderError            a request without a field that it needs, or with a malformed one; the link goes on
      ClientError            refused or failed on our side, with Java's client error code
        InvalidName InvalidMessage InvalidSetting StateError NoNameServer NoRoute SendFailed CompressionMissing AclError
        RequestTimeout NoReplyAddress NoCluster NoMessage NoClients PartlyFailed BatchIncomplete
      BrokerError            an answer with another code than success (from a broker or a name server)
        AccessDenied         the broker does not let this account do that
      ConnectFailed ConnectionLost CallExpired TooManyRequests

`retriable` says of a class whether the same call may succeed elsewhere or later. Codes are those of
docs/protocol/client.md 3.3 and 9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mqproto.wire.codes import CONSUMER_NOT_ONLINE, MESSAGE_ILLEGAL, NO_MESSAGE, NO_PERMISSION

if TYPE_CHECKING:
    from mqproto.message import Message, SendResult

CONNECT_FAILED_CODE: Final = 10001
EXPIRED_CODE: Final = 10002
CLIENT_ERROR_CODE: Final = 10003
NO_NAME_SERVER_CODE: Final = 10004
NO_ROUTE_CODE: Final = 10005
REQUEST_TIMEOUT_CODE: Final = 10006
NO_REPLY_ADDRESS_CODE: Final = 10007
ACL_CODE: Final = 10015
NO_CODE: Final = -1

_NO_ADDRESS: Final = (
    "no name server address is set, neither by the argument namesrv nor by NAMESRV_ADDR in the environment"
)

#: What NO_PERMISSION may mean besides a refusal of the account: a broker or topic that takes nothing now, a group that
#: is switched off.
_CLOSED: Final = ("forbidden", "no permission,", "broadcast way")


class MQError(Exception):
    """The root of all errors that this project raises on purpose."""

    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Callable[..., MQError], tuple[Any, ...]]:
        """Errors may be copied and travel between processes: pools of processes hang or break on exceptions that do
        not.
        """
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[MQError], arguments: tuple[Any, ...], facts: dict[str, Any]) -> MQError:
    """An error as it was: its text is among the arguments, and `__init__`, which made it, would take the facts."""
    error: MQError = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(facts)
    return error


class LocalProtocolError(MQError):
    """We were asked to do something that the protocol does not allow. Nothing was changed or sent."""


class RemoteProtocolError(MQError):
    """The peer sent what no peer may send. The link that brought it is over."""


class HeaderError(MQError):
    """A field of a request header is missing or malformed (value None: it is missing).

    Answered with code 1, the link goes on.
    """

    def __init__(self, field: str, value: str | None, why: str) -> None:
        self.field = field
        self.value = value
        self.why = why
        super().__init__(
            f"header field {field}: {why}" if value is None else f"header field {field}: {why}: {value[:100]!r}"
        )


class ClientError(MQError):
    """Refused or failed on our side. `code` is the number that Java's client would show, -1 where it has none."""

    code: int = NO_CODE


class InvalidName(ClientError):
    """A topic, group or instance name that breaks the rules."""

    def __init__(self, kind: str, name: str, why: str) -> None:
        self.kind = kind
        self.name = name
        self.why = why
        super().__init__(f"invalid {kind} {name[:300]!r}: {why}")


class InvalidMessage(ClientError):
    """A message that no broker would take."""

    code = MESSAGE_ILLEGAL

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


class InvalidSetting(ClientError):
    """A setting with a value that cannot be used. `value` is shown as it was given."""

    def __init__(self, key: str, value: object, why: str) -> None:
        self.key = key
        self.value = value
        self.why = why
        super().__init__(f"setting {key}={value}: {why}")


class StateError(ClientError):
    """A call at a time when it makes no sense: before the start, after the end, twice."""


class NoNameServer(ClientError):
    """No name server is configured, or none could be reached."""

    code = NO_NAME_SERVER_CODE

    def __init__(self, tried: tuple[str, ...] = (), reason: str = "") -> None:
        self.tried = tried
        self.reason = reason
        text = f"no name server reachable, tried {', '.join(tried)}" if tried else _NO_ADDRESS
        super().__init__(f"{text}: {reason}" if reason else text)


class NoRoute(ClientError):
    """The name servers know no broker for a topic."""

    code = NO_ROUTE_CODE

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"no route to topic {topic!r}: it does not exist, or no broker that holds it is registered")


class NoCluster(ClientError):
    """The name servers know no cluster of this name. `known` are those that they know."""

    def __init__(self, cluster: str, known: tuple[str, ...]) -> None:
        self.cluster = cluster
        self.known = known
        super().__init__(f"no cluster {cluster!r}: the name servers know {', '.join(known) or 'none'}")


class NoMessage(ClientError):
    """There is no message where one was asked for. `wanted` says what that was."""

    code = NO_MESSAGE

    def __init__(self, wanted: str, why: str) -> None:
        self.wanted = wanted
        self.why = why
        super().__init__(f"no message {wanted}: {why}")


class NoClients(ClientError):
    """A group has no members, or none that ever came."""

    code = CONSUMER_NOT_ONLINE

    def __init__(self, group: str, why: str) -> None:
        self.group = group
        self.why = why
        super().__init__(f"group {group!r}: {why}")


@dataclass(frozen=True, slots=True)
class PlaceFailure:
    """Part of an operation that failed: the address, and how."""

    place: str
    failure: MQError


class PartlyFailed(ClientError):
    """An operation over several servers failed at some of them: `failures` names places and errors, `done` the places
    where it was carried out.
    """

    def __init__(self, operation: str, done: tuple[str, ...], failures: tuple[PlaceFailure, ...]) -> None:
        self.operation = operation
        self.done = done
        self.failures = failures
        self.code = code_of(failures[0].failure) if failures else NO_CODE
        failed = "; ".join(f"{one.place}: {one.failure}" for one in failures)
        super().__init__(f"{operation} failed at {failed}; it is done at {', '.join(done) or 'no other'}")


class CompressionMissing(ClientError):
    """A body is compressed in a way that needs a package that is not installed. `extra` is ours that brings it."""

    def __init__(self, kind: str, extra: str = "compression") -> None:
        self.kind = kind
        self.extra = extra
        super().__init__(f"the body is compressed with {kind}: install mqproto[{extra}]")


class AclError(ClientError):
    """A request cannot be signed with the credentials that were given."""

    code = ACL_CODE


class RequestTimeout(ClientError):
    """A request was sent and no reply came in time: its receiver may have done what it said or not."""

    retriable = True
    code = REQUEST_TIMEOUT_CODE

    def __init__(self, topic: str, correlation_id: str, timeout_ms: int) -> None:
        self.topic = topic
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        super().__init__(f"no reply to request {correlation_id} of topic {topic!r} within {timeout_ms} ms")


class NoReplyAddress(ClientError):
    """A message cannot be replied to: its sender waits for nothing, or the broker did not say which cluster it is
    of.
    """

    code = NO_REPLY_ADDRESS_CODE

    def __init__(self, msg_id: str, missing: str) -> None:
        self.msg_id = msg_id
        self.missing = missing
        super().__init__(f"message {msg_id} cannot be replied to: it has no property {missing}")


class BrokerError(MQError):
    """An answer whose code is not success. `address` is who gave it."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        self.code = code
        self.remark = remark
        self.address = address
        super().__init__(f"{address} answered code {code}: {remark}" if remark else f"{address} answered code {code}")


class AccessDenied(BrokerError):
    """The broker does not know the account, does not believe its signature, or does not let it do that: asking again
    does not help.
    """


def refusal(code: int, remark: str | None, address: str) -> BrokerError:
    """The error that stands for an answer with another code than success.

    Access control answers code 1 with an `AclException` in the remark (4.x), or 16 (5.3; docs/protocol/broker.md 5),
    which other refusals use too.
    """
    text = remark or ""
    if "AclException" in text or (code == NO_PERMISSION and text and not any(words in text for words in _CLOSED)):
        return AccessDenied(code, remark, address)
    return BrokerError(code, remark, address)


class ConnectFailed(MQError):
    """No connection could be made."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"cannot connect to {address}: {reason}")


class ConnectionLost(MQError):
    """The connection ended before the answer came: the request may have been carried out or not."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"connection to {address} lost: {reason}")


class CallExpired(MQError):
    """No answer in time: the request may have been carried out or not."""

    retriable = True

    def __init__(self, address: str, timeout_ms: int) -> None:
        self.address = address
        self.timeout_ms = timeout_ms
        super().__init__(f"no answer from {address} within {timeout_ms} ms")


class TooManyRequests(MQError):
    """A limit of our own was reached (calls in flight, or no time left before the call); nothing was sent."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send: at which broker, how it failed, and what it cost."""

    broker_name: str
    address: str | None
    failure: Exception
    cost_ms: int


def code_of(failure: BaseException | None) -> int:
    """The client error code that stands for a failure (docs/protocol/client.md 3.3)."""
    if isinstance(failure, BrokerError):
        return failure.code
    if isinstance(failure, ConnectFailed):
        return CONNECT_FAILED_CODE
    if isinstance(failure, CallExpired):
        return EXPIRED_CODE
    if isinstance(failure, ClientError):
        return CLIENT_ERROR_CODE
    return NO_CODE


class SendFailed(ClientError):
    """Every attempt to send failed. `attempts` lists them, `cause` is the last failure, `code` follows from it."""

    def __init__(self, topic: str, attempts: tuple[Attempt, ...], cause: Exception | None) -> None:
        self.topic = topic
        self.attempts = attempts
        self.cause = cause
        self.code = code_of(cause)
        tries = "; ".join(
            f"{one.broker_name} ({one.address or 'no address'}) after {one.cost_ms} ms: {one.failure}"
            for one in attempts
        )
        super().__init__(f"sending to topic {topic!r} failed: {tries or cause or 'no attempt was made'}")


class BatchIncomplete(ClientError):
    """A list went out as several requests, and one of them failed, because of `cause`; nothing was sent after it.

    `results` are those of the requests before it, `left` the messages from its first one on. Whether those of the
    failed request were stored is as unknown as after any send that failed: sending `left` again may double them.
    """

    def __init__(self, results: tuple[SendResult, ...], left: tuple[Message, ...], cause: Exception) -> None:
        self.results = results
        self.left = left
        self.cause = cause
        self.code = code_of(cause)
        super().__init__(
            f"request {len(results) + 1} of a list of messages failed, {len(left)} messages are left: {cause}"
        )
