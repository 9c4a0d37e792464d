"""Settings of the broker by request: 25 changes them, 26 lists them (docs/protocol/broker.md 2.16).

Owns: the answers, and the registration with name servers that some changes need.
Leaves to others: keys, values and the file (`mqproto.engine.configuration`), what is made from a setting (hooks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import Handlers
from mqproto.engine.broker.interfaces.clock import Clock, Notices
from mqproto.engine.broker.interfaces.requests import OVERLOAD, Peer, Refused
from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.engine.configuration import ChangeRefused, Configuration
from mqproto.engine.settings import format_properties
from mqproto.state.node.contract import Job
from mqproto.wire.codes import RequestCode, ResponseCode

_PERMISSION: Final = "brokerPermission"
_NAME_SERVERS: Final = "namesrvAddr"
_PERIOD: Final = "registerNameServerPeriod"


class ConfigurationRequests:
    """Requests to change the settings and to list them."""

    def __init__(
        self,
        clock: Clock,
        notices: Notices,
        configuration: Configuration,
        run_jobs: Callable[[Iterable[Job]], None],
        registration: Registration,
    ) -> None:
        self.clock = clock
        self.notices = notices
        self.configuration = configuration
        self.run_jobs = run_jobs
        self.registration = registration
        self.configuration = self.configuration
        self.configuration.hooks.append(self._settings_changed)

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {RequestCode.UPDATE_BROKER_CONFIG: self.on_update, RequestCode.GET_BROKER_CONFIG: self.on_list}

    def on_update(self, link: Peer, request: Command) -> None:
        """Answered once the file holds the change, and the name servers know of another permission, if they can be
        asked.
        """
        if not request.body:
            link.reply(request, ResponseCode.SUCCESS)
            return
        if self.configuration.saver.is_full:
            raise Refused(ResponseCode.SYSTEM_BUSY, OVERLOAD)
        try:
            changed, remark = self.configuration.update(bytes(request.body), self.clock.wall)
        except ChangeRefused as refused:
            raise Refused(
                ResponseCode.NO_PERMISSION if refused.forbidden else ResponseCode.SYSTEM_ERROR, refused.remark
            ) from None

        if not changed:
            link.reply(request, ResponseCode.SUCCESS)
            return
        countdown = _Both(lambda failure: self._confirm(link, request, remark, failure))
        if _PERMISSION in changed:
            self.registration.permission_changed(countdown.one)
        else:
            countdown.one()
        self.configuration.saver.wait(countdown.saved)
        self._save()

    def _settings_changed(self, keys: frozenset[str]) -> None:
        if _NAME_SERVERS in keys:
            self.registration.addresses_changed()
        if _PERIOD in keys:
            self.registration.period_changed()

    def _confirm(self, link: Peer, request: Command, remark: str | None, failure: Exception | None) -> None:
        if failure is None:
            link.reply(request, ResponseCode.SUCCESS, remark=remark)
        else:
            link.reply(request, ResponseCode.SYSTEM_ERROR, remark=f"the change is made, but not saved: {failure}")

    def _save(self) -> None:
        job = self.configuration.saver.next_job()
        if job is not None:
            self.run_jobs((job,))

    @property
    def busy(self) -> bool:
        """The file is being written."""
        return self.configuration.saver.job is not None

    def done(self, job: Job, failure: Exception | None) -> bool:
        """A job ended; False if it is none of ours."""
        saver = self.configuration.saver
        if saver.job is not job:
            return False
        if failure is not None:
            self.notices.notice(f"changed settings were not saved: {failure}")
        saver.done(failure)
        self._save()
        return True

    def on_list(self, link: Peer, request: Command) -> None:
        text = format_properties(self.configuration.properties())
        version = self.configuration.version.to_json().decode()
        link.reply(request, ResponseCode.SUCCESS, {"version": version}, text.encode("utf-8", "replace"))


class _Both:
    """Countdown: calls a function once two things have happened: the save has ended, and the name servers know."""

    def __init__(self, then: Callable[[Exception | None], None]) -> None:
        self._then = then
        self._left = 2
        self._failure: Exception | None = None

    def saved(self, failure: Exception | None) -> None:
        self._failure = failure
        self.one()

    def one(self) -> None:
        self._left -= 1
        if not self._left:
            self._then(self._failure)
