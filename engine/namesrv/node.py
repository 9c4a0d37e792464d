"""Node of the name server, which drivers run.

Owns: its links, when they have been idle for too long, and the way from a request to its answer.
Leaves to others: what brokers registered (`registry`), what requests mean (the `*_requests` modules), files (jobs that
the caller makes), sockets, clocks and threads (the driver).

Listener: "main" (`listenPort`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from mqproto.codec import Command
from mqproto.engine.configuration import Changes, Configuration
from mqproto.engine.namesrv import broker_requests, kv_requests, settings_requests, topic_requests
from mqproto.engine.namesrv.answers import Answer, failed
from mqproto.engine.namesrv.kv import KvConfig
from mqproto.engine.namesrv.registry import Registry
from mqproto.engine.namesrv.state import Handler, Request, State
from mqproto.engine.remarks import code_not_supported
from mqproto.engine.saver import Saver
from mqproto.engine.settings import NamesrvSettings, check
from mqproto.engine.slices import Slices, Steps, joined
from mqproto.errors import HeaderError, RemoteProtocolError
from mqproto.state.node.connection import Calls, Connection
from mqproto.state.node.contract import SERVER_UNSENT_LIMIT, Job, Link, NodeBase, Run
from mqproto.state.node.deadlines import Deadlines
from mqproto.wire.bodies import json_pieces
from mqproto.wire.codes import RequestCode, ResponseCode

HANDLERS: Final[dict[int, Handler]] = {
    **kv_requests.HANDLERS,
    **broker_requests.HANDLERS,
    **topic_requests.HANDLERS,
    **settings_requests.HANDLERS,
}

#: Requests of one peer are answered as busy while so much is unsent to it: one read may bring thousands that each ask
#: for a long list.
UNSENT_MAX: Final = 16 * SERVER_UNSENT_LIMIT
BUSY: Final = failed("[OVERLOAD]system busy, start flow control for a while", ResponseCode.SYSTEM_BUSY)
#: Long answers of one peer wait while so much is unsent to it, and are looked at again after a pause.
LONG_UNSENT_MAX: Final = SERVER_UNSENT_LIMIT // 4
PAUSE_MS: Final = 50
#: Bytes of requests that wait or are worked on, of all peers and of one. A single request may always come.
HELD_MAX: Final = 256 << 20
PEER_HELD_MAX: Final = 32 << 20
#: Requests whose answer is there in no time: they do not wait for the long ones that came before them.
SHORT: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_KV_CONFIG,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.GET_BROKER_MEMBER_GROUP,
    }
)

#: Idle peers that are ended at a time: they come in crowds.
IDLE_ENDS_MAX: Final = 500
#: Notes for the operator that are kept while nobody takes them.
NOTICES_MAX: Final = 1000


class _Peer(Connection[None]):
    """Link to a broker, client or tool."""

    __slots__ = ("active", "held")

    def __init__(
        self, node: NodeBase, shared: Calls[None], address: str, listener: str, unsent_limit: int, now: int
    ) -> None:
        super().__init__(node, shared, address, listener, unsent_limit)
        #: When bytes came last; answers leave at the same time.
        self.active = now
        #: Bytes of its requests that wait or are worked on.
        self.held = 0


class NameServerNode(NodeBase):
    """Name server.

    `kv_config` is the key/value configuration as it was saved last. `save_kv_config` makes the job that saves its text,
    `save_settings` the one that writes changed settings into their file; without them nothing outlives the process.
    Raises InvalidSetting.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        *,
        kv_config: KvConfig | None = None,
        save_kv_config: Callable[[str], Job] | None = None,
        save_settings: Callable[[Changes], Job] | None = None,
    ) -> None:
        super().__init__()
        check(settings)
        kv = kv_config or KvConfig()
        self.settings = settings
        #: What an operator should know, the latest last.
        self.notices: deque[str] = deque(maxlen=NOTICES_MAX)
        self.state = State(
            settings,
            Registry(),
            kv,
            Saver(kv.to_text, save_kv_config),
            Configuration((settings,), save_settings, notice=self.notices.append),
        )
        self._savers = (self.state.kv_saver, self.state.configuration.saver)
        self._calls: Calls[None] = Calls()
        self._peers: dict[_Peer, None] = {}
        self._idle: Deadlines[_Peer] = Deadlines()
        #: What is done in slices: for peers whose answers do not pile up, and for nobody.
        self._long = Slices(lambda owner: not isinstance(owner, _Peer) or owner.unsent <= LONG_UNSENT_MAX)
        self.state.registry.later = lambda steps: self._long.begin(object(), steps, lambda _: None)
        self._held = 0
        #: Bytes of requests that have not come whole, of all peers.
        self._unfinished = 0
        self._now = 0
        self._closing = False

    # --- links ---

    def begin(self, now: int) -> None:
        """Nothing to do: brokers and clients come."""

    def accept(self, listener: str, address: str, local_address: str, now: int) -> Link | None:
        if self._closing:
            return None
        if len(self._peers) >= self.settings.max_connections:
            self.notices.append(
                f"{address}: refused, there are {len(self._peers)} connections already (maxConnections)"
            )
            return None
        peer = _Peer(
            self, self._calls, address, listener, self.settings.write_buffer_high_water_mark or SERVER_UNSENT_LIMIT, now
        )
        self._peers[peer] = None
        self._idle.set(peer, now + self._idle_ms)
        return peer

    def opened(self, link: Link, now: int) -> None:
        """Never called: a name server dials nobody."""

    def received(self, link: Link, data: bytes, now: int) -> None:
        assert isinstance(link, _Peer)
        if link.ended:
            return
        link.active = self._now = now
        before = link.pending
        commands = link.receive(data)
        self._unfinished += link.pending - before
        for command in commands:
            if not command.is_response:
                self._answer(link, command, now)
        if link.broken is not None:
            self._end(link, str(link.broken))
        elif self._unfinished > self.settings.max_unfinished_bytes:
            greediest = max(self._peers, key=lambda peer: peer.pending)
            self._end(
                greediest,
                f"of {self._unfinished} bytes that have not come whole this peer has most: {greediest.pending}",
            )

    def closed(self, link: Link, reason: str, now: int) -> None:
        assert isinstance(link, _Peer)
        if not link.ended:
            link.end()
            self._forget(link)

    def timer(self, now: int) -> None:
        self._now = now
        self._long.step()
        for token in self.state.registry.expired(now):
            assert isinstance(token, _Peer)
            self._end(token, "the broker did not register for too long")
        for peer in self._idle.due(now, IDLE_ENDS_MAX):
            if peer.active + self._idle_ms > now:
                self._idle.set(peer, peer.active + self._idle_ms)
            else:
                self._end(peer, "idle for too long")

    def next_deadline(self) -> int | None:
        times = [when for when in (self.state.registry.deadlines.earliest(), self._idle.earliest()) if when is not None]
        if self._long:
            times.append(self._now + (PAUSE_MS if self._long.stalled else 0))
        return min(times, default=None)

    @property
    def _idle_ms(self) -> int:
        return self.settings.server_channel_max_idle_time_seconds * 1000

    def _end(self, peer: _Peer, reason: str) -> None:
        self.hang_up(peer, reason)
        self._forget(peer)

    def _forget(self, peer: _Peer) -> None:
        del self._peers[peer]
        self._unfinished -= peer.pending
        self._idle.cancel(peer)
        self._long.drop(peer)
        self._give_back(peer, peer.held)
        self.state.registry.lost(peer)

    # --- requests ---

    def _answer(self, peer: _Peer, command: Command, now: int) -> None:
        if peer.unsent > UNSENT_MAX:
            self._reply(peer, command, BUSY)
            return
        handler = HANDLERS.get(command.code)
        if handler is None:
            self._reply(
                peer, command, failed(code_not_supported(command.code), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            )
        elif command.code in SHORT:
            for _ in self._work(peer, command, handler, now):
                raise AssertionError("a short request takes one slice")
        elif not self._take_over(peer, len(command.body)):
            self._reply(peer, command, BUSY)
        elif not self._long.begin(peer, self._work(peer, command, handler, now), lambda _: None):
            self._give_back(peer, len(command.body))
            self._reply(peer, command, BUSY)

    def _work(self, peer: _Peer, command: Command, handler: Handler, now: int) -> Steps[None]:
        """A request up to its answer, in slices."""
        try:
            result = handler(self.state, Request(command, peer, now))
            answer = result if isinstance(result, Answer) else (yield from result)
            body = answer.body if isinstance(answer.body, bytes) else (yield from joined(json_pieces(answer.body)))
        except (HeaderError, RemoteProtocolError) as failure:
            answer, body = failed(str(failure)), b""
        if command.code not in SHORT:
            self._give_back(peer, len(command.body))
        if answer.saver is None:
            self._reply(peer, command, answer, body)
        elif answer.saver.is_full:
            self._reply(peer, command, BUSY)
        else:
            answer.saver.wait(
                lambda failure: self._reply(
                    peer, command, answer if failure is None else failed(f"not saved: {failure}")
                )
            )
            self._save(answer.saver)

    def _take_over(self, peer: _Peer, size: int) -> bool:
        """Whether there is room for the body of one more request that waits or is worked on."""
        if (peer.held and peer.held + size > PEER_HELD_MAX) or (self._held and self._held + size > HELD_MAX):
            return False
        peer.held += size
        self._held += size
        return True

    def _give_back(self, peer: _Peer, size: int) -> None:
        peer.held -= size
        self._held -= size

    def _reply(self, peer: _Peer, command: Command, answer: Answer, body: bytes = b"") -> None:
        peer.reply(command, answer.code, answer.fields, body, remark=answer.remark)

    # --- jobs and the end ---

    def _save(self, saver: Saver[Any]) -> None:
        job = saver.next_job()
        if job is not None:
            self.actions.append(Run(job))

    def done(self, job: Job, failure: Exception | None, now: int) -> None:
        for saver in self._savers:
            if saver.job is job:
                saver.done(failure)
                self._save(saver)

    @property
    def ended(self) -> bool:
        return self._closing and all(saver.job is None for saver in self._savers)

    def close(self, now: int) -> None:
        self._closing = True
        for peer in list(self._peers):
            self._end(peer, "the name server stops")
