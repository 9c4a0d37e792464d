"""Every kind of client, made and used in one way, and what is looked at when one has ended."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mqproto import ConsumeStatus, LocalTransactionState, Message
from tests.adapters.harness import Anyio, Gevent, Proxy, Runtime, threads_of_ours

DESCRIPTORS = Path("/proc/self/fd")


def commit(*arguments: Any) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE


def succeed(messages: Any) -> ConsumeStatus:
    return ConsumeStatus.SUCCESS


#: How a client of a kind is made, from the package of its runtime, a group and name servers.
MAKERS: dict[str, Callable[..., Any]] = {
    "Producer": lambda module, group, namesrv, **rest: module.Producer(group, namesrv, **rest),
    "TransactionProducer": lambda module, group, namesrv, **rest: module.TransactionProducer(
        group, (commit, commit), namesrv, **rest
    ),
    "PushConsumer": lambda module, group, namesrv, **rest: module.PushConsumer(group, succeed, namesrv, **rest),
    "Consumer": lambda module, group, namesrv, **rest: module.Consumer(group, namesrv, **rest),
    "PullConsumer": lambda module, group, namesrv, **rest: module.PullConsumer(group, namesrv, **rest),
    "LitePullConsumer": lambda module, group, namesrv, **rest: module.LitePullConsumer(group, namesrv, **rest),
    "Admin": lambda module, group, namesrv, **rest: module.Admin(namesrv, **rest),
}
KINDS = tuple(MAKERS)
#: Those that ask a name server before they have started.
ASKING = ("PushConsumer", "Consumer", "PullConsumer", "LitePullConsumer")


def make(runtime: Runtime, kind: str, group: str, namesrv: str, topic: str = "topic", **settings: Any) -> Proxy:
    """A client of a kind that has not started. Consumers want the topic."""
    client = Proxy(runtime, runtime.call(MAKERS[kind], runtime.module, group, namesrv, **settings))
    if kind == "PullConsumer":
        client.register_message_queue_listener(topic)
    elif kind in ASKING:
        client.subscribe(topic)
    return client


#: Something that only a running client can do: a call, or what tasks await.
USES: dict[str, Callable[[Any, str], Any]] = {
    "Producer": lambda client, topic: client.send(Message(topic, b"x")),
    "TransactionProducer": lambda client, topic: client.send_in_transaction(Message(topic, b"x")),
    "PushConsumer": lambda client, topic: client.suspend(),
    "Consumer": lambda client, topic: client.suspend(),
    "PullConsumer": lambda client, topic: client.fetch_subscribe_message_queues(topic),
    "LitePullConsumer": lambda client, topic: client.poll(10),
    "Admin": lambda client, topic: client.topics.route(topic),
}


def use(client: Proxy, kind: str, topic: str) -> None:
    """Do something that only a running client can do."""
    client._runtime.call(USES[kind], client._target, topic)


async def use_in_task(target: Any, kind: str, topic: str) -> None:
    """The same from inside a task."""
    result = USES[kind](target, topic)
    if inspect.isawaitable(result):
        await result


def descriptors() -> list[str]:
    """What kinds of sockets, pollers and pipes this process has open."""
    found = []
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.exists() else ():
        with suppress(FileNotFoundError):  # that of the listing itself
            found.append(str(entry.readlink()).partition(":")[0])
    return sorted(kind for kind in found if not kind.startswith("/"))


def tasks(runtime: Runtime) -> int:
    """How many tasks or greenlets there are."""
    if isinstance(runtime, Gevent):
        import gevent

        gc.collect()
        return sum(isinstance(found, gevent.Greenlet) and bool(found) for found in gc.get_objects())
    if isinstance(runtime, Anyio):
        return int(runtime.call(_living))
    return 0


async def _living() -> int:
    from mqproto.adapters.anyio.driver import in_trio

    if in_trio():
        import trio

        return trio.lowlevel.current_statistics().tasks_living
    import asyncio

    return len(asyncio.all_tasks())


@contextmanager
def nothing_left(runtime: Runtime) -> Iterator[None]:
    """Fails when threads, tasks, greenlets or descriptors are more after than before.

    What is closed inside must be all of it.
    """
    before, threads = (descriptors(), tasks(runtime)), threads_of_ours()
    yield
    assert threads_of_ours() - threads == set()
    assert (descriptors(), tasks(runtime)) == before
