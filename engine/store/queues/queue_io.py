"""Writes of queue entries and their units to files, and how these become durable: work of the jobs."""

from __future__ import annotations

from typing import NamedTuple

from mqproto.engine.store.disk.files import Files


class FileWrite(NamedTuple):
    """Bytes that have to go to a place of a file of a given length."""

    path: str
    at: int
    data: bytes
    file_size: int


def write_out(files: Files, write: FileWrite) -> None:
    """Write bytes to their file; file and folder are made when they are not there. Blocks."""
    try:
        file = files.create(write.path, write.file_size)
    except FileNotFoundError:
        files.make_folder(write.path.rpartition("/")[0])
        file = files.create(write.path, write.file_size)
    try:
        file.write(write.at, write.data)
    finally:
        file.close()


def sync_queue_files(files: Files, paths: set[str], made: set[str]) -> None:
    """Make queue files durable, and the names of those that were made.

    A queue may have been deleted meanwhile. Blocks.
    """
    if files.sync_all(paths):
        return
    for path in sorted(paths):
        try:
            file = files.open(path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        finally:
            file.close()
    folders = {path.rsplit("/", depth)[0] for path in made for depth in (1, 2, 3)}
    for folder in sorted(folders):
        if files.exists(folder):
            files.sync_folder(folder)
