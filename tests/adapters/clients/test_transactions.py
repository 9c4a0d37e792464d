"""Messages in transactions against a broker, on every runtime."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mqproto import LocalTransactionState, Message, MessageExt, SendStatus
from mqproto.errors import InvalidMessage, InvalidName, InvalidSetting, MQError, NoNameServer, StateError
from mqproto.hooks import EndTransactionContext, EndTransactionHook
from mqproto.state.flows.effects import Flow
from mqproto.state.producer.transactions import Half
from mqproto.transactions import HalfMessage
from tests.adapters.conftest import World
from tests.adapters.harness import PATIENCE, Anyio, Runtime, holder

COMMIT, ROLLBACK, UNKNOW = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOW,
)
#: Brokers ask at once and often, so that no test has to wait for long.
CURIOUS = {"transactionCheckInterval": "50", "transactionTimeOut": "10"}


def in_the_way_of(runtime: Runtime, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in the form that the runtime prefers."""
    if not isinstance(runtime, Anyio):
        return function

    async def listener(*arguments: Any) -> Any:
        return function(*arguments)

    return listener


class Books:
    """A listener that says what it is told to say, and remembers what it was asked."""

    def __init__(
        self, runtime: Runtime, executed: object = COMMIT, checked: object = COMMIT, *, plain: bool = False
    ) -> None:
        self.executed, self.checked = executed, checked
        self.executions: SimpleQueue[tuple[HalfMessage, Any, str]] = SimpleQueue()
        self.checks: SimpleQueue[MessageExt] = SimpleQueue()
        self.execute = self._execute if plain else in_the_way_of(runtime, self._execute)
        self.check = self._check if plain else in_the_way_of(runtime, self._check)

    def _execute(self, message: HalfMessage, argument: Any) -> Any:
        self.executions.put((message, argument, threading.current_thread().name))
        return self._said(self.executed)

    def _check(self, message: MessageExt) -> Any:
        self.checks.put(message)
        return self._said(self.checked)

    def _said(self, what: object) -> object:
        if isinstance(what, BaseException):
            raise what
        return what


def curious(world: World) -> None:
    """From now on the clients of the world belong to a server that asks soon."""
    world.server = world.start(world.runtime.module.Standalone, settings=CURIOUS)
    world.namesrv = world.server.namesrv_address


def transactor(world: World, listener: object, group: str = "", **settings: Any) -> Any:
    return world.start(
        world.runtime.module.TransactionProducer, group or f"t-{world.group}", listener, world.namesrv, **settings
    )


def test_committed_messages_arrive_and_others_do_not(world: World) -> None:
    """MSG-09: a large body too, as it was."""
    books = Books(world.runtime)
    producer = transactor(world, books)
    collector = world.collect()
    message = Message(world.topic, b"paid", tags="T", keys="k", properties={"shop": "7"})
    result = producer.send_in_transaction(message, {"account": 1})
    assert (result.status, result.local_transaction_state, result.local_failure) == (SendStatus.SEND_OK, COMMIT, None)
    asked, argument, _ = books.executions.get(timeout=PATIENCE)
    assert (asked.body, asked.msg_id, argument) == (b"paid", result.msg_id, {"account": 1})
    (received,) = collector.wait(1)
    assert (received.body, received.tags, received.keys, received.msg_id) == (b"paid", "T", ["k"], result.msg_id)
    assert received.properties["shop"] == "7"
    large = Message(world.topic, b"the same again " * 1000)
    producer.send_in_transaction(large)
    assert collector.wait(2)[1].body == large.body == b"the same again " * 1000
    books.executed = ROLLBACK
    assert producer.send_in_transaction(Message(world.topic, b"rolled back")).local_transaction_state is ROLLBACK
    producer.send(Message(world.topic, b"last"))
    collector.wait(3)
    assert sorted(collector.bodies()) == [b"last", b"paid", large.body]
    assert books.checks.empty()


def test_a_pair_of_functions_does_for_a_listener(world: World) -> None:
    books = Books(world.runtime)
    producer = transactor(world, (books.execute, books.check))
    producer.send_in_transaction(Message(world.topic, b"paid"))
    assert world.collect().wait(1)[0].body == b"paid"


def test_plain_functions_in_every_runtime(world: World) -> None:
    """Tasks are not held up by a listener that blocks: it runs in a thread there, and elsewhere where it is called."""
    curious(world)
    books = Books(world.runtime, UNKNOW, plain=True)
    producer = transactor(world, books)
    producer.send_in_transaction(Message(world.topic, b"paid"))
    _, _, thread = books.executions.get(timeout=PATIENCE)
    assert (thread == threading.current_thread().name) == (world.runtime.name == "threaded")
    assert world.collect().wait(1)[0].body == b"paid"
    assert books.checks.get(timeout=PATIENCE).body == b"paid"


@pytest.mark.parametrize("said", [UNKNOW, None, ValueError("who knows")])
def test_what_nobody_decided_is_asked_about(world: World, said: object, caplog: pytest.LogCaptureFixture) -> None:
    curious(world)
    books = Books(world.runtime, said)
    producer = transactor(world, books)
    body = b"the same again " * 1000
    with caplog.at_level(logging.WARNING, "mqproto.client"):
        result = producer.send_in_transaction(Message(world.topic, body, keys="k"))
    assert (result.local_transaction_state, result.local_failure) == (
        UNKNOW,
        said if isinstance(said, ValueError) else None,
    )
    logged = [record for record in caplog.records if record.name == "mqproto.client"]
    assert [record.exc_info is not None for record in logged] == ([True] if isinstance(said, ValueError) else [])
    asked = books.checks.get(timeout=PATIENCE)
    assert (asked.topic, asked.body, asked.keys, asked.msg_id) == (world.topic, body, ["k"], result.msg_id)
    (received,) = world.collect().wait(1)
    assert (received.body, received.msg_id) == (body, result.msg_id)


def test_a_message_that_is_not_safe_is_rolled_back(world: World) -> None:
    """A broker that says so (one without the slave that it waits for, say): the local transaction is not run."""
    books = Books(world.runtime)
    producer = transactor(world, books)
    core = producer._target._transactions
    send_half = core.send_half

    def send_unsafely(*arguments: Any, **options: Any) -> Flow[Half]:
        half: Half = yield from send_half(*arguments, **options)
        return replace(half, result=replace(half.result, status=SendStatus.SLAVE_NOT_AVAILABLE))

    core.send_half = send_unsafely
    result = producer.send_in_transaction(Message(world.topic, b"x"))
    assert (result.status, result.local_transaction_state) == (SendStatus.SLAVE_NOT_AVAILABLE, ROLLBACK)
    assert books.executions.empty()
    producer.send(Message(world.topic, b"last"))
    assert [message.body for message in world.collect().wait(1)] == [b"last"]


def test_a_question_may_be_left_open_and_comes_again(world: World) -> None:
    curious(world)
    books = Books(world.runtime, UNKNOW, RuntimeError("the database is away"))
    producer = transactor(world, books)
    producer.send_in_transaction(Message(world.topic, b"paid"))
    first = books.checks.get(timeout=PATIENCE)
    books.checked = None
    while books.checks.get(timeout=PATIENCE).properties.get("TRANSACTION_CHECK_TIMES") == first.properties.get(
        "TRANSACTION_CHECK_TIMES"
    ):
        pass
    books.checked = ROLLBACK
    producer.send_in_transaction(Message(world.topic, b"other"))
    while books.checks.get(timeout=PATIENCE).body != b"other":
        pass
    books.executed = COMMIT
    producer.send_in_transaction(Message(world.topic, b"last"))
    collector = world.collect()
    collector.wait(1)
    assert collector.bodies() == [b"last"]


def test_another_producer_of_the_group_decides_for_one_that_has_left(world: World) -> None:
    """The first one leaves with its transaction open; it has never heard of the second."""
    curious(world)
    silent, books = Books(world.runtime, UNKNOW, UNKNOW), Books(world.runtime)
    first = transactor(world, silent)
    sent = first.send_in_transaction(Message(world.topic, b"paid"))
    first.close()
    second = transactor(world, books)
    second.send(Message(world.topic, b"so that the broker knows it"))
    assert books.checks.get(timeout=PATIENCE).msg_id == sent.msg_id
    assert sorted(message.body for message in world.collect().wait(2)) == [b"paid", b"so that the broker knows it"]


def test_groups_of_one_instance_are_asked_each_about_its_own(world: World) -> None:
    """TXN-06: two producers that share a connection."""
    curious(world)
    books = [Books(world.runtime, UNKNOW) for _ in range(2)]
    producers = [
        transactor(world, one, f"t-{world.group}-{n}", instance_name=f"shared-{world.group}")
        for n, one in enumerate(books)
    ]
    for number, producer in enumerate(producers):
        producer.send_in_transaction(Message(world.topic, b"%d" % number))
    for number, one in enumerate(books):
        assert one.checks.get(timeout=PATIENCE).body == b"%d" % number
    assert {message.body for message in world.collect().wait(2)} == {b"0", b"1"}
    producers[0].close()
    producers[1].send_in_transaction(Message(world.topic, b"2"))
    while books[1].checks.get(timeout=PATIENCE).body != b"2":
        pass


def test_hooks_see_what_brokers_are_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """docs/protocol/client.md 3.12. What they raise disturbs nobody."""
    curious(world)
    seen: SimpleQueue[EndTransactionContext] = SimpleQueue()

    class Watch(EndTransactionHook):
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.put(context)
            raise ValueError("a hook that fails")

    EndTransactionHook().end_transaction(None)  # type: ignore[arg-type]  # one that looks at nothing
    books = Books(world.runtime, UNKNOW)
    producer = transactor(world, books)
    producer.register_end_transaction_hook(Watch())
    with caplog.at_level(logging.ERROR, "mqproto.client"):
        result = producer.send_in_transaction(Message(world.topic, b"paid"))
        contexts: dict[bool, EndTransactionContext] = {}
        while len(contexts) < 2:  # a broker that is so curious may ask twice before it hears of the execution
            context = seen.get(timeout=PATIENCE)
            contexts[context.from_transaction_check] = context
    first, second = contexts[False], contexts[True]
    assert (first.msg_id, first.state, first.from_transaction_check, first.broker_name) == (
        result.msg_id,
        UNKNOW,
        False,
        result.queue.broker_name,
    )
    assert (second.msg_id, second.state, second.from_transaction_check) == (result.msg_id, COMMIT, True)
    assert (first.group, first.message.body, second.message.body) == (producer.group, b"paid", b"paid")
    assert world.collect().wait(1)[0].body == b"paid"
    assert "a hook of producer" in caplog.text


def test_as_many_questions_at_a_time_as_were_allowed(world: World) -> None:
    """One unless told otherwise, as with Apache's client; sends go on meanwhile."""
    curious(world)
    go_on = threading.Event()
    running: set[bytes] = set()
    if isinstance(world.runtime, Anyio):

        async def check_in_task(message: MessageExt) -> LocalTransactionState:
            running.add(message.body)
            while not go_on.is_set():
                await anyio.sleep(0.001)
            return COMMIT

        check: Callable[..., Any] = check_in_task
    else:
        hold = holder(world.runtime, go_on)

        def check_here(message: MessageExt) -> LocalTransactionState:
            running.add(message.body)
            hold()
            return COMMIT

        check = check_here
    books = Books(world.runtime, UNKNOW, plain=True)
    producer = transactor(world, (books.execute, check))
    for number in range(3):
        producer.send_in_transaction(Message(world.topic, b"%d" % number))
    waiting = producer._target._transactions._checks
    sent = 1
    while len({task.message.body for task in list(waiting)}) < 3 or not running:
        producer.send(Message(world.topic, b"meanwhile"))
        sent += 1
    producer.send(Message(world.topic, b"meanwhile"))
    at_a_time = len(running)
    go_on.set()
    assert at_a_time == 1
    assert {b"0", b"1", b"2"} < {message.body for message in world.collect().wait(sent + 3)}


def test_what_is_refused(world: World) -> None:
    books = Books(world.runtime)
    make = world.runtime.module.TransactionProducer
    for listener in (None, object(), (books.execute,), (books.execute, None), books.execute):
        with pytest.raises(InvalidSetting, match="execute and check"):
            world.runtime.call(make, "group", listener, world.namesrv)
    with pytest.raises(InvalidSetting, match="no such setting"):
        world.runtime.call(make, "group", books, world.namesrv, check_threads=1)
    with pytest.raises(InvalidSetting, match="check_request_hold_max"):
        world.runtime.call(make, "group", books, world.namesrv, check_request_hold_max=0)
    with pytest.raises(InvalidName):
        world.runtime.call(make, "a b", books, world.namesrv)
    producer = transactor(world, books)
    with pytest.raises(InvalidMessage):
        producer.send_in_transaction(Message(world.topic, b"later", delay_level=3))
    with pytest.raises(InvalidMessage, match="batch"):
        producer.send_in_transaction([Message(world.topic, b"x")])
    producer.close()
    with pytest.raises(StateError):
        producer.send_in_transaction(Message(world.topic, b"x"))
    assert books.executions.empty()


def test_without_a_broker_nothing_is_executed(world: World) -> None:
    books = Books(world.runtime)
    producer = world.start(world.runtime.module.TransactionProducer, world.group, books, "127.0.0.1:1")
    with pytest.raises(NoNameServer):
        producer.send_in_transaction(Message(world.topic, b"x"))
    assert books.executions.empty()


def test_closing_while_a_local_transaction_runs(world: World) -> None:
    """The caller hears what its listener said; the broker asks others of the group."""
    go_on, begun = threading.Event(), threading.Event()
    hold = holder(world.runtime, go_on)

    def execute(message: HalfMessage, argument: object) -> LocalTransactionState:
        begun.set()
        hold()
        return COMMIT

    books = Books(world.runtime, plain=True)
    producer = transactor(world, (execute, books.check))
    outcome: SimpleQueue[Any] = SimpleQueue()

    def send() -> None:
        try:
            outcome.put(producer.send_in_transaction(Message(world.topic, b"x")))
        except MQError as error:
            outcome.put(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert begun.wait(PATIENCE)
    producer.close()
    go_on.set()
    sender.join(PATIENCE)
    assert outcome.get(timeout=PATIENCE).local_transaction_state is COMMIT


def test_closing_does_not_wait_for_a_question_for_ever(world: World) -> None:
    curious(world)
    begun, go_on = threading.Event(), threading.Event()
    if isinstance(world.runtime, Anyio):

        async def check_for_ever(message: MessageExt) -> None:
            begun.set()
            await anyio.sleep_forever()

        check: Callable[..., Any] = check_for_ever
    else:
        hold = holder(world.runtime, go_on)

        def check_long(message: MessageExt) -> None:
            begun.set()
            hold()

        check = check_long
    books = Books(world.runtime, UNKNOW)
    producer = transactor(world, (books.execute, check))
    producer.send_in_transaction(Message(world.topic, b"x"))
    assert begun.wait(PATIENCE)
    producer.close(timeout_ms=100)
    go_on.set()
    with pytest.raises(StateError):
        producer.send(Message(world.topic, b"x"))


def test_cancelling_a_local_transaction_leaves_it_to_a_question(world: World) -> None:
    if not isinstance(world.runtime, Anyio):
        pytest.skip("only tasks are cancelled")
    curious(world)

    async def execute(message: HalfMessage, argument: object) -> None:
        await anyio.sleep_forever()

    async def send_briefly() -> bool:
        with anyio.move_on_after(0.2) as scope:
            await producer._target.send_in_transaction(Message(world.topic, b"paid"))
        return scope.cancelled_caught

    books = Books(world.runtime)
    producer = transactor(world, (execute, books.check))
    assert world.runtime.call(send_briefly)
    assert books.checks.get(timeout=PATIENCE).body == b"paid"
    assert world.collect().wait(1)[0].body == b"paid"


def test_cancelling_waits_for_a_local_transaction_in_a_thread(world: World) -> None:
    """It cannot be stopped, so what it says is told: cut off half-way it would be a commit that the broker has to ask
    for.
    """
    if not isinstance(world.runtime, Anyio):
        pytest.skip("only tasks are cancelled")
    books = Books(world.runtime)
    begun, go_on = threading.Event(), threading.Event()

    def execute(message: HalfMessage, argument: object) -> LocalTransactionState:
        begun.set()
        assert go_on.wait(PATIENCE)
        return COMMIT

    async def send_and_cancel() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(producer._target.send_in_transaction, Message(world.topic, b"paid"))
            await anyio.to_thread.run_sync(begun.wait, PATIENCE)
            tasks.cancel_scope.cancel()
            go_on.set()

    producer = transactor(world, (execute, books.check))
    world.runtime.call(send_and_cancel)
    assert world.collect().wait(1)[0].body == b"paid"
    assert books.checks.empty()


def test_closing_from_inside_a_question(world: World) -> None:
    curious(world)
    made: SimpleQueue[Any] = SimpleQueue()
    over = threading.Event()

    if isinstance(world.runtime, Anyio):

        async def check_and_leave(message: MessageExt) -> LocalTransactionState:
            await made.get_nowait()._target.close()  # once: where it is asked again meanwhile, that fails
            over.set()
            return COMMIT

        check: Callable[..., Any] = check_and_leave
    else:

        def check_here(message: MessageExt) -> LocalTransactionState:
            made.get_nowait()._target.close()  # once: where it is asked again meanwhile, that fails
            over.set()
            return COMMIT

        check = check_here
    books = Books(world.runtime, UNKNOW)
    producer = transactor(world, (books.execute, check))
    made.put(producer)
    producer.send_in_transaction(Message(world.topic, b"x"))
    assert over.wait(PATIENCE)
    with pytest.raises(StateError):
        producer.send(Message(world.topic, b"x"))
