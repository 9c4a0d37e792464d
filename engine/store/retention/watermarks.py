"""Watermarks of the disks: those of Apache (docs/protocol/store.md 9.1), and a number of free bytes at which they do
not count.

Both disks are looked at together, that of the log and that of the queues, so that a healthy one never clears what a
full one set. A disk whose usage is unknown is not full.
"""

from __future__ import annotations

from typing import Final

from mqproto.engine.store.settings import StoreSettings

#: The bounds of 5.x.
_FORCE_BOUNDS: Final = (0.30, 0.85)
_WARNING_BOUNDS: Final = (0.35, 0.90)


def used_percent(usage: tuple[int, int] | None) -> int:
    """Used part of a disk in whole percent, rounded up as by 4.9; -1 if unknown.

    `usage`: bytes in use, bytes free for us.
    """
    if usage is None or usage[0] + usage[1] <= 0:
        return -1
    return -(-usage[0] * 100 // (usage[0] + usage[1]))


class Watermarks:
    """Watermarks, and how full the disks were at the last look."""

    __slots__ = ("_enough", "_folders", "_force", "_pressed_at", "_usages", "_warning")

    def __init__(self, settings: StoreSettings) -> None:
        self._folders = (settings.commit_log_folder, settings.store_path_root_dir)
        self._usages: tuple[tuple[int, int] | None, ...] = (None, None)
        self.configure(settings)

    def configure(self, settings: StoreSettings) -> None:
        """Take over what is set for the watermarks."""
        self._pressed_at = settings.disk_max_used_space_ratio
        self._force = _watermark(settings.disk_space_clean_forcibly_ratio, _FORCE_BOUNDS)
        self._warning = _watermark(settings.disk_space_warning_level_ratio, _WARNING_BOUNDS)
        #: So many free bytes are enough to force no file to go, and half of them to take messages, whatever the
        #: percentages are: so that files go before messages are refused. 0: the percentages alone count.
        self._enough = settings.disk_free_files_enough * settings.mapped_file_size_commit_log

    @property
    def folders(self) -> tuple[str, str]:
        """Where to look: a folder on the disk of the log, one on the disk of the queues."""
        return self._folders

    def looked(self, usages: tuple[tuple[int, int] | None, ...]) -> None:
        """Bytes in use and free, for each of `folders`."""
        self._usages = usages

    @property
    def ratios(self) -> tuple[float, float]:
        """Used parts, 0 to 1 in whole hundredths; -1 where unknown."""
        log, queues = (max(used_percent(usage), -100) for usage in self._usages)
        return log / 100 if log >= 0 else -1.0, queues / 100 if queues >= 0 else -1.0

    @property
    def usage(self) -> tuple[int, int] | None:
        """Bytes in use and free on the disk of the log."""
        return self._usages[0]

    def _over(self, watermark: float, enough: int, usage: tuple[int, int] | None) -> bool:
        if usage is None or used_percent(usage) / 100 <= watermark:
            return False
        return not enough or usage[1] < enough

    @property
    def pressed(self) -> bool:
        """Old files should go at any hour."""
        return any(used_percent(usage) > self._pressed_at for usage in self._usages)

    @property
    def forced(self) -> bool:
        """Files should go even if they are not old."""
        return any(self._over(min(self._force, self._warning), self._enough, usage) for usage in self._usages)

    def excess(self) -> int:
        """Bytes that have to come free on the log's disk until no file is forced to go; 0 if it has enough."""
        usage, watermark = self._usages[0], min(self._force, self._warning)
        if usage is None or not self._over(watermark, self._enough, usage):
            return 0
        used, free = usage
        above = used - int(watermark * (used + free))
        return max(1, min(above, self._enough - free) if self._enough else above)

    @property
    def refusal(self) -> str:
        """Why no message is taken; empty while there is room."""
        for folder, usage in zip(self._folders, self._usages, strict=True):
            if usage is not None and self._over(self._warning, self._enough // 2, usage):
                percent = round(self._warning * 100)
                return f"the disk of {folder} is {_told(usage)}, and messages are taken up to {percent} %"
        return ""

    @property
    def state(self) -> str:
        """How full the disks are, in words."""
        return ", ".join(
            f"the disk of {folder} is {_told(usage)}" for folder, usage in zip(self._folders, self._usages, strict=True)
        )


def _told(usage: tuple[int, int] | None) -> str:
    return "of unknown state" if usage is None else f"{used_percent(usage)} % full with {usage[1] >> 20} MiB free"


def _watermark(value: float, bounds: tuple[float, float]) -> float:
    """A setting as a part of 1, within bounds. Values beyond 1 are percents."""
    return min(max(value / 100 if value > 1 else value, bounds[0]), bounds[1])
