"""Configuration of a running server: read, changed and written back by request (docs/protocol/broker.md 2.16, 6.2).

Owns: which keys there are and what a change of them does: at once, at the next start, or nothing; what is unsaved.
Leaves to others: what depends on a setting (they register hooks), the file (a job that the adapter makes), requests
(the handlers).

A key that needs a restart does not touch the settings that the server runs with: half of what depends on it would
follow, and sizes of files that are open must not. Its new text is shown, saved and checked together with the others as
if it were in effect.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from mqproto.engine.ignored import ignored_keys
from mqproto.engine.saver import Saver
from mqproto.engine.settings import ServerSettings, Setting, Settings, apply_all, table, to_properties
from mqproto.errors import InvalidSetting, MQError
from mqproto.state.node.contract import Job
from mqproto.wire.bodies import DataVersion
from mqproto.wire.properties_text import PropertiesError, parse_properties

#: Bytes of one request's text. The longest keys and values of all settings together are some 10,000.
BODY_MAX: Final = 1 << 20

Changes: TypeAlias = dict[str, str]
#: Told which keys have new values, after all of them were set.
Hook: TypeAlias = Callable[[frozenset[str]], None]


class ChangeRefused(MQError):  # noqa: N818 - a name that says what happened needs no suffix
    """Refusal of a change; `remark` says why. `forbidden`: the key is on the black list."""

    def __init__(self, remark: str, *, forbidden: bool = False) -> None:
        super().__init__(remark)
        self.remark = remark
        self.forbidden = forbidden


class Configuration:
    """Configuration of one server: its settings, `all_settings`, of which the first are the server's own.

    `save` makes the job that writes changed keys with their texts into the file of the settings; without it changes end
    with the process. `effective` gives the texts of keys that are not set and were found out at the start. `notice`
    reports to the operator.
    """

    def __init__(
        self,
        all_settings: tuple[ServerSettings, *tuple[Settings, ...]],
        save: Callable[[Changes], Job] | None = None,
        *,
        effective: Callable[[], Mapping[str, str]] = dict,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._all = all_settings
        self._effective = effective
        self._notice = notice
        self._keys: dict[str, Setting] = {}
        for settings in all_settings:
            for each in table(type(settings)).values():
                self._keys |= dict.fromkeys((each.key, *each.also), each)
        self._ignored = ignored_keys(all_settings[0])
        #: Which state of the configuration this is.
        self.version = DataVersion()
        #: Whoever keeps something that was made from a live setting.
        self.hooks: list[Hook] = []
        #: Texts that take effect at the next start.
        self._later: Changes = {}
        self._unsaved: Changes = {}
        self._saving: Changes = {}
        self.saver: Saver[Changes] = Saver(self._render, save, self._saved)

    def properties(self) -> dict[str, str]:
        """Every key with its text: in effect, or as it will be after the next start."""
        pairs = to_properties(*self._all)
        for key, text in self._effective().items():
            if pairs.get(key) in ("", "0", None):
                pairs[key] = text
        for key, ignored in self._ignored.items():
            if ignored.default is not None:
                pairs.setdefault(key, ignored.default)
        return pairs | self._later

    def update(self, body: bytes, wall: int) -> tuple[frozenset[str], str | None]:
        """Make the changes that the body of a request asks for, a properties text. Gives the keys that changed and a
        remark for the answer. What was changed is not saved before `saver` says so. Raises ChangeRefused before any
        change.
        """
        changes = self._read(body)
        before = self.properties()
        try:
            live, later = self._sorted(changes)
            self._check(live | later)
        except InvalidSetting as failure:
            raise ChangeRefused(str(failure)) from None
        changes = {key: text for key, text in (live | later).items() if text != before.get(key)}
        apply_all(self._all, {key: text for key, text in live.items() if key in changes})
        self._later |= {key: text for key, text in later.items() if key in changes}
        changed = frozenset(changes)
        if not changed:
            return changed, None
        self.version.next(wall)
        self._unsaved |= changes
        remarks = []
        for key, text in changes.items():
            remark = self._remark(key)
            self._notice(
                f"setting {key} was changed from {before.get(key, '')!r} to {text!r}{remark and '; it ' + remark}"
            )
            if remark:
                remarks.append(f"{key} {remark}")
        for hook in self.hooks:
            hook(changed)
        return changed, "; ".join(remarks) or None

    def _remark(self, key: str) -> str:
        if key in self._keys:
            return "" if self._keys[key].live else "takes effect at the next start"
        return f"has no effect here: {self._ignored[key].why}" if key in self._ignored else "has no effect here"

    def _read(self, body: bytes) -> Changes:
        """The pairs of a request. Raises ChangeRefused."""
        if len(body) > BODY_MAX:
            raise ChangeRefused(f"{len(body)} bytes of configuration are more than {BODY_MAX}")
        try:
            pairs = parse_properties(bytes(body))
        except PropertiesError as failure:
            raise ChangeRefused(f"string2Properties error: {failure}") from None
        if self._all[0].black_list() & pairs.keys():
            raise ChangeRefused("Can not update config in black list.", forbidden=True)
        return pairs

    def _sorted(self, changes: Changes) -> tuple[Changes, Changes]:
        """The changes under their proper keys, as files hold them: those that take effect at once, and all others that
        we have a value of.

        Keys that nobody knows can be changed where the file has them; others are told, which Apache skips in silence.
        Raises InvalidSetting.
        """
        live: Changes = {}
        later: Changes = {}
        for key, text in changes.items():
            known = self._keys.get(key)
            if known is not None:
                (live if known.live else later)[known.key] = known.text(known.parse(text))
            elif key in self._ignored or any(key in settings.unknown for settings in self._all):
                live[key] = text
            else:
                raise InvalidSetting(key, text, "there is no such setting")
        return live, later

    def _check(self, changes: Changes) -> None:
        """Raises InvalidSetting if the next start would refuse what there is then."""
        copies = [copy.copy(settings) for settings in self._all]
        for each in copies:
            each.unknown = {}
        apply_all(copies, self._later | changes)

    # --- saving ---

    def _render(self) -> Changes:
        self._saving, self._unsaved = self._unsaved, {}
        return dict(self._saving)

    def _saved(self, failure: Exception | None) -> None:
        """What could not be saved is tried again with the next change."""
        if failure is not None:
            self._unsaved = self._saving | self._unsaved


__all__ = ["ChangeRefused", "Changes", "Configuration", "Hook"]
