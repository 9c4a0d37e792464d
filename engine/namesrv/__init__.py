"""The name server: where brokers register and clients find them."""

from engine.namesrv.kv import KvConfig
from engine.namesrv.node import NameServer

__all__ = ["KvConfig", "NameServer"]
