"""Name servers that an address server tells (docs/protocol/client.md 1.4)."""

from __future__ import annotations

import pytest

from mqproto.errors import CallExpired, InvalidSetting, NoNameServer
from mqproto.message import Message, SendStatus
from mqproto.state.client.node import ClientNode
from mqproto.state.client.settings import ClientSettings
from mqproto.state.cluster.address_server import Search
from mqproto.state.node.contract import Run
from mqproto.state.producer.core import ProducerCore
from mqproto.state.producer.settings import ProducerSettings
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.stage import IDENTITY, Stage, broker, name_server, route

URL = "http://mq.example:8080/rocketmq/nsaddr"
MINUTE = 60_000


class Question:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.text = ""

    def run(self) -> None:
        self._server.asked += 1
        if self._server.failure is not None:
            raise self._server.failure
        self.text = self._server.text


class Server:
    """The address server, as the adapter sees it."""

    url = URL

    def __init__(self, text: str = "ns1:9876\n") -> None:
        self.text = text
        self.failure: Exception | None = None
        self.asked = 0

    def ask(self) -> Question:
        return Question(self)


def playing(server: Server, *name_servers: str, runs_jobs: bool = True, **settings: int) -> tuple[Stage, ProducerCore]:
    """A client that knows no name server but the address server; these name servers know topic T."""
    stage = Stage(ClientNode(ClientSettings(address_server=URL, **settings), IDENTITY, server))  # type: ignore[arg-type]
    stage.runs_jobs = runs_jobs
    for address in name_servers or ("ns1:9876",):
        stage.peers[address] = name_server({"T": route("a=a:1")})
    stage.peers["a:1"] = broker()
    return stage, stage.node.add_producer(ProducerSettings(group="pg"), 0)


def asked_at(stage: Stage) -> list[str]:
    return [address for address in stage.dials if address.startswith("ns")]


def test_the_list_is_asked_for_at_the_start_and_every_two_minutes() -> None:
    server = Server()
    stage, core = playing(server)
    stage.begin()
    assert server.asked == 1
    assert stage.run(core.send(Message("T", b"x"), 0)).status is SendStatus.SEND_OK
    stage.advance(9_999)
    assert server.asked == 1
    stage.advance(1)
    assert server.asked == 2
    stage.advance(2 * MINUTE - 1)
    assert server.asked == 2
    server.text = " ns2:9876 ; ns3:9876 \r\nsomething else"
    stage.peers |= dict.fromkeys(("ns2:9876", "ns3:9876"), stage.peers["ns1:9876"])
    stage.advance(1)
    assert server.asked == 3
    assert stage.node.name_servers.addresses == ("ns2:9876", "ns3:9876")
    assert stage.hung_up[-1] == ("ns1:9876", "no name server of ours any more")


def test_a_send_waits_until_a_name_server_is_known() -> None:
    stage, core = playing(Server(), runs_jobs=False)
    stage.begin()
    (job,) = [action.job for action in stage.delivered if isinstance(action, Run)]
    first, second = (stage.start(core.send(Message("T", b"x"), 0)) for _ in range(2))
    assert len(stage.delivered) == 1, "one question at a time"
    assert not first.settled
    job.run()
    stage.node.done(job, None, 5)
    stage.settle()
    assert first.result().status is second.result().status is SendStatus.SEND_OK


def test_a_send_does_not_wait_for_longer_than_it_may() -> None:
    stage, core = playing(Server(), runs_jobs=False)
    stage.begin()
    ticket = stage.start(core.send(Message("T", b"x"), 0, timeout_ms=500))
    stage.advance(500)
    with pytest.raises(CallExpired):
        ticket.result()


def test_without_an_answer_sends_fail_and_the_next_ones_ask_again() -> None:
    server = Server()
    server.failure = OSError("refused")
    stage, core = playing(server)
    stage.begin()
    for _ in range(3):
        with pytest.raises(NoNameServer):
            stage.run(core.send(Message("T", b"x"), 0))
    assert server.asked == 1, "not with every send of the same second"
    assert f"{URL} tells no name servers: refused" in stage.node.notices
    server.failure = None
    stage.now = 1_000
    assert stage.run(core.send(Message("T", b"x"), 1_000)).status is SendStatus.SEND_OK
    server.failure = OSError("refused")
    stage.advance(3 * MINUTE)
    assert stage.node.name_servers.addresses == ("ns1:9876",), "what is known stays"


def test_a_call_waits_for_one_answer_however_empty_that_is() -> None:
    server = Server("")
    stage, core = playing(server)
    stage.begin()
    with pytest.raises(NoNameServer):
        stage.run(core.send(Message("T", b"x"), 0))
    assert server.asked <= 2


@pytest.mark.parametrize("text", ["", "  \r\n", "\n\nns1", "ns1:9876;nonsense", "<html>", ";"])
def test_answers_that_are_no_lists_change_nothing(text: str) -> None:
    server = Server()
    stage, _ = playing(server)
    stage.begin()
    server.text = text
    stage.advance(MINUTE)
    assert server.asked == 2
    assert stage.node.name_servers.addresses == ("ns1:9876",)


def test_the_same_text_is_taken_once() -> None:
    search = Search(Server(), Stage().node)
    assert search.take("http://MQ_INST_1_x.mq.example:80") == ("MQ_INST_1_x.mq.example:80",)
    assert search.take(" http://MQ_INST_1_x.mq.example:80\n") is None
    assert search.take("b:1") == ("b:1",)
    with pytest.raises(InvalidSetting):
        search.take(" ;\n")


def test_who_names_servers_is_not_overruled() -> None:
    server = Server("ns2:9876")
    stage, _ = playing(server, runs_jobs=False)
    stage.begin()
    (job,) = [action.job for action in stage.delivered if isinstance(action, Run)]
    stage.node.set_name_servers(("ns1:9876",), 0)
    job.run()
    stage.node.done(job, None, 1)
    stage.settle().advance(5 * MINUTE)
    assert (server.asked, stage.node.name_servers.addresses) == (1, ("ns1:9876",))
    node = ClientNode(ClientSettings(name_servers=("ns1:9876",), address_server=URL), IDENTITY, server)
    stage = Stage(node)
    stage.begin().advance(5 * MINUTE)
    assert server.asked == 1, "an address server beside given ones is not asked"


def test_a_closed_client_asks_no_more() -> None:
    server = Server()
    stage, _ = playing(server)
    stage.begin()
    stage.node.close(0)
    stage.settle().advance(5 * MINUTE)
    assert server.asked == 1
    assert stage.node.ended


def test_a_name_server_that_is_taken_away_while_a_call_waits_for_an_answer() -> None:
    """The call moves to the new one, which the address server told."""
    server = Server()
    stage, core = playing(server)
    stage.begin()
    stage.peers["ns1:9876"].answers.clear()
    ticket = stage.start(core.send(Message("T", b"x"), 0, timeout_ms=20_000))
    stage.peers["ns2:9876"] = name_server({"T": route("a=a:1")})
    server.text = "ns2:9876"
    assert stage.node._search is not None
    stage.node._search.ask(0)
    stage.settle()
    assert ticket.result().status is SendStatus.SEND_OK
    assert stage.peers["ns2:9876"].codes() == [RequestCode.GET_ROUTEINFO_BY_TOPIC]
