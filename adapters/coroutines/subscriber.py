"""Base of consumers that fetch ahead, whose methods are coroutines."""

from __future__ import annotations

from mqproto.adapters.base.subscriber import BaseSubscriber
from mqproto.adapters.coroutines.client import AsyncClient


class AsyncSubscriber(BaseSubscriber, AsyncClient):
    """Consumer that fetches ahead: see `BaseSubscriber`."""

    async def reset_offset_by_timestamp(self, topic: str, timestamp: int) -> None:
        """Consume the queues of the topic that are this member's again from a time on (milliseconds since 1970), or
        skip to it.

        Ends when that is under way: whoever works on messages of them gets up to 10 s to end. Other members' queues
        stay where they are. Raises StateError, and MQErrors of brokers that cannot say where that is: then all is
        as before.
        """
        self._lifecycle.check()
        await self._driver.wait(self._begin_reset, topic, timestamp)
