"""The broker's settings by request: 25 changes them, 26 lists them (docs/protocol/broker.md 2.16).

Owns: the answers, and who is told of a change that reaches further than this process: the name servers.
Leaves to others: keys, values and the file (`mqproto.engine.configuration`), what keeps something made from a setting
(their hooks).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mqproto.codec import Command
from mqproto.engine.broker.core.core import (
    NO_PERMISSION,
    OVERLOAD,
    SUCCESS,
    SYSTEM_BUSY,
    SYSTEM_ERROR,
    ClientLink,
    Core,
    Handlers,
    Refused,
)
from mqproto.engine.broker.registration.name_servers import Registration
from mqproto.engine.configuration import ChangeRefused
from mqproto.engine.settings import format_properties
from mqproto.state.node.contract import Job

_PERMISSION: Final = "brokerPermission"
_NAME_SERVERS: Final = "namesrvAddr"
_PERIOD: Final = "registerNameServerPeriod"


class ConfigurationRequests:
    """Changes the settings, and shows them."""

    def __init__(self, core: Core, registration: Registration) -> None:
        self.core = core
        self.registration = registration
        self.configuration = core.configuration
        self.configuration.hooks.append(self._settings_changed)

    @property
    def handlers(self) -> Handlers:
        """The request codes that it takes (docs/protocol/broker.md 2.0)."""
        return {25: self.on_update, 26: self.on_list}

    def on_update(self, link: ClientLink, request: Command) -> None:
        """Answered once the file holds the change, and the name servers know of another permission (or cannot be
        asked).
        """
        core = self.core
        if not request.body:
            link.reply(request, SUCCESS)
            return
        if self.configuration.saver.is_full:
            raise Refused(SYSTEM_BUSY, OVERLOAD)
        try:
            changed, remark = self.configuration.update(bytes(request.body), core.wall)
        except ChangeRefused as refused:
            raise Refused(NO_PERMISSION if refused.forbidden else SYSTEM_ERROR, refused.remark) from None

        if not changed:
            link.reply(request, SUCCESS)
            return
        countdown = _Both(lambda failure: self._confirm(link, request, remark, failure))
        if _PERMISSION in changed:
            self.registration.permission_changed(countdown.told)
        else:
            countdown.told()
        self.configuration.saver.wait(countdown.saved)
        self._save()

    def _settings_changed(self, keys: frozenset[str]) -> None:
        if _NAME_SERVERS in keys:
            self.registration.addresses_changed()
        if _PERIOD in keys:
            self.registration.period_changed()

    def _confirm(self, link: ClientLink, request: Command, remark: str | None, failure: Exception | None) -> None:
        if failure is None:
            link.reply(request, SUCCESS, remark=remark)
        else:
            link.reply(request, SYSTEM_ERROR, remark=f"the change is made, but not saved: {failure}")

    def _save(self) -> None:
        job = self.configuration.saver.next_job()
        if job is not None:
            self.core.run_jobs((job,))

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
            self.core.notice(f"changed settings were not saved: {failure}")
        saver.done(failure)
        self._save()
        return True

    def on_list(self, link: ClientLink, request: Command) -> None:
        text = format_properties(self.configuration.properties())
        version = self.configuration.version.to_json().decode()
        link.reply(request, SUCCESS, {"version": version}, text.encode("utf-8", "replace"))


class _Both:
    """Calls a function once two things have happened: the save has ended, and the name servers know."""

    def __init__(self, then: Callable[[Exception | None], None]) -> None:
        self._then = then
        self._left = 2
        self._failure: Exception | None = None

    def saved(self, failure: Exception | None) -> None:
        self._failure = failure
        self.told()

    def told(self) -> None:
        self._left -= 1
        if not self._left:
            self._then(self._failure)
