"""Settings that name servers keep by namespace and key: 100, 101, 102, 219 (docs/protocol/admin.md 4;
docs/protocol/broker.md 6).

Each name server keeps its own, so changes go to all of them. One namespace holds the order of topics
(docs/protocol/client.md 2.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.state.admin.calls import AdminCalls
from mqproto.state.flows.effects import Flow
from mqproto.wire.bodies import KVTable
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


def put(calls: AdminCalls, namespace: str, key: str, value: str) -> Flow[None]:
    """Set a value at every name server. Raises PartlyFailed."""
    fields = PutKVConfigRequest(namespace, key, value).encode()
    yield from calls.at_each(
        f"setting {namespace}/{key}", calls.name_servers, _told(calls, RequestCode.PUT_KV_CONFIG, fields)
    )


def delete(calls: AdminCalls, namespace: str, key: str) -> Flow[None]:
    """Take a value out of every name server; one that is not there is no error. Raises PartlyFailed."""
    fields = DeleteKVConfigRequest(namespace, key).encode()
    yield from calls.at_each(
        f"deleting {namespace}/{key}", calls.name_servers, _told(calls, RequestCode.DELETE_KV_CONFIG, fields)
    )


def _told(calls: AdminCalls, code: int, fields: dict[str, str]) -> Callable[[str], Flow[None]]:
    def tell(address: str) -> Flow[None]:
        yield from calls.done(address, code, fields)

    return tell


def get(calls: AdminCalls, namespace: str, key: str) -> Flow[str | None]:
    """A value, as one name server has it; None when it has none."""
    command = yield from calls.ask(None, RequestCode.GET_KV_CONFIG, GetKVConfigRequest(namespace, key).encode())
    if command.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if command.code != ResponseCode.SUCCESS:
        raise calls.refusal(command, None)
    return GetKVConfigResponse.decode(command.fields).value


def table(calls: AdminCalls, namespace: str) -> Flow[dict[str, str]]:
    """All keys and values of a namespace, as one name server has them; empty when it has none."""
    command = yield from calls.ask(
        None, RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequest(namespace).encode()
    )
    if command.code == ResponseCode.QUERY_NOT_FOUND:
        return {}
    if command.code != ResponseCode.SUCCESS:
        raise calls.refusal(command, None)
    return KVTable.from_json(bytes(command.body)).table
