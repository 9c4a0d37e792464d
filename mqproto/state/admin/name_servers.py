"""Name servers: their settings, keys and values, and which brokers may be written to (docs/protocol/admin.md 2.2;
docs/protocol/broker.md 6).
"""

from __future__ import annotations

from collections.abc import Mapping

from mqproto.state.admin import kv
from mqproto.state.admin.brokers import read_back, settings_text
from mqproto.state.admin.calls import AdminCalls
from mqproto.state.flows.effects import Flow
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import (
    AddWritePermOfBrokerRequest,
    AddWritePermOfBrokerResponse,
    WipeWritePermOfBrokerRequest,
    WipeWritePermOfBrokerResponse,
)
from mqproto.wire.properties_text import read_plain


class NameServerFlows:
    """Operations on name servers. Each keeps its own settings, so changes go to all of them, and raise PartlyFailed.

    Questions to any of them raise NoNameServer, BrokerError, ConnectionLost and CallExpired.
    """

    __slots__ = ("_calls",)

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def configs(self) -> Flow[dict[str, dict[str, str]]]:
        """All settings of every name server, by its address and by Apache's names."""
        return self._calls.at_each("asking for settings", self._calls.name_servers, self._config)

    def _config(self, address: str) -> Flow[dict[str, str]]:
        command = yield from self._calls.done(address, RequestCode.GET_NAMESRV_CONFIG)
        return read_plain(str(command.body, "utf-8", "replace"))

    def update_config(self, changes: Mapping[str, str]) -> Flow[dict[str, dict[str, str]]]:
        """Change settings of every name server: what they are set to then, read back as `BrokerFlows.update_config`
        does.
        """
        body = settings_text(changes)

        def change(address: str) -> Flow[dict[str, str]]:
            yield from self._calls.done(address, RequestCode.UPDATE_NAMESRV_CONFIG, {}, body)
            known = yield from self._config(address)
            return read_back(address, changes, known)

        return self._calls.at_each("changing settings", self._calls.name_servers, change)

    # --- keys and values

    def put_value(self, namespace: str, key: str, value: str) -> Flow[None]:
        """Set a value at every name server."""
        return kv.put(self._calls, namespace, key, value)

    def value(self, namespace: str, key: str) -> Flow[str | None]:
        """A value, as one name server has it; None when it has none."""
        return kv.get(self._calls, namespace, key)

    def values(self, namespace: str) -> Flow[dict[str, str]]:
        """All keys and values of a namespace, as one name server has them."""
        return kv.table(self._calls, namespace)

    def delete_value(self, namespace: str, key: str) -> Flow[None]:
        """Take a value out of every name server; one that is not there is no error."""
        return kv.delete(self._calls, namespace, key)

    # --- permissions

    def wipe_write_perm(self, broker_name: str) -> Flow[dict[str, int]]:
        """Tell every name server that a broker takes no more messages: how many topics that changed, by name server.

        Producers learn it with their next look at routes; consumers go on. It lasts until the broker registers a
        change, or `add_write_perm`. 0 where the broker is unknown.
        """

        def wipe(address: str) -> Flow[int]:
            fields = WipeWritePermOfBrokerRequest(broker_name).encode()
            command = yield from self._calls.done(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
            return WipeWritePermOfBrokerResponse.decode(command.fields).wipe_topic_count

        return self._calls.at_each(f"wiping the write permission of {broker_name}", self._calls.name_servers, wipe)

    def add_write_perm(self, broker_name: str) -> Flow[dict[str, int]]:
        """Tell every name server that a broker takes messages (since 4.9.3), of read-only topics too: how many topics,
        by name server.
        """

        def add(address: str) -> Flow[int]:
            fields = AddWritePermOfBrokerRequest(broker_name).encode()
            command = yield from self._calls.done(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, fields)
            return AddWritePermOfBrokerResponse.decode(command.fields).add_topic_count

        return self._calls.at_each(f"adding the write permission of {broker_name}", self._calls.name_servers, add)
