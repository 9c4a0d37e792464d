"""State that the handlers of a name server share, and the requests that they get."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from mqproto.codec import Command
from mqproto.engine.configuration import Configuration
from mqproto.engine.namesrv.answers import Answer
from mqproto.engine.namesrv.kv import KvConfig
from mqproto.engine.namesrv.registry import Registry
from mqproto.engine.saver import Saver
from mqproto.engine.settings import NamesrvSettings
from mqproto.engine.slices import Steps


@dataclass(slots=True)
class State:
    """State of a name server."""

    settings: NamesrvSettings
    registry: Registry
    kv: KvConfig
    kv_saver: Saver[str]
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Request:
    """Request with where it came from (a token for the connection) and when."""

    command: Command
    link: Hashable
    now: int


#: Handlers give an answer, or work in slices that ends with one. They raise HeaderError and RemoteProtocolError for
#: what they cannot read; the node answers these with code 1.
Handler: TypeAlias = Callable[[State, Request], "Answer | Steps[Answer]"]
