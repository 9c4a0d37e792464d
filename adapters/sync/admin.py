"""Admin clients for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.adapters.base.admin import AdminFace
from mqproto.adapters.base.families import Waits
from mqproto.adapters.sync.client import SyncClient
from mqproto.state.flows.effects import Flow


class SyncAdmin(AdminFace[Waits], SyncClient):
    __doc__ = AdminFace.__doc__

    def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        self._life.check()
        return self._driver.wait(self._begin, family, flow)
