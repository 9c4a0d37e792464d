"""Admin clients for asyncio and trio."""

from __future__ import annotations

from mqproto.adapters.anyio.runtime import RUNTIME
from mqproto.adapters.coroutines.admin import AsyncAdmin


class Admin(AsyncAdmin):
    __doc__ = (
        AsyncAdmin.__doc__ or ""
    ) + "Cancelling an operation gives it up: whether a server has carried it out is then unknown."
    _runtime = RUNTIME
