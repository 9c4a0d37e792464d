"""Futures of greenlets."""

from __future__ import annotations

from typing import Any

import pytest

gevent = pytest.importorskip("gevent")

from mqproto.adapters.gevent.futures import SendFuture  # noqa: E402
from mqproto.adapters.gevent.runtime import Greenlets  # noqa: E402
from mqproto.errors import NoRoute, StateError  # noqa: E402
from mqproto.state.node.contract import Ticket  # noqa: E402

PATIENCE = 60.0


def read(ticket: Ticket[Any]) -> Any:
    """What drivers do."""
    if not ticket.settled:
        raise StateError("it has ended")
    return ticket.result()


def make() -> SendFuture[Any]:
    future: SendFuture[Any] = SendFuture(Greenlets("callbacks", 2), read)
    future.ticket = Ticket()
    return future


def test_whoever_waits_and_whoever_comes_later_get_the_outcome() -> None:
    future, failed, left = make(), make(), make()
    assert not future.done()
    for asked in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            asked(0)
    waiting = [
        gevent.spawn(future.result, PATIENCE),
        gevent.spawn(failed.exception, PATIENCE),
        gevent.spawn(left.exception, PATIENCE),
    ]
    gevent.sleep(0)
    future.ticket.settle("done")
    failed.ticket.fail(NoRoute("topic"))
    for each in (future, failed, left):
        each.ended()
        assert each.done()
    gevent.joinall(waiting, PATIENCE, raise_error=True)
    assert [type(greenlet.value) for greenlet in waiting] == [str, NoRoute, StateError]
    assert (future.result(), future.exception()) == ("done", None)
    with pytest.raises(NoRoute):
        failed.result(0)


def test_callbacks_run_in_greenlets_and_once() -> None:
    future = make()
    calls: list[tuple[str, object, bool]] = []
    here = gevent.getcurrent()

    def note(name: str) -> Any:
        return lambda each: calls.append((name, each.result(0), gevent.getcurrent() is here))

    future.add_done_callback(note("before"))
    future.ticket.settle(7)
    future.ended()
    future.add_done_callback(note("after"))
    assert not calls, "nobody is called from inside"
    assert future._pool.close(PATIENCE)
    assert sorted(calls) == [("after", 7, False), ("before", 7, False)]
