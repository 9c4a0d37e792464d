"""`consume` of the command line: what becomes of messages that come when it was told to stop."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any

import pytest

from mqproto import ConsumeStatus, MessageExt
from mqproto.adapters.cli import consume, main


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_printed_once_a_signal_has_come(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The group's next member gets it."""
    answers: list[ConsumeStatus] = []

    class Consumer:
        def __init__(self, group: str, listener: Any, **options: Any) -> None:
            self._listener = listener

        def subscribe(self, topic: str, expression: str) -> None:
            pass

        def __enter__(self) -> Consumer:
            answers.append(self._listener([MessageExt("topic", b"before")]))
            signal.raise_signal(number)
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            answers.append(self._listener([MessageExt("topic", b"behind")]))

    monkeypatch.setattr(consume, "PushConsumer", Consumer)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert main(["consume", "topic", "-n", "127.0.0.1:1"]) == 0
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert answers == [ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER]
    out = capsys.readouterr().out
    assert "before" in out
    assert "behind" not in out
