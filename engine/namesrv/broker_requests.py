"""Requests about brokers: registration 103, 104 and 322, clusters 106, write permission 205 and 327, and of 5.x 901 and
904 (docs/protocol/broker.md 6.2, 6.3, 6.6).
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.namesrv.answers import OK, Answer, failed
from mqproto.engine.namesrv.kv import ORDER_NAMESPACE
from mqproto.engine.namesrv.registry import RegistrationRefusedError
from mqproto.engine.namesrv.state import Handler, Request, State
from mqproto.engine.slices import Steps
from mqproto.wire.bodies import BrokerMemberGroup, BrokerMemberGroupBody, DataVersion, read_registration
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    BrokerHeartbeatRequest,
    GetBrokerMemberGroupRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerFields,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from mqproto.wire.ids import body_crc


def _register(state: State, request: Request) -> Steps[Answer]:
    command = request.command
    header = RegisterBrokerRequest.decode(command.fields)
    live_ms = RegisterBrokerFields.decode(command.fields).heartbeat_timeout_millis
    if header.body_crc32 and header.body_crc32 != body_crc(command.body):
        return failed("crc32 not match")
    registry = state.registry
    skipped = False

    def known(version: DataVersion) -> bool:
        nonlocal skipped
        skipped = registry.knows(header, version)
        return skipped

    body = yield from read_registration(
        command.body, compressed=header.compressed, version=command.version, known=known
    )
    if skipped and not registry.knows(header, body.topic_table.data_version):
        # The broker was forgotten while its topics were passed over.
        body = yield from read_registration(command.body, compressed=header.compressed, version=command.version)
    try:
        master = yield from registry.register(header, body, request.link, request.now, live_ms)
    except RegistrationRefusedError as failure:
        return failed(str(failure))
    answer = RegisterBrokerResponse() if master is None else RegisterBrokerResponse(master.ha_address, master.address)
    ordered = state.kv.namespace(ORDER_NAMESPACE)
    return Answer(fields=answer.encode(), body=b"" if ordered is None else ordered)


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
    return Answer(body=state.registry.cluster_info())


def _wipe_write_permission(state: State, request: Request) -> Steps[Answer]:
    header = WipeWritePermOfBrokerRequest.decode(request.command.fields)
    count = yield from state.registry.set_write_permission(header.broker_name, False)
    return Answer(fields=WipeWritePermOfBrokerResponse(count).encode())


def _add_write_permission(state: State, request: Request) -> Steps[Answer]:
    header = AddWritePermOfBrokerRequest.decode(request.command.fields)
    count = yield from state.registry.set_write_permission(header.broker_name, True)
    return Answer(fields=AddWritePermOfBrokerResponse(count).encode())


def _heartbeat(state: State, request: Request) -> Answer:
    """5.x: a sign of life between registrations. One of a broker that nobody knows says nothing."""
    header = BrokerHeartbeatRequest.decode(request.command.fields)
    state.registry.refresh(header.broker_addr, request.now)
    return OK


def _member_group(state: State, request: Request) -> Answer:
    """5.x: the live addresses of a broker name, none for one that nobody knows."""
    header = GetBrokerMemberGroupRequest.decode(request.command.fields)
    data = state.registry.brokers.get(header.broker_name)
    group = BrokerMemberGroup(header.cluster_name, header.broker_name, {} if data is None else data.addresses)
    return Answer(body=BrokerMemberGroupBody(group).to_json())


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.REGISTER_BROKER: _register,
    RequestCode.UNREGISTER_BROKER: _unregister,
    RequestCode.QUERY_DATA_VERSION: _query_data_version,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _wipe_write_permission,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _add_write_permission,
    RequestCode.BROKER_HEARTBEAT: _heartbeat,
    RequestCode.GET_BROKER_MEMBER_GROUP: _member_group,
}
