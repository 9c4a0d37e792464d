"""Golden data: all that real RocketMQ programs sent, stored and computed, for tests to compare with (README.md beside
this file).

    golden.capture("4.9.7", "produce-sync")     entries of a capture, in order
    golden.vectors("tags-code")                 inputs and outputs of Apache's own functions
    golden.bodies()                             the largest body of each kind
    golden.store("4.9.7", "clean")              a data directory and what Apache serves from it

At collection time, where no fixture is there yet, use the module's `GOLDEN`.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

#: Tables of headers and codes.
PROTOCOL: Final = Path(__file__).parents[2] / "docs" / "protocol"
VERSIONS: Final = ("4.4.0", "4.9.7", "5.3.3")
#: The release that we follow where releases differ.
FOLLOWED: Final = "4.9.7"


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame or event of a capture.

    `direction` is `>` from the side that connected, `<` the other way, "" for events. `header` is the recorder's own
    decoding, a reading aid. `frame` is the whole frame with its length word, empty for events and for bytes that are no
    frame (`raw`).
    """

    at: float
    link: str
    connection: int
    direction: str
    frame: bytes = b""
    header: dict[str, Any] = field(default_factory=dict)
    raw: bytes = b""
    event: str = ""
    port: int = 0
    side: str = ""

    @property
    def is_request(self) -> bool:
        return bool(self.frame) and not self.header.get("flag", 0) & 1

    @property
    def code(self) -> int:
        return int(self.header.get("code", 0))

    @property
    def opaque(self) -> int:
        return int(self.header.get("opaque", 0))

    @property
    def fields(self) -> dict[str, str]:
        return self.header.get("extFields") or {}

    @property
    def body(self) -> bytes:
        return self.frame[8 + int.from_bytes(self.frame[5:8], "big") :]


@dataclass(frozen=True, slots=True)
class Vector:
    """One call of a function of Apache's: `output` of a release is a value, `{"error": ...}` or `{"absent": true}`."""

    input: Any
    outputs: dict[str, Any]

    def output(self, version: str = FOLLOWED) -> Any:
        return self.outputs.get(version, {"absent": True})

    def fails(self, version: str = FOLLOWED) -> bool:
        output = self.output(version)
        return isinstance(output, dict) and "error" in output


@dataclass(frozen=True, slots=True)
class Body:
    """The largest body of a kind. `text` is laid out for reading; its tokens are as Java wrote them, so it may be no
    strict JSON.
    """

    code: int
    name: str
    side: str
    version: str
    text: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of a capture and its answer, or None (one-way, or no answer in the capture)."""

    request: Entry
    answer: Entry | None


@dataclass(frozen=True, slots=True)
class StoreSample:
    """A recorded data directory."""

    archive: Path
    config: Path
    listing: str
    expected: dict[str, Any]

    def unpack(self, target: Path) -> Path:
        """Extract into `target` (file times as recorded) and give the data directory."""
        with tarfile.open(self.archive) as archive:
            archive.extractall(target, filter="data")
        inside = [path for path in target.iterdir() if path.is_dir()]
        return inside[0] if len(inside) == 1 and not (target / "commitlog").is_dir() else target


@cache
def _capture(path: Path) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for line in lzma.decompress(path.read_bytes()).splitlines():
        one = json.loads(line)
        entries.append(
            Entry(
                at=one["at"],
                link=one["link"],
                connection=one["conn"],
                direction=one.get("dir", ""),
                frame=bytes.fromhex(one.get("frame", "")),
                header=one.get("header") or {},
                raw=bytes.fromhex(one.get("raw", "")),
                event=one.get("event", ""),
                port=one.get("port", 0),
                side=one.get("side", ""),
            )
        )
    return tuple(entries)


@cache
def _json(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())


class Golden:
    """The reader. Everything is read when it is asked for, and kept."""

    versions = VERSIONS

    def __init__(self, root: Path) -> None:
        self.root = root

    def capture_names(self, version: str) -> list[str]:
        """The scenarios that were recorded with a release."""
        return sorted(
            path.name.removesuffix(".jsonl.xz") for path in (self.root / "captures" / version).glob("*.jsonl.xz")
        )

    def capture(self, version: str, name: str) -> tuple[Entry, ...]:
        """Frames and events of a scenario, in the order of the recorder."""
        return _capture(self.root / "captures" / version / f"{name}.jsonl.xz")

    def exchanges(self, version: str, name: str) -> list[Exchange]:
        """The requests of a scenario in order, with their answers."""
        entries = [entry for entry in self.capture(version, name) if entry.frame]
        answers: dict[tuple[int, str, int], list[Entry]] = {}
        for entry in entries:
            if not entry.is_request:
                answers.setdefault((entry.connection, entry.direction, entry.opaque), []).append(entry)
        result: list[Exchange] = []
        for entry in entries:
            if entry.is_request:
                back = "<" if entry.direction == ">" else ">"
                waiting = answers.get((entry.connection, back, entry.opaque), [])
                oneway = entry.header.get("flag", 0) & 2
                result.append(Exchange(entry, waiting.pop(0) if waiting and not oneway else None))
        return result

    def json_answers(self, version: str, code: int) -> list[Entry]:
        """The answers without an error to all requests of a code, of those with JSON headers."""
        exchanges = [exchange for name in self.capture_names(version) for exchange in self.exchanges(version, name)]
        answers = [exchange.answer for exchange in exchanges if exchange.request.code == code]
        return [
            answer for answer in answers if answer is not None and answer.code == 0 and answer.frame[4] == 0
        ]  # of JSON the byte is 0

    def printed(self, version: str, name: str) -> str:
        """What the programs of a scenario printed."""
        return (self.root / "captures" / version / f"{name}.txt").read_text()

    def vectors(self, kind: str) -> list[Vector]:
        """The calls of one kind; every release has an output."""
        result: list[Vector] = []
        for one in _json(self.root / "vectors.json")[kind]:
            outputs = one["outputs"] if "outputs" in one else dict.fromkeys(VERSIONS, one.get("output"))
            result.append(Vector(one["input"], outputs))
        return result

    def bodies(self) -> list[Body]:
        """The largest body of each kind that was seen, by release."""
        result: list[Body] = []
        for path in sorted((self.root / "bodies").glob("*.json")):
            stem, version = path.name.removesuffix(".json").split(".", 1)
            code, name, side = stem.split("-", 2)
            result.append(Body(int(code), name, side, version, path.read_text()))
        return result

    def store(self, version: str, kind: str) -> StoreSample:
        """A data directory; `kind` is clean (the broker was stopped) or crashed (killed while it wrote)."""
        base = self.root / "stores"
        stem = f"store-{version}-{kind}"
        return StoreSample(
            archive=base / f"{stem}.tar.xz",
            config=base / f"{stem}.config",
            listing=(base / f"{stem}.listing.txt").read_text(),
            expected=_json(base / f"{stem}.expect.json.xz"),
        )

    @property
    def headers(self) -> dict[str, Any]:
        """The table of all request and answer headers."""
        table: dict[str, Any] = _json(PROTOCOL / "headers.json")
        return table

    @property
    def codes(self) -> dict[str, Any]:
        """The tables of request, response and language codes and of releases."""
        table: dict[str, Any] = _json(PROTOCOL / "codes.json")
        return table


GOLDEN: Final = Golden(Path(__file__).parent)
