"""Stacks of the tasks of the event loop and of all threads, as text for operators."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from mqproto.adapters.io.stacks import thread_stacks


def task_stacks() -> str:
    """The stack of every task, the innermost call last, then those of the threads."""
    return "\n".join([*(_task_text(name, coroutine) for name, coroutine in _tasks()), thread_stacks()])


def _tasks() -> Iterator[tuple[str, Any]]:
    if "trio" in sys.modules:
        import trio

        if trio.lowlevel.in_trio_run():
            yield from _of_trio(trio.lowlevel.current_root_task())
            return
    for task in asyncio.all_tasks():
        yield task.get_name(), task.get_coro()


def _of_trio(task: Any) -> Iterator[tuple[str, Any]]:
    if task is not None:
        yield task.name, task.coro
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                yield from _of_trio(child)


def _task_text(name: str, coroutine: Any) -> str:
    """A coroutine waits for another one, and so on: each has a frame of its own."""
    lines = [f"task {name}\n"]
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_qualname}\n')
        coroutine = coroutine.cr_await
    return "".join(lines)
