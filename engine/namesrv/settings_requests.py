"""Requests for the name server's own settings: 318 and 319 (broker.md 6.2, 2.16)."""

from __future__ import annotations

from typing import Final

from engine.namesrv.answers import OK, Answer, failed
from engine.namesrv.state import Handler, Request, State
from engine.settings import PropertiesError, apply, format_properties, parse_properties, to_properties
from mqproto.codes import RequestCode, ResponseCode
from mqproto.errors import InvalidSetting


def _update(state: State, request: Request) -> Answer:
    """Settings take effect where they are looked at anew; ports and paths do at the next start."""
    settings = state.settings
    if not request.command.body:
        return OK
    try:
        pairs = parse_properties(bytes(request.command.body))
    except PropertiesError as failure:
        return failed(f"string2Properties error: {failure}")
    if settings.black_list() & pairs.keys():
        return failed("Can not update config in black list.", ResponseCode.NO_PERMISSION)
    known = to_properties(settings)
    try:
        # As Apache does it: a key that nobody knows is skipped. A bad value, which Apache skips as well, is told.
        apply(settings, {key: text for key, text in pairs.items() if key in known})
    except InvalidSetting as failure:
        return failed(str(failure))
    return Answer(saver=state.settings_saver)


def _get(state: State, request: Request) -> Answer:
    return Answer(body=format_properties(to_properties(state.settings)).encode("utf-8", "replace"))


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.UPDATE_NAMESRV_CONFIG: _update,
    RequestCode.GET_NAMESRV_CONFIG: _get,
}
