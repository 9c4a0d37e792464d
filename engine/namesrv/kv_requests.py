"""Requests for the key/value configuration: 100, 101, 102, 219."""

from __future__ import annotations

from typing import Final

from mqproto.engine.namesrv import kv
from mqproto.engine.namesrv.answers import Answer, failed
from mqproto.engine.namesrv.state import Handler, Request, State
from mqproto.wire.codes import RequestCode, ResponseCode
from mqproto.wire.headers import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)


def _put(state: State, request: Request) -> Answer:
    header = PutKVConfigRequest.decode(request.command.fields)
    if not state.kv.put(header.namespace, header.key, header.value):
        return failed(f"the key/value configuration takes {kv.SIZE_MAX} characters and not more")
    return Answer(saver=state.kv_saver)


def _get(state: State, request: Request) -> Answer:
    header = GetKVConfigRequest.decode(request.command.fields)
    value = state.kv.get(header.namespace, header.key)
    if value is None:
        return failed(f"No config item, Namespace: {header.namespace} Key: {header.key}", ResponseCode.QUERY_NOT_FOUND)
    return Answer(fields=GetKVConfigResponse(value).encode())


def _delete(state: State, request: Request) -> Answer:
    header = DeleteKVConfigRequest.decode(request.command.fields)
    state.kv.delete(header.namespace, header.key)
    return Answer(saver=state.kv_saver)


def _list(state: State, request: Request) -> Answer:
    header = GetKVListByNamespaceRequest.decode(request.command.fields)
    table = state.kv.namespace(header.namespace)
    if table is None:
        return failed(f"No config item, Namespace: {header.namespace}", ResponseCode.QUERY_NOT_FOUND)
    return Answer(body=table)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.PUT_KV_CONFIG: _put,
    RequestCode.GET_KV_CONFIG: _get,
    RequestCode.DELETE_KV_CONFIG: _delete,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _list,
}
