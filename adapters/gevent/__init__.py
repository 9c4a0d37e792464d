"""mqproto for gevent: every method waits in the greenlet that calls it. Nothing needs to be monkey-patched."""

from adapters.gevent.driver import Driver

__all__ = ["Driver"]
