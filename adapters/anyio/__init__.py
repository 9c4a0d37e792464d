"""mqproto for asyncio and trio, by way of anyio: every method that waits is `async`."""

from adapters.anyio.driver import Driver

__all__ = ["Driver"]
