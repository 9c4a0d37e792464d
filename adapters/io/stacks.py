"""Stacks of all threads, as text for operators."""

from __future__ import annotations

import sys
import threading
import traceback


def thread_stacks() -> str:
    """The stack of every thread, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    texts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    return "\n".join(texts)
