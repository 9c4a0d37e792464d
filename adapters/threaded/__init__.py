"""mqproto for programs of threads: every method waits in the thread that calls it."""

from adapters.faces.producer import select_by_random
from adapters.threaded.clients import Admin, Producer, PushConsumer, TransactionProducer
from adapters.threaded.driver import Driver
from adapters.threaded.servers import Broker, NameServer, Standalone

__all__ = ["Admin", "Broker", "Driver", "NameServer", "Producer", "PushConsumer", "Standalone", "TransactionProducer", "select_by_random"]
