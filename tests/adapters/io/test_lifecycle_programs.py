"""Ends of whole programs that leave clients behind, and what forks make of them: every kind of client."""

from __future__ import annotations

import multiprocessing
import os
import textwrap
from pathlib import Path

import pytest

from mqproto import Message
from mqproto.adapters.threaded import Producer, Standalone
from tests.adapters.cli.test_programs import PRELUDE, members, run, server, start
from tests.adapters.harness import PATIENCE

__all__ = ["server"]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

#: One client of each kind, running, and something that each of them can do.
ALL_KINDS = """
import mqproto.adapters.{module} as module
from mqproto import LocalTransactionState
from mqproto.errors import StateError
def decide(*arguments):
    return LocalTransactionState.COMMIT_MESSAGE
def succeed(messages):
    return ConsumeStatus.SUCCESS
def every_kind(suffix):
    members = {{
        "push": module.PushConsumer("push-" + suffix, succeed, namesrv),
        "consumer": module.Consumer("consumer-" + suffix, namesrv),
        "lite": module.LitePullConsumer("lite-" + suffix, namesrv),
    }}
    for member in members.values():
        member.subscribe("topic")
    return members | {{
        "producer": module.Producer("producer-" + suffix, namesrv),
        "transactions": module.TransactionProducer("transactions-" + suffix, (decide, decide), namesrv),
        "pull": module.PullConsumer("pull-" + suffix, namesrv),
        "admin": module.Admin(namesrv),
    }}
USES = {{
    "producer": lambda client: client.send(Message("topic", b"x")),
    "transactions": lambda client: client.send_in_transaction(Message("topic", b"x")),
    "push": lambda client: client.suspend(),
    "consumer": lambda client: client.receive(50),
    "pull": lambda client: client.fetch_subscribe_message_queues("topic"),
    "lite": lambda client: client.poll(50),
    "admin": lambda client: client.topics.route("topic"),
}}
def use_all(clients):
    for kind, client in clients.items():
        USES[kind](client)
"""


def with_all_kinds(module: str, program: str) -> str:
    """The text of a program that has clients of all kinds at hand."""
    return ALL_KINDS.format(module=module) + textwrap.dedent(program)


@pytest.mark.parametrize("module", ["threaded", "gevent"])
def test_a_program_that_forgets_all_of_its_clients(server: Standalone, module: str) -> None:
    out = run(
        server,
        with_all_kinds(
            module,
            f"""
            clients = every_kind("forgotten-{module}")
            never_started = every_kind("x")
            for client in clients.values():
                client.start()
            use_all(clients)
            say("used")
            """,
        ),
    )
    assert out == "used\n"
    for kind in ("push", "consumer", "lite"):
        assert members(server, f"{kind}-forgotten-{module}") == []


@pytest.mark.parametrize("module", ["threaded", "gevent"])
def test_a_program_whose_servers_do_not_answer(server: Standalone, module: str) -> None:
    """With sends under way that may take an hour."""
    out = run(
        server,
        f"""
        import socket
        from mqproto.adapters.{module} import Producer
        silent = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{{silent.getsockname()[1]}}"
        sends = []
        for number in range(5):
            producer = Producer("p", address).start()
            sends.append(producer.submit(Message("topic", b"x"), timeout_ms=3_600_000))
        silent.detach()
        say("left")
        """,
    )
    assert out == "left\n"


def test_a_program_whose_listener_never_ends(server: Standalone) -> None:
    """Neither does it keep the interpreter, nor do the consumers wait for it one after the other: that would take too
    long for the test.
    """
    out = run(
        server,
        """
        import threading
        from mqproto.adapters.threaded import PushConsumer
        began = threading.Semaphore(0)
        def stuck(messages):
            began.release()
            threading.Event().wait()
        for number in range(16):
            consumer = PushConsumer(f"stuck-{number}", stuck, namesrv, consume_from_where=FIRST)
            consumer.subscribe("topic")
            consumer.start()
        for number in range(16):
            assert began.acquire(timeout=60)
        say("left")
        """,
    )
    assert out == "left\n"
    assert all(members(server, f"stuck-{number}") == [] for number in range(16))


@needs_fork
@pytest.mark.parametrize("module", ["threaded", "gevent"])
def test_the_child_of_a_fork_is_told_by_every_kind(server: Standalone, module: str) -> None:
    """It may make clients of its own, and end as it likes; the parent's go on."""
    out = run(
        server,
        with_all_kinds(
            module,
            f"""
            import os
            clients = every_kind("forked-{module}")
            for client in clients.values():
                client.start()
            use_all(clients)
            child = os.fork()
            if child == 0:
                for kind, client in clients.items():
                    try:
                        USES[kind](client)
                    except StateError as error:
                        assert "make a new one" in str(error), error
                    else:
                        say(kind + " was not refused")
                    client.close()
                own = every_kind("child-{module}")
                for client in own.values():
                    client.start()
                use_all(own)
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            use_all(clients)
            for client in clients.values():
                client.close()
            say("done")
            """,
        ),
    )
    assert out == "done\n"
    assert members(server, f"push-child-{module}") == []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing(server: Standalone, method: str, tmp_path: Path) -> None:
    """A worker process makes its own clients, whatever its parent had running when it began, and need not close
    them.
    """
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    program = with_all_kinds(
        "threaded",
        f"""
        import multiprocessing
        def work(answers):
            own = every_kind("worker-{method}")
            for client in own.values():
                client.start()
            use_all(own)
            answers.put("worked")
        if __name__ == "__main__":
            clients = every_kind("parent-{method}")
            for client in clients.values():
                client.start()
            use_all(clients)
            context = multiprocessing.get_context("{method}")
            answers = context.Queue()
            workers = [context.Process(target=work, args=(answers,)) for _ in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                say(answers.get(timeout=60))
                worker.join(60)
                assert worker.exitcode == 0, worker.exitcode
            use_all(clients)
            answers.close()
            answers.join_thread()
        """,
    )
    path = tmp_path / "program.py"
    path.write_text(PRELUDE + program)
    assert run(server, path) == "worked\nworked\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_of_tasks_that_forgets_all_of_its_clients(server: Standalone, backend: str) -> None:
    out = run(
        server,
        with_all_kinds(
            "anyio",
            f"""
            import anyio, inspect, logging
            logging.getLogger("asyncio").setLevel(logging.ERROR)  # it tells of steps that were slow
            async def main():
                clients = every_kind("tasks-{backend}")
                for client in clients.values():
                    await client.start()
                for kind, client in clients.items():
                    result = USES[kind](client)
                    if inspect.isawaitable(result):
                        await result
                say("used")
            anyio.run(main, backend="{backend}")
            """,
        ),
    )
    assert out == "used\n"


def test_nothing_is_printed_of_failures(server: Standalone) -> None:
    """Who has not set up logging reads of failures in exceptions alone: standard error stays empty, which `run`
    checks.
    """
    out = run(
        server,
        """
        import socket, threading
        from mqproto.adapters.threaded import Producer, PushConsumer, LitePullConsumer, Standalone
        from mqproto.errors import MQError
        def failing(argument):
            raised.release()
            raise RuntimeError("the application's own")
        raised = threading.Semaphore(0)
        own = Standalone().start()
        producer = Producer("p", own.namesrv_address).start()
        producer.send(Message("topic", b"x"))
        consumer = PushConsumer("g", failing, own.namesrv_address, consume_from_where=FIRST)
        consumer.subscribe("topic")
        consumer.start()
        assert raised.acquire(timeout=60)
        own.close()
        for _ in range(3):
            try:
                producer.send(Message("topic", b"x"), timeout_ms=200)
            except MQError:
                say("failed")
        producer.submit(Message("topic", b"x"), timeout_ms=100).add_done_callback(failing)
        assert raised.acquire(timeout=60)
        try:
            LitePullConsumer("l", "127.0.0.1:1").start()
        except MQError:
            say("failed")
        consumer.close(1000)
        producer.close(1000)
        """,
    )
    assert out.count("failed") >= 3


WAITING = {
    "Producer": 'client.send(Message("topic", b"x"), timeout_ms=3_600_000)',
    "TransactionProducer": 'client.send_in_transaction(Message("topic", b"x"), timeout_ms=3_600_000)',
    "request": 'client.request(Message("topic", b"x"), timeout_ms=3_600_000)',
    "Consumer": "next(client)",
    "LitePullConsumer": "next(client)",
    "PullConsumer": 'client.pull_block_if_not_found(client.fetch_subscribe_message_queues("topic")[0], "*", 1 << 20)',
    "Admin": 'client.topics.route("topic")',
    "start": "client.start()",
}


@pytest.mark.parametrize("what", WAITING)
@pytest.mark.parametrize("module", ["threaded", "gevent"])
def test_an_interrupt_ends_a_waiting_call(server: Standalone, module: str, what: str) -> None:
    """Ctrl-C, whoever is waited for; then the client closes, and nobody waits for what was given up."""
    makers = {
        "request": 'Producer("p", silent)',
        "Producer": 'Producer("p", silent)',
        "TransactionProducer": 'TransactionProducer("t", (print, print), silent)',
        "Consumer": 'Consumer("interrupted-c", namesrv)',
        "start": 'LitePullConsumer("l", silent)',
        "LitePullConsumer": 'LitePullConsumer("interrupted-l", namesrv)',
        "PullConsumer": 'PullConsumer("p", namesrv)',
        "Admin": "Admin(silent, timeout_ms=600_000)",
    }
    program = f"""
    import os, signal, socket, threading, time
    from mqproto.adapters.{module} import Admin, Consumer, LitePullConsumer, Producer, PullConsumer, TransactionProducer
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    hole = socket.create_server(("127.0.0.1", 0))
    silent = f"127.0.0.1:{{hole.getsockname()[1]}}"
    client = {makers[what]}
    if hasattr(client, "subscribe"):
        client.subscribe("topic-that-is-empty")
    if {what!r} != "start":
        client.start()
    def waits():
        try:
            return client._node.application_tickets()
        except (AttributeError, RuntimeError):  # it is being made, or the other thread is inside
            return False
    def interrupt_who_waits():
        while not waits():
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt_who_waits).start()
    try:
        while True:
            {WAITING[what]}
    except KeyboardInterrupt:
        say("interrupted")
    assert {what!r} == "start" or client._driver.is_over() or not client._node.application_tickets()
    client.close()
    hole.close()
    """
    with Producer("p", server.namesrv_address) as producer:
        producer.send(Message("topic-that-is-empty", b"makes the topic"))
    with start(server, program) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "interrupted\n"), err
    assert module == "gevent" or not err, "its hub prints where the interrupt came"


def test_an_interrupt_that_comes_to_the_greenlet_of_a_driver(server: Standalone) -> None:
    """Signals find whichever greenlet runs. The main one is told all the same, and not that its client is closed."""
    program = """
    import signal
    from mqproto.adapters.gevent import Consumer
    signal.signal(signal.SIGINT, signal.default_int_handler)
    consumer = Consumer("interrupted-driver", namesrv)
    consumer.subscribe("topic")
    consumer.start()
    def interrupt(now):
        signal.raise_signal(signal.SIGINT)
    consumer._driver.feed(interrupt)
    try:
        for message in consumer:
            pass
    except KeyboardInterrupt:
        say("interrupted")
    consumer.close()
    """
    with start(server, program) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "interrupted\n"), err
