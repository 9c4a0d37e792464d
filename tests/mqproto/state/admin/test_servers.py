"""Operations on brokers and name servers: settings that are read back, counters, values that every name server gets."""

from __future__ import annotations

import pytest

from mqproto.errors import BrokerError, CallExpired, ClientError, InvalidSetting, NoNameServer, PartlyFailed
from mqproto.state.admin import AdminCore, BrokerRates
from mqproto.wire.bodies import BrokerStats, KVTable, StatsItem
from tests.mqproto.state.admin.servers import CLUSTER, NS1, NS2, SLAVE, A, B, Servers


@pytest.fixture
def servers() -> Servers:
    return Servers()


def runtime(**values: str) -> bytes:
    return KVTable(values).to_json()


# --- brokers


def test_how_a_broker_does(servers: Servers) -> None:
    servers.answer(
        A,
        28,
        body=runtime(
            brokerVersionDesc="V4_9_7",
            bootTimestamp="1700000000000",
            putTps="1.5 2.0 3.0",
            getTransferedTps="4.0 ",
            msgPutTotalTodayNow="12",
            msgPutTotalTodayMorning="2",
            msgGetTotalTodayNow="7",
            earliestMessageTimeStamp="-1",
            commitLogDiskRatio="0.15",
            dispatchBehindBytes="many",
        ),
    )
    found = servers.run(servers.core.brokers.runtime(A))
    assert (found.address, found.version, found.boot_time) == (A, "V4_9_7", 1_700_000_000_000)
    assert (found.put_tps, found.get_tps) == (BrokerRates(1.5, 2.0, 3.0), BrokerRates(4.0, None, None))
    assert (found.put_today, found.get_today) == (10, None)
    assert (found.earliest_message_time, found.commit_log_disk_ratio, found.dispatch_behind_bytes) == (-1, 0.15, None)
    servers.answer(A, 28, body=runtime())
    silent = servers.run(servers.core.brokers.runtime(A))
    assert (silent.version, silent.boot_time, silent.put_tps, silent.commit_log_disk_ratio) == (
        None,
        None,
        BrokerRates(None, None, None),
        None,
    )


def test_all_brokers_and_their_slaves(servers: Servers) -> None:
    for address in (A, SLAVE, B):
        servers.answer(address, 28, body=runtime(bootTimestamp="1"))
    assert list(servers.run(servers.core.brokers.all_runtimes())) == [A, SLAVE, B]
    servers.vanish(SLAVE)
    servers.stage.cut(SLAVE)
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.brokers.all_runtimes())
    assert (failed.value.done, failed.value.failures[0].place) == ((A, B), SLAVE)


def test_settings_are_read_back(servers: Servers) -> None:
    servers.answer(A, 26, body=b"fileReservedTime=71\nstorePathRootDir=C:\\store\nempty=\n\nno line\n")
    assert servers.run(servers.core.brokers.config(A)) == {
        "fileReservedTime": "71",
        "storePathRootDir": "C:\\store",
        "empty": "",
    }
    changed = servers.run(servers.core.brokers.update_config({"fileReservedTime": "seventy"}, broker=A))
    assert changed == {A: {"fileReservedTime": "71"}}, "what it is, not what it was set to"
    with pytest.raises(InvalidSetting, match=f"{A} knows no setting of this name"):
        servers.run(servers.core.brokers.update_config({"noSuchKey": "1"}, broker=A))


def test_texts_of_settings(servers: Servers) -> None:
    servers.answer(A, 26, body=b"a=1\nb=2\n")
    servers.run(servers.core.brokers.update_config({"a": "x y", "b": "C:\\d\n\u00e4"}, broker=A))
    assert bytes(servers.stage.peers[A].of(25)[0].body) == b"a=x y\nb=C:\\\\d\\n\\u00E4\n"
    for bad in ({"": "1"}, {" a": "1"}, {"a": 1}):
        with pytest.raises(InvalidSetting):
            servers.run(servers.core.brokers.update_config(bad, broker=A))  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="no setting is given"):
        servers.run(servers.core.brokers.update_config({}, broker=A))
    assert len(servers.stage.peers[A].of(25)) == 1


def test_settings_of_a_cluster(servers: Servers) -> None:
    servers.answer(A, 26, body=b"k=1\n")
    servers.answer(B, 26, body=b"k=1\n")
    assert servers.run(servers.core.brokers.update_config({"k": "1"}, cluster=CLUSTER)) == {
        A: {"k": "1"},
        B: {"k": "1"},
    }
    servers.refuse(A, 25, 16, "Can not update config in black list.")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.brokers.update_config({"k": "1"}, cluster=CLUSTER))
    assert failed.value.done == (B,)


def test_counters(servers: Servers) -> None:
    stats = BrokerStats(minute=StatsItem(3, 0.05, 1.0))
    servers.answer(A, 315, body=stats.to_json())
    assert servers.run(servers.core.brokers.stats(A, "TOPIC_PUT_NUMS", "T")) == stats
    assert servers.asked(A) == [(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})]
    servers.refuse(A, 315, 1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
    assert servers.run(servers.core.brokers.stats(A, "TOPIC_PUT_NUMS", "U")) is None
    servers.refuse(A, 315, 1, "broken")
    with pytest.raises(BrokerError):
        servers.run(servers.core.brokers.stats(A, "TOPIC_PUT_NUMS", "U"))


def test_counting_may_take_long(servers: Servers) -> None:
    servers.silence(A, 317)
    with pytest.raises(CallExpired) as expired:
        servers.run(servers.core.brokers.consume_stats(A, order=True))
    assert expired.value.timeout_ms == 50_000
    assert servers.asked(A) == [(317, {"isOrder": "true"})]


def test_cleaning_up(servers: Servers) -> None:
    assert servers.run(servers.core.brokers.clean_expired_queues()) == [A, B]
    assert servers.run(servers.core.brokers.delete_expired_logs(broker=B)) == [B]
    assert (servers.asked(A), servers.asked(B)) == ([(306, {})], [(306, {}), (329, {})])
    servers.refuse(A, 329, 3, " request type 329 not supported")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(servers.core.brokers.delete_expired_logs(cluster=CLUSTER))
    assert (failed.value.code, failed.value.done) == (3, (B,))


# --- name servers


def test_every_name_server_gets_a_value(servers: Servers) -> None:
    operations = servers.core.name_servers
    servers.run(operations.put_value("s", "k", "v"))
    servers.run(operations.delete_value("s", "k"))
    assert servers.asked(NS1) == servers.asked(NS2)
    assert servers.asked(NS1) == [
        (100, {"namespace": "s", "key": "k", "value": "v"}),
        (102, {"namespace": "s", "key": "k"}),
    ]
    servers.refuse(NS1, 100, 1, "disk full")
    with pytest.raises(PartlyFailed) as failed:
        servers.run(operations.put_value("s", "k", "v"))
    assert (failed.value.failures[0].place, failed.value.done) == (NS1, (NS2,))


def test_one_name_server_is_asked(servers: Servers) -> None:
    operations = servers.core.name_servers
    for address in (NS1, NS2):
        servers.answer(address, 101, {"value": "v"})
        servers.answer(address, 219, body=KVTable({"k": "v"}).to_json())
    assert servers.run(operations.value("s", "k")) == "v"
    assert servers.run(operations.values("s")) == {"k": "v"}
    assert len(servers.asked(NS1)) + len(servers.asked(NS2)) == 2
    for address in (NS1, NS2):
        servers.refuse(address, 101, 22)
        servers.refuse(address, 219, 22)
    assert servers.run(operations.value("s", "k")) is None
    assert servers.run(operations.values("s")) == {}
    for address in (NS1, NS2):
        servers.refuse(address, 219, 1)
    with pytest.raises(BrokerError):
        servers.run(operations.values("s"))


def test_write_permissions(servers: Servers) -> None:
    operations = servers.core.name_servers
    servers.answer(NS1, 205, {"wipeTopicCount": "3"})
    servers.answer(NS2, 205, {"wipeTopicCount": "2"})
    assert servers.run(operations.wipe_write_perm("a")) == {NS1: 3, NS2: 2}
    servers.answer(NS1, 327, {"addTopicCount": "3"})
    servers.silence(NS2, 327)  # before 4.9.3
    with pytest.raises(PartlyFailed) as failed:
        servers.run(operations.add_write_perm("a"))
    assert failed.value.done == (NS1,)
    assert isinstance(failed.value.failures[0].failure, CallExpired)


def test_settings_of_name_servers(servers: Servers) -> None:
    for address in (NS1, NS2):
        servers.answer(address, 319, body=b"clusterTest=false\n")
    operations = servers.core.name_servers
    known = {NS1: {"clusterTest": "false"}, NS2: {"clusterTest": "false"}}
    assert servers.run(operations.configs()) == known
    assert servers.run(operations.update_config({"clusterTest": "false"})) == known
    assert bytes(servers.stage.peers[NS2].of(318)[0].body) == b"clusterTest=false\n"
    with pytest.raises(PartlyFailed):
        servers.run(operations.update_config({"other": "1"}))


def test_without_name_servers(servers: Servers) -> None:
    servers.stage.node.name_servers.replace(())
    with pytest.raises(NoNameServer):
        servers.run(servers.core.name_servers.put_value("s", "k", "v"))


def test_nobody_hears_of_an_admin_client_that_asks_nothing(servers: Servers) -> None:
    servers.stage.begin().advance(200_000)
    assert servers.stage.dials == []
    servers.answer(A, 28, body=runtime())
    servers.run(servers.core.brokers.runtime(A))
    servers.stage.advance(60_000)
    assert [code for code, _ in servers.asked(A)] == [28]
    servers.stage.node.close(servers.stage.now)
    servers.stage.advance(1)
    assert servers.stage.node.ended
    assert [code for code, _ in servers.asked(A)] == [28]


def test_the_limit_of_a_request_is_checked(servers: Servers) -> None:
    for bad in (0, 600_001):
        with pytest.raises(InvalidSetting):
            AdminCore(servers.stage.node, bad)
