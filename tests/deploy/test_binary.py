"""The one-file program that `make binary` and `make binary-full` put into dist/: on a machine without Python, under the
restrictions of its unit, and with a user's own code. `make test-binary` builds the program and runs these tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.conftest import on_server, with_database
from tests.deploy import bare
from tests.deploy.programs import ROOT, UNIT, confined, needs_systemd, serving

DIST = ROOT / "dist"
PROGRAM = DIST / "waterspout"
FULL = DIST / "waterspout-full"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a machine of its own")

pytestmark = pytest.mark.binary

# This code imports two other packages: a module of Python and one of C.
RESOURCES = """
import shop_words
import xxlimited
from waterspout import TEXT, Attribute, Resource

assert xxlimited.__file__.startswith(shop_words.FOLDER), xxlimited.__file__
RESOURCES = [Resource("thing", "/things", "things", attributes=(Attribute(shop_words.NAME, TEXT, required=True),))]
"""
MIGRATION = """
CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
INSERT INTO things (name) VALUES ('lamp');
"""


def inside(machine: Path, uid: int, folders: Sequence[str], *command: str) -> list[str]:
    """Run a command on the bare machine."""
    return [sys.executable, "-m", "tests.deploy.bare", str(machine), str(uid), *folders, "--", *command]


def socket_folder(url: str) -> list[str]:
    return parse_qs(urlsplit(url).query).get("host", [])


@pytest.fixture
def empty_url(postgres_url: str) -> Iterator[str]:
    name = f"waterspout_empty_{os.getpid()}"
    on_server(postgres_url, f"CREATE DATABASE {name}")
    yield with_database(postgres_url, name)
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    yield bare.make(tmp_path / "machine", *(path for path in (PROGRAM, FULL) if path.exists()))
    shutil.rmtree(tmp_path / "machine")


@as_root
def test_it_runs_where_there_is_the_c_library_alone(machine: Path, database_url: str) -> None:
    command = inside(machine, 0, socket_folder(database_url), "/bin/waterspout", "serve", "--port", "0")
    with serving(command, {"WATERSPOUT_DATABASE_URL": database_url}) as server:
        assert json.loads(server.get("/users")[1])["data"] == []


@as_root
def test_it_starts_without_proc(machine: Path) -> None:
    """The program then uses temporary files for what it otherwise keeps in memory, and removes them."""
    start = "import os, sys; os.chroot(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    command = [sys.executable, "-c", start, str(machine), "/bin/waterspout", "settings"]
    started = subprocess.run(command, capture_output=True, text=True, check=True)
    assert started.stdout.startswith("host = ")
    assert list((machine / "tmp").iterdir()) == []


def test_the_files_of_its_packages_are_in_it(empty_url: str, tmp_path: Path) -> None:
    """Migrations of the server, templates of pages, their style, the docs page, and what a sign-in needs."""
    secret = tmp_path / "secret"
    secret.write_text("s" * 48)
    migrate = [PROGRAM, "migrate", "up", "--database-url", empty_url, "--idempotency", "on"]
    applied = subprocess.run(migrate, capture_output=True, text=True, check=True).stdout
    assert "idempotency" in applied, applied
    signing = ("--auth-issuer", "http://127.0.0.1:1", "--auth-audience", "us", "--login-client-id", "pages")
    flags = ("--idempotency", "on", *signing, "--session-secret-file", str(secret))
    command = [str(PROGRAM), "serve", "--port", "0", "--database-url", empty_url, *flags]
    with serving([*command, "--public-url", "http://127.0.0.1:8080"]) as server:
        page = server.get("/?answerAs=html")
        assert (page[0], b"Sign in" in page[1]) == (200, True)
        for path in ("/-/pages/pages.css", "/-/pages/pages.js", "/-/docs"):
            assert server.get(path)[0] == 200, path
        assert server.get("/-/pages/sign-in")[0] == 503


@as_root
@needs_systemd
def test_it_runs_under_the_restrictions_of_its_unit(database_url: str) -> None:
    command = [*confined(database_url, str(DIST)), str(PROGRAM), "serve", "--port", "0", "--workers", "2"]
    with serving(command) as server:
        assert server.get("/-/ready")[0] == 200
        assert json.loads(server.get("/users")[1])["data"] == []


@as_root
@needs_systemd
def test_the_full_one_runs_under_the_restrictions_of_its_unit(tmp_path: Path) -> None:
    unit = tmp_path / "waterspout.service"
    unit.write_text(f"{UNIT.read_text()}{UNIT.with_name('embedded.conf').read_text()}")
    with serving([*confined("", str(DIST), unit=unit), str(FULL), "serve", "--demo", "--port", "0"]) as server:
        assert json.loads(server.get("/users?page[size]=1")[1])["meta"]["total"] > 0


def loaded(text: str, folder: Path) -> str:
    """Return the error message of a resources file that fails."""
    path = folder / "declared.py"
    path.write_text(text)
    database = "postgresql://127.0.0.1:1/nothing"
    command = [PROGRAM, "serve", "--port", "0", "--resources", path, "--database-url", database]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    return ended.stderr


# These modules are left out: some need a display, some are tests or installers, and some use libraries under the GPL or
# LGPL.
MISSING = {
    *("antigravity", "idlelib", "tkinter", "_tkinter", "turtle", "turtledemo", "ensurepip", "lib2to3", "pydoc_data"),
    *("readline", "crypt", "_crypt", "nis", "_dbm", "_gdbm"),
}


def test_the_standard_library_is_in_it(tmp_path: Path) -> None:
    there = {name for name in sys.stdlib_module_names - MISSING if has_module(name)}
    text = f"""
import importlib
missing = {{}}
for name in {sorted(there)}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing[name] = str(error)
raise RuntimeError(f"missing: {{missing}}")
"""
    assert "missing: {}" in loaded(text, tmp_path)


def has_module(name: str) -> bool:
    """Return whether this Python, with which the program was built, has the module."""
    tried = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False)
    return tried.returncode == 0


def test_a_users_own_resources_migrations_and_packages(tmp_path: Path, empty_url: str) -> None:
    packages, migrations = tmp_path / "packages", tmp_path / "migrations"
    packages.mkdir()
    migrations.mkdir()
    extension = next(Path(sysconfig.get_config_var("DESTSHARED")).glob("xxlimited.*.so"))
    shutil.copy(extension, packages)
    (packages / "shop_words.py").write_text(f"NAME, FOLDER = 'name', {str(packages)!r}\n")
    (migrations / "0001_things.sql").write_text(MIGRATION)
    (tmp_path / "things.py").write_text(RESOURCES)
    flags = ["--resources", tmp_path / "things.py", "--migrations", migrations, "--python-path", packages, "--migrate"]
    with serving([PROGRAM, "serve", "--port", "0", "--database-url", empty_url, *flags]) as server:
        things = json.loads(server.get("/things")[1])["data"]
        assert [thing["attributes"] for thing in things] == [{"name": "lamp"}]


@as_root
def test_the_full_one_brings_its_database_for_root(machine: Path) -> None:
    """PostgreSQL's initdb needs a shell, and nothing else from the machine."""
    command = inside(machine, 0, [], "/bin/waterspout-full", "serve", "--demo", "--port", "0")
    with_shell(machine)
    for _ in range(2):
        with serving(command) as server:
            assert json.loads(server.get("/users?page[size]=1")[1])["meta"]["total"] > 0
    assert len(list((machine / "var/cache/waterspout").iterdir())) == 1


@as_root
def test_the_full_one_brings_its_database_for_a_user(machine: Path) -> None:
    with_shell(machine)
    command = inside(machine, 1000, [], "/bin/waterspout-full")
    home = {"HOME": "/home/ann"}
    with serving([*command, "serve", "--demo", "--port", "0"], home) as server:
        assert json.loads(server.get("/users?page[size]=1")[1])["meta"]["total"] > 0
    dumped = [*command, "dump", "/home/ann/rows.dump"]
    subprocess.run(dumped, cwd=ROOT, env=os.environ | home, check=True, capture_output=True)
    assert (machine / "home/ann/rows.dump").stat().st_size > 10_000


def with_shell(machine: Path) -> None:
    shutil.copy("/bin/sh", machine / "bin")


@as_root
def test_the_small_one_says_where_there_is_a_database(machine: Path) -> None:
    command = inside(machine, 0, [], "/bin/waterspout", "serve", "--port", "0")
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (refused.returncode, "waterspout-full" in refused.stderr) == (1, True)


def test_the_benchmark_is_not_in_it() -> None:
    ended = subprocess.run([PROGRAM, "bench"], capture_output=True, text=True, check=False)
    refused = "Error: the benchmark is not installed with the server: run it in a clone of the repository\n"
    assert (ended.returncode, ended.stderr) == (1, refused)


def test_a_running_server_does_not_mind_that_its_file_is_replaced(tmp_path: Path, database_url: str) -> None:
    """It imports further modules from the file that it was started from."""
    program = shutil.copy(PROGRAM, tmp_path / "waterspout")
    with serving([program, "serve", "--port", "0", "--database-url", database_url]) as server:
        new = tmp_path / "new"
        new.write_bytes(b"#!/bin/sh\nexit 1\n")
        new.rename(program)
        server.process.send_signal(signal.SIGHUP)
        # The new generation's answer, from a worker that was forked after the replacement.
        lines = iter(server.process.stderr.readline, "")
        assert any("generation 2 answers" in line for line in lines)
        assert server.get("/users")[0] == 200


@pytest.mark.parametrize("program", [PROGRAM, FULL], ids=lambda program: program.name)
def test_what_is_published_beside_it(program: Path) -> None:
    materials = json.loads(program.with_name(f"{program.name}.cdx.json").read_text())
    names = {component["name"] for component in materials["components"]}
    assert materials["metadata"]["component"]["name"] == "waterspout"
    assert {"tornado", "asyncpg", "msgspec", "uvloop", "click", "cpython", "libuv"} <= names
    assert ({"postgresql", "pgvector"} <= names) == (program == FULL)
    assert all(component.get("licenses") and component.get("version") for component in materials["components"])
    notices = program.with_name(f"{program.name}.notices.txt").read_text()
    for component in materials["components"]:
        assert f"\n{component['name']} {component['version']}\n====" in notices, component["name"]
    assert ("PostgreSQL Global Development Group" in notices) == (program == FULL)
    units = {path.name for path in (ROOT / "deploy").glob("waterspout*.s*")}
    assert units <= {path.name for path in DIST.iterdir()}


@pytest.mark.parametrize(("program", "megabytes"), [(PROGRAM, 43), (FULL, 50)], ids=["small", "full"])
def test_its_size(program: Path, megabytes: int) -> None:
    assert program.stat().st_size < megabytes * 1e6


def _is_copied(line: list[str]) -> bool:
    """Return whether a line of the Containerfile copies what was built, and not what another stage has."""
    return line[:1] == ["COPY"] and not line[1].startswith("--from=")


def test_the_container_gets_what_is_there() -> None:
    lines = [line.split() for line in (ROOT / "deploy" / "Containerfile").read_text().splitlines()]
    copied = {name: line[-1] for line in lines if _is_copied(line) for name in line[1:-1] if "=" not in name}
    assert all((DIST / name).is_file() for name in copied)
    assert ["ENTRYPOINT", f'["{copied["waterspout"]}"]'] in lines
    assert [line[1].split(":")[0] not in ("root", "0") for line in lines if line[:1] == ["USER"]] == [True]
