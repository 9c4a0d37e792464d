"""Exports and imports in one call, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from mqproto.engine.store import Files, Store, StoreSettings
from mqproto.engine.store.doctor import open_directory
from mqproto.engine.store.doctor.exportfile import ExportReader
from mqproto.engine.store.doctor.exporting import Export
from mqproto.engine.store.doctor.importing import Import
from mqproto.engine.store.doctor.planning import DirectoryTarget, ImportPlan, NoTarget, Planner, Target
from mqproto.engine.store.doctor.views.tables import TableFiles
from mqproto.message import MessageExt
from tests.engine.store.harness import SMALL, START, Rig

NOW = START + 1_000_000


def export(files: Files, root: str, *topics: str, groups: Sequence[str] = (), **options: Any) -> tuple[bytes, Export]:
    """An export of a directory, and what it told."""
    directory = open_directory(files, root)
    try:
        made = Export(directory, topics, groups, created=NOW, **options)
        for _ in made.survey():
            pass
        return b"".join(made.pieces()), made
    finally:
        directory.close()


def small(root: str, **changes: Any) -> StoreSettings:
    return StoreSettings(store_path_root_dir=root, **{**SMALL, **changes})


def plan(
    files: Files, root: str, data: bytes, *, rename: dict[str, str] | None = None, append: bool = False
) -> ImportPlan:
    """What an import would do."""
    rename = rename or {}
    reader = ExportReader(io.BytesIO(data).read)
    directory = open_directory(files, root) if files.names(root) else None
    target: Target = NoTarget()
    if directory is not None:
        target = looked_at = DirectoryTarget(
            directory, [rename.get(each.topic, each.topic) for each in reader.head.queues]
        )
        for _ in looked_at.survey():
            pass
    planner = Planner(reader, target, rename=rename, append=append)
    for _ in planner.run():
        pass
    planner.merge(TableFiles(files, root).load())
    if directory is not None:
        directory.close()
    return planner.plan


def run(files: Files, root: str, data: bytes, made: ImportPlan, **changes: Any) -> Import:
    """An import by a plan."""
    importing = Import(files, small(root, **changes), ExportReader(io.BytesIO(data).read), made, wall=NOW)
    try:
        for _ in importing.run():
            pass
    finally:
        importing.close()
    return importing


def move(
    files: Files, root: str, data: bytes, *, rename: dict[str, str] | None = None, append: bool = False
) -> ImportPlan:
    """Look, then import."""
    made = plan(files, root, data, rename=rename, append=append)
    run(files, root, data, made)
    return made


def opened(files: Files, root: str, **changes: Any) -> Rig:
    """A rig on a directory that is there."""
    return Rig(files, root, **changes)


def essence(message: MessageExt) -> tuple[object, ...]:
    """What must not change on the way, offsets and store time included."""
    return (
        message.queue_id,
        message.queue_offset,
        message.body,
        message.properties,
        message.flag,
        message.sys_flag,
        message.born_time,
        message.born_host_bytes,
        message.store_time,
        message.store_host_bytes,
        message.reconsume_times,
        message.prepared_offset,
        message.body_crc,
    )


def contents(store: Store, rig: Rig) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """All messages by queue."""
    return {
        (queue.topic, queue.queue_id): [essence(each) for each in rig.read(queue.topic, queue.queue_id)]
        for queue in store.queues()
    }
