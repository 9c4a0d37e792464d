"""Accounts by our admin client, against Apache's brokers with access control."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqproto.acl import SessionCredentials
from mqproto.adapters.threaded import Admin
from mqproto.errors import (
    AccessDenied,
    PartlyFailed,
)
from mqproto.state.admin import Account
from tests.peers.conftest import need
from tests.peers.kit import wire
from tests.peers.kit.servers import Server, serve
from tests.peers.our_clients.test_our_admin import BROKER_NAME, CLUSTER

ACCOUNTS = """\
accounts:
- accessKey: OperatorKey
  secretKey: operator-secret
  admin: true
"""


@contextmanager
def guarded(home: Path, version: str) -> Iterator[Server]:
    """Apache's broker with access control and one account."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    with serve(f"apache:{version}", home, 0, aclEnable="true") as server:
        yield server


@contextmanager
def account_of(server: Server, access_key: str, secret_key: str) -> Iterator[Admin]:
    with Admin(server.names, credentials=SessionCredentials(access_key, secret_key), timeout_ms=60_000) as admin:
        yield admin


def test_accounts(tmp_path: Path) -> None:
    """Of 4.9.7; 4.4.0 has no such requests, 5.3.3 others."""
    need("apache:4.9.7")
    with guarded(tmp_path, "4.9.7") as server, account_of(server, "OperatorKey", "operator-secret") as admin:
        before = admin.access.version(server.broker)
        assert (before.broker_name, before.cluster) == (BROKER_NAME, CLUSTER)
        with account_of(server, "SecondKey", "second-secret") as second:
            with pytest.raises(AccessDenied, match="No acl config"):
                second.topics.create("Guarded", broker=server.broker)
            account = Account(
                "SecondKey", "second-secret", default_topic_perm="DENY", topic_perms={"Guarded": "PUB|SUB"}
            )
            assert admin.access.put_account(account, cluster=CLUSTER) == [server.broker]
            with pytest.raises(AccessDenied, match="Need admin permission"):
                _when_known(lambda: second.topics.create("Guarded", broker=server.broker))
            admin.topics.create("Guarded", broker=server.broker)
            wire.wait_route(server.names, "Guarded")
            assert second.messages.between("Guarded") == []
            admin.access.put_account(Account("SecondKey", "second-secret", admin=True), broker=server.broker)
            _when(lambda: second.topics.create("Guarded", broker=server.broker), "Need admin permission")
        assert admin.access.set_white_addresses(["10.10.10.*"], broker=server.broker) == [server.broker]
        assert admin.access.version(server.broker) != before
        admin.access.delete_account("SecondKey", cluster=CLUSTER)
        with pytest.raises(PartlyFailed) as failed:
            admin.access.delete_account("SecondKey", cluster=CLUSTER)
        assert failed.value.code == 210


def _when_known(operation: Callable[[], object]) -> None:
    _when(operation, "No acl config")


def _when(operation: Callable[[], object], refusal: str) -> None:
    """Try until the broker has read its files again: it refuses with these words until then."""
    end = time.monotonic() + 60
    while True:
        try:
            operation()
            return
        except AccessDenied as denied:
            if refusal not in str(denied):
                raise
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
