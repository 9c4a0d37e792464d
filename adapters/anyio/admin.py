"""Admin clients whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.adapters.anyio.client import AsyncClient
from mqproto.adapters.faces.admin import AdminFace
from mqproto.adapters.faces.families import Awaits
from mqproto.state.flows import Flow


class Admin(AdminFace[Awaits], AsyncClient):
    __doc__ = (AdminFace.__doc__ or "") + "Cancelling an operation gives it up: whether a server has carried it out is then unknown."

    async def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        self._life.check()
        return await self._driver.wait(self._begin, family, flow)
