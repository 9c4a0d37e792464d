"""mqproto for programs of threads: every method waits in the thread that calls it."""

from mqproto.adapters.base.credentials import credentials_from_file
from mqproto.adapters.base.producer import select_by_random
from mqproto.adapters.threaded.clients import (
    Admin,
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from mqproto.adapters.threaded.driver import Driver
from mqproto.adapters.threaded.servers import Broker, NameServer, Standalone

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
