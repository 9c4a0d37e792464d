"""Interrupts at chosen places, and a broker that notes every byte that came: what a client leaves behind can be judged."""

from __future__ import annotations

import dis
import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Final

from mqproto.codec import FrameSplitter, decode, encode_response
from mqproto.codes import RequestCode
from tests.mqproto.state.stage import route

#: Behind these instructions the interpreter looks for signals.
_CHECKED: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"})

Trace = Callable[[FrameType, str, Any], Any]


class Interrupt:
    """Raises KeyboardInterrupt in the calling thread, once, at the `at`-th place of a function and all that it calls at which a signal may
    be handled. `places` is how many there were. A file whose functions are not for us to mend may be left out.
    """

    def __init__(self, code: CodeType, at: int, *, leaving_out: str = "") -> None:
        self._code = code
        self._at = at
        self._left_out = leaving_out
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
        if self.came or frame.f_code.co_filename == self._left_out or not (self._depth or frame.f_code is self._code):
            return None
        self._depth += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        if event == "return":
            self._depth -= 1
            self._last.pop(frame, None)
            if frame.f_back is not None:
                self._last[frame.f_back] = ""  # behind a call of Python code there is no look
        elif event == "opcode" and self.places < self._at:
            before = self._last.get(frame, "RESUME")
            self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before in _CHECKED:
                self.places += 1
                if self.places == self._at:
                    self._last.clear()
                    self._note(frame)
                    raise KeyboardInterrupt
        return self._inside

    def _note(self, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not self._code:
            self.stack.insert(0, f"{frame.f_code.co_name}:{frame.f_lineno}")
            frame = frame.f_back
        if frame is not None:
            self.stack.insert(0, f"{frame.f_code.co_name}:{frame.f_lineno}")


class Recorder:
    """A name server and broker of one topic, "topic", in one. It keeps what came on each connection, and answers nothing whose body
    begins with `hold`.
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
