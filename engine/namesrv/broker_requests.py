"""Requests about brokers: registration 103, 104 and 322, clusters 106, write permission 205 and 327 (broker.md 6.2, 6.3)."""

from __future__ import annotations

from typing import Final

from engine.namesrv.answers import OK, Answer, failed
from engine.namesrv.kv import ORDER_NAMESPACE
from engine.namesrv.registry import RegistryFullError
from engine.namesrv.state import Handler, Request, State
from mqproto.bodies import DataVersion, RegisterBrokerBody
from mqproto.codes import RequestCode
from mqproto.headers import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from mqproto.ids import body_crc


def _register(state: State, request: Request) -> Answer:
    command = request.command
    header = RegisterBrokerRequest.decode(command.fields)
    if header.body_crc32 and header.body_crc32 != body_crc(command.body):
        return failed("crc32 not match")
    body = RegisterBrokerBody.decode(command.body, compressed=header.compressed, version=command.version)
    try:
        master = state.registry.register(header, body, request.link, request.now)
    except RegistryFullError as failure:
        return failed(str(failure))
    answer = RegisterBrokerResponse() if master is None else RegisterBrokerResponse(master.ha_address, master.address)
    ordered = state.kv.namespace(ORDER_NAMESPACE)
    return Answer(fields=answer.encode(), body=b"" if ordered is None else ordered.to_json())


def _unregister(state: State, request: Request) -> Answer:
    header = UnregisterBrokerRequest.decode(request.command.fields)
    state.registry.unregister(header.broker_name, header.broker_addr, header.broker_id)
    return OK


def _query_data_version(state: State, request: Request) -> Answer:
    header = QueryDataVersionRequest.decode(request.command.fields)
    theirs = DataVersion.from_json(request.command.body)
    entry = state.registry.live.get(header.broker_addr)
    ours = None if entry is None else entry.version
    changed = ours != theirs
    if not changed:
        state.registry.refresh(header.broker_addr, request.now)
    return Answer(fields=QueryDataVersionResponse(changed).encode(), body=b"" if ours is None else ours.to_json())


def _cluster_info(state: State, request: Request) -> Answer:
    return Answer(body=state.registry.cluster_info().to_json())


def _wipe_write_permission(state: State, request: Request) -> Answer:
    header = WipeWritePermOfBrokerRequest.decode(request.command.fields)
    count = state.registry.set_write_permission(header.broker_name, False)
    return Answer(fields=WipeWritePermOfBrokerResponse(count).encode())


def _add_write_permission(state: State, request: Request) -> Answer:
    header = AddWritePermOfBrokerRequest.decode(request.command.fields)
    count = state.registry.set_write_permission(header.broker_name, True)
    return Answer(fields=AddWritePermOfBrokerResponse(count).encode())


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.REGISTER_BROKER: _register,
    RequestCode.UNREGISTER_BROKER: _unregister,
    RequestCode.QUERY_DATA_VERSION: _query_data_version,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _wipe_write_permission,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _add_write_permission,
}
