"""The README's examples run as they are printed, but for the name server's port, which is a free one here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.adapters.threaded import Standalone

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_there_is_an_example_for_each_runtime() -> None:
    for package in (
        "threaded import Producer, PushConsumer",
        "gevent import",
        "anyio import Producer, PushConsumer",
        "anyio import Consumer",
    ):
        assert [f"adapters.{package}" in text for text in EXAMPLES].count(True) == 1, package
    assert (
        ["asyncio.run(" in text for text in EXAMPLES].count(True)
        == ["trio.run(" in text for text in EXAMPLES].count(True)
        == 1
    )
    assert ["Standalone" in text for text in EXAMPLES].count(True) == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str) -> None:
    with Standalone() as server:
        output = run(example.replace("127.0.0.1:9876", server.namesrv_address))
    if "trio" in example:
        assert output == "eu paid\n"
    elif "gevent" in example:
        assert output == "100\n"
    elif "def listen" in example:
        sent, received = output.splitlines()
        assert sent.startswith("SEND_OK MessageQueue(topic='Orders'")
        assert received == "eu ['order-4711'] paid"
    else:
        assert output == ""


@pytest.mark.parametrize("name", ["sync_client", "async_client"])
def test_examples_folder_holds_what_the_readme_prints(name: str) -> None:
    printed = next(text for text in EXAMPLES if f"examples/{name}.py" in text)
    assert (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8") == printed.split("\n", 1)[1]
