"""Setup of servers: settings are read, ports bound, the store opened, and the node made from all that.

Independent of the runtime: embedding classes and the command line open servers here and give them to a driver.
Leaves to others: what drives (drivers), what the settings mean (`mqproto.engine.settings`), files of the store
(`mqproto.engine.store`).
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from socket import socket
from typing import Final

from mqproto.adapters.io.config_file import ChangeSettings, read_settings
from mqproto.adapters.io.files import Replace, read_if_there
from mqproto.adapters.io.identity import broker_name, new_seed, utc_offset_ms, wall_ms
from mqproto.adapters.io.sockets import broker_listeners, close_listeners, listen, local_ip, port_of
from mqproto.adapters.servers.server_base import BROKER, NAME_SERVER
from mqproto.engine.broker.node import BrokerNode
from mqproto.engine.broker.operators import metrics as broker_metrics
from mqproto.engine.configuration import Configuration
from mqproto.engine.ignored import ignored_keys
from mqproto.engine.metrics import Collected
from mqproto.engine.namesrv import NameServerNode
from mqproto.engine.namesrv import metrics as namesrv_metrics
from mqproto.engine.namesrv.kv import KvConfig
from mqproto.engine.settings import BrokerSettings, NamesrvSettings, ServerSettings, Settings, apply_all, table
from mqproto.engine.slices import Steps
from mqproto.engine.store import Recover, Store, StoreSettings
from mqproto.errors import InvalidSetting
from mqproto.state.node.contract import Node, Ticket
from mqproto.wire.fastjson import JsonError
from mqproto.wire.hosts import join_address

#: Where servers listen when nobody says anything: embedding must not open a port to the network by accident.
LOOPBACK: Final = "127.0.0.1"
_ANY: Final = frozenset({"", "0.0.0.0", "::"})
_TEMPORARY_PREFIX: Final = "mqproto-"


@dataclass(frozen=True, slots=True)
class Opened:
    """Server that is ready: give `node` and `listeners` to a driver, and call `clean_up` when that has stopped."""

    node: Node
    listeners: dict[str, socket]
    #: `host:port` for clients.
    address: str
    #: `BROKER` or `NAME_SERVER`, for logs and names of threads.
    role: str
    #: Gives the node's numbers, for a page of metrics.
    collect: Callable[[], Steps[Collected]]
    #: Remarks of the node that are worth a line in a log.
    notices: deque[str] | None = None
    #: An operation of the node that ends when the server is of use to others: a broker is registered.
    ready: Callable[[int], Ticket[None]] | None = None
    #: Gives back what the node holds when its driver was stopped before its orderly end. Harmless otherwise.
    abandon: Callable[[], None] | None = None
    #: The data directory; None for a server without files.
    directory: Path | None = None
    #: The directory was made for this server alone.
    temporary: bool = False
    #: Where the page of metrics is; empty where there is none.
    metrics: str = ""
    #: Keys of a settings file that nothing here knows (Apache's own that have no meaning here are left out).
    unknown_keys: tuple[str, ...] = ()

    def clean_up(self) -> None:
        """Let nothing stay locked after a forced end; remove the directory if it was made for this server alone.

        May block.
        """
        if self.abandon is not None:
            self.abandon()
        if self.temporary and self.directory is not None:
            rmtree(self.directory, ignore_errors=True)


@dataclass(slots=True, kw_only=True)
class NameServerOptions:
    """Options of a name server, which `open` opens. `settings` are by Apache's keys (docs/protocol/broker.md 8.5) and
    must be known.

    `host` and `port` come before the settings `bindAddress` and `listenPort`; without any of them: loopback and a free
    port.
    `directory` keeps the KV configuration; without it (and the keys that name files) nothing outlives the process.
    `config` is a file of settings, `namesrv.properties` of the directory if none is named; changes by request go there.
    It has more weight than `defaults`, and less than `settings`.
    """

    host: str | None = None
    port: int | None = None
    directory: str | os.PathLike[str] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> tuple[NamesrvSettings, tuple[str, ...]]:
        """The settings, and keys of the file that are not known. Raises InvalidSetting, SettingsUnreadable."""
        settings = NamesrvSettings(listen_port=0, bind_address=LOOPBACK, kv_config_path="", config_store_path="")
        place = "" if self.directory is None else str(Path(self.directory) / "namesrv.properties")
        place = str(self.config or self.settings.get("configStorePath") or place)
        file = _user_path(place)
        pairs = read_settings(file, missing_ok=self.config is None)
        unknown = _fill((settings,), self.defaults, pairs, self.settings, self.host, self.port)
        settings.config_store_path = place
        if self.directory is not None and not settings.kv_config_path:
            settings.kv_config_path = str(Path(self.directory) / "kvConfig.json")
        return settings, unknown

    def properties(self, important: bool = False) -> dict[str, str]:
        """Every key with its text, or the important ones. Errors as in `read`."""
        return _properties((self.read()[0],), important)

    def open(self) -> Opened:
        """Raises InvalidSetting, SettingsUnreadable, PortTaken, ListenFailed, or OSError for unreadable files."""
        settings, unknown = self.read()
        kv_config = _user_path(settings.kv_config_path)
        own_config = _user_path(settings.config_store_path)
        kept = _load_kv_config(kv_config) if kv_config else None
        listener = listen(settings.bind_address, settings.listen_port, NAME_SERVER)
        node = NameServerNode(
            settings,
            kv_config=kept,
            save_kv_config=partial(Replace, kv_config) if kv_config else None,
            save_settings=partial(ChangeSettings, own_config) if own_config else None,
        )
        host = settings.bind_address
        if host in _ANY:
            host = local_ip()
        return Opened(
            node,
            {"main": listener},
            join_address(host, port_of(listener)),
            NAME_SERVER,
            partial(namesrv_metrics.collect, node.state.registry),
            notices=node.notices,
            directory=Path(self.directory) if self.directory is not None else None,
            unknown_keys=unknown,
        )


@dataclass(slots=True, kw_only=True)
class BrokerOptions:
    """Options of a broker and its store, which `open` opens. `settings` are by Apache's keys (docs/protocol/broker.md
    8.2, 8.3) and must be known.

    `host`, `port`, `namesrv` and `store` come before the settings `bindAddress`, `listenPort`, `namesrvAddr` and
    `storePathRootDir`; without any of them: loopback, a free port (with another two below it), no name server, a
    directory of its own that goes with it. `recover` says what to do about damaged data: refuse, skip or cut. `config`
    is a file of settings, `config/broker.properties` of the data directory if none is named; changes by request go
    there. It has more weight than `defaults`, and less than `settings`.
    """

    host: str | None = None
    port: int | None = None
    namesrv: str | None = None
    store: str | os.PathLike[str] | None = None
    recover: str = Recover.REFUSE.value
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)

    def _config_file(self) -> Path | None:
        """Where the settings are read from and written to; None: nowhere."""
        if self.config is not None:
            return self.config
        key = "storePathRootDir"
        root = self.store or self.settings.get(key) or self.defaults.get(key)
        return Path(root) / "config" / "broker.properties" if root else None

    def read(self) -> tuple[BrokerSettings, StoreSettings, tuple[str, ...]]:
        """The settings, and keys of the file that are not known. Raises InvalidSetting, SettingsUnreadable."""
        settings = BrokerSettings(listen_port=0, bind_address=LOOPBACK, broker_name=broker_name())
        storing = StoreSettings(store_path_root_dir="")
        pairs = read_settings(self._config_file(), missing_ok=self.config is None)
        if self.config is None:
            pairs.pop("storePathRootDir", None)  # it was found by this directory
        given = (self.host, self.port, self.namesrv, self.store)
        unknown = _fill((settings, storing), self.defaults, pairs, self.settings, *given)
        settings.broker_id = 0  # as masters have it, whatever is set (docs/protocol/broker.md 1.1)
        return settings, storing, unknown

    def properties(self, important: bool = False) -> dict[str, str]:
        """Every key with its text, or the important ones. Errors as in `read`."""
        settings, storing, _ = self.read()
        return _properties((settings, storing), important)

    def open(self) -> Opened:
        """Blocks while the store recovers. Raises InvalidSetting, SettingsUnreadable, PortTaken, ListenFailed, or what
        `Store.open` raises.
        """
        settings, storing, unknown = self.read()
        recover = _recover(self.recover)
        config = self._config_file()
        save = partial(ChangeSettings, config) if config else None
        listeners = broker_listeners(settings.bind_address, settings.listen_port)
        host, port = listeners["main"].getsockname()[:2]
        advertised = settings.broker_ip1 or (local_ip() if host in _ANY else host)
        temporary = not storing.store_path_root_dir
        try:
            if temporary:
                storing.store_path_root_dir = tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX)
            store = Store.open(storing, wall=wall_ms(), utc_offset_ms=utc_offset_ms(), recover=recover)
            try:
                node = BrokerNode(
                    settings,
                    store,
                    host=advertised,
                    port=port,
                    seed=new_seed(),
                    utc_offset_ms=utc_offset_ms(),
                    save_settings=save,
                )
            except BaseException:
                store.close(wall_ms())
                raise
        except BaseException:
            close_listeners(listeners)
            if temporary:
                rmtree(storing.store_path_root_dir, ignore_errors=True)
            raise
        return Opened(
            node,
            listeners,
            join_address(advertised, port),
            BROKER,
            partial(broker_metrics.collect, node),
            notices=node.notices,
            ready=node.registered,
            abandon=node.abandon,
            directory=Path(storing.store_path_root_dir),
            temporary=temporary,
            unknown_keys=unknown,
        )


@dataclass(slots=True, kw_only=True)
class StandaloneOptions:
    """Options of a name server and a broker that knows it, which `open` opens. The settings are the broker's."""

    host: str | None = None
    namesrv_port: int = 0
    port: int | None = None
    store: str | os.PathLike[str] | None = None
    recover: str = Recover.REFUSE.value
    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)

    def _broker(self) -> BrokerOptions:
        return BrokerOptions(
            host=self.host,
            port=self.port,
            store=self.store,
            recover=self.recover,
            settings=self.settings,
            config=self.config,
            defaults=self.defaults,
        )

    def properties(self, important: bool = False) -> dict[str, str]:
        """Every key of the broker with its text, or the important ones. Errors as in `BrokerOptions.read`."""
        return self._broker().properties(important)

    def open(self) -> tuple[Opened, Opened]:
        """The name server and the broker, to be driven in this order. Errors as theirs; nothing stays open then."""
        options = self._broker()
        name_server = NameServerOptions(host=options.read()[0].bind_address, port=self.namesrv_port).open()
        options.namesrv = name_server.address
        try:
            broker = options.open()
        except BaseException:
            close_listeners(name_server.listeners)
            raise
        return name_server, broker


def _fill(
    targets: tuple[Settings, ...],
    defaults: Mapping[str, str],
    file_settings: Mapping[str, str],
    settings: Mapping[str, str],
    host: str | None,
    port: int | None,
    namesrv: str | None = None,
    store: str | os.PathLike[str] | None = None,
) -> tuple[str, ...]:
    """Apply everything in the order of its weight; the keys of the file that are not known."""
    ignored = ignored_keys(targets[0])
    apply_all(targets, defaults)
    apply_all(targets, file_settings)
    unknown = tuple(key for key in targets[0].unknown if key not in ignored)
    apply_all(targets, settings)
    for key, value in settings.items():
        if key in targets[0].unknown and key not in ignored:
            raise InvalidSetting(key, value, "there is no such setting")
    given = {"bindAddress": host, "listenPort": port, "namesrvAddr": namesrv, "storePathRootDir": store}
    apply_all(targets, {key: str(value) for key, value in given.items() if value is not None})
    return unknown


def _properties(all_settings: tuple[ServerSettings, *tuple[Settings, ...]], important: bool) -> dict[str, str]:
    pairs = Configuration(all_settings).properties()
    if not important:
        return pairs
    keys = {each.key for settings in all_settings for each in table(type(settings)).values() if each.important}
    return {key: text for key, text in pairs.items() if key in keys}


def _user_path(text: str) -> Path | None:
    """The path that a setting means, where `~` is the user's home; None for none."""
    return Path(text).expanduser() if text else None


def _recover(text: str) -> Recover:
    try:
        return Recover(text)
    except ValueError:
        raise InvalidSetting("recover", text, "refuse, skip or cut expected") from None


def _load_kv_config(path: Path) -> KvConfig | None:
    """The KV configuration as it was saved last, or the one before if that is damaged."""
    damage = ""
    for candidate in (path, path.with_name(path.name + ".bak")):
        data = read_if_there(candidate)
        if data is None:
            continue
        try:
            return KvConfig.from_text(data.decode())
        except (JsonError, UnicodeDecodeError) as error:
            damage = damage or f"{candidate}: {error}"
    if damage:
        raise InvalidSetting("kvConfigPath", path, f"the file cannot be read ({damage}); repair it or move it away")
    return None


__all__ = ["BROKER", "LOOPBACK", "NAME_SERVER", "BrokerOptions", "NameServerOptions", "Opened", "StandaloneOptions"]
