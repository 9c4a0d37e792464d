"""Admin clients whose methods wait in the calling thread."""

from __future__ import annotations

from mqproto.adapters.sync.admin import SyncAdmin
from mqproto.adapters.threaded.runtime import RUNTIME


class Admin(SyncAdmin):
    __doc__ = SyncAdmin.__doc__
    _runtime = RUNTIME
