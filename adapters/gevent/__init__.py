"""mqproto for gevent: every method waits in the greenlet that calls it. Nothing needs to be monkey-patched."""

try:
    import gevent as _gevent  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqproto.adapters.gevent needs the package gevent: install mqproto[gevent]", name="gevent"
    ) from error

from mqproto.adapters.base.credentials import credentials_from_file
from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.gevent.clients import (
    Admin,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from mqproto.adapters.gevent.driver import Driver
from mqproto.adapters.gevent.servers import Broker, NameServer, Standalone

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
