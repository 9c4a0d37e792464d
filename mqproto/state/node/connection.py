"""Connection that speaks the remoting protocol, on either side.

Owns: received bytes that are not a whole frame yet, the frames to send, the calls in flight on this link and (in
`Calls`, which all links of a node share) the opaque numbers and deadlines of those calls.
Leaves to others: sockets and clocks (drivers), retries (flows), the meaning of codes (client, broker, name server).

An answer belongs to the link that its call went out on; one that nothing waits for is dropped (docs/protocol/wire.md
1), so a late or doubled answer cannot reach anybody. Every call ends exactly once: by `answered`, `take`,
`Calls.expire`, `forget` or `end`.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from mqproto.acl import Credentials, sign
from mqproto.codec import JSON, Command, FrameSplitter, decode, encode_head, encode_request, encode_response
from mqproto.errors import LocalProtocolError, RemoteProtocolError, TooManyRequests
from mqproto.state.node.contract import Buffer, Link, NodeBase
from mqproto.state.node.deadlines import SWEEP_SLACK
from mqproto.wire.codes import VERSION

W = TypeVar("W")

#: Calls that a node may have in flight at once (docs/protocol/client.md 7.1: 65 535 permits).
CALLS_LIMIT: Final = 65_535

_OPAQUE_MASK: Final = 0x7FFF_FFFF
#: From this size up a body is a buffer of its own; below, one joined buffer is cheaper (style: 16 KiB).
SEPARATE_BODY: Final = 16_384
_ONEWAY: Final = 2


class Calls(Generic[W]):
    """Calls of all connections of one node: opaque numbers, how many calls may be open, and when they expire.

    A call is open as long as its link knows its opaque, so ending one costs no look-up here: what is left of it is
    swept once it outnumbers the open ones (calls with 30 s to go that were answered at once would pile up otherwise).
    Calls that expire in the same millisecond are kept together, so that there is no object for each.
    """

    __slots__ = ("_deadlines", "_due", "_kept", "limit", "opaque", "open")

    def __init__(self, limit: int = CALLS_LIMIT, opaque: int = 0) -> None:
        self.limit = limit
        #: How many calls wait for their answer.
        self.open = 0
        #: The next number.
        self.opaque = opaque & _OPAQUE_MASK
        # By deadline the links of calls by their opaque, open or not, in the order they were made; all deadlines as a
        # heap.
        self._due: dict[int, dict[int, Connection[W]]] = {}
        self._deadlines: list[int] = []
        self._kept = 0

    def __len__(self) -> int:
        return self.open

    def next_opaque(self) -> int:
        """A number in 0 .. 2^31 - 1, one more than the last."""
        opaque = self.opaque
        self.opaque = (opaque + 1) & _OPAQUE_MASK
        return opaque

    def add(self, link: Connection[W], opaque: int, deadline: int) -> None:
        """A call of a link is open now, until `deadline` at the latest.

        Whoever takes it from the link's calls counts `open` down.
        """
        self.open += 1
        self._kept += 1
        due = self._due.get(deadline)
        if due is None:
            if self._kept > 2 * self.open + SWEEP_SLACK:
                self._sweep()
            due = self._due[deadline] = {}
            heappush(self._deadlines, deadline)
        due[opaque] = link

    def _sweep(self) -> None:
        self._kept = self.open
        for deadline, due in list(self._due.items()):
            left = {opaque: link for opaque, link in due.items() if opaque in link.calls}
            if left:
                self._due[deadline] = left
            else:
                del self._due[deadline]
        self._deadlines = list(self._due)
        heapify(self._deadlines)

    def earliest(self) -> int | None:
        """When the next call expires, or None."""
        deadlines = self._deadlines
        while deadlines:
            due = self._due[deadlines[0]]
            while due:
                opaque, link = due.popitem()
                if opaque in link.calls:
                    due[opaque] = link
                    return deadlines[0]
                self._kept -= 1
            del self._due[heappop(deadlines)]
        return None

    def expire(self, now: int) -> list[tuple[Connection[W], W]]:
        """End every call whose deadline has come; their answers will be dropped."""
        expired: list[tuple[Connection[W], W]] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0] <= now:
            due = self._due.pop(heappop(deadlines))
            self._kept -= len(due)
            for opaque, link in due.items():
                if opaque in link.calls:
                    expired.append((link, link.take(opaque)))
        return expired


class Connection(Link, Generic[W]):
    """Link that speaks frames. `W` is what its owner wants back when a call ends (a flow, a record, a function)."""

    __slots__ = ("_node", "_splitter", "broken", "calls", "connected", "credentials", "peer_version", "reads", "shared")

    def __init__(
        self,
        node: NodeBase,
        shared: Calls[W],
        address: str,
        listener: str = "",
        unsent_limit: int | None = None,
        connected: bool = True,
    ) -> None:
        super().__init__(address, listener, unsent_limit)
        self._node = node
        self._splitter = FrameSplitter()
        self.shared = shared
        #: Calls that wait for their answer, by opaque.
        self.calls: dict[int, W] = {}
        #: False while a dialled link is on its way; what is written meanwhile waits in `out`.
        self.connected = connected
        #: Why the peer's bytes could not be read any further; the owner hangs up after it has handled what came before.
        self.broken: RemoteProtocolError | None = None
        #: How often bytes arrived. A call that expires without a change of this number had a silent peer.
        self.reads = 0
        #: What requests are signed with. Whoever writes frames by itself signs them by `acl.sign`, or leaves links with
        #: credentials alone.
        self.credentials: Credentials | None = None
        #: The release of the peer, as its last answer said; before that what its owner thinks.
        self.peer_version = VERSION

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not come whole."""
        return self._splitter.pending

    def connect(self) -> None:
        """The dialled link is connected: what was written so far may leave."""
        self.connected = True
        if self.out:
            self._node.touched.add(self)

    def write(self, data: Buffer) -> None:
        """Queue bytes behind what is already queued."""
        if self.connected:
            self._node.write(self, data)
        else:
            self.out.append(data)
            self.unsent += len(data)

    def call(
        self,
        waiter: W,
        code: int,
        fields: Mapping[str, str],
        body: Buffer = b"",
        *,
        deadline: int,
        serialize_type: int = JSON,
    ) -> int:
        """Send a request whose answer `waiter` waits for until `deadline`; returns its opaque.

        Raises `TooManyRequests` when the node has too many calls open, `LocalProtocolError` on a link that is over and
        `AclError` where it cannot be signed; nothing is sent then.
        """
        if self.ended:
            raise LocalProtocolError(f"call on a link to {self.address} that is over")
        shared = self.shared
        if shared.open >= shared.limit:
            raise TooManyRequests(f"{shared.limit} calls are in flight")
        opaque = self.free_opaque()
        self._request(code, opaque, fields, body, 0, serialize_type)
        self.calls[opaque] = waiter
        shared.add(self, opaque, deadline)
        return opaque

    def free_opaque(self) -> int:
        """The number of the next call, for whoever makes its frame."""
        opaque = self.shared.opaque
        while opaque in self.calls:  # only once the numbers have wrapped
            opaque = (opaque + 1) & _OPAQUE_MASK
        self.shared.opaque = (opaque + 1) & _OPAQUE_MASK
        return opaque

    def oneway(self, code: int, fields: Mapping[str, str], body: Buffer = b"", *, serialize_type: int = JSON) -> None:
        """Send a request that has no answer."""
        if self.ended:
            raise LocalProtocolError(f"request on a link to {self.address} that is over")
        self._request(code, self.shared.next_opaque(), fields, body, _ONEWAY, serialize_type)

    def reply(
        self,
        request: Command,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: Buffer = b"",
        *,
        remark: str | None = None,
    ) -> None:
        """Answer a request of the peer in the form it used (docs/protocol/wire.md 4).

        One-way requests and links that are over get nothing.
        """
        if self.ended or request.flag & _ONEWAY:
            return
        self.write(
            encode_response(request.opaque, code, fields, body, remark=remark, serialize_type=request.serialize_type)
        )

    def receive(self, data: bytes) -> list[Command]:
        """The commands that `data` completes: requests, and answers for `answered`.

        Bytes that break the protocol end the list and set `broken`; whatever came before them is still in it, so that
        the outcome does not depend on how the stream was cut into reads.
        """
        commands: list[Command] = []
        for frame in self.frames(data):
            command = self.command(frame)
            if command is None:
                break
            commands.append(command)
        return commands

    def frames(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, each without its length word.

        What breaks the stream sets `broken`, as for `receive`.
        """
        if self.ended or self.broken is not None:
            return []
        self.reads += 1
        try:
            frames = self._splitter.feed(data)
        except RemoteProtocolError as error:
            self.broken = error
            return []
        self.broken = self._splitter.fault
        return frames

    def command(self, frame: bytes) -> Command | None:
        """The command of a frame.

        None when it cannot be read: that sets `broken`, and what follows the frame is not looked at.
        """
        try:
            return decode(frame)
        except RemoteProtocolError as error:
            self.broken = error
            return None

    def answered(self, response: Command) -> W | None:
        """End the call that `response` answers; None when nothing waits for it."""
        return self.take(response.opaque) if response.opaque in self.calls else None

    def take(self, opaque: int) -> W:
        """End an open call: its answer was read, or will not be."""
        self.shared.open -= 1
        return self.calls.pop(opaque)

    def forget(self, opaque: int) -> None:
        """End a call whose owner has lost interest, if it is open; its answer will be dropped."""
        if opaque in self.calls:
            self.take(opaque)

    def end(self) -> list[W]:
        """The link is over, whoever closed it: ends every open call and returns their waiters, the oldest first."""
        self.ended = True
        waiters = list(self.calls.values())
        self.shared.open -= len(waiters)
        self.calls.clear()
        return waiters

    def _request(
        self, code: int, opaque: int, fields: Mapping[str, str], body: Buffer, flag: int, serialize_type: int
    ) -> None:
        version = VERSION
        if self.credentials is not None:
            fields, version = sign(self.credentials, fields, body, self.peer_version)
        if len(body) < SEPARATE_BODY:
            self.write(
                encode_request(
                    code, opaque, fields, body, oneway=flag != 0, version=version, serialize_type=serialize_type
                )
            )
            return
        command = Command(
            code=code, fields=dict(fields), opaque=opaque, flag=flag, version=version, serialize_type=serialize_type
        )
        self.write(encode_head(command, len(body)))
        self.write(body)
