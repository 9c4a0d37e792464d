"""FastAPI: requests send messages, a consumer works on them in the same event loop.

pip install 'mqproto[anyio]' fastapi uvicorn
NAMESRV_ADDR=127.0.0.1:9876 uvicorn examples.fastapi_app:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from mqproto import ConsumeFromWhere, ConsumeStatus, Message, MessageExt
from mqproto.adapters.anyio import Producer, PushConsumer
from mqproto.errors import MQError

shipped: list[str] = []


async def ship(messages: list[MessageExt]) -> ConsumeStatus:
    shipped.extend(message.body.decode() for message in messages)
    return ConsumeStatus.SUCCESS


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Clients live as long as the application: made in its event loop, closed when it ends."""
    consumer = PushConsumer("web-shipping", ship, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer.subscribe("WebOrders")
    async with Producer("web-orders") as app.state.producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=202)
async def order(number: str) -> dict[str, str]:
    """202 means that a broker has the order."""
    try:
        result = await app.state.producer.send(Message("WebOrders", number.encode(), keys=[number]))
    except MQError as error:
        raise HTTPException(503, f"not accepted: {error}") from error
    return {"message": result.msg_id}


@app.get("/shipped")
async def show() -> list[str]:
    return shipped
