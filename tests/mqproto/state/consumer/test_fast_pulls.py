"""Usual answers to pulls: read as their headers say, and given to those alone who take them so."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqproto.codec import Command, decode, encode_response
from mqproto.state.consumer.fast_pulls import FastPullAnswer, read_found
from mqproto.state.flows.effects import Call, Flow, ReadAnswer
from mqproto.wire.codes import RequestCode
from mqproto.wire.headers import PullMessageResponse
from tests.golden.golden import VERSIONS, Golden
from tests.mqproto.state.stage import Peer, Stage

PULL = RequestCode.PULL_MESSAGE
FIELDS = {"suggestWhichBrokerId": "1", "nextBeginOffset": "8", "minOffset": "0", "maxOffset": "9"}


def apache(opaque: int, *, five: bool = False, following: int = 8, opaque_text: str = "") -> bytes:
    """The answer as brokers of Apache's write it, without its length word."""
    group, topic = ('"groupSysFlag":"0",', ',"topicSysFlag":"0"') if five else ("", "")
    header = (
        f'{{"code":0,"extFields":{{"suggestWhichBrokerId":"1",{group}"nextBeginOffset":"{following}",'
        f'"maxOffset":"9","minOffset":"0"{topic}}},'
        f'"flag":1,"language":"JAVA","opaque":{opaque_text or opaque},"remark":"FOUND",'
        '"serializeTypeCurrentRPC":"JSON","version":401}'
    ).encode()
    return struct.pack(">I", len(header)) + header + b"records"


def ours(opaque: int) -> bytes:
    return encode_response(opaque, 0, FIELDS, b"records", remark="FOUND")[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_apache_brokers_are_the_usual_ones(golden: Golden, version: str) -> None:
    """A release that orders its fields in another way would cost time and nothing else: this tells which releases do
    not.
    """
    found = [answer.frame[4:] for answer in golden.json_answers(version, PULL)]
    assert len(found) > 10
    for frame in found:
        assert read_found(frame) == as_decoded(decode(frame))


def as_decoded(command: Command) -> FastPullAnswer:
    header = PullMessageResponse.decode(command.fields)
    return FastPullAnswer(
        header.suggest_which_broker_id,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        command.body,
        command.opaque,
        command.version,
    )


@pytest.mark.parametrize("frame", [apache(7), apache(7, five=True), ours(7)])
def test_the_usual_answers(frame: bytes) -> None:
    assert read_found(frame) == FastPullAnswer(1, 8, 0, 9, b"records", 7, decode(frame).version)


@example(apache(7), 4, b"", 0)
@given(
    st.sampled_from([apache(7), apache(10, five=True), ours(0)]),
    st.integers(0, 280),
    st.binary(max_size=3),
    st.integers(0, 3),
)
def test_whatever_is_read_is_what_the_header_says(frame: bytes, at: int, put: bytes, instead_of: int) -> None:
    """With bytes changed anywhere: where the short way reads something, the long way reads the same."""
    changed = frame[:at] + put + frame[at + instead_of :]
    found = read_found(changed)
    if found is not None:
        command = decode(changed)
        assert (command.code, command.flag, command.remark) == (0, 1, "FOUND")
        assert found == as_decoded(command)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        apache(7)[:3],
        apache(7)[:50],
        b"\1" + apache(7)[1:],
        apache(7, opaque_text="07"),
        apache(7, following=10**18),
        apache(7).replace(b'"code":0', b'"code":1'),
        apache(7).replace(b"FOUND", b"FOUNd"),
    ],
)
def test_others_are_not_read(frame: bytes) -> None:
    assert read_found(frame) is None


def call(read_answer: ReadAnswer | None) -> Flow[Any]:
    outcome, _ = yield Call("b:1", PULL, {}, deadline=1_000, read_answer=read_answer)
    return outcome


def stage(answer: bytes | None = None) -> Stage:
    """A broker that answers pulls, by the short way or not at all."""
    stage = Stage()
    peer = stage.peers["b:1"] = Peer()
    peer.answers[PULL] = lambda request: framed(apache(request.opaque)) if answer is None else answer
    return stage.begin()


def framed(frame: bytes) -> bytes:
    return struct.pack(">I", len(frame)) + frame


def test_who_takes_it_gets_the_usual_answer() -> None:
    acted = stage()
    outcome = acted.run(call(read_answer=read_found))
    assert type(outcome) is FastPullAnswer
    assert outcome.next_offset == 8
    assert acted.node.peer_version == 401
    assert not acted.node.calls.open


def never(frame: bytes) -> FastPullAnswer | None:
    return None


def test_others_get_the_command() -> None:
    acted = stage()
    for read_answer in (None, read_found, None, never):
        outcome = acted.run(call(read_answer))
        assert type(outcome) is (FastPullAnswer if read_answer is read_found else Command)
    assert outcome.fields["nextBeginOffset"] == "8"


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    acted = stage(b"")
    ticket = acted.start(call(read_answer=read_found))
    (link,) = acted.links.values()
    acted.receive("b:1", framed(apache(40)))
    assert not ticket.settled
    (opaque,) = link.calls  # type: ignore[attr-defined]
    acted.receive("b:1", framed(apache(opaque)) + framed(apache(opaque)))
    assert type(ticket.result()) is FastPullAnswer
    assert not acted.hung_up


def test_a_bad_frame_behind_it_ends_the_link() -> None:
    acted = stage(b"")
    ticket = acted.start(call(read_answer=read_found))
    (link,) = acted.links.values()
    (opaque,) = link.calls  # type: ignore[attr-defined]
    acted.receive("b:1", framed(apache(opaque)) + b"\xff" * 8)
    assert type(ticket.result()) is FastPullAnswer
    assert [address for address, _ in acted.hung_up] == ["b:1"]
