"""Codes and release numbers against the tables and against Apache's own functions."""

from __future__ import annotations

from mqproto.wire import codes
from mqproto.wire.codes import VERSION, Language, RequestCode, ResponseCode, version_name
from tests.golden.golden import Golden


def test_codes_are_those_of_the_table(golden: Golden) -> None:
    for enum, table in ((RequestCode, "request_codes"), (ResponseCode, "response_codes"), (Language, "language_codes")):
        assert {name: int(code) for name, code in enum.__members__.items()} == {
            row["name"]: row["code"] for row in golden.codes[table]
        }


def test_language(golden: Golden) -> None:
    for vector in golden.vectors("language"):
        known = {output for output in vector.outputs.values() if isinstance(output, int)}
        assert known == {int(Language[vector.input])}


def test_version_name(golden: Golden) -> None:
    for vector in golden.vectors("version-name"):
        assert version_name(vector.input) == vector.output()


def test_every_release_of_the_table_has_its_name(golden: Golden) -> None:
    for row in golden.codes["remoting_versions"]:
        assert version_name(row["version"]) == "V" + row["release"].replace(".", "_")
    for row in golden.codes["version_thresholds"]:
        assert version_name(row["version"]) == row["name"]


def test_version_names_are_all_different() -> None:
    names = [version_name(version) for version in range(612)]
    assert len(set(names)) == 612
    assert version_name(-1) == version_name(612) == version_name(1 << 31) == "HIGHER_VERSION"


def test_version_that_we_send(golden: Golden) -> None:
    (vector,) = golden.vectors("version-current")
    assert vector.output("4.9.7") == VERSION


def test_plain_numbers_are_those_of_the_enums() -> None:
    numbers = {
        name: value
        for name, value in vars(codes).items()
        if type(value) is int and name in RequestCode.__members__.keys() | ResponseCode.__members__.keys()
    }
    assert len(numbers) >= 20
    assert not RequestCode.__members__.keys() & ResponseCode.__members__.keys()
    for name, value in numbers.items():
        assert value == (RequestCode.__members__ | ResponseCode.__members__)[name], name
