"""Operations on accounts: all brokers get them, and nothing is sent of what no broker would take."""

from __future__ import annotations

from typing import Any

import pytest

from mqproto.errors import BrokerError, ClientError, InvalidSetting, PartlyFailed
from mqproto.state.admin import Account
from mqproto.wire.fastjson import JsonError
from tests.mqproto.state.admin.servers import CLUSTER, SLAVE, A, B, Servers


def test_slaves_get_accounts_too() -> None:
    servers = Servers()
    account = Account("somebody", "a secret", admin=True, topic_perms={"T": "PUB|SUB", "U": "DENY"})
    assert servers.run(servers.core.access.put_account(account, cluster=CLUSTER)) == sorted([A, SLAVE, B])
    fields = {"accessKey": "somebody", "secretKey": "a secret", "admin": "true", "topicPerms": "T=PUB|SUB,U=DENY"}
    assert servers.asked(A) == servers.asked(SLAVE) == servers.asked(B) == [(50, fields)]
    servers.refuse(SLAVE, 51, 210, "has been deleted failed.")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.access.delete_account("somebody", cluster=CLUSTER))
    assert (failed.value.code, failed.value.done) == (210, (A, B))
    with pytest.raises(BrokerError):
        servers.run(servers.core.access.delete_account("somebody", broker=SLAVE))


@pytest.mark.parametrize(
    "facts",
    [
        {"access_key": "sixsix"},
        {"secret_key": "sixsix"},
        {"default_topic_perm": "ALL"},
        {"default_group_perm": "pub"},
        {"topic_perms": {"T": ""}},
        {"topic_perms": {"T=": "PUB"}},
        {"group_perms": {"g,h": "SUB"}},
        {"group_perms": {"": "SUB"}},
    ],
)
def test_what_no_account_can_be(facts: dict[str, Any]) -> None:
    servers = Servers()
    with pytest.raises(InvalidSetting) as refused:
        servers.run(
            servers.core.access.put_account(
                Account(**{"access_key": "somebody", "secret_key": "a secret", **facts}), broker=A
            )
        )
    assert "sixsix" not in str(refused.value)
    assert servers.stage.dials == []


def test_secrets_do_not_show() -> None:
    assert "a secret" not in repr(Account("somebody", "a secret"))


def test_white_addresses() -> None:
    servers = Servers()
    servers.run(servers.core.access.set_white_addresses(["10.1.*.*", "10.2.0.1"], "/conf/other.yml", broker=A))
    assert servers.asked(A) == [(53, {"globalWhiteAddrs": "10.1.*.*,10.2.0.1", "aclFileFullPath": "/conf/other.yml"})]
    with pytest.raises(ClientError, match="one each"):
        servers.run(servers.core.access.set_white_addresses(["10.1.*.*,10.2.0.1"], broker=A))


def test_versions_of_one_file_and_of_several() -> None:
    servers = Servers()
    fields = {"version": '{"counter":3,"timestamp":7}', "brokerName": "a", "brokerAddr": A, "clusterName": CLUSTER}
    servers.answer(A, 52, fields)
    found = servers.run(servers.core.access.version(A))
    assert (found.broker_name, found.cluster, found.version.counter, found.files) == ("a", CLUSTER, 3, None)
    servers.answer(A, 52, {**fields, "allAclFileVersion": '{"/a.yml":{"counter":1,"timestamp":2}}'})
    files = servers.run(servers.core.access.version(A)).files
    assert files is not None
    assert {path: one.counter for path, one in files.items()} == {"/a.yml": 1}
    servers.answer(A, 52, {**fields, "allAclFileVersion": "[]"})
    with pytest.raises(JsonError):
        servers.run(servers.core.access.version(A))
