"""Interrupts at chosen places, and a broker that notes every byte that came: what a client leaves behind can be
judged.
"""

from __future__ import annotations

import dis
import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from mqproto import Message, SendResult
from mqproto.codec import FrameSplitter, decode, encode_response
from mqproto.errors import StateError
from mqproto.wire.codes import RequestCode
from tests.adapters.harness import PATIENCE
from tests.mqproto.state.stage import route

#: Behind these instructions the interpreter looks for signals.
_CHECKED: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"})
_ROOT: Final = Path(__file__).parents[2]
_OURS: Final = tuple(str(_ROOT / package) for package in ("adapters", "mqproto"))

Trace = Callable[[FrameType, str, Any], Any]


def interrupt(*arguments: Any) -> Any:
    """What the handler of Ctrl-C does as a rule."""
    raise KeyboardInterrupt


def every_file(name: str) -> bool:
    return True


def our_files(name: str) -> bool:
    """The functions of which are for us to mend."""
    return name.startswith(_OURS)


class Interrupt:
    """Raises KeyboardInterrupt in the calling thread, once, at the `at`-th place of a function and all that it calls at
    which a signal may be handled, or does there what `how` does. `places` is how many there were. Those of functions in
    files that do not count are none.
    """

    def __init__(
        self, code: CodeType, at: int, counts: Callable[[str], bool] = every_file, how: Callable[[], object] = interrupt
    ) -> None:
        self._code = code
        self._at = at
        self._counts = counts
        self._how = how
        self._depth = 0
        self._last: dict[FrameType, str] = {}
        self.places = 0
        #: Where it came, outermost function first.
        self.stack: list[str] = []

    @property
    def came(self) -> bool:
        return self.places >= self._at

    def __enter__(self) -> Interrupt:
        gc.disable()  # it would call functions that are no part of this, and swallow what they raise
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _called(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        outermost = frame.f_code is self._code
        if self.came or not (self._depth or outermost):
            return None
        counts = self._counts(frame.f_code.co_filename)
        if not counts and not outermost:
            return None
        self._depth += 1
        if frame.f_code.co_code[frame.f_lasti + 1] < 2:  # where a coroutine goes on behind an `await` there is no look
            self._last[frame] = "RESUME"
        frame.f_trace_opcodes, frame.f_trace_lines = counts, False
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        if event == "return":
            self._depth -= 1
            self._last.pop(frame, None)
            if frame.f_back is not None:
                self._last[frame.f_back] = ""  # behind a call of Python code there is no look
        elif event == "opcode" and self.places < self._at:
            before = self._last.get(frame, "")
            now = self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in _CHECKED and now != "GET_AWAITABLE":  # nor behind one that makes a coroutine
                self.places += 1
                if self.places == self._at:
                    sys.settrace(None)
                    self._last.clear()
                    self._note(frame)
                    self._how()
        return self._inside

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not self._code:
            self.stack.insert(0, f"{frame.f_code.co_name}:{frame.f_lineno}")
            frame = frame.f_back
        if frame is not None:
            self.stack.insert(0, f"{frame.f_code.co_name}:{frame.f_lineno}")


class Recorder:
    """A name server and broker of one topic, "topic", in one. It keeps what came on each connection, and answers
    nothing whose body begins with `hold`.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._route = route(f"b={self.address}", queues=4).to_json()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        #: What came, by connection, until `taken`.
        self._received: list[bytearray] = []
        self._open = 0
        self.held = threading.Semaphore(0)
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            data = bytearray()
            with self._changed:
                if self._open < 0:
                    sock.close()
                    return
                self._open += 1
                self._received.append(data)
            threading.Thread(target=self._serve, args=(sock, data)).start()

    def _serve(self, sock: socket.socket, data: bytearray) -> None:
        frames = FrameSplitter()
        with sock:
            try:
                while chunk := sock.recv(65_536):
                    data += chunk
                    for frame in frames.feed(chunk):
                        answer = self._answer(frame)
                        if answer:
                            sock.sendall(answer)
            except ConnectionError:
                pass
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _answer(self, frame: bytes) -> bytes:
        request = decode(frame)
        fields = {}
        body = b""
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            body = self._route
        elif request.code == RequestCode.SEND_MESSAGE_V2:
            if bytes(request.body).startswith(b"hold"):
                self.held.release()
                return b""
            fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": request.fields["e"], "queueOffset": "0"}
        return encode_response(request.opaque, 0, fields, body)

    def taken(self, patience: float) -> list[bytes]:
        """What came on all connections, once all of them have ended; forgotten here."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, patience), "a connection was not closed"
            received, self._received = self._received, []
        return [bytes(data) for data in received]

    def close(self) -> None:
        with self._changed:
            self._open = -1
        socket.create_connection(self._listener.getsockname()).close()
        self._accepting.join()
        self._listener.close()


@contextmanager
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    try:
        yield server
    finally:
        server.close()


def sent_bodies(data: bytes) -> list[bytes]:
    """The bodies of the messages in what came on a connection: whole frames, but for the last, which may be cut off."""
    splitter = FrameSplitter()
    requests = [decode(frame) for frame in splitter.feed(data)]
    return [bytes(request.body) for request in requests if request.code == RequestCode.SEND_MESSAGE_V2]


def bodies(count: int) -> list[bytes]:
    return [b"%06d|" % number * 100 for number in range(count)]


class Sender:
    """A producer in use: a loop of submits and a send by one, and a send that gets no answer by another."""

    def __init__(self, server: Recorder, module: Any) -> None:
        self.server = server
        self.producer = module.Producer("g", server.address).start()
        self.outcomes: list[object] = []
        self.futures: list[Any] = []
        self.results: list[SendResult] = []
        self._join = self._beside(self._wait)
        self._wait_held()

    def _beside(self, function: Callable[[], None]) -> Callable[[float], object]:
        """Call a function beside the caller; what waits for its end."""
        thread = threading.Thread(target=function)
        thread.start()
        return thread.join

    def _wait_held(self) -> None:
        """Until the other's message has come to the server."""
        assert self.server.held.acquire(timeout=PATIENCE)

    def _loop_runs(self) -> bool:
        return bool(loop_of(self.producer).is_alive())

    def _wait(self) -> None:
        try:
            self.outcomes.append(self.producer.send(Message("topic", b"hold"), timeout_ms=3_600_000))
        except BaseException as failure:
            self.outcomes.append(failure)

    def send_all(self) -> None:
        *first, last = bodies(4)
        for body in first:
            self.futures.append(self.producer.submit(Message("topic", body), timeout_ms=3_600_000))
        self.results.append(self.producer.send(Message("topic", last)))

    def check(self) -> bool:
        """Whatever was interrupted: all is well, or all is over. Which of both."""
        is_over: bool = self.producer._driver.is_over()
        if is_over:
            with pytest.raises(StateError, match="make a new one"):
                self.producer.send(Message("topic", b"refused"))
        else:
            self.producer.send(Message("topic", b"afterwards"))
        for future in self.futures:
            failure = future.exception(PATIENCE)
            assert failure is None or is_over or "interrupted while sending" in str(failure)
        self.producer.close(1)
        self._join(PATIENCE)
        (outcome,) = self.outcomes
        assert isinstance(outcome, StateError)
        assert not self._loop_runs()
        for data in self.server.taken(PATIENCE):
            assert set(sent_bodies(data)) <= {*bodies(4), b"hold", b"afterwards"}
        return is_over


def loop_of(client: Any) -> Any:
    """The thread, or greenlet, of the driver that a client belongs to."""
    driver = client._instance.driver
    return getattr(driver, "_thread", None) or driver._greenlet
