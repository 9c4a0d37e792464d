"""Discovery of name servers, and queues shared out or offsets kept in the application's way, on every runtime."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mqproto import AveragelyByCircle, ByConfig, ConsumeStatus, Message, MessageQueue, SendStatus
from mqproto.adapters.base.address_server import ANSWER_MAX, HttpQuestion
from mqproto.errors import InvalidSetting, NoNameServer, StateError
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Collector, into

SUCCESS = ConsumeStatus.SUCCESS


class AddressServer:
    """An HTTP server that answers every path in the same way, and remembers what it was asked."""

    def __init__(self, answer: bytes = b"", status: int = 200) -> None:
        self.answer, self.status = answer, status
        self.asked: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                self.send_response(outer.status)
                if outer.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(outer.answer)

            def log_message(self, *arguments: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self._http.server_port}"
        self.url = f"http://{self.domain}/rocketmq/nsaddr"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.01)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def address_server(answer: str = "", status: int = 200) -> Iterator[AddressServer]:
    server = AddressServer(answer.encode(), status)
    thread = threading.Thread(target=server.serve, name="address-server")
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


# --- address servers


def test_clients_learn_their_name_servers_by_http(world: World) -> None:
    with address_server(f"{world.namesrv}\r\nmore") as server:
        producer = world.start(
            world.runtime.module.Producer,
            "g",
            "",
            namesrv_domain=server.domain,
            namesrv_domain_subgroup="mine",
            unit_name="u",
        )
        assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK
        (path, headers) = server.asked[0]
        assert path == "/rocketmq/mine-u?nofix=1"
        assert headers["Content-Type"] == "application/x-www-form-urlencoded;charset=UTF-8"
        assert headers["Client-Version"].startswith("V4_9_")
        assert headers["Metaq-Client-RequestTS"].isdigit()


def test_an_operator_learns_them_before_the_first_operation(world: World) -> None:
    """Some operations go to every name server there is."""
    with address_server(world.namesrv) as server:
        operator = world.start(world.runtime.module.Admin, "", namesrv_domain=server.domain)
        assert list(world.runtime.call(operator._target.name_servers.configs)) == [world.namesrv]


@pytest.mark.parametrize(("status", "answer"), [(404, "a:1"), (302, "a:1"), (200, "a:1;" * ANSWER_MAX)])
def test_answers_that_do_not_count(status: int, answer: str) -> None:
    with address_server(answer, status) as server:
        question = HttpQuestion(server.url)
        with pytest.raises(HTTPException):
            question.run()
        assert question.text == ""
        assert len(server.asked) == 1


def test_without_an_address_server_sends_tell_what_is_missing(world: World) -> None:
    with address_server() as server:
        pass
    producer = world.start(world.runtime.module.Producer, "g", "", namesrv_domain=server.domain)
    with pytest.raises(NoNameServer):
        producer.send(Message(world.topic, b"x"))


# --- lists


def test_dead_and_silent_name_servers_are_passed_over(world: World) -> None:
    """One that refuses, one that takes the request and says nothing: the third is asked within the time of one send."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = f"127.0.0.1:1;127.0.0.1:{silent.getsockname()[1]};{world.namesrv}"
        for _ in range(3):  # clients begin at different places of the list
            producer = world.start(world.runtime.module.Producer, "g", addresses, mq_client_api_timeout=600)
            assert producer.send(Message(world.topic, b"x"), timeout_ms=60_000).status is SendStatus.SEND_OK
            producer.close()


def test_a_name_server_that_goes_away(world: World) -> None:
    """NSV-03: known routes are used on, new topics are asked of the others."""
    extra = world.start(world.runtime.module.NameServer)
    producer = world.start(world.runtime.module.Producer, "g", [world.namesrv])
    assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK
    producer.update_name_server_addresses([extra.address, world.namesrv])
    extra.close()
    assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK
    assert producer.send(Message(f"other-{world.topic}", b"x")).status is SendStatus.SEND_OK


# --- changes at run time


def test_another_list_of_name_servers_at_run_time(world: World) -> None:
    """NSV-01, NSV-03: what is known goes on being used, what is not is asked of the new ones."""
    producer = world.start(world.runtime.module.Producer, "g", "127.0.0.1:1")
    with pytest.raises(NoNameServer):
        producer.send(Message(world.topic, b"x"))
    producer.update_name_server_addresses(world.namesrv)
    assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK
    producer.update_name_server_addresses(["127.0.0.1:1"])
    assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK
    with pytest.raises(InvalidSetting, match="namesrv"):
        producer.update_name_server_addresses("nonsense")
    producer.close()
    with pytest.raises(StateError):
        producer.update_name_server_addresses(world.namesrv)


def test_another_list_before_the_start(world: World) -> None:
    collector = Collector()
    consumer = world.consumer(into(collector), start=False)
    consumer.update_name_server_addresses("127.0.0.1:1")
    consumer.update_name_server_addresses(world.namesrv)
    consumer.start()
    world.producer().send(Message(world.topic, b"x"))
    collector.wait(1)


# --- strategies and offset storage


def test_groups_share_queues_out_as_they_are_told(world: World) -> None:
    """Two members that deal queues out like cards; a name does for those that need to be told nothing."""
    producer = world.producer()
    broker_name = producer.send(Message(world.topic, b"first")).queue.broker_name
    changed = threading.Condition()
    taken: dict[bytes, tuple[str, int]] = {}
    for strategy in ("AVG_BY_CIRCLE", AveragelyByCircle()):

        def listener(messages: Any, context: Any, member: str = type(strategy).__name__) -> ConsumeStatus:
            with changed:
                taken[messages[0].body] = member, context.queue.queue_id
                changed.notify_all()
            return SUCCESS

        world.consumer(listener, allocate_message_queue_strategy=strategy)
    shares: dict[str, set[int]] = {}
    wanted = [[0, 2], [1, 3]]
    for number in range(1_000):  # rounds of one message for each queue, until both members have their shares
        bodies = [b"%d %d" % (number, queue_id) for queue_id in range(4)]
        for queue_id, body in enumerate(bodies):
            producer.send(Message(world.topic, body), queue=MessageQueue(world.topic, broker_name, queue_id))
        with changed:
            assert changed.wait_for(lambda bodies=bodies: all(body in taken for body in bodies), PATIENCE)  # type: ignore[misc]
            shares = {}
            for body in bodies:
                member, queue_id = taken[body]
                shares.setdefault(member, set()).add(queue_id)
        if sorted(map(sorted, shares.values())) == wanted:
            break
    assert sorted(map(sorted, shares.values())) == wanted


def test_a_member_with_a_fixed_list(world: World) -> None:
    producer = world.producer()
    first = producer.send(Message(world.topic, b"first")).queue
    broker_name = first.broker_name
    collector = Collector()

    def listener(messages: Any, context: Any) -> ConsumeStatus:
        assert context.queue.queue_id == 2
        collector.take(messages)
        return SUCCESS

    world.consumer(listener, allocate_message_queue_strategy=ByConfig([MessageQueue(world.topic, broker_name, 2)]))
    for queue_id in range(4):
        producer.send(Message(world.topic, b"%d" % queue_id), queue=MessageQueue(world.topic, broker_name, queue_id))
    assert b"2" in [message.body for message in collector.wait(2 if first.queue_id == 2 else 1)]


def test_offsets_in_a_place_of_the_applications_own(world: World) -> None:
    class Storage:
        def __init__(self) -> None:
            self.held: dict[MessageQueue, int] = {}
            self.threads: set[str] = set()

        def read(self, group: str, queue: MessageQueue) -> int | None:
            self.threads.add(threading.current_thread().name)
            return self.held.get(queue)

        def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
            self.held |= offsets

    storage = Storage()
    producer = world.producer()
    queue = producer.send(Message(world.topic, b"x")).queue
    collector = Collector()
    consumer = world.consumer(into(collector), offset_store=storage)
    collector.wait(1)
    consumer.close()
    assert storage.held[queue] == 1
    assert threading.current_thread().name not in storage.threads
