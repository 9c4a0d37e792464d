"""Pages about clients: their lists of options and errors are those of the code, and their examples do what they say."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import mqproto.adapters.threaded
from mqproto import ConsumeFromWhere, Message, MessageModel, errors
from mqproto.adapters.base.client import BaseClient
from mqproto.adapters.base.settings import client_settings as options
from mqproto.adapters.base.settings import options as kinds_of_options
from mqproto.adapters.base.settings.options import (
    ClientOptions,
    ConsumerOptions,
    LitePullOptions,
    ProducerOptions,
    PullConsumerOptions,
    PullingOptions,
    SendOptions,
    TransactionOptions,
)
from mqproto.adapters.threaded import (
    LitePullConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    Standalone,
    TransactionProducer,
)
from mqproto.errors import InvalidSetting
from mqproto.state.client.settings import ClientSettings
from tests.adapters.harness import open_runtime, threads_of_ours

CERTIFICATES: Final = Path(__file__).parent / "adapters" / "certificates"
DOCS: Final = Path(__file__).parent.parent / "docs"
#: The overview and the page of each subject.
PAGES: Final = [DOCS / "clients.md", *sorted((DOCS / "clients").glob("*.md"))]
TEXTS: Final = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
#: The examples, each with the page that it stands on.
EXAMPLES: Final = [
    pytest.param(name, example, id=f"{name}-" + re.sub(r"\W+", "-", example.strip().splitlines()[-1])[:40])
    for name, text in TEXTS.items()
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
NAMESRV: Final = "127.0.0.1:9876"


def make_producer(**given: Any) -> object:
    return Producer("g", NAMESRV, **given)


def make_push(**given: Any) -> object:
    return PushConsumer("g", lambda messages: None, NAMESRV, **given)


def make_transactions(**given: Any) -> object:
    return TransactionProducer("g", (print, print), NAMESRV, **given)


def make_pull(**given: Any) -> object:
    PullConsumer("g", NAMESRV, **given)
    return LitePullConsumer("g", NAMESRV, **given)


#: Of each section: the options that are listed there, what makes a client with them, and what they amount to.
SECTIONS: Final[dict[str, tuple[type, type | None, Callable[..., object], Callable[[dict[str, Any]], object]]]] = {
    "Every client": (ClientOptions, None, make_producer, lambda given: all_of_a_client(given)),
    "Producer": (ProducerOptions, ClientOptions, make_producer, lambda given: options.producer_settings("g", given)),
    "TransactionProducer, besides those of Producer": (
        TransactionOptions,
        ProducerOptions,
        make_transactions,
        lambda given: options.transaction_settings("g", given),
    ),
    "PushConsumer and SimpleConsumer": (
        ConsumerOptions,
        ClientOptions,
        make_push,
        lambda given: (options.consumer_settings("g", given), *parts_of_a_consumer(given)),
    ),
    "LitePullConsumer and PullConsumer": (
        PullingOptions,
        ClientOptions,
        make_pull,
        lambda given: (
            options.lite_pull_settings("g", given),
            options.pull_consumer_settings("g", given),
            options.stream_option(given),
            *parts_of_a_consumer(given),
        ),
    ),
    "PullConsumer alone": (
        PullConsumerOptions,
        PullingOptions,
        lambda **given: PullConsumer("g", NAMESRV, **given),
        lambda given: options.pull_consumer_settings("g", given),
    ),
    "LitePullConsumer alone": (
        LitePullOptions,
        PullingOptions,
        lambda **given: LitePullConsumer("g", NAMESRV, **given),
        lambda given: options.lite_pull_settings("g", given),
    ),
}


def all_of_a_client(given: dict[str, Any]) -> tuple[ClientSettings, object, tuple[str, ...]]:
    tls = {**given, "tls": True} if any(name.startswith("tls_") for name in given) else given
    texts = ("client_ip", "instance_name", "namesrv_domain", "namesrv_domain_subgroup")
    return (
        options.client_settings("", given),
        options.tls_options(tls),
        tuple(options.text_option(given, name) for name in texts),
    )


def parts_of_a_consumer(given: dict[str, Any]) -> tuple[object, ...]:
    strategy = options.strategy_option(given)
    return (
        ("AVG" if strategy is None else strategy.name),
        options.storage_option(given),
        given.get("local_offset_store_dir", ""),
    )


def rows(section: str) -> list[list[str]]:
    """Option, default, limits and meaning."""
    body = re.split(r"^##", TEXTS["settings"].split(f"\n## {section}\n")[1], flags=re.MULTILINE)[0]
    found = [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in body.splitlines()
        if line[:1] == "|"
    ]
    assert found[0] == ["option", "default", "limits", "meaning"]
    return found[2:]


ROWS: Final = [pytest.param(section, *row, id=f"{section}-{row[0]}") for section in SECTIONS for row in rows(section)]
#: Where a bound is another option, what that is when nobody says it.
BOUNDS: Final = {"`consumer_timeout_millis_when_suspend`": 30_000, "`broker_suspend_max_time_millis`": 20_000}
RANGE: Final = re.compile(r"(-1, )?(\S+) to (\S+)(?: (\w+))?")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_option_is_listed(section: str) -> None:
    kind, base, _, _ = SECTIONS[section]
    inherited = base.__annotations__ if base is not None else {}
    assert [row[0] for row in rows(section)] == [f"`{name}`" for name in kind.__annotations__ if name not in inherited]


def test_every_kind_of_options_is_listed() -> None:
    kinds = {
        one
        for one in vars(kinds_of_options).values()
        if isinstance(one, type) and hasattr(one, "__total__") and one.__module__ == kinds_of_options.__name__
    }
    assert kinds == {SendOptions, *(kind for kind, _, _, _ in SECTIONS.values())}


def test_every_argument_of_a_send_is_listed() -> None:
    table = TEXTS["producers"].split("| argument | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.MULTILINE) == list(SendOptions.__annotations__)


@pytest.mark.parametrize(("section", "option", "default", "limits", "meaning"), ROWS)
def test_defaults(section: str, option: str, default: str, limits: str, meaning: str) -> None:
    """To say the default is to say nothing."""
    name, amounts_to = option.strip("`"), SECTIONS[section][3]
    assert amounts_to({name: value_of(default)}) == amounts_to({})
    assert meaning


def value_of(default: str) -> Any:
    if not default:
        return ""
    text = default.strip("`")
    kind, _, member = text.partition(".")
    enums: dict[str, Any] = {"MessageModel": MessageModel, "ConsumeFromWhere": ConsumeFromWhere}
    return enums[kind][member] if kind in enums else ast.literal_eval(text)


@pytest.mark.parametrize(("section", "option", "default", "limits", "meaning"), ROWS)
def test_limits(section: str, option: str, default: str, limits: str, meaning: str) -> None:
    """The bounds are taken, what lies beyond them is refused with the name of the setting; whatever is a number has
    bounds.
    """
    name, make, value = option.strip("`"), SECTIONS[section][2], value_of(default)
    if type(value) is not int:
        assert RANGE.fullmatch(limits) is None
        return
    found = RANGE.fullmatch(limits)
    assert found is not None
    low, high = (BOUNDS.get(text) or int(text.replace(",", "")) for text in found.group(2, 3))
    assert found[4] or name in ("compress_level", "consume_thread_min"), "a unit"
    for taken in (low, high, *([-1] if found[1] else [])):
        make(**{name: taken})
    for refused in {low - 1, high + 1, -2} - ({-1} if found[1] else set()):
        with pytest.raises(InvalidSetting):
            make(**{name: refused})


def test_limits_of_iteration() -> None:
    """What the section about `SimpleConsumer` says."""
    assert "`max_unacked` (100; 1 to 1,000)" in " ".join(TEXTS["consumers"].split())
    for count in (1, 1_000):
        SimpleConsumer("g", NAMESRV, max_unacked=count)
    for count in (0, 1_001):
        with pytest.raises(InvalidSetting):
            SimpleConsumer("g", NAMESRV, max_unacked=count)
    for name in ("consume_thread_min", "consume_message_batch_max_size"):
        with pytest.raises(InvalidSetting):
            SimpleConsumer("g", NAMESRV, **{name: 1})  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[Standalone]:
    with Standalone() as opened:
        with Producer("p", opened.namesrv_address) as producer:
            producer.send(Message("Orders", b"an order"))
        yield opened


def here(example: str, server: Standalone) -> str:
    """The example with addresses and files that there are."""
    for name, path in (("authority.pem", "authority.pem"), ("client.pem", "client.pem"), ("client.key", "client.pem")):
        example = example.replace(f'"{name}"', repr(str(CERTIFICATES / path)))
    return example.replace(NAMESRV, server.namesrv_address)


def run(page: str, example: str, server: Standalone) -> None:
    """It runs, and prints what the comments behind its prints say."""
    program = compile(here(example, server), page, "exec", dont_inherit=True)
    output, log = io.StringIO(), logging.getLogger("mqproto")
    level = log.level
    with contextlib.redirect_stdout(output):
        exec(program, {"__name__": "example"})
    log.setLevel(level)
    assert output.getvalue().splitlines() == re.findall(r"^\s*print\(.*\)  # (.*)$", example, re.MULTILINE)


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_example(server: Standalone, page: str, example: str) -> None:
    before = threads_of_ours()
    run(page, example, server)
    left = [one.name for one in threads_of_ours() - before if re.match(r"mqproto-(producer|consumer|admin)", one.name)]
    assert not left, f"threads left behind: {left}"


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_example_on_gevent(server: Standalone, page: str, example: str) -> None:
    """The same names, whatever drives them."""
    if "mqproto.adapters.threaded" in example:
        with open_runtime("gevent") as runtime:
            example = example.replace("mqproto.adapters.threaded", "mqproto.adapters.gevent")
            runtime.call(run, page, example.replace("import threading", "import gevent.event as threading"), server)


PUBLIC: Final = [
    name
    for name in mqproto.adapters.threaded.__all__
    if inspect.isclass(one := getattr(mqproto.adapters.threaded, name)) and issubclass(one, BaseClient)
]


def test_there_are_examples_of_each_kind() -> None:
    """`Consumer` is another name of `SimpleConsumer`."""
    assert len(PUBLIC) == 8
    for kind in set(PUBLIC) - {"Consumer"}:
        assert any(re.search(rf"\b{kind}\(", str(example.values[1])) for example in EXAMPLES), kind


def test_the_overview_names_each_kind() -> None:
    table = TEXTS["clients"].split("| client |")[1].split("\n\n")[0]
    first = " ".join(row.split("|")[1] for row in table.splitlines()[2:])
    assert sorted(re.findall(r"`(\w+)`", first)) == sorted(PUBLIC)


def test_every_error_is_listed() -> None:
    """With what it is below, and whether the same call may succeed later."""
    kinds = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.MQError)]
    wanted = [
        [f"`{one.__name__}`", f"`{one.__bases__[0].__name__}`", "yes" if one.retriable else "no"]
        for one in kinds
        if one is not errors.MQError
    ]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXTS["errors"].splitlines()
        if line.startswith("| `")
    ]
    assert sorted(row[:3] for row in found) == sorted(wanted)
    assert all(len(row) == 4 and row[3] for row in found)


def test_the_overview_leads_to_every_page() -> None:
    table = TEXTS["clients"].split("## What is promised")[0]
    assert re.findall(r"\]\(clients/(\w+)\.md\)", table) == [
        "producers",
        "consumers",
        "pull",
        "connections",
        "lifecycle",
        "errors",
        "settings",
    ]
    assert set(TEXTS) == {"clients", *re.findall(r"\]\(clients/(\w+)\.md\)", table)}
