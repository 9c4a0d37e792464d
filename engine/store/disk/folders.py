"""Folders whose names are durable."""

from __future__ import annotations

from mqproto.engine.store.disk.files import Files


def parent_of(path: str) -> str:
    """The folder that holds a name; the root, and the folder where the process runs, are their own."""
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def make_durable_folder(files: Files, path: str) -> None:
    """Make a folder and those above it, with names that survive a power loss. Blocks.

    The name of a folder that was there is made durable as well: whoever made it may have died before he came to it.
    """
    missing = [path]
    while not files.exists(parent_of(missing[-1])):
        missing.append(parent_of(missing[-1]))
    for folder in reversed(missing):
        files.make_folder(folder)
        files.sync_folder(parent_of(folder))
