"""Identity of this process and machine, for nodes, which may not look for it themselves."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
import time
from typing import Final

from mqproto.adapters.io.sockets import local_ip
from mqproto.state.client.settings import ClientIdentity

#: Names that Apache's client replaces by process id and a number, so that instances of one process stay apart
#: (docs/protocol/client.md CI-4).
DEFAULT_INSTANCE: Final = "DEFAULT"

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_.-]{1,127}")
_instances: Final = itertools.count(time.monotonic_ns())


def new_seed() -> int:
    """A number that spreads this process over queues, brokers and name servers differently from others."""
    return secrets.randbits(31)


def utc_offset_ms() -> int:
    """Local time minus UTC."""
    return time.localtime().tm_gmtoff * 1000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def client_identity(client_ip: str, instance_name: str, *, keep_default: bool = False) -> ClientIdentity:
    """The identity of a client; empty texts mean what Apache's client would find (docs/protocol/client.md 1.1).

    `keep_default` leaves the instance name "DEFAULT": offset files of broadcasting consumers lie under it.
    """
    name = instance_name or DEFAULT_INSTANCE
    if name == DEFAULT_INSTANCE and not keep_default:
        name = f"{os.getpid()}#{next(_instances)}"
    return ClientIdentity(client_ip or local_ip(), os.getpid(), name, new_seed(), utc_offset_ms())


def broker_name() -> str:
    """The name of a broker that nobody has named: this host's (docs/protocol/broker.md 8.2)."""
    name = socket.gethostname()
    return name if _NAME.fullmatch(name) else "DEFAULT_BROKER"
