"""The time by which files grow old."""

from __future__ import annotations

from mqproto.engine.store.retention.file_age import FileAge
from tests.engine.store.harness import START
from tests.engine.store.oldfiles import DAY, HOUR


def test_file_time() -> None:
    reserved = 72 * HOUR
    time = FileAge(reserved, 0)
    assert time.at(0, START) == START
    assert time.at(HOUR, START + HOUR + 30_000) == START + HOUR + 30_000, "clocks are corrected by small steps"
    leap = START + 2 * HOUR + 30_000 + 10 * DAY
    assert time.at(2 * HOUR, leap) == leap - 10 * DAY
    assert time.at(60 * HOUR, leap + 58 * HOUR) == leap - 10 * DAY + 58 * HOUR
    assert time.at(74 * HOUR, leap + 72 * HOUR) == leap + 72 * HOUR, "it stood as long as files are kept"
    assert time.at(75 * HOUR, START) == START, "back is believed at once"
    assert time.at(76 * HOUR, START + HOUR) == START + HOUR
    assert time.at(77 * HOUR, START + 9 * HOUR) == START + 2 * HOUR
    assert time.at(78 * HOUR, START + 3 * HOUR) == START + 3 * HOUR, "a leap that was taken back"
    assert time.at(140 * HOUR, START + 71 * HOUR) == START + 65 * HOUR
    assert time.at(150 * HOUR, START + 81 * HOUR) == START + 75 * HOUR, "the same leap once more is a new one"


def test_many_leaps_are_remembered_in_bounded_space() -> None:
    time = FileAge(72 * HOUR, 0)
    assert time.at(0, START) == START
    for number in range(1, 1000):
        assert time.at(number * 1000, START + number * HOUR) == START + number * 1000
    assert len(time._leaps) == 64
    assert time.at(999_000 + 72 * HOUR, START + 999 * HOUR + 72 * HOUR) == START + (999 + 72) * HOUR
