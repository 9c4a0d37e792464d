"""docs/configuration.md lists every key as the code has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from mqproto.engine.ignored import BROKER_IGNORED, NAMESRV_IGNORED, Ignored
from mqproto.engine.settings import BrokerSettings, NamesrvSettings, Settings, table
from mqproto.engine.store import StoreSettings

TEXT: Final = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()


def section(title: str) -> list[list[str]]:
    """The cells of the rows of the tables of a section, heads and rules left out."""
    body = re.split(r"^## ", TEXT.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines() if line.startswith("|")
    ]
    return [row for row in rows if row[0] not in ("key", "why") and not row[0].startswith("---")]


@pytest.mark.parametrize(
    ("title", "settings"), [("Broker", BrokerSettings), ("Store", StoreSettings), ("Name server", NamesrvSettings)]
)
def test_keys_with_a_meaning(title: str, settings: type[Settings]) -> None:
    """In the order of the code: key (bold for important ones), default, when a change takes effect, and some
    meaning.
    """
    values = settings()
    wanted = []
    for key, each in table(settings).items():
        text = each.text(getattr(values, each.attribute))
        mark = "**" if each.important else ""
        wanted.append([f"{mark}`{key}`{mark}", f"`{text}`" if text else "", "live" if each.live else "restart"])
    found = section(title)
    assert [row[:3] for row in found] == wanted
    assert all(len(row) == 4 and row[3] for row in found)


def test_keys_without_a_meaning() -> None:
    found: dict[str, Ignored] = {}
    for why, keys in section("Keys without meaning here"):
        for text in re.findall("`([^`]*)`", keys):
            key, separator, default = text.partition("=")
            found[key] = Ignored(default if separator else None, why)
    assert found == BROKER_IGNORED | NAMESRV_IGNORED
