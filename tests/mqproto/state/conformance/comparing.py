"""Comparison of what two clients asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch

from mqproto.wire.codes import RequestCode
from tests.mqproto.state.conformance.deviations import DEVIATIONS, Deviation
from tests.mqproto.state.conformance.questions import SENDS, Question

#: Requests whose number is no matter of time.
COUNTED = (*SENDS, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION)


@dataclass
class Comparison:
    """Differences that nothing explains, in words, and the names of the deviations that occurred."""

    differences: list[str] = field(default_factory=list)
    occurred: set[str] = field(default_factory=set)


def compare(
    version: str, name: str, theirs: list[Question], ours: list[Question], *, partly: bool = False
) -> Comparison:
    """Set the requests of a capture against ours.

    `partly`: how much of it we ask is a matter of time; what we ask is compared.
    """
    found = Comparison()
    deviations = [
        one for one in DEVIATIONS if version in one.versions and any(fnmatch(name, pattern) for pattern in one.captures)
    ]
    for deviation in deviations:
        theirs, ours = _forget(found, deviation, theirs, ours)
    expected, asked = Counter(theirs), Counter(ours)
    for question in sorted({*expected, *asked}, key=repr):
        if question not in asked:
            which = [one for one in deviations if one.theirs is not None and one.theirs(question)]
            text = "" if partly else f"theirs alone: {question}"
        elif question not in expected:
            which = [one for one in deviations if one.ours is not None and one.ours(question)]
            text = f"ours alone: {question}"
        elif question.code in COUNTED and expected[question] != asked[question]:
            which = [
                one
                for one in deviations
                if one.fewer is not None and one.fewer(question) and expected[question] > asked[question]
            ]
            text = f"theirs {expected[question]} times, ours {asked[question]}: {question}"
        else:
            continue
        found.occurred |= {one.name for one in which}
        if not which and text:
            found.differences.append(text)
    return found


def _forget(
    found: Comparison, deviation: Deviation, theirs: list[Question], ours: list[Question]
) -> tuple[list[Question], list[Question]]:
    if deviation.forget is None:
        return theirs, ours
    forgotten = [[deviation.forget(one) for one in side] for side in (theirs, ours)]
    if (forgotten[0] != theirs) != (forgotten[1] != ours):
        found.occurred.add(deviation.name)
    return forgotten[0], forgotten[1]
