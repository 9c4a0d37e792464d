"""README: its examples run as they are printed, but for the name server's port, which is a free one here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mqproto.adapters.threaded import Standalone

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXAMPLES = [text for text in BLOCKS if "import pytest" not in text]
(FIXTURE,) = [text for text in BLOCKS if "import pytest" in text]
#: The command lines of the shell blocks, without their comments.
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]


def run(*arguments: str, namesrv: str = "") -> str:
    environment = {**os.environ, "NAMESRV_ADDR": namesrv} if namesrv else None
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_there_is_an_example_for_each_runtime() -> None:
    for package in (
        "threaded import Producer, PushConsumer",
        "gevent import",
        "anyio import Producer, PushConsumer",
        "anyio import Producer, SimpleConsumer",
    ):
        assert [f"adapters.{package}" in text for text in EXAMPLES].count(True) == 1, package
    assert (
        ["asyncio.run(" in text for text in EXAMPLES].count(True)
        == ["trio.run(" in text for text in EXAMPLES].count(True)
        == 1
    )
    assert "Standalone" in FIXTURE


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str) -> None:
    with Standalone() as server:
        output = run("-c", example.replace("127.0.0.1:9876", server.namesrv_address))
    if "trio" in example:
        assert output == "eu paid\n"
    elif "gevent" in example:
        assert output == "100\n"
    else:
        sent, received = output.splitlines()
        assert sent.startswith("SEND_OK MessageQueue(topic='Orders'")
        assert received == "eu ['order-4711'] paid"


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(FIXTURE, encoding="utf-8")
    output = run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path))
    assert output.splitlines()[-1].startswith("1 passed")


def test_the_first_message() -> None:
    send, consume = (
        shlex.split(line, comments=True)[1:]
        for line in README.split("## First message")[1].split("```")[1].splitlines()[1:]
    )
    with Standalone() as server:
        sent = run(*send, namesrv=server.namesrv_address)
        received = run(*consume, namesrv=server.namesrv_address)
    assert re.fullmatch(r"SEND_OK [0-9A-F]{32} \S+/Orders/\d+@0\n", sent)
    assert re.fullmatch(r"\S+Z \S+/Orders/\d+@0 hello\n", received)


def test_the_commands_that_are_named_exist() -> None:
    """Scripts lie where they are called, and what is given to our command line is what it takes (test_docs.py)."""
    assert ["sh", "scripts/test"] in COMMANDS
    assert ["python3", "-m", "adapters", "standalone"] in COMMANDS
    for words in COMMANDS:
        if words[:1] == ["sh"]:
            assert (ROOT / words[1]).is_file(), words
        else:
            assert words[:2] == ["python3", "-m"], words
            assert words[2] in ("adapters", "pip"), words


@pytest.mark.parametrize("name", ["sync_client", "async_client"])
def test_examples_folder_holds_what_the_readme_prints(name: str) -> None:
    printed = next(text for text in EXAMPLES if f"examples/{name}.py" in text)
    assert (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8") == printed.split("\n", 1)[1]
