"""Settings of the store that are more than a number or a word."""

from __future__ import annotations

import pytest

from mqproto.engine.store import StoreSettings
from mqproto.engine.store.settings import parse_delay_levels
from mqproto.errors import InvalidSetting


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    assert StoreSettings(message_delay_level="2d 1m").delay_levels == (172_800_000, 60_000)


@pytest.mark.parametrize("text", ["", "1", "s", "1s  5s", "1x", "-1s", "1.5s", "١s", "1234567890123s"])
def test_what_is_no_list_of_delay_levels(text: str) -> None:
    with pytest.raises(ValueError, match="no delay level"):
        parse_delay_levels(text)
    settings = StoreSettings(message_delay_level=text)
    with pytest.raises(InvalidSetting, match="messageDelayLevel"):
        settings.check_together()
