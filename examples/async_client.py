import asyncio

from mqproto import ConsumeStatus, Message, MessageExt
from mqproto.adapters.anyio import Producer, PushConsumer


async def main() -> None:
    received = asyncio.Event()

    async def listen(messages: list[MessageExt]) -> ConsumeStatus:
        for message in messages:
            print(message.tags, message.keys, message.body.decode())
            received.set()
        return ConsumeStatus.SUCCESS

    async with Producer("billing", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("Orders", b"paid", tags="eu", keys=["order-4711"]))
        print(result.status.value, result.queue, result.queue_offset)

        consumer = PushConsumer("shipping-async", listen, namesrv="127.0.0.1:9876")
        consumer.subscribe("Orders", "eu || us")
        async with consumer:
            await received.wait()


asyncio.run(main())
