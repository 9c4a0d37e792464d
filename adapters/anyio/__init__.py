"""mqproto for asyncio and trio, by way of anyio: every method that waits is `async`."""

try:
    import anyio as _anyio  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("adapters.anyio needs the package anyio: install mqproto[anyio]", name="anyio") from error

from adapters.anyio.admin import Admin
from adapters.anyio.consumer import Consumer
from adapters.anyio.driver import Driver
from adapters.anyio.lite_pull import LitePullConsumer
from adapters.anyio.producer import Producer
from adapters.anyio.pull import PullConsumer
from adapters.anyio.push import PushConsumer
from adapters.anyio.servers import Broker, NameServer, Standalone
from adapters.anyio.transactions import TransactionProducer
from adapters.credentials import credentials_from_file
from adapters.faces.producer import select_by_random

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
