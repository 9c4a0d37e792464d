"""Decorator of classes for the compiled build, and the question whether this is it (see setup.py).

The decorator is mypyc's own to the type checker and to mypyc, and does nothing at run time: so there is nothing to
install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**facts):
        """A class as it is."""
        return lambda marked: marked


def is_compiled() -> bool:
    """Whether the hot modules are compiled ones."""
    from mqproto import codec

    return not codec.__file__.endswith(".py")
