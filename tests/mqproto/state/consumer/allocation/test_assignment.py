"""The queues of one consumer, without a node: flows run by hand."""

from __future__ import annotations

import pytest

from mqproto.codec import Command
from mqproto.message import MessageQueue
from mqproto.state.cluster.routes import RouteTable
from mqproto.state.consumer.allocation.allocate import Averagely
from mqproto.state.consumer.allocation.assignment import Assignment
from mqproto.state.consumer.offsets import RemoteOffsets
from mqproto.state.consumer.process_queue import ProcessQueue
from mqproto.state.consumer.settings import ConsumerSettings
from mqproto.state.flows.effects import Call, Effect, Flow, Oneway, Refresh, Sleep, Wait
from mqproto.state.node.contract import Ticket
from mqproto.wire.bodies import ConsumerIds
from mqproto.wire.codes import RequestCode
from tests.mqproto.state.by_hand import Q0, Q1, HandFlows
from tests.mqproto.state.stage import route

UNLOCK = Call("b:1", RequestCode.UNLOCK_BATCH_MQ, {})


class Host(HandFlows):
    client_id = "me"
    api_timeout_ms = 3_000
    failure_pause_ms = 1_000

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteTable()
        self.routes.update("T", route("b=b:1"))
        self.pulling: list[tuple[MessageQueue, int]] = []
        self.busy = False
        self.heartbeats = 0
        self.acquired = True
        self.let_go: list[MessageQueue] = []
        self.free: list[MessageQueue] = []

    def cancel(self, ticket: Ticket[None], now: int) -> None: ...

    def pull(self, queue: ProcessQueue, now: int) -> Flow[None]:
        self.pulling.append((queue.queue, queue.next_offset))
        yield Sleep(2**60)

    def is_busy(self, queue: ProcessQueue) -> bool:
        return self.busy

    def heartbeat(self, now: int) -> Ticket[None]:
        self.heartbeats += 1
        return Ticket()

    def acquire(self, queue: MessageQueue, now: int) -> Flow[tuple[bool, int]]:
        yield from ()
        return self.acquired, now

    def released(self, queue: ProcessQueue, now: int) -> None:
        self.let_go.append(queue.queue)

    def unlock(self, queue: ProcessQueue, now: int) -> Flow[None]:
        if not self.busy:
            yield UNLOCK
            self.free.append(queue.queue)

    def effects(self) -> list[Effect]:
        return [effect for _, effect in self.flows]


def locate(queue: MessageQueue, now: int) -> Flow[tuple[str, int]]:
    yield from ()
    return "b:1", now


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def offsets() -> RemoteOffsets:
    return RemoteOffsets("g", locate)


@pytest.fixture
def assignment(host: Host, offsets: RemoteOffsets) -> Assignment:
    return Assignment(ConsumerSettings(group="g"), Averagely(), offsets, host, host, lambda: 0)


def rebalance(assignment: Assignment, ids: Command, now: int = 0) -> bool:
    flow = assignment.rebalance(["T"], now)
    effect = next(flow)
    assert isinstance(effect, Call)
    assert effect.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
    with pytest.raises(StopIteration) as stop:
        flow.send((ids, now))
    changed, _ = stop.value.value
    return bool(changed)


def members(*ids: str) -> Command:
    return Command(code=0, flag=1, body=ConsumerIds(list(ids)).to_json())


def kept(offset: int) -> Command:
    return Command(code=0, flag=1, fields={"offset": str(offset)})


def is_over(wait: Wait) -> bool:
    return wait.ticket.settled


def free(host: Host, index: int = 0) -> None:
    """The broker takes the last offset of a queue that was given up, and then its unlock."""
    assert host.go_on(Command(0, flag=1), 8, index) == Sleep(7)
    assert host.go_on(None, 8, index) == UNLOCK
    assert host.go_on(Command(0, flag=1), 9, index) is None


def taken(assignment: Assignment, host: Host, offset: int = 5) -> None:
    """Both queues are ours and begin at this offset."""
    assert rebalance(assignment, members("me"))
    host.go_on(kept(offset), 1)
    host.go_on(kept(offset), 1, 1)
    assert host.pulling == [(Q0, offset), (Q1, offset)]


def test_a_round_takes_and_gives_up(assignment: Assignment, host: Host, offsets: RemoteOffsets) -> None:
    taken(assignment, host)
    assert not rebalance(assignment, members("me"))
    assert rebalance(assignment, members("me", "you"))
    assert list(assignment.queues) == [Q0]
    assert host.let_go == [Q1]
    assert offsets.table() == {Q0: 5}
    effect = host.effects()[-1]
    assert isinstance(effect, Call)
    assert (effect.fields["queueId"], effect.fields["commitOffset"]) == ("1", "5")


def test_a_queue_is_free_when_its_last_offset_is_stored(assignment: Assignment, host: Host) -> None:
    """Apache's brokers carry out the requests of a link in any order: the next owner might lock it and read the offset
    from before.
    """
    taken(assignment, host)
    host.flows.clear()
    assignment.give_up(Q1, 7)
    assert [effect.code for effect in host.effects() if isinstance(effect, Call)] == [
        RequestCode.UPDATE_CONSUMER_OFFSET
    ]
    free(host)
    assert host.free == [Q1]


def test_a_queue_that_comes_back_waits_until_it_is_free(assignment: Assignment, host: Host) -> None:
    """Or it would be unlocked after it was locked, or begin at the offset from before."""
    taken(assignment, host)
    host.flows.clear()
    assignment.give_up(Q1, 7)
    assert rebalance(assignment, members("me"))
    (_, commit), (_, waiting) = host.flows
    assert isinstance(commit, Call)
    assert isinstance(waiting, Wait)
    assert not is_over(waiting)
    free(host)
    assert is_over(waiting)
    effect = host.go_on(None, 9)
    assert isinstance(effect, Call)
    assert effect.code == RequestCode.QUERY_CONSUMER_OFFSET


def test_a_queue_that_goes_twice_is_told_twice_one_after_the_other(
    assignment: Assignment, host: Host, offsets: RemoteOffsets
) -> None:
    taken(assignment, host)
    host.flows.clear()
    assignment.give_up(Q1, 7)
    assert rebalance(assignment, members("me"))
    host.flows.pop()
    offsets.update(Q1, 6)
    assignment.give_up(Q1, 7)
    (_, first), (_, second) = host.flows
    assert isinstance(first, Call)
    assert isinstance(second, Wait)
    free(host)
    assert is_over(second)
    effect = host.go_on(None, 9)
    assert isinstance(effect, Call)
    assert effect.fields["commitOffset"] == "6"


def test_at_the_end_each_queue_is_free_on_its_own(assignment: Assignment, host: Host) -> None:
    """One of a broker that does not answer holds up no other."""
    taken(assignment, host)
    host.flows.clear()
    first, second = assignment.give_up_all(7)
    assert assignment.queues == {}
    free(host, 1)
    assert (first.settled, second.settled) == (False, True)
    assert host.free == [Q1]


@pytest.mark.parametrize("back", [False, True])
def test_a_delivery_that_ends_late_lets_its_queue_go(assignment: Assignment, host: Host, back: bool) -> None:
    taken(assignment, host)
    host.flows.clear()
    host.busy = True
    gone = assignment.queues[Q1]
    assignment.give_up(Q1, 7)
    host.go_on(Command(0, flag=1), 8)
    assert host.go_on(None, 8) is None, "its lock stays with us meanwhile"
    host.busy = False
    if back:
        assert rebalance(assignment, members("me"))
        host.flows.clear()
    assignment.ended_late(gone, 9)
    assert host.effects() == ([] if back else [UNLOCK])


def test_a_topic_without_a_route_is_looked_up_within_the_round(assignment: Assignment, host: Host) -> None:
    flow = assignment.rebalance(["U"], 0)
    assert next(flow) == Refresh("U", 3_000)
    host.routes.update("U", route("b=b:1"))
    assert isinstance(flow.send((None, 5)), Call)
    with pytest.raises(StopIteration):
        flow.send((members("me"), 6))
    assert [queue.topic for queue in assignment.queues] == ["U", "U"]
    assert not assignment.incomplete


def test_a_topic_that_is_not_there_makes_the_round_incomplete(assignment: Assignment, host: Host) -> None:
    flow = assignment.rebalance(["T", "V"], 0)
    next(flow)
    assert flow.send((members("me"), 6)) == Refresh("V", 3_006)
    with pytest.raises(StopIteration):
        flow.send((None, 7))
    assert assignment.incomplete
    assert host.notices == []


def test_a_list_without_anybody_changes_nothing(assignment: Assignment, host: Host) -> None:
    taken(assignment, host)
    flow = assignment.rebalance(["T"], 0)
    next(flow)
    assert flow.send((members(), 7)) == Sleep(0)
    with pytest.raises(StopIteration) as stop:
        flow.send((None, 7))
    assert stop.value.value == (False, 7)
    assert assignment.incomplete
    assert "stays shared out as it is: b:1 answered code 0: no members" in host.notices[-1]


def test_a_topic_whose_brokers_have_no_address_changes_nothing(assignment: Assignment, host: Host) -> None:
    found = route("b=b:1")
    found.brokers[0].addresses.clear()
    host.routes.update("T", found)
    flow = assignment.rebalance(["T"], 0)
    assert next(flow) == Sleep(0)
    with pytest.raises(StopIteration):
        flow.send((None, 7))
    assert assignment.incomplete


def test_a_member_that_is_not_listed_announces_itself(assignment: Assignment, host: Host) -> None:
    assert not rebalance(assignment, members("you"))
    assert host.heartbeats == 1


@pytest.mark.parametrize("acquired", [True, False])
def test_a_queue_that_goes_while_it_is_begun_is_let_be(assignment: Assignment, host: Host, acquired: bool) -> None:
    """Even where nobody could cancel the flow."""
    host.acquired = acquired
    rebalance(assignment, members("me"))
    assignment.queues[Q0].drop()
    assert host.go_on(kept(5) if acquired else None, 1_000) is None
    assert host.pulling == []


def test_a_queue_that_somebody_else_has_is_asked_for_every_second(assignment: Assignment, host: Host) -> None:
    host.acquired = False
    rebalance(assignment, members("me"))
    assert host.effects() == [Sleep(1_000), Sleep(1_000)]
    host.go_on(None, 1_000)
    assert host.effects()[0] == Sleep(2_000)
    host.acquired = True
    host.go_on(None, 2_000)
    host.go_on(kept(3), 2_001)
    assert host.pulling == [(Q0, 3)]


def test_only_a_queue_of_ours_is_begun_anew(assignment: Assignment, host: Host) -> None:
    taken(assignment, host)
    before = assignment.queues[Q0]
    assignment.retake(MessageQueue("T", "b", 9), 0)
    assignment.queues[Q1].drop()
    gone = assignment.queues[Q1]
    assignment.retake(Q1, 0)
    assert assignment.queues[Q1] is gone, "its offset is being corrected: that begins it anew"
    assignment.retake(Q0, 0)
    assert before.dropped
    assert assignment.queues[Q0] is not before


def test_a_moved_queue_begins_where_it_was_moved_to_without_asking(
    assignment: Assignment, host: Host, offsets: RemoteOffsets
) -> None:
    """Golden broker 4.4.0 answered a query before it had taken the one-way update sent ahead of it."""
    taken(assignment, host)
    host.flows.clear()
    assignment.reset({Q0: 2}, 10)
    assert host.effects() == [Sleep(10)]
    effect = host.go_on(None, 10)
    assert isinstance(effect, Oneway)
    assert effect.fields["commitOffset"] == "2"
    host.go_on(None, 11)
    host.go_on(None, 12)
    assert host.pulling[-1] == (Q0, 2)
    assert offsets.known(Q0) == 2


def test_a_queue_that_is_moved_again_meanwhile_goes_to_the_later_place(assignment: Assignment, host: Host) -> None:
    taken(assignment, host)
    host.flows.clear()
    assignment.reset({Q0: 2}, 10)
    host.go_on(None, 10)
    assignment.reset({Q0: 4}, 10)
    host.go_on(None, 11)
    effect = host.go_on(None, 12)
    assert isinstance(effect, Oneway)
    assert effect.fields["commitOffset"] == "4"
    host.go_on(None, 13)
    host.go_on(None, 14)
    assert host.pulling[-1] == (Q0, 4)


def test_a_queue_that_goes_while_it_is_moved_is_left_alone(assignment: Assignment, host: Host) -> None:
    taken(assignment, host)
    host.flows.clear()
    host.busy = True
    assignment.reset({Q1: 2}, 10)
    assert host.effects() == [Sleep(10_010)]
    rebalance(assignment, members("me", "you"))
    assert host.go_on(None, 10_010) is None
    assert [effect.fields["commitOffset"] for effect in host.effects() if isinstance(effect, Call)] == ["2"]


def test_a_queue_without_an_offset_is_given_up_in_silence(assignment: Assignment, host: Host) -> None:
    rebalance(assignment, members("me"))
    host.flows.clear()
    rebalance(assignment, members("me", "you"))
    assert host.effects() == [UNLOCK]
    assert host.let_go == [Q1]
