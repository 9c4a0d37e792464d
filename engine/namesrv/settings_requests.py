"""Requests for the name server's own settings: 318 and 319 (docs/protocol/broker.md 6.2, 2.16)."""

from __future__ import annotations

from typing import Final

from mqproto.engine.configuration import ChangeRefused
from mqproto.engine.namesrv.answers import OK, Answer, failed
from mqproto.engine.namesrv.state import Handler, Request, State
from mqproto.engine.settings import format_properties
from mqproto.wire.codes import RequestCode, ResponseCode


def _update(state: State, request: Request) -> Answer:
    if not request.command.body:
        return OK
    try:
        changed, remark = state.configuration.update(bytes(request.command.body), request.now)
    except ChangeRefused as refused:
        return failed(refused.remark, ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR)
    return Answer(remark=remark, saver=state.configuration.saver) if changed else OK


def _get(state: State, request: Request) -> Answer:
    return Answer(body=format_properties(state.configuration.properties()).encode("utf-8", "replace"))


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.UPDATE_NAMESRV_CONFIG: _update,
    RequestCode.GET_NAMESRV_CONFIG: _get,
}
