"""Commands `standalone`, `namesrv` and `broker`: servers that run until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from mqproto.adapters.cli.options import add_settings
from mqproto.adapters.cli.output import complain, show
from mqproto.adapters.servers.metrics import open_with_page
from mqproto.adapters.servers.server_setup import BROKER, BrokerOptions, NameServerOptions, Opened, StandaloneOptions
from mqproto.engine.store import Recover

#: Where each adapter's `serve` lives, and the backend it is given.
ADAPTERS: Final = {
    "threaded": ("mqproto.adapters.threaded.run_until_signal", ""),
    "gevent": ("mqproto.adapters.gevent.run_until_signal", ""),
    "asyncio": ("mqproto.adapters.anyio.run_until_signal", "asyncio"),
    "trio": ("mqproto.adapters.anyio.run_until_signal", "trio"),
}
NAMESRV_PORT: Final = 9876
BROKER_PORT: Final = 10911

Plan = Callable[[], Sequence[Opened]]


def _add_common(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument(
        "--adapter",
        choices=ADAPTERS,
        default="threaded",
        help="what runs it (default: threaded, which needs no package)",
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="PORT", help=f"port, 0 for a free one (default: {port})")
    add_settings(parser)
    parser.add_argument(
        "-p",
        "--print-config",
        "--printConfigItem",
        action="store_true",
        help="print every setting with its value, and exit",
    )
    parser.add_argument(
        "-m",
        "--print-important",
        "--printImportantConfig",
        action="store_true",
        help="print the most important settings, and exit",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="show numbers for Prometheus on this port, 0 for a free one (default: nowhere)",
    )
    parser.add_argument("--json", action="store_true", help="the line that says it is ready, as JSON")


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", metavar="DIR", type=Path, help="data directory (default: storePathRootDir, else ~/store)"
    )
    parser.add_argument(
        "--recover",
        choices=[each.value for each in Recover],
        default=Recover.REFUSE.value,
        help="what to do about damaged data: refuse to start (default), skip it and keep what is good behind it, "
        "or cut the log there",
    )


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    standalone = commands.add_parser(
        "standalone", help="run a name server and a broker", description="Run a name server and a broker."
    )
    _add_common(standalone, BROKER_PORT)
    standalone.add_argument(
        "--namesrv-port",
        type=int,
        metavar="PORT",
        default=NAMESRV_PORT,
        help=f"the name server's port, 0 for a free one (default: {NAMESRV_PORT})",
    )
    _add_store(standalone)
    standalone.set_defaults(run=run_standalone)

    namesrv = commands.add_parser("namesrv", help="run a name server", description="Run a name server.")
    _add_common(namesrv, NAMESRV_PORT)
    namesrv.add_argument(
        "--directory", metavar="DIR", type=Path, help="where the KV configuration is kept (default: ~/namesrv)"
    )
    namesrv.set_defaults(run=run_namesrv)

    broker = commands.add_parser(
        "broker", help="run a broker", description="Run a broker that registers at name servers."
    )
    _add_common(broker, BROKER_PORT)
    broker.add_argument(
        "-n",
        "--namesrv",
        "--namesrvAddr",
        metavar="ADDR",
        help="name servers, host:port;... (default: namesrvAddr, else NAMESRV_ADDR)",
    )
    _add_store(broker)
    broker.set_defaults(run=run_broker)


def _defaults(port: int, **more: str) -> dict[str, str]:
    """What a server is set to when nobody says anything; the environment counts as with Apache's
    (docs/protocol/broker.md 8.6).
    """
    found = {"listenPort": str(port), **more, "rocketmqHome": os.environ.get("ROCKETMQ_HOME", "")}
    return {key: text for key, text in found.items() if text}


def _broker_defaults() -> dict[str, str]:
    return _defaults(
        BROKER_PORT, storePathRootDir=str(Path.home() / "store"), namesrvAddr=os.environ.get("NAMESRV_ADDR", "")
    )


def run_standalone(options: argparse.Namespace) -> int:
    plan = StandaloneOptions(
        host=options.host,
        namesrv_port=options.namesrv_port,
        port=options.port,
        store=options.store,
        recover=options.recover,
        settings=dict(options.set),
        config=options.config,
        defaults=_broker_defaults(),
    )
    return _run(options, plan.properties, plan.open)


def run_namesrv(options: argparse.Namespace) -> int:
    plan = NameServerOptions(
        host=options.host,
        port=options.port,
        directory=options.directory or Path.home() / "namesrv",
        settings=dict(options.set),
        config=options.config,
        defaults=_defaults(NAMESRV_PORT),
    )
    return _run(options, plan.properties, lambda: (plan.open(),))


def run_broker(options: argparse.Namespace) -> int:
    plan = BrokerOptions(
        host=options.host,
        port=options.port,
        namesrv=options.namesrv,
        store=options.store,
        recover=options.recover,
        settings=dict(options.set),
        config=options.config,
        defaults=_broker_defaults(),
    )
    return _run(options, plan.properties, lambda: (plan.open(),))


def _run(options: argparse.Namespace, properties: Callable[[bool], dict[str, str]], plan: Plan) -> int:
    """Print the settings if that is asked for, else serve."""
    if not (options.print_config or options.print_important):
        return _serve(options, plan)
    pairs = properties(not options.print_config)
    print(
        json.dumps(pairs) if options.json else "".join(f"{key}={text}\n" for key, text in pairs.items()),
        end="\n" * options.json,
    )
    return 0


def _serve(options: argparse.Namespace, plan: Plan) -> int:
    module, backend = ADAPTERS[options.adapter]
    try:
        serve: Callable[[Plan, Callable[[Sequence[Opened]], None], str], None] = importlib.import_module(
            module
        ).run_until_signal
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("mqproto"):
            raise
        extra = "gevent" if options.adapter == "gevent" else "anyio"
        return complain(
            f"the {options.adapter} adapter needs the package {error.name}: install mqproto[{extra}], "
            "or leave --adapter out"
        )
    if options.metrics_port is not None:
        plan = partial(open_with_page, plan, options.host, options.metrics_port)
    _hear_warnings()
    try:
        serve(plan, lambda opened: _announce(opened, options.json), backend)
    except OSError as error:
        return complain(f"{error.filename or options.command}: {error.strerror or error}")
    return 0


def _hear_warnings() -> None:
    """What servers find worth a line of an operator's attention goes to standard error, one line each."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("mqproto").addHandler(handler)


def _announce(opened: Sequence[Opened], as_json: bool) -> None:
    """The one line that says that clients may come."""
    # What was made for the directory stays as long as the process: with ten thousands of queues, walking over it took
    # the collector 40 ms.
    gc.freeze()
    for one in opened:
        for key in one.unknown_keys:
            print(f"mqproto: setting {key} is not known and has no effect", file=sys.stderr)
    if as_json:
        facts = {("broker" if one.role == BROKER else "namesrv"): one.address for one in opened}
        if opened[-1].metrics:
            facts["metrics"] = opened[-1].metrics
        stores = [str(one.directory) for one in opened if one.role == BROKER]
        show(json.dumps({**facts, **({"store": stores[0]} if stores else {})}))
        return
    words = [f"{one.role} {one.address}" for one in opened]
    words += [f"data in {one.directory}" for one in opened if one.role == BROKER]
    words += [f"metrics at {one.metrics}" for one in opened if one.metrics]
    show(f"ready: {', '.join(words)}")
