"""Our clients in the place of Apache's, over what its servers answered: for the same job they ask the same, and show
the same.

The jobs are the recorded command lines: sends of every kind, transactions, requests and replies, push consumers of
every kind, pull and lite pull consumers, traces, accounts; with three releases. mqadmin's are in
`admin/test_captures.py`.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Final

import pytest

from mqproto.acl import ACCESS_KEY, SIGNATURE, signature
from mqproto.codec import JSON, LANGUAGE
from mqproto.wire.bodies import TopicRoute
from mqproto.wire.codes import VERSION
from tests.golden.golden import FOLLOWED, GOLDEN, VERSIONS
from tests.mqproto.state.conformance import shown
from tests.mqproto.state.conformance.comparing import Comparison, compare
from tests.mqproto.state.conformance.deviations import DEVIATIONS
from tests.mqproto.state.conformance.program import Line, Program, lines
from tests.mqproto.state.conformance.questions import ANY, SENDS, Question
from tests.mqproto.state.conformance.replay import BROKER
from tests.mqproto.state.stage import NS
from tests.protocol_pages import decisions

Case = tuple[str, str, int]

#: Scenarios that are not compared, by release, name and command.
LEFT_OUT: Final = {
    # Its members use links that do not tell which of them asks. What each makes of its lists is in `test_rebalance`.
    ("4.4.0", "rebalance", "consume"),
    # 4.4 traces in another form: a message for each record, none for consumers.
    ("4.4.0", "trace", "produce"),
    ("4.4.0", "trace", "consume"),
}
#: Scenarios in which members came and went, so that what is consumed by whom is a matter of time.
SHARED: Final = ("rebalance",)
#: Scenarios of a few messages that follow each other, each for the next queue.
TURNS: Final = ("produce-sync", "produce-oneway", "produce-auto-create", "acl-produce-good")
#: Scenarios that ended with a request that was given up: what came of it is not recorded.
BROKEN_OFF: Final = {("5.3.3", "request-reply")}
#: Programs that ended while messages were in work.
UNFINISHED: Final = ("consume-tag", "litepull", *SHARED)


def cases() -> list[Case]:
    found = []
    for version in VERSIONS:
        for name in GOLDEN.capture_names(version):
            commands = [] if name.startswith(("admin-", "acl-admin-")) else lines(version, name)
            found += [
                (version, name, index)
                for index, line in enumerate(commands)
                if (version, name, line.command) not in LEFT_OUT
            ]
    return found


CASES: Final = cases()


@cache
def ran(case: Case) -> Program:
    """Our program after the job of the case; the n-th of a kind in a capture stands for the n-th that was recorded."""
    version, name, index = case
    commands = lines(version, name)
    line = commands[index]
    program = Program(version, name, line, sum(one.role == line.role for one in commands[:index]))
    program.run()
    return program


@cache
def compared(case: Case) -> Comparison:
    version, name, _ = case
    program = ran(case)
    theirs, ours = (
        [_turnless(one, program.line) for one in side] for side in (program.replay.theirs, program.replay.ours)
    )
    return compare(version, name, theirs, ours, partly=name in SHARED)


def _turnless(asked: Question, line: Line) -> Question:
    """Which queue's turn it is, is each program's own, unless a message has its queue."""
    return asked.having(e=ANY) if asked.code in SENDS and "shard" not in line.options else asked


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_the_same_job(case: Case) -> None:
    program = ran(case)
    assert not compared(case).differences
    if case[:2] not in BROKEN_OFF:
        assert (program.failure is not None) == any("error" in one for one in program.line.printed), program.failure
    assert_commits(program, finished=case[1] not in UNFINISHED, whole=case[1] not in SHARED)
    assert_shown(program)
    assert_asker(program)


def assert_commits(program: Program, *, finished: bool, whole: bool) -> None:
    """The last offset for each queue is the same; where Apache's stopped before it was through, ours is further."""
    theirs, ours = program.replay.commits()
    assert theirs.keys() <= ours.keys()
    for queue, offset in theirs.items():
        if finished:
            assert ours[queue] == offset, queue
        elif whole:
            assert int(ours[queue]) >= int(offset), queue


def assert_shown(program: Program) -> None:
    """What the application gets of messages and results is what Apache's client showed."""
    printed = program.line.printed
    messages = [shown.message(one) for one in program.messages]
    if program.name not in SHARED:
        for message in [shown.printed_message(one) for one in printed if "storeTimestamp" in one]:
            assert message in messages
    results = [shown.printed_result(one) for one in printed if "offsetMsgId" in one]
    ours = [shown.result(one) for one in program.results]
    if program.line.command in ("produce", "transact") and results:
        assert len(ours) == len(results)
        for result in results:
            assert any(result.items() <= one.items() for one in ours), result


def assert_asker(program: Program) -> None:
    """Every request says who we are, and is signed where there is an account."""
    secret = program.line.options.get("sk")
    requests = [one for address in (NS, BROKER) for one in program.replay.peers[address].got]
    for one in requests:
        assert (one.language, one.version, one.remark, one.serialize_type) == (LANGUAGE, VERSION, None, JSON)
        assert one.is_response or one.flag in (0, 2)
        if secret is not None:
            assert one.fields[ACCESS_KEY] == program.line.options["ak"]
            assert one.fields[SIGNATURE] == signature(one.fields, one.body, secret)
    if secret is not None and program.version == FOLLOWED:
        for exchange in program.replay.recorded.exchanges:
            asked = exchange.request
            assert asked.fields[SIGNATURE] == signature(asked.fields, asked.body, secret), (
                "Apache's client signs in this way"
            )


@pytest.mark.parametrize(
    "case", [one for one in CASES if one[1] in TURNS], ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}"
)
def test_queues_take_turns_in_the_same_order(case: Case) -> None:
    """Where a producer begins is its own affair."""
    program = ran(case)
    theirs = [int(one.request.fields["e"]) for one in program.replay.recorded_of(*SENDS)]
    ours = [int(one.fields["e"]) for one in program.replay.peers[BROKER].got if one.code in SENDS]
    count = queues(program)
    assert [(after - before) % count for before, after in pairwise(ours)] == [
        (after - before) % count for before, after in pairwise(theirs)
    ]
    assert len(ours) > 1


def queues(program: Program) -> int:
    """The writable queues of the topic; 4 of one that is made by sending."""
    topic = program.line.options["topic"]
    answers = [one.answer for one in program.replay.look_ups if one.request.fields["topic"] == topic]
    routes = [TopicRoute.from_json(one.body) for one in answers if one is not None and one.body]
    return routes[-1].queues[0].write_queues if routes else 4


def test_every_deviation_occurs() -> None:
    """One that does not is no deviation any more and has to go."""
    occurred: set[str] = set().union(*(compared(case).occurred for case in CASES))
    assert {one.name for one in DEVIATIONS} == occurred


def test_every_deviation_has_its_reason() -> None:
    for one in DEVIATIONS:
        if one.decision:
            number, _, quoted = one.decision.partition(": ")
            assert quoted in decisions()[number], one.name
        assert one.decision or one.versions != VERSIONS or one.name.startswith("a program "), one.name


def test_every_kind_of_client_is_compared() -> None:
    followed = [(name, lines(version, name)[index].command) for version, name, index in CASES if version == FOLLOWED]
    assert {command for _, command in followed} == {
        "produce", "transact", "request", "answer", "consume", "reply", "pull", "litepull", "offsets",
    }  # fmt: skip
    modes = [ran(case).line.options for case in CASES if case[0] == FOLLOWED]
    assert {one.get("mode", "sync") for one in modes} == {"sync", "async", "oneway", "batch"}
    assert {"shard", "delay", "vip", "trace", "sql", "orderly", "model", "ak", "props", "max"} <= set().union(*modes)
