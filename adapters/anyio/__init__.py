"""mqproto for asyncio and trio, by way of anyio: every method that waits is `async`."""

from typing import TYPE_CHECKING

try:
    import anyio as _anyio  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqproto.adapters.anyio needs the package anyio: install mqproto[anyio]", name="anyio"
    ) from error

from mqproto.adapters.anyio.clients import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from mqproto.adapters.anyio.driver import Driver
from mqproto.adapters.anyio.servers import Broker, NameServer, Standalone
from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.base.settings.credentials import credentials_from_file

if TYPE_CHECKING:
    from mqproto.adapters.anyio.admin import Admin
else:

    def __getattr__(name: str) -> object:
        """Import the admin client when somebody wants it: it is large, and most programs have none."""
        if name != "Admin":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from mqproto.adapters.anyio.admin import Admin

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
