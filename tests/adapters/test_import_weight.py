"""Weight of an import: what a program that only sends or consumes does not load."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import mqproto.adapters.anyio
import mqproto.adapters.gevent
import mqproto.adapters.threaded

RUNTIMES = [mqproto.adapters.threaded, mqproto.adapters.gevent, mqproto.adapters.anyio]


@pytest.mark.parametrize(
    "unwanted", ["http.client", "ssl", "mqproto.state.admin", "mqproto.adapters.base.admin", "mqproto.engine"]
)
def test_what_is_not_imported(unwanted: str) -> None:
    code = f"import sys, mqproto.adapters.threaded; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("module", RUNTIMES, ids=lambda module: module.__name__)
def test_the_admin_client_comes_when_it_is_asked_for(module: ModuleType) -> None:
    code = (
        "import sys\n"
        f"import {module.__name__} as module\n"
        "assert 'mqproto.state.admin' not in sys.modules\n"
        "assert set(module.__all__) <= set(dir(module))\n"
        f"from {module.__name__} import Admin\n"
        "assert Admin is module.Admin\n"
        "assert Admin.__module__ == module.__name__ + '.admin'\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


@pytest.mark.parametrize("module", RUNTIMES, ids=lambda module: module.__name__)
def test_a_name_that_a_package_does_not_have(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'Nonsense'"):
        _ = module.Nonsense
    assert all(hasattr(module, name) for name in module.__all__)
