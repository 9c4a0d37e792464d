"""The programs in examples/ do what they say, against a broker of this process. (Those of the README:
test_readme.py.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqproto import Message
from mqproto.adapters.threaded import Producer, Standalone

ROOT = Path(__file__).parent.parent
PATIENCE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with Standalone() as opened:
        yield opened


def start(server: Standalone, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "NAMESRV_ADDR": server.namesrv_address, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::ResourceWarning", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(server: Standalone, program: str) -> list[str]:
    with start(server, "-c", textwrap.dedent(program)) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no SIGTERM to catch")
def test_worker(server: Standalone) -> None:
    with Producer("shop", server.namesrv_address) as producer:
        producer.send(Message("Orders", b"one", tags="paid", keys=["1"]))
        producer.send(Message("Orders", b"nobody's", tags="other", keys=["2"]))
        producer.send(Message("Orders", b"three", tags="refunded", keys=["3"]))
    with start(server, "examples/worker.py") as process:
        assert process.stderr is not None
        seen = {process.stderr.readline().strip() for _ in range(3)}
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read().splitlines()
    assert seen == {"worker ready", "worker order ['1']: one (delivery 1)", "worker order ['3']: three (delivery 1)"}
    assert (process.returncode, rest[-1]) == (0, "worker stopped")


def test_fastapi(server: Standalone) -> None:
    pytest.importorskip("fastapi")
    program = """
        import time
        from fastapi.testclient import TestClient
        from examples.fastapi_app import app
        with TestClient(app) as client:
            answers = [client.post(f"/orders/{number}") for number in range(5)]
            messages = {answer.json()["message"] for answer in answers}
            print(sorted({answer.status_code for answer in answers}), len(messages))
            while len(client.get("/shipped").json()) < 5:
                time.sleep(0.01)
            print(sorted(client.get("/shipped").json()))
    """
    assert run(server, program) == ["[202] 5", "['0', '1', '2', '3', '4']"]


def test_django(server: Standalone) -> None:
    pytest.importorskip("django")
    program = """
        from examples.django_app import application, producer
        from django.test import Client
        client = Client()
        answer = client.post("/orders/4711", b"two books", content_type="text/plain")
        print(answer.status_code, len(answer.json()["message"]))
        producer().close()
        print(client.post("/orders/4712").status_code, client.get("/orders/4711").status_code)
    """
    assert run(server, program) == ["202 32", "503 405"]
