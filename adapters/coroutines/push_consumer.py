"""Push consumers whose methods are coroutines."""

from __future__ import annotations

from mqproto.adapters.base.push_consumer import BasePushConsumer
from mqproto.adapters.coroutines.deliveries import AsyncDeliveries
from mqproto.message import MessageExt


class AsyncPushConsumer(AsyncDeliveries):
    __doc__ = BasePushConsumer.__doc__

    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Let one message of a list come again later, so that the listener may return SUCCESS for it all the same.

        By the broker that stored it, or as a new message where that fails. `delay_level` -1 makes it a dead letter, 0
        leaves the time to the broker, else it is a level of the broker's table. Raises StateError, and MQError when
        both ways failed: the message is then with the listener still.
        """
        self._lifecycle.check()
        await self._driver.wait(self._begin_send_back, message, delay_level, broker_name)
