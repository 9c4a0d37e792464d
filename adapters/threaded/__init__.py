"""mqproto for programs of threads: every method waits in the thread that calls it."""

from adapters.threaded.driver import Driver

__all__ = ["Driver"]
