"""One connection: what any split of a stream gives, and that every call ends exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.codec import BINARY, Command, decode, encode, encode_response
from mqproto.errors import LocalProtocolError, TooManyRequests
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import NodeBase
from mqproto.state.node.deadlines import SWEEP_SLACK
from mqproto.wire.codes import RequestCode


class Owner:
    """A node with one connection."""

    def __init__(self, limit: int = 100, opaque: int = 0, connected: bool = True) -> None:
        self.node = NodeBase()
        self.calls: Calls[str] = Calls(limit, opaque)
        self.link: Connection[str] = Connection(self.node, self.calls, "b:1", connected=connected)

    def sent(self) -> list[Command]:
        data = b"".join(self.node.data_to_send(self.link))
        self.link.unsent -= len(data)
        commands = []
        while data:
            size = int.from_bytes(data[:4], "big")
            commands.append(decode(data[4 : 4 + size]))
            data = data[4 + size :]
        return commands


def test_a_call_goes_out_and_its_answer_comes_back() -> None:
    owner = Owner()
    opaque = owner.link.call("send", RequestCode.SEND_MESSAGE_V2, {"a": "g"}, b"paid", deadline=3000)
    assert owner.node.touched == {owner.link}
    assert owner.calls.earliest() == 3000
    assert [(c.opaque, c.code, c.fields, bytes(c.body)) for c in owner.sent()] == [(opaque, 310, {"a": "g"}, b"paid")]
    [answer] = owner.link.receive(encode_response(opaque, 0, {"msgId": "x"}))
    assert owner.link.answered(answer) == "send"
    assert answer.fields == {"msgId": "x"}
    assert owner.calls.earliest() is None
    assert len(owner.calls) == 0
    assert owner.link.answered(answer) is None, "a doubled answer reaches nobody"


def test_opaque_numbers_wrap_within_31_bits_and_skip_those_in_flight() -> None:
    owner = Owner(opaque=2**31 - 2)
    assert [owner.link.call(w, 1, {}, deadline=9) for w in "abc"] == [2**31 - 2, 2**31 - 1, 0]
    owner.calls.opaque = 2**31 - 2
    assert owner.link.call("d", 1, {}, deadline=9) == 1


def test_an_answer_on_another_link_is_dropped() -> None:
    owner = Owner()
    opaque = owner.link.call("send", 1, {}, deadline=9)
    other: Connection[str] = Connection(owner.node, owner.calls, "b:2")
    [answer] = other.receive(encode_response(opaque, 0, None))
    assert other.answered(answer) is None
    assert owner.link.end() == ["send"]


def test_calls_expire_once_and_late_answers_reach_nobody() -> None:
    owner = Owner()
    first = owner.link.call("first", 1, {}, deadline=10)
    owner.link.call("second", 1, {}, deadline=20)
    assert owner.calls.expire(9) == []
    assert owner.calls.expire(10) == [(owner.link, "first")]
    assert owner.calls.expire(10) == []
    [late] = owner.link.receive(encode_response(first, 0, None))
    assert owner.link.answered(late) is None
    assert owner.link.end() == ["second"]
    assert owner.link.end() == []
    assert owner.calls.expire(99) == []


def test_what_ended_long_before_its_deadline_does_not_pile_up() -> None:
    owner = Owner()
    owner.link.call("poll", 1, {}, deadline=1)
    for now in range(2_000):
        for _ in range(3):
            owner.link.forget(owner.link.call("send", 1, {}, deadline=now + 30_000))
    assert sum(map(len, owner.calls._due.values())) <= SWEEP_SLACK + 8
    assert sorted(owner.calls._deadlines) == sorted(owner.calls._due)
    assert owner.calls.earliest() == 1


@given(st.lists(st.tuples(st.sampled_from(["call", "end", "expire", "flood"]), st.integers(0, 20))))
def test_calls_expire_by_deadline_and_then_in_the_order_they_were_made(story: list[tuple[str, int]]) -> None:
    owner = Owner()
    # deadline and opaque of the open calls by their waiters, as they were made
    expected: dict[str, tuple[int, int]] = {}
    for step, (act, number) in enumerate(story):
        match act:
            case "call":
                expected[f"{step}"] = number, owner.link.call(f"{step}", 1, {}, deadline=number)
            case "end":
                for waiter in list(expected)[number : number + 1]:
                    owner.link.forget(expected.pop(waiter)[1])
            case "flood":
                for deadline in range(number, number + 100):
                    owner.link.forget(owner.link.call("flood", 1, {}, deadline=deadline))
            case "expire":
                due = sorted(
                    (waiter for waiter in expected if expected[waiter][0] <= number),
                    key=lambda waiter: expected[waiter][0],
                )
                assert owner.calls.expire(number) == [(owner.link, waiter) for waiter in due]
                for waiter in due:
                    del expected[waiter]
        assert owner.calls.earliest() == min((deadline for deadline, _ in expected.values()), default=None)
        assert list(owner.link.calls.values()) == list(expected)
        assert len(owner.calls) == len(expected)


def test_a_forgotten_call_ends_without_anybody() -> None:
    owner = Owner()
    opaque = owner.link.call("send", 1, {}, deadline=10)
    owner.link.forget(opaque)
    owner.link.forget(opaque)
    assert owner.link.end() == []
    assert len(owner.calls) == 0


def test_limit_of_calls_in_flight() -> None:
    owner = Owner(limit=2)
    owner.link.call("a", 1, {}, deadline=9)
    opaque = owner.link.call("b", 1, {}, deadline=9)
    with pytest.raises(TooManyRequests):
        owner.link.call("c", 1, {}, deadline=9)
    assert len(owner.sent()) == 2, "nothing was sent for the third"
    [answer] = owner.link.receive(encode_response(opaque, 0, None))
    assert owner.link.answered(answer) == "b"
    owner.link.call("c", 1, {}, deadline=9)


def test_a_refused_call_leaves_everything_as_it_was() -> None:
    owner = Owner()
    owner.link.end()
    with pytest.raises(LocalProtocolError):
        owner.link.call("late", 1, {}, deadline=9)
    with pytest.raises(LocalProtocolError):
        owner.link.oneway(1, {})
    assert len(owner.calls) == 0
    assert not owner.node.touched
    with pytest.raises(LocalProtocolError):
        Owner().link.call("too large", 1, {}, b"x" * (16 << 20), deadline=9)


def test_a_call_that_no_frame_can_carry_is_not_kept() -> None:
    owner = Owner()
    with pytest.raises(LocalProtocolError):
        owner.link.call("too large", 1, {}, b"x" * (16 << 20), deadline=9)
    assert owner.link.calls == {}
    assert len(owner.calls) == 0
    assert owner.link.out == []


def test_large_bodies_are_buffers_of_their_own() -> None:
    owner = Owner()
    body = b"x" * 20_000
    owner.link.oneway(1, {"a": "b"}, body)
    assert owner.link.out[1] is body
    assert owner.link.unsent == sum(map(len, owner.link.out))
    [command] = owner.sent()
    assert command.is_oneway
    assert command.body == body
    assert owner.link.unsent == 0


def test_a_link_that_is_not_connected_keeps_what_it_has() -> None:
    owner = Owner(connected=False)
    owner.link.oneway(1, {})
    assert not owner.node.touched
    assert owner.link.unsent == len(owner.link.out[0])
    owner.link.connect()
    assert owner.node.touched == {owner.link}
    assert len(owner.sent()) == 1
    empty = Owner(connected=False)
    empty.link.connect()
    assert not empty.node.touched


def test_replies_have_the_form_of_their_request() -> None:
    owner = Owner()
    for request in (Command(5, opaque=7), Command(5, opaque=8, serialize_type=BINARY), Command(5, opaque=9, flag=2)):
        [got] = owner.link.receive(encode(request))
        owner.link.reply(got, 1, {"k": "v"}, b"body", remark="why")
    json, binary = owner.sent()
    assert (json.opaque, json.serialize_type, json.code, json.remark, json.fields) == (7, 0, 1, "why", {"k": "v"})
    assert (binary.opaque, binary.serialize_type, bytes(binary.body)) == (8, BINARY, b"body")
    owner.link.end()
    owner.link.reply(Command(5, opaque=7), 0)
    assert owner.sent() == []


FRAMES = st.lists(
    st.builds(Command, code=st.integers(0, 400), body=st.binary(max_size=40), opaque=st.integers(0, 9)), max_size=6
)


@given(FRAMES, st.booleans(), st.data())
def test_any_split_gives_the_same_commands(commands: list[Command], broken: bool, data: st.DataObject) -> None:
    stream = b"".join(encode(command) for command in commands) + (b"GET / HTTP/1.1\r\n\r\n" if broken else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    link = Owner().link
    assert [command for piece in pieces if piece for command in link.receive(piece)] == commands
    assert (link.broken is not None) == broken
    assert not broken or link.receive(encode(Command(1))) == []


def test_an_undecodable_frame_ends_the_stream_after_what_came_before() -> None:
    link = Owner().link
    good = encode(Command(5, opaque=7))
    assert link.receive(good + b"\0\0\0\x05\0\0\0\x01{" + good) == [Command(5, opaque=7)]
    assert link.broken is not None


def test_an_ended_link_reads_nothing() -> None:
    link = Owner().link
    link.end()
    assert link.receive(encode(Command(1))) == []
