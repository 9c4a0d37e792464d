"""Command `store inspect`: what lies in a data directory."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import Any

from mqproto.adapters.cli.output import show, time_text
from mqproto.adapters.cli.store.options import Commands, add_directory, opened, state_text
from mqproto.adapters.cli.tables import age_text, size_text, table
from mqproto.engine.store.doctor import ConfigState, Inspection, QueueState, Size, inspect


def add_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show files, ranges, topics, ages and sizes",
        description="Show what lies in a data directory: files, ranges, topics, queues, ages and sizes. "
        "Nothing is changed.",
    )
    add_directory(parser)
    parser.add_argument("--queues", action="store_true", help="one line for each queue instead of each topic")
    parser.add_argument("--json", action="store_true", help="as JSON, with every queue")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    directory = opened(options)
    try:
        found = inspect(directory)
    finally:
        directory.close()
    if options.json:
        show(json.dumps(_fields(found), ensure_ascii=False))
        return 0
    for line in [
        *_heading(found, state_text(directory)),
        *_queues(found, options.queues),
        *_indexes(found),
        *_configs(found),
    ]:
        show(line)
    return 0


def _fields(found: Inspection) -> dict[str, Any]:
    fields = asdict(found)
    log, queues, index = found.checkpoint
    fields["checkpoint"] = {"log": log, "queues": queues, "index": index}
    fields["running"] = found.owner is not None
    fields["configs"] = [
        {"name": each.name, "version": each.version, "warning": each.warning, "damage": each.damage}
        for each in found.configs
    ]
    return fields


def _age(ms: int) -> str:
    return "-" if ms <= 0 else age_text(int(time.time() * 1000) - ms)


def _time(ms: int) -> str:
    return "never" if ms <= 0 else f"{time_text(ms)} ({_age(ms)} ago)"


def _heading(found: Inspection, state: str) -> list[str]:
    log = found.log
    topics = len({queue.topic for queue in found.queues})
    log_time, queue_time, index_time = map(_time, found.checkpoint)
    lines = [
        f"{found.root}: {state}",
        "",
        f"log       {log.start} to {log.end}, files of {size_text(log.file_size)}: {_size([log.size])}",
        f"messages  from {_time(log.first_time)} to {_time(log.last_time)}",
        f"queues    {len(found.queues)} of {topics} topics: {_size([queue.size for queue in found.queues])}",
        f"index     {_size([index.size for index in found.indexes])}",
        f"durable   log up to {log_time}, queues up to {queue_time}, full index files up to {index_time}",
    ]
    return lines + [f"strange   {path} does not belong here" for path in found.strange]


def _size(sizes: list[Size]) -> str:
    files, length, used = (
        sum(each.files for each in sizes),
        sum(each.length for each in sizes),
        sum(each.used for each in sizes),
    )
    return f"{files} file{'s' * (files != 1)}, {size_text(length)} long, {size_text(used)} on disk"


def _queues(found: Inspection, each: bool) -> list[str]:
    if not found.queues:
        return []
    if each:
        rows = [
            (queue.topic, queue.queue_id, queue.begin, queue.end, queue.end - queue.begin, queue.size.files,
             size_text(queue.size.used), _age(queue.first_time), _age(queue.last_time))
            for queue in found.queues
        ]  # fmt: skip
        return ["", *table(("topic", "queue", "from", "to", "messages", "files", "on disk", "oldest", "newest"), rows)]
    by_topic: dict[str, list[QueueState]] = {}
    for queue in found.queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    return [
        "",
        *table(
            ("topic", "queues", "messages", "files", "on disk", "oldest", "newest"),
            [_topic(*pair) for pair in by_topic.items()],
        ),
    ]


def _topic(topic: str, queues: list[QueueState]) -> tuple[object, ...]:
    times = [queue.first_time for queue in queues if queue.first_time > 0]
    return (
        topic,
        len(queues),
        sum(queue.end - queue.begin for queue in queues),
        sum(queue.size.files for queue in queues),
        size_text(sum(queue.size.used for queue in queues)),
        _age(min(times, default=-1)),
        _age(max(queue.last_time for queue in queues)),
    )


def _indexes(found: Inspection) -> list[str]:
    if not found.indexes:
        return []
    rows = [
        (index.name, index.entries, index.entries_max - 1 if index.slots else "?", index.slots_used, index.slots or "?",
         index.begin, index.end, size_text(index.size.used), _age(index.first_time), _age(index.last_time))
        for index in found.indexes
    ]  # fmt: skip
    return [
        "",
        *table(("index", "entries", "of", "slots used", "of", "from", "to", "on disk", "oldest", "newest"), rows),
    ]


def _configs(found: Inspection) -> list[str]:
    if not found.configs:
        return []
    return [
        "",
        *table(("config", "version", "state"), [(each.name, _version(each), _state(each)) for each in found.configs]),
    ]


def _version(config: ConfigState) -> object:
    return "-" if config.version is None else config.version


def _state(config: ConfigState) -> str:
    if config.damage:
        return f"damaged, and so is its backup: {config.damage}"
    return f"the backup is read: {config.warning}" if config.warning else "good"
