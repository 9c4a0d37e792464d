import threading

from mqproto import ConsumeStatus, Message, MessageExt
from mqproto.adapters.threaded import Producer, PushConsumer

received = threading.Event()


def listen(messages: list[MessageExt]) -> ConsumeStatus:
    for message in messages:
        print(message.tags, message.keys, message.body.decode())
        received.set()
    return ConsumeStatus.SUCCESS


with Producer("billing", namesrv="127.0.0.1:9876") as producer:
    result = producer.send(Message("Orders", b"paid", tags="eu", keys=["order-4711"]))
    print(result.status.value, result.queue, result.queue_offset)

    consumer = PushConsumer("shipping", listen, namesrv="127.0.0.1:9876")
    consumer.subscribe("Orders", "eu || us")
    with consumer:
        received.wait()
