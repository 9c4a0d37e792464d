"""Clients in namespaces: each asks what it asks outside of any, under names that begin with the namespace
(docs/protocol/client.md 1.8).
"""

from __future__ import annotations

import json
from typing import Final

import pytest

from mqproto.wire.codes import RequestCode
from tests.golden.golden import FOLLOWED
from tests.mqproto.state.conformance.comparing import compare
from tests.mqproto.state.conformance.program import Program, lines
from tests.mqproto.state.conformance.questions import ANY, SENDS, Question
from tests.mqproto.state.conformance.replay import BROKER
from tests.mqproto.state.stage import NS

NAMESPACE: Final = "INST_1"
#: Fields that name a topic or a group, by code; the first ones for all other codes.
NAMES: Final = ("topic", "consumerGroup", "producerGroup")
NAMES_OF: Final[dict[int, tuple[str, ...]]] = {
    **dict.fromkeys(SENDS, ("a", "b")),
    int(RequestCode.CONSUMER_SEND_MSG_BACK): ("group", "originTopic"),
}
JOBS: Final = [
    "produce-sync", "produce-async", "produce-oneway", "produce-batch", "produce-compressed", "produce-orderly",
    "transact-commit", "consume", "consume-tag", "consume-broadcast", "consume-orderly", "consume-retry",
    "consume-dead-letter", "pull", "litepull", "offsets",
]  # fmt: skip


def run(job: str) -> Program:
    """The last command of a capture, in a namespace."""
    line = lines(FOLLOWED, job)[-1]
    program = Program(
        FOLLOWED, job, line, len([one for one in lines(FOLLOWED, job) if one.role == line.role]) - 1, NAMESPACE
    )
    program.run()
    return program


@pytest.mark.parametrize("job", JOBS)
def test_the_same_job_under_longer_names(job: str) -> None:
    program = run(job)
    replay = program.replay
    theirs, ours = (
        [_in_common(one, shard="shard" in program.line.options) for one in side]
        for side in (replay.theirs, replay.ours)
    )
    assert compare(FOLLOWED, job, theirs, ours).differences == []
    theirs_committed, ours_committed = replay.commits()
    assert theirs_committed.keys() <= ours_committed.keys()


def _in_common(asked: Question, *, shard: bool) -> Question:
    """Without the property that says which namespace a message is sent in, and without the queue whose turn it is."""
    if asked.code not in SENDS:
        return asked
    values = {name: text for name, text in json.loads(asked["i"]).items() if name != "INSTANCE_ID"}
    return asked.having(i=json.dumps(values, sort_keys=True), e=asked["e"] if shard else ANY)


@pytest.mark.parametrize("job", JOBS)
def test_every_name_is_in_the_namespace(job: str) -> None:
    replay = run(job).replay
    requests = [one for address in (NS, BROKER) for one in replay.peers[address].got if not one.is_response]
    seen = 0
    for request in requests:
        for name in NAMES_OF.get(request.code, NAMES):
            text = request.fields.get(name)
            if text is not None:
                seen += 1
                assert text.removeprefix("%RETRY%").startswith(replay.prefix), (request.code, name, text)
    assert seen > 2
