"""Command `consume`: prints messages as they come."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence

from mqproto import ConsumeFromWhere
from mqproto.adapters.cli.access import access, add_access
from mqproto.adapters.cli.options import add_name_server
from mqproto.adapters.cli.output import complain, message_json, message_text, show
from mqproto.adapters.threaded import PushConsumer
from mqproto.adapters.threaded.wakeup import Wakeup
from mqproto.message import ConsumeStatus, MessageExt

GROUP = "mqproto-cli-consumer"

_START = {
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "consume", help="print messages as they come", description="Print messages as they come, until Ctrl-C."
    )
    add_name_server(parser)
    add_access(parser)
    parser.add_argument("topic")
    parser.add_argument("--expression", default="*", help="tags to receive, `a || b` (default: all)")
    parser.add_argument(
        "--group", default=GROUP, help=f"consumer group, whose progress is kept by the broker (default: {GROUP})"
    )
    parser.add_argument(
        "--from",
        dest="start",
        choices=sorted(_START),
        default="first",
        help="where a new group begins (default: first)",
    )
    parser.add_argument("--count", metavar="N", type=int, default=0, help="stop after N messages")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.0, help="stop after S seconds")
    parser.add_argument("--json", action="store_true", help="messages as JSON, one line each")
    parser.set_defaults(run=run)


class _Printer:
    """Listener that prints, counts, and wakes the main thread when enough was seen. Called by one thread at a time."""

    def __init__(self, count: int, as_json: bool) -> None:
        self.wakeup = Wakeup(signal.SIGINT, signal.SIGTERM, on_signal=self.end)
        self.left = count
        self.line = message_json if as_json else message_text
        self.bounded = count > 0
        self.full = False

    def __call__(self, messages: Sequence[MessageExt]) -> ConsumeStatus:
        if self.full:
            # asked for no more: the broker keeps them for the next member of the group
            return ConsumeStatus.RECONSUME_LATER
        try:
            for message in messages:
                show(self.line(message))
        except BrokenPipeError:
            self.end()
            return ConsumeStatus.RECONSUME_LATER
        if self.bounded:
            self.left -= len(messages)
            if self.left <= 0:
                self.end()
        return ConsumeStatus.SUCCESS

    def end(self) -> None:
        """Enough was seen. From a signal's handler too, where nothing may wait."""
        self.full = True
        self.wakeup.wake()


def run(options: argparse.Namespace) -> int:
    if options.count < 0 or options.seconds < 0:
        return complain("--count and --seconds must not be negative")
    printer = _Printer(options.count, options.json)
    consumer = PushConsumer(
        options.group,
        printer,
        namesrv=options.namesrv,
        consume_from_where=_START[options.start],
        consume_thread_min=1,
        **access(options),
    )
    consumer.subscribe(options.topic, options.expression)
    with printer.wakeup, consumer:
        printer.wakeup.wait(options.seconds or None)
    return 0
