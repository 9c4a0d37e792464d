"""mqproto for programs of threads: every method waits in the thread that calls it."""

from typing import TYPE_CHECKING

from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.base.settings.credentials import credentials_from_file
from mqproto.adapters.threaded.clients import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from mqproto.adapters.threaded.driver import Driver
from mqproto.adapters.threaded.servers import Broker, NameServer, Standalone

if TYPE_CHECKING:
    from mqproto.adapters.threaded.admin import Admin
else:

    def __getattr__(name: str) -> object:
        """Import the admin client when somebody wants it: it is large, and most programs have none."""
        if name != "Admin":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mqproto.adapters.threaded.admin import Admin

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
