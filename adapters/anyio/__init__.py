"""mqproto for asyncio and trio, by way of anyio: every method that waits is `async`."""

try:
    import anyio as _anyio  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("mqproto.adapters.anyio needs the package anyio: install mqproto[anyio]", name="anyio") from error

from mqproto.adapters.anyio.admin import Admin
from mqproto.adapters.anyio.consumer import Consumer
from mqproto.adapters.anyio.driver import Driver
from mqproto.adapters.anyio.lite_pull import LitePullConsumer
from mqproto.adapters.anyio.producer import Producer
from mqproto.adapters.anyio.pull import PullConsumer
from mqproto.adapters.anyio.push import PushConsumer
from mqproto.adapters.anyio.servers import Broker, NameServer, Standalone
from mqproto.adapters.anyio.transactions import TransactionProducer
from mqproto.adapters.credentials import credentials_from_file
from mqproto.adapters.faces.producer import select_by_random

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
    "Standalone",
    "TransactionProducer",
    "credentials_from_file",
    "select_by_random",
]
