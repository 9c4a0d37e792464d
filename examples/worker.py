"""A worker: consumes a topic until it is told to stop. NAMESRV_ADDR=127.0.0.1:9876 python examples/worker.py

SIGTERM and Ctrl-C end it in order: running listeners finish, progress is stored, the group hears of it.
"""

import logging
import signal
import time

from mqproto import ConsumeFromWhere, ConsumeStatus, MessageExt
from mqproto.adapters.threaded import PushConsumer

log = logging.getLogger("worker")


def handle(messages: list[MessageExt]) -> ConsumeStatus:
    """Called in several threads at once.

    What it raises makes the messages come again later, at most `max_reconsume_times` times.
    """
    for message in messages:
        log.info("order %s: %s (delivery %d)", message.keys, message.body.decode(), message.reconsume_times + 1)
    return ConsumeStatus.SUCCESS


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: asked.append(number))
    consumer = PushConsumer(
        "order-workers",
        handle,  # name servers: the environment's NAMESRV_ADDR
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_thread_min=4,
        max_reconsume_times=5,
    )
    consumer.subscribe("Orders", "paid || refunded")
    with consumer:
        log.info("ready")
        while not asked:  # a wait without end for an event or a queue misses a signal that comes just before it begins
            time.sleep(0.2)
    log.info("stopped")


if __name__ == "__main__":
    main()
