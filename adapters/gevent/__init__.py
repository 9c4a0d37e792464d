"""mqproto for gevent: every method waits in the greenlet that calls it. Nothing needs to be monkey-patched."""

from typing import TYPE_CHECKING

try:
    import gevent as _gevent  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqproto.adapters.gevent needs the package gevent: install mqproto[gevent]", name="gevent"
    ) from error

from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.base.settings.credentials import credentials_from_file
from mqproto.adapters.gevent.clients import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from mqproto.adapters.gevent.driver import Driver
from mqproto.adapters.gevent.servers import Broker, NameServer, Standalone

if TYPE_CHECKING:
    from mqproto.adapters.gevent.admin import Admin
else:

    def __getattr__(name: str) -> object:
        """Import the admin client when somebody wants it: it is large, and most programs have none."""
        if name != "Admin":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mqproto.adapters.gevent.admin import Admin

        globals()[name] = Admin
        return Admin

    def __dir__() -> list[str]:
        return sorted({*globals(), "Admin"})


#: The short name of `SimpleConsumer`.
Consumer = SimpleConsumer

__all__ = [
    "Admin",
    "Broker",
    "Consumer",
    "Driver",
    "LitePullConsumer",
    "NameServer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "SimpleConsumer",
    "Standalone",
    "TransactionProducer",
    "credentials_from_file",
    "select_by_random",
]
