"""mqproto for asyncio and trio, by way of anyio: every method that waits is `async`."""

try:
    import anyio as _anyio  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mqproto.adapters.anyio needs the package anyio: install mqproto[anyio]", name="anyio"
    ) from error

from mqproto.adapters.anyio.driver import Driver
from mqproto.adapters.anyio.servers import Broker, NameServer, Standalone
from mqproto.adapters.base.credentials import credentials_from_file
from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.coroutines.admin import Admin
from mqproto.adapters.coroutines.lite_pull_consumer import LitePullConsumer
from mqproto.adapters.coroutines.producer import Producer
from mqproto.adapters.coroutines.pull_consumer import PullConsumer
from mqproto.adapters.coroutines.push_consumer import PushConsumer
from mqproto.adapters.coroutines.simple_consumer import SimpleConsumer
from mqproto.adapters.coroutines.transaction_producer import TransactionProducer

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
