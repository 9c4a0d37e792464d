"""Admin clients whose methods wait in the calling greenlet."""

from __future__ import annotations

from mqproto.adapters.gevent.runtime import RUNTIME
from mqproto.adapters.sync.admin import SyncAdmin


class Admin(SyncAdmin):
    __doc__ = SyncAdmin.__doc__
    _runtime = RUNTIME
