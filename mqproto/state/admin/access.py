"""Accounts of brokers with access control of 4.5.2 to 5.2: 50, 51, 52, 53 (docs/protocol/admin.md 2.5;
docs/protocol/broker.md 5.5).

Any account that brokers know may do this. They answer before a change takes effect: they look at their files every few
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqproto.errors import ClientError, InvalidSetting
from mqproto.state.admin.calls import AdminCalls
from mqproto.state.flows.effects import Flow
from mqproto.wire import fastjson
from mqproto.wire.bodies import DataVersion
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)

#: What may be done with a topic (PUB) and as a group (SUB).
PERMISSIONS: Final = frozenset({"DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"})


@dataclass(frozen=True, slots=True)
class Account:
    """Account and what it may do. Of one that is there None leaves a part as it is; keys and `admin` always count.

    Keys have more than 6 characters. `white_remote_address` are addresses from which nothing is checked, like
    `10.10.103.*`.
    """

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Mapping[str, str] | None = None
    group_perms: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises InvalidSetting for what no broker would take."""
        for key, text in (("access_key", self.access_key), ("secret_key", self.secret_key)):
            if len(text) <= 6:
                raise InvalidSetting(key, "***", "more than 6 characters expected")
        perms = {**(self.topic_perms or {}), **(self.group_perms or {})}
        for name, perm in (
            ("default_topic_perm", self.default_topic_perm),
            ("default_group_perm", self.default_group_perm),
            *perms.items(),
        ):
            if perm is not None and perm not in PERMISSIONS:
                raise InvalidSetting(name, perm, "DENY, PUB, SUB or PUB|SUB expected")
            if not name or "=" in name or "," in name:
                raise InvalidSetting("permissions", name, "the name of a topic or group expected")


@dataclass(frozen=True, slots=True)
class AccessVersion:
    """State of the access files that a broker has read, by path; None for releases with one file of no name."""

    broker_name: str
    cluster: str
    version: DataVersion
    files: dict[str, DataVersion] | None


class AccessFlows:
    """Operations on accounts. Each goes to the broker of an address, or to all brokers of a cluster, slaves too;
    result: their addresses.

    Raised are BrokerError (209 to 211, or no answer at all where access control is off), ConnectFailed, ConnectionLost,
    CallExpired; for a cluster NoCluster and PartlyFailed.
    """

    __slots__ = ("_calls",)

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def put_account(
        self, account: Account, *, broker: str | None = None, cluster: str | None = None
    ) -> Flow[list[str]]:
        """Create an account, or change one that is there. Raises InvalidSetting."""
        account.check()
        header = CreateAccessConfigRequest(
            account.access_key,
            account.secret_key,
            account.white_remote_address,
            account.admin,
            account.default_topic_perm,
            account.default_group_perm,
            _joined(account.topic_perms),
            _joined(account.group_perms),
        )
        return self._tell(
            f"setting account {account.access_key}",
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            header.encode(),
            broker,
            cluster,
        )

    def delete_account(
        self, access_key: str, *, broker: str | None = None, cluster: str | None = None
    ) -> Flow[list[str]]:
        """Delete an account. One that is not there is a BrokerError (210)."""
        fields = DeleteAccessConfigRequest(access_key).encode()
        return self._tell(f"deleting account {access_key}", RequestCode.DELETE_ACL_CONFIG, fields, broker, cluster)

    def set_white_addresses(
        self,
        addresses: Sequence[str],
        path: str | None = None,
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> Flow[list[str]]:
        """Replace the addresses from which nothing is checked, in the access file of a path or in the default one."""
        if any("," in address for address in addresses):
            raise ClientError(f"addresses {addresses}: one each expected")
        fields = UpdateGlobalWhiteAddrsConfigRequest(",".join(addresses), path).encode()
        return self._tell(
            "setting white addresses", RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, fields, broker, cluster
        )

    def _tell(
        self, operation: str, code: int, fields: Mapping[str, str], broker: str | None, cluster: str | None
    ) -> Flow[list[str]]:
        def tell(address: str) -> Flow[None]:
            yield from self._calls.done(address, code, fields)

        return sorted((yield from self._calls.over(operation, broker, cluster, tell, slaves=True)))

    def version(self, broker: str) -> Flow[AccessVersion]:
        """Which state of its access files the broker of an address has read."""
        command = yield from self._calls.done(broker, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        header = GetBrokerAclConfigResponse.decode(command.fields)
        files: dict[str, DataVersion] | None = None
        if header.all_acl_file_version is not None:
            table = fastjson.loads(header.all_acl_file_version)
            if not isinstance(table, dict):
                raise fastjson.JsonError("no table of access files")
            files = {str(path): DataVersion.from_value(one) for path, one in table.items()}
        return AccessVersion(header.broker_name, header.cluster_name, DataVersion.from_json(header.version), files)


def _joined(perms: Mapping[str, str] | None) -> str | None:
    return None if perms is None else ",".join(f"{name}={perm}" for name, perm in perms.items())
