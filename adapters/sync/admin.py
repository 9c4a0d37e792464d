"""Admin clients for every runtime in which waiting is a plain call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqproto.adapters.base.admin import BaseAdmin
from mqproto.adapters.base.families import Waits
from mqproto.adapters.sync.client import SyncClient
from mqproto.state.flows.effects import Flow


class SyncAdmin(BaseAdmin[Waits], SyncClient):
    __doc__ = BaseAdmin.__doc__

    def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        self._lifecycle.check()
        return self._driver.wait(self._begin, family, flow)
