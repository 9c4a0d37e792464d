"""Command `send`: messages from the arguments or from the lines of standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from mqproto.adapters.cli.access import access, add_access
from mqproto.adapters.cli.options import add_name_server, pair
from mqproto.adapters.cli.output import complain, result_json, result_text, show
from mqproto.adapters.threaded import Producer
from mqproto.errors import MQError
from mqproto.message import Message

GROUP = "mqproto-cli-producer"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "send", help="send messages", description="Send messages; one line of output for each."
    )
    add_name_server(parser)
    add_access(parser)
    parser.add_argument("topic")
    parser.add_argument("body", nargs="*", help="one message each; none: one message a line of standard input")
    parser.add_argument("--tags", metavar="TAG", help="tag of the messages")
    parser.add_argument("--keys", metavar="KEYS", default="", help="keys, separated by blanks")
    parser.add_argument(
        "--property", metavar="NAME=VALUE", type=pair, action="append", default=[], help="may be repeated"
    )
    parser.add_argument("--delay", metavar="LEVEL", type=int, default=0, help="delay level of the broker, from 1")
    parser.add_argument("--count", metavar="N", type=int, default=1, help="send each message N times")
    parser.add_argument(
        "--timeout", metavar="MS", type=int, default=3000, help="milliseconds for each send (default: 3000)"
    )
    parser.add_argument("--group", default=GROUP, help=f"producer group (default: {GROUP})")
    parser.add_argument("--json", action="store_true", help="results as JSON, one line each")
    parser.set_defaults(run=run)


def _bodies(options: argparse.Namespace) -> Iterator[bytes]:
    if options.body:
        for text in options.body:
            yield os.fsencode(text)
    else:
        for line in sys.stdin.buffer:
            body = line.rstrip(b"\r\n")
            if body:
                yield body


def run(options: argparse.Namespace) -> int:
    if options.count < 1:
        return complain(f"--count {options.count}: must be at least 1")
    failed = 0
    with Producer(
        options.group, namesrv=options.namesrv, send_msg_timeout=options.timeout, **access(options)
    ) as producer:
        for body in _bodies(options):
            message = Message(
                options.topic,
                body,
                tags=options.tags,
                keys=options.keys,
                properties=dict(options.property),
                delay_level=options.delay,
            )
            for _ in range(options.count):
                try:
                    result = producer.send(message)
                except MQError as error:
                    failed += 1
                    complain(str(error))
                else:
                    show(result_json(result) if options.json else result_text(result))
    return 1 if failed else 0
