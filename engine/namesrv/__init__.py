"""Name server: where brokers register and clients find them."""

from mqproto.engine.namesrv.kv import KvConfig
from mqproto.engine.namesrv.node import NameServerNode

__all__ = ["KvConfig", "NameServerNode"]
