"""Which client is tried with which server."""

from __future__ import annotations

import pytest


def pairs(*names: str) -> pytest.MarkDecorator:
    """Parametrises `pair` with each "CLIENT @ SERVER"; tests of one pair stay in one process when they are spread over several."""
    params = [pytest.param(name, id=name.replace(" ", ""), marks=pytest.mark.xdist_group(name)) for name in names]
    return pytest.mark.parametrize("pair", params, indirect=True)
