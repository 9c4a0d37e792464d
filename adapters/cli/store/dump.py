"""Command `store dump`: messages of a data directory, readable."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from mqproto.adapters.cli.options import OptionError, time_ms
from mqproto.adapters.cli.output import body_fields, body_text, complain, message_fields, message_words
from mqproto.adapters.cli.store.options import Commands, add_directory, opened, state_text
from mqproto.engine.store.doctor.dump import Dump, Dumped, DumpSelection, destination
from mqproto.engine.store.doctor.messages import Bounds
from mqproto.message import MessageExt
from mqproto.wire.record import RecordError, decode_record, inflated

#: Unreadable messages that are named; the rest is counted.
_NAMED_MAX: Final = 20


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "dump",
        help="print messages",
        description="Print messages of a data directory, one line each, in the order of the log. Nothing is changed.",
        epilog="Times are ISO (UTC unless they say otherwise: 2024-05-01T12:00) or milliseconds; "
        "ends are not included. "
        "Exit code: 0 all was read, 1 some messages cannot be read, 2 it could not begin.",
    )
    add_directory(parser)
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic, by its consume queues")
    parser.add_argument("--queue", metavar="N", type=int, help="only this queue")
    parser.add_argument(
        "--from", dest="start", metavar="OFFSET|TIME", help="from an offset (a number) or an ISO time on"
    )
    parser.add_argument("--to", dest="end", metavar="OFFSET|TIME", help="up to an offset or an ISO time")
    parser.add_argument("--time", metavar="FROM..TO", help="stored between two times, one of which may be left out")
    parser.add_argument("--key", metavar="KEY", help="only messages with this key or unique id, by the index")
    parser.add_argument("--limit", metavar="N", type=int, default=0, help="stop after N messages")
    parser.add_argument(
        "--physical",
        action="store_true",
        help="walk over the log itself; offsets are physical ones then, as without --topic",
    )
    parser.add_argument("--json", action="store_true", help="messages as JSON, one line each")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.limit < 0:
        return complain(f"--limit {options.limit}: must be 0 or more")
    wanted = DumpSelection(options.topic, options.queue, options.key, _bounds(options), options.physical)
    directory = opened(options)
    if not directory.whole:
        complain(f"{directory.root}: {state_text(directory)}")
    printer = _Printer(options.json)
    try:
        dump = Dump(directory, wanted)
        for found in dump.run():
            for note in _taken(dump.notes):
                complain(note)
            printer.put(found)
            if printer.count == options.limit > 0:
                break
        for note in _taken(dump.notes):
            complain(note)
    finally:
        directory.close()
    return printer.end()


def _taken(notes: list[str]) -> Iterator[str]:
    while notes:
        yield notes.pop(0)


def _bounds(options: argparse.Namespace) -> Bounds:
    """Raises OptionError."""
    from_offset, from_time = _bound("--from", options.start)
    to_offset, to_time = _bound("--to", options.end)
    if options.time is not None:
        start, dots, end = options.time.partition("..")
        if not dots or not (start or end) or from_time is not None or to_time is not None:
            raise OptionError(f"--time {options.time}: FROM..TO expected, and no times in --from and --to beside it")
        from_time, to_time = _time("--time", start), _time("--time", end)
    for low, high in ((from_offset, to_offset), (from_time, to_time)):
        if low is not None and high is not None and low > high:
            raise OptionError("the end lies before the beginning")
    return Bounds(from_offset, to_offset, from_time, to_time)


def _bound(option: str, text: str | None) -> tuple[int | None, int | None]:
    """An offset or a time."""
    if text is None:
        return None, None
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text), None
    return None, _time(option, text)


def _time(option: str, text: str) -> int | None:
    try:
        return time_ms(text) if text else None
    except argparse.ArgumentTypeError as failure:
        raise OptionError(f"{option}: {failure}") from None


class _Printer:
    """Printer of messages, which counts those that could not be read."""

    def __init__(self, as_json: bool) -> None:
        self._line = _json_line if as_json else _text_line
        self._out = sys.stdout
        self._warned: set[str] = set()
        self._unreadable = 0
        self.count = 0

    def put(self, found: Dumped) -> None:
        if found.record is None:
            self._unreadable += 1
            if self._unreadable <= _NAMED_MAX:
                complain(f"message {found.place} cannot be read: {found.why}")
            return
        message = decode_record(found.record)
        failure = ""
        try:
            inflated(message)
        except RecordError as error:
            failure = str(error.cause)
            if failure not in self._warned:
                self._warned.add(failure)
                complain(f"a body is shown as it was stored, in Base64: {failure}")
        self._out.write(self._line(message, failure) + "\n")
        self.count += 1

    def end(self) -> int:
        self._out.flush()
        if self._unreadable > _NAMED_MAX:
            complain(f"{self._unreadable - _NAMED_MAX} more messages cannot be read")
        return 1 if self._unreadable else 0


def _json_line(message: MessageExt, failure: str) -> str:
    real = destination(message)
    fields: dict[str, Any] = {
        **message_fields(message),
        "physicalOffset": message.physical_offset,
        "sysFlag": message.sys_flag,
        "preparedTransactionOffset": message.prepared_offset,
        **({} if real is None else {"realTopic": real[0], "realQueueId": real[1]}),
        **(
            body_fields(message.body)
            if not failure
            else {"bodyBase64": base64.b64encode(message.body).decode(), "bodyError": failure}
        ),
    }
    return json.dumps(fields, ensure_ascii=False)


def _text_line(message: MessageExt, failure: str) -> str:
    words = message_words(message)
    words.insert(2, f"at={message.physical_offset}")
    real = destination(message)
    if real is not None:
        words.append(f"for={real[0]}" if real[1] is None else f"for={real[0]}/{real[1]}")
    words.append(body_text(message.body) if not failure else base64.b64encode(message.body).decode())
    return " ".join(words)
