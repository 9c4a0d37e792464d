"""Installed wheel beside others: all of it lies below `mqproto`, whatever else is called `adapters` or `engine`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_compiled import SOURCE, build, copy

ROOT = Path(__file__).parent.parent
#: An application that has folders of its own by these names, and uses the client.
APPLICATION = """
import adapters
import engine
from mqproto import ConsumeFromWhere, Message
from mqproto.adapters.threaded import Producer, SimpleConsumer, Standalone

assert (adapters.WHOSE, engine.WHOSE) == ("{whose}", "{whose}")
with Standalone() as server, Producer("p", server.namesrv_address) as producer:
    producer.send(Message("Orders", b"an order"))
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with SimpleConsumer("c", server.namesrv_address, consume_from_where=first) as consumer:
        consumer.subscribe("Orders")
        message = next(iter(consumer))
        consumer.ack(message)
        print(message.body.decode())
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "MQPROTO_COMPILED")}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def foreign(name: str, folder: Path) -> Path:
    """A wheel of a package that is called `name` and has nothing to do with us."""
    package = folder / f"source-{name}" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('WHOSE = "a foreign package"\n')
    (package.parent / "setup.py").write_text(
        f"from setuptools import setup\nsetup(name={name!r}, version='1', packages=[{name!r}])\n"
    )
    built = build(package.parent, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob(f"{name}-1-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    built = build(copy(SOURCE, folder / "source"), folder, MQPROTO_COMPILED="")
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def python(wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment that has nothing but the wheel."""
    made = run(sys.executable, "-m", "venv", tmp_path / "environment", cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    found = tmp_path / "environment" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install(found, wheel)
    return found


def install(python: Path, *wheels: Path) -> None:
    done = run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *wheels, cwd=python.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_has_one_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"mqproto"}


def test_beside_a_project_with_such_folders(python: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("adapters", "engine"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text('WHOSE = "the project"\n')
    (project / "application.py").write_text(APPLICATION.format(whose="the project"))
    done = run(python, "application.py", cwd=project)
    assert (done.stdout, done.returncode) == ("an order\n", 0), done.stderr


def test_beside_foreign_packages_and_after_they_have_gone(python: Path, tmp_path: Path) -> None:
    install(python, foreign("adapters", tmp_path), foreign("engine", tmp_path))
    (tmp_path / "application.py").write_text(APPLICATION.format(whose="a foreign package"))
    done = run(python, "application.py", cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("an order\n", 0), done.stderr
    gone = run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "adapters", "engine", cwd=tmp_path)
    assert gone.returncode == 0, gone.stderr
    assert run(python, "-m", "mqproto", "version", cwd=tmp_path).stdout.startswith("mqproto ")


def test_old_imports_fail_with_the_words_of_python(python: Path, tmp_path: Path) -> None:
    done = run(python, "-c", "from adapters.threaded import Producer", cwd=tmp_path)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'adapters'\n")


def test_editable(tmp_path: Path) -> None:
    """`pip install -e` of a checkout: the links lead where they should."""
    checkout = copy(SOURCE, tmp_path / "checkout")
    made = run(sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "environment", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    python = tmp_path / "environment" / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    paths = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    done = subprocess.run(
        [*map(str, command), "-e", str(checkout)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import mqproto.adapters.threaded as found; print(found.__file__)"
    shown = run(python, "-c", code, cwd=tmp_path)
    assert Path(shown.stdout.strip()).resolve() == (checkout / "adapters/threaded/__init__.py").resolve(), shown.stderr


def without_links(to: Path) -> Path:
    """A checkout as git makes it where there are no symbolic links: small files with the place that is meant."""
    checkout = copy(SOURCE, to)
    for name in ("adapters", "engine"):
        (checkout / "mqproto" / name).unlink()
        (checkout / "mqproto" / name).write_text(f"../{name}")
    return checkout


class TestWithoutLinks:
    def test_the_command_works(self, tmp_path: Path) -> None:
        checkout = without_links(tmp_path / "checkout")
        done = run(sys.executable, "-m", "adapters", "version", cwd=checkout)
        assert done.stdout.startswith("mqproto "), done.stderr
        assert run(sys.executable, "-m", "adapters", "send", "--help", cwd=checkout).returncode == 0

    def test_the_other_door_says_what_to_do(self, tmp_path: Path) -> None:
        done = run(sys.executable, "-m", "mqproto", "version", cwd=without_links(tmp_path / "checkout"))
        assert done.returncode == 1
        assert done.stderr.startswith("mqproto: this checkout has no symbolic links: ")
        assert done.stderr.count("\n") == 1

    def test_a_build_says_what_to_do(self, tmp_path: Path) -> None:
        built = build(without_links(tmp_path / "checkout"), tmp_path)
        assert built.returncode != 0
        assert "this checkout has no symbolic links: " in built.stdout + built.stderr
