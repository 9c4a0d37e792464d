"""Templates of headers that a peer repeats, so that they are recognised without a JSON reader.

The headers that one client sends for one purpose differ in a few places: numbers such as queue id and opaque, the
properties of a message. After a request went the general way, its header is cut at these places into a *template*; a
later header that fits it gives its changing parts at the price of one regular expression, and all that the rest of it
says is known already. A match is a proof, not a guess: what lies between the places is equal byte by byte, and what
lies in them is a plain number, or text without quotes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from mqproto.engine.broker.core.core import ClientLink

#: Templates that a link keeps: for each topic that its peer sends to in turn, for each kind of pull.
HEADER_TEMPLATES_MAX: Final = 16
#: Requests that fit none of a full set of templates, after which the set is dropped.
STRANGERS_MAX: Final = 1024
#: Headers with more bytes outside of the open places are not worth a template.
CONSTANT_MAX: Final = 1024
#: Headers that are looked at at all.
HEADER_MAX: Final = 8192

_QUOTED: Final = rb'"%b"\s*:\s*"([0-9]+)"'
_BARE: Final = rb'"%b"\s*:\s*(0|[1-9][0-9]*)\b(?![.eE"])'
_TEXT: Final = rb'"%b"\s*:\s*"((?:[^"\\]|\\u000[12])*)"'


class FastPath(Protocol):
    """Fast path: serves frames whose header fits one of its templates."""

    def take(self, link: ClientLink, template: HeaderTemplate, data: bytes, start: int, stop: int, end: int) -> bool:
        """Handle one frame (header from `start` to `stop`, body to `end`).

        False: nothing was done, it goes the general way.
        """


class HeaderCut:
    """Header that was cut: what it begins with, the pattern of the rest, and the number of each open place's group."""

    __slots__ = ("head", "order", "rest")

    def __init__(self, head: bytes, rest: bytes, order: dict[bytes, int]) -> None:
        self.head = head
        self.rest = rest
        self.order = order


class HeaderTemplate:
    """Template of a header: the fast path that it belongs to, and how a header is compared with it."""

    __slots__ = ("fast", "head", "head_size", "match", "rest")

    def __init__(self, fast: FastPath, cut: HeaderCut) -> None:
        self.fast = fast
        self.head = cut.head
        self.head_size = len(cut.head)
        self.rest = cut.rest
        self.match = re.compile(cut.rest).fullmatch


def cut_header(
    text: bytes, numbers: tuple[tuple[bytes, int, int], ...], texts: tuple[bytes, ...] = ()
) -> HeaderCut | None:
    """Cut a JSON header at the members named: numbers with their value and the digits that they may have, and texts.

    None for a header that is better read in full each time: a member is missing, there twice, negative or odd.
    """
    if len(text) > HEADER_MAX:
        return None
    places: list[tuple[int, int, bytes, bytes]] = []
    for name, value, digits in numbers:
        found = _only(_QUOTED, name, text) or _only(_BARE, name, text)
        if found is None or int(found[1]) != value:
            return None
        start, end = found.span(1)
        quoted = text[end : end + 1] == b'"'
        places.append(
            (start, end, name, rb"([0-9]{1,%d})" % digits if quoted else rb"(0|[1-9][0-9]{0,%d})" % (digits - 1))
        )
    for name in texts:
        found = _only(_TEXT, name, text)
        if found is None:
            return None
        places.append((*found.span(1), name, rb'([^"]*)'))
    places.sort()
    if len(text) - sum(end - start for start, end, _, _ in places) > CONSTANT_MAX:
        return None
    rest = b""
    for (_, end, _, pattern), after in zip(places, [*(place[0] for place in places[1:]), len(text)], strict=True):
        rest += pattern + re.escape(text[end:after])
    return HeaderCut(text[: places[0][0]], rest, {place[2]: number for number, place in enumerate(places, 1)})


def _only(pattern: bytes, name: bytes, text: bytes) -> re.Match[bytes] | None:
    """Where a member is, if it is there once."""
    if len(re.findall(rb'"%b"\s*:' % name, text)) != 1:
        return None
    return re.search(pattern % name, text)


def remember(link: ClientLink, header_template: HeaderTemplate) -> None:
    """Keep a template for a link, unless it is there already."""
    header_templates = link.header_templates
    for known in header_templates:
        if known.head == header_template.head and known.rest == header_template.rest:
            return
    if len(header_templates) >= HEADER_TEMPLATES_MAX:
        # More kinds of requests than places, or old ones in them: begin anew now and then.
        link.strangers += 1
        if link.strangers < STRANGERS_MAX:
            return
        header_templates.clear()
    link.strangers = 0
    header_templates.append(header_template)
    link.header_template = header_template


def forget(link: ClientLink, header_template: HeaderTemplate) -> None:
    """Drop a template that holds no longer."""
    link.header_templates.remove(header_template)
    if link.header_template is header_template:
        link.header_template = None


def take_other(link: ClientLink, data: bytes, start: int, stop: int, end: int) -> bool:
    """Try the templates of a link that were not tried first; the one that fits is the first from now on."""
    for header_template in link.header_templates[:]:
        if (
            header_template is not link.header_template
            and data.startswith(header_template.head, start)
            and header_template.fast.take(link, header_template, data, start, stop, end)
        ):
            link.header_template = header_template
            return True
    return False
