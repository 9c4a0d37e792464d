"""Whole programs: how they end, and what monkey patching does.

Each runs in a process of its own against a server of this one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from mqproto import Message
from mqproto.adapters.threaded import Producer, Standalone
from mqproto.codec import FrameSplitter, decode, encode_request
from mqproto.wire.bodies import ConsumerIds
from mqproto.wire.codes import RequestCode
from tests.adapters.harness import PATIENCE

ROOT = Path(__file__).parents[3]

PRELUDE = """
import sys
from mqproto import ConsumeStatus, Message
from mqproto.wire.bodies import ConsumeFromWhere
namesrv = sys.argv[1]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
def say(word):
    sys.stdout.write(word + "\\n")  # in one piece, whichever thread says it
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with Standalone(settings={"messageDelayLevel": "1s 1s 1s 1s"}) as opened:
        with Producer("programs", opened.namesrv_address) as producer:
            producer.send(Message("topic", b"first"))
        yield opened


@contextmanager
def start(server: Standalone, program: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program, given as text or as a file; warnings are errors, also those about sockets that nobody closed."""
    what = [str(program)] if isinstance(program, Path) else ["-c", PRELUDE + textwrap.dedent(program)]
    command = [sys.executable, "-W", "error", "-X", "dev", *what, server.namesrv_address]
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=paths, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(server: Standalone, program: str | Path) -> str:
    """What the program prints; it must end well and complain about nothing."""
    with start(server, program) as process:
        out, err = process.communicate(timeout=PATIENCE)
    # asyncio's debug mode: the machine was slow
    err = re.sub(r"^Executing <.* took [\d.]+ seconds\n", "", err, flags=re.MULTILINE)
    assert (process.returncode, err) == (0, "")
    return out


def members(server: Standalone, group: str) -> list[str]:
    """The members of a consumer group, as the broker knows them."""
    import socket

    host, _, port = server.broker_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        sock.sendall(encode_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, 1, {"consumerGroup": group}))
        answer = decode(FrameSplitter().feed(sock.recv(65_536))[0])
    return ConsumerIds.from_json(bytes(answer.body)).client_ids if answer.code == 0 else []


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


CONSUMER = """
    import threading
    from mqproto.adapters.threaded import PushConsumer
    began = threading.Event()
    def listener(messages):
        began.set()
        {work}
        say("done")
        return ConsumeStatus.SUCCESS
    consumer = PushConsumer("{group}", listener, namesrv, consume_from_where=FIRST)
    consumer.subscribe("topic")
    consumer.start()
    assert began.wait(60)
    say("began")
"""


def test_a_program_that_forgets_to_close_ends_in_order(server: Standalone) -> None:
    """CON-14: its last reference is dropped while a listener works."""
    out = run(server, CONSUMER.format(group="forgetful", work="pass") + "    del consumer\n")
    assert sorted(out.split()) == ["began", "done"]
    assert members(server, "forgetful") == []


def test_what_a_forgetful_program_did_is_kept(server: Standalone) -> None:
    run(server, CONSUMER.format(group="keeper", work="pass"))
    out = run(
        server,
        """
        import threading
        from mqproto.adapters.threaded import Producer, PushConsumer
        came = threading.Event()
        def listener(messages):
            print([message.body for message in messages])
            came.set()
            return ConsumeStatus.SUCCESS
        consumer = PushConsumer("keeper", listener, namesrv, consume_from_where=FIRST)
        consumer.subscribe("topic")
        with consumer, Producer("p", namesrv) as producer:
            producer.send(Message("topic", b"second"))
            assert came.wait(60)
        """,
    )
    assert out == "[b'second']\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_listener_works(server: Standalone, number: signal.Signals) -> None:
    """CON-14: status 0, nothing on the error output, unregistered."""
    group = f"signalled-{number.name}"
    program = (
        """
    import signal, time, threading
    stop = threading.Event()
    asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    """
        + CONSUMER.format(group=group, work="stop.wait()")
        + """
    while not asked:  # a wait without end for the event misses a signal that comes just before it begins
        time.sleep(0.01)
    stop.set()
    consumer.close()
    print("closed", flush=True)
    """
    )
    with start(server, program) as process:
        assert line(process.stdout) == "began"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    *done, closed = out.split()
    assert (set(done), closed) == ({"done"}, "closed")
    assert members(server, group) == []


def test_an_interrupt_ends_a_waiting_send(server: Standalone) -> None:
    program = """
    import signal, socket
    from mqproto.adapters.threaded import Producer
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
    silent = socket.create_server(("127.0.0.1", 0))
    with Producer("p", f"127.0.0.1:{silent.getsockname()[1]}") as producer:
        try:
            print("sending", flush=True)
            producer.send(Message("topic", b"x"), timeout_ms=3_600_000)
        except KeyboardInterrupt:
            print("interrupted")
    silent.close()
    """
    with start(server, program) as process:
        assert line(process.stdout) == "sending"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err, out) == (0, "", "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals come in their own way there")
def test_an_interrupt_that_came_too_late_to_be_seen_before_the_wait(server: Standalone) -> None:
    """Another thread gets the signal: nothing wakes the main thread's wait, for an answer that never comes."""
    program = """
    import signal, threading, time
    from mqproto.adapters.threaded import Producer
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.get_ident()
    def interrupt():
        seen = 0
        while seen < 5:
            time.sleep(0.01)
            seen += sys._current_frames()[main].f_code.co_name == "wait"
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    with Producer("p", namesrv) as producer:
        producer.send(Message("topic", b"x"))
        thread.start()
        try:
            producer.request(Message("topic", b"x"), timeout_ms=3_600_000)
        except KeyboardInterrupt:
            print("interrupted")
    thread.join()
    """
    assert run(server, program) == "interrupted\n"


@pytest.mark.parametrize("adapter", ["gevent", "threaded"])
def test_a_monkey_patched_program(server: Standalone, adapter: str) -> None:
    out = run(
        server,
        f"""
        from gevent import monkey
        monkey.patch_all()
        import threading
        import gevent
        from mqproto.adapters.{adapter} import Producer, PushConsumer, Standalone
        came = threading.Event()
        ticks = []
        def tick():
            while True:
                ticks.append(1)
                gevent.sleep(0.001)
        gevent.spawn(tick)
        def listener(messages):
            came.set()
            return ConsumeStatus.SUCCESS
        with Standalone() as own:
            for address in (namesrv, own.namesrv_address.replace("127.0.0.1", "localhost")):
                with Producer("p", address) as producer:
                    assert producer.send(Message("topic-{adapter}", b"x")).status.value == "SEND_OK"
                    assert producer.submit(Message("topic-{adapter}", b"x")).result(60).status.value == "SEND_OK"
                    consumer = PushConsumer("patched-{adapter}", listener, address, consume_from_where=FIRST)
                    consumer.subscribe("topic-{adapter}")
                    with consumer:
                        assert came.wait(60)
                        came.clear()
        print(len(ticks) > 10)
        """,
    )
    assert out == "True\n"


def test_greenlets_run_while_others_wait(server: Standalone) -> None:
    out = run(
        server,
        """
        import gevent
        import gevent.event
        from mqproto.adapters.gevent import Producer, PushConsumer
        came = gevent.event.Event()
        def listener(messages):
            gevent.sleep(0.01)
            came.set()
            return ConsumeStatus.SUCCESS
        with Producer("p", namesrv) as producer:
            sends = [gevent.spawn(producer.send, Message("topic", b"%d" % n)) for n in range(50)]
            gevent.joinall(sends, raise_error=True)
            print(len({send.value.msg_id for send in sends}))
            consumer = PushConsumer("greenlets", listener, namesrv, consume_from_where=FIRST)
            consumer.subscribe("topic")
            with consumer:
                assert came.wait(60)
        """,
    )
    assert out == "50\n"


def test_a_gevent_program_that_forgets_to_close_ends_in_order(server: Standalone) -> None:
    out = run(
        server,
        """
        import gevent.event
        from mqproto.adapters.gevent import PushConsumer, Standalone
        came = gevent.event.Event()
        def listener(messages):
            came.set()
            return ConsumeStatus.SUCCESS
        consumer = PushConsumer("forgetful-gevent", listener, namesrv, consume_from_where=FIRST)
        consumer.subscribe("topic")
        consumer.start()
        own = Standalone().start()
        print(came.wait(60))
        """,
    )
    assert out == "True\n"
    assert members(server, "forgetful-gevent") == []


def test_a_killed_greenlet_gives_its_send_up(server: Standalone) -> None:
    out = run(
        server,
        """
        import gevent
        from gevent import socket
        from mqproto.adapters.gevent import Producer
        silent = socket.socket()
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with Producer("p", f"127.0.0.1:{silent.getsockname()[1]}") as producer:
            send = gevent.spawn(producer.send, Message("topic", b"x"), timeout_ms=3_600_000)
            connection, _ = silent.accept()
            send.kill()
            print(producer._node.application_tickets())
        connection.close()
        silent.close()
        """,
    )
    assert out == "[]\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_send_is_given_up(server: Standalone, backend: str) -> None:
    out = run(
        server,
        f"""
        import socket
        import anyio
        from mqproto.adapters.anyio import Producer
        async def main():
            with socket.create_server(("127.0.0.1", 0)) as silent:
                async with Producer("p", f"127.0.0.1:{{silent.getsockname()[1]}}") as producer:
                    with anyio.move_on_after(0.05) as scope:
                        await producer.send(Message("topic", b"x"), timeout_ms=3_600_000)
                    print(scope.cancelled_caught, producer._node.application_tickets())
        anyio.run(main, backend="{backend}")
        """,
    )
    assert out == "True []\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_program_ends_its_clients_in_order(server: Standalone, backend: str) -> None:
    out = run(
        server,
        f"""
        import anyio
        from mqproto.adapters.anyio import PushConsumer
        async def main():
            async def listener(messages):
                began.set()
                return ConsumeStatus.SUCCESS
            began = anyio.Event()
            consumer = PushConsumer("cancelled-{backend}", listener, namesrv, consume_from_where=FIRST)
            consumer.subscribe("topic")
            async with anyio.create_task_group() as group:
                async def body():
                    async with consumer:
                        await anyio.sleep_forever()
                group.start_soon(body)
                await began.wait()
                group.cancel_scope.cancel()
            print("ended")
        anyio.run(main, backend="{backend}")
        """,
    )
    assert out == "ended\n"
    assert members(server, f"cancelled-{backend}") == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_program_that_forgets_to_close_ends(server: Standalone, backend: str) -> None:
    out = run(
        server,
        f"""
        import anyio
        from mqproto.adapters.anyio import Producer
        async def main():
            producer = await Producer("p", namesrv).start()
            print((await producer.send(Message("topic", b"x"))).status.value)
        anyio.run(main, backend="{backend}")
        """,
    )
    assert out == "SEND_OK\n"


def test_the_base_install_is_enough_for_threads(server: Standalone) -> None:
    out = run(
        server,
        """
        import mqproto.adapters.threaded
        heavy = {"gevent", "anyio", "trio", "engine", "asyncio", "lz4", "zstandard"}
        print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
        """,
    )
    assert out == "[]\n"
