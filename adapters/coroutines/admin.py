"""Admin clients whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.adapters.base.admin import BaseAdmin
from mqproto.adapters.base.families import Awaits
from mqproto.adapters.coroutines.client import AsyncClient
from mqproto.state.flows.effects import Flow


class AsyncAdmin(BaseAdmin[Awaits], AsyncClient):
    __doc__ = BaseAdmin.__doc__

    async def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        self._lifecycle.check()
        return await self._driver.wait(self._begin, family, flow)
