"""Commands on the embedded database, with and without a running server: `dump` and `restore` of all types, and how they
are stopped."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from server.embedded import dumps
from server.embedded import postgres as embedded
from server.settings import StartError
from tests import catalog
from tests.conftest import memory, on_server
from tests.waiting import wait_until

DEADLINE_SECONDS = 60
COLUMNS = {
    # The JSON values of SAMPLE, written as PostgreSQL reads them.
    "span": "'1 year 2 months 3 days 04:05:06'",
    "blob": "'\\x00ff80'",
    "plain_json": '\'{"b": 1,  "a": [true, null]}\'',
    "blobs": "ARRAY['\\x0001'::bytea, NULL]",
    "trees": "ARRAY['{\"a\": 1}', '[2]', 'null', NULL]::jsonb[]",
    "spans": "ARRAY['1 day'::interval, '-01:00:00']",
    "moments": "ARRAY['infinity'::timestamp, '2024-05-31 12:00']",
    "exact": "'NaN'",
    "double": "'-Infinity'",
    "single": "0.1",
    "words": "E'tab\\t, newline\\n, \\\\., Käse & 🧀'",
    "place": "'(1,2)'",
    "address": "'192.168.0.0/24'",
    "origin": "ROW('Bergen', '1070-01-01')",
    "origins": "ARRAY[ROW('a \"b\"', NULL)::corner.origin, NULL]",
    "grid": "'{{1,NULL},{3,4}}'",
}


def literal(name: str, value: Any) -> str:
    if name in COLUMNS:
        return COLUMNS[name]
    if isinstance(value, dict):
        return "'" + json.dumps(value) + "'"
    if isinstance(value, list):
        return "'{" + ",".join(json.dumps(item) for item in value) + "}'"
    return "'" + str(value).replace("'", "''") + "'"


ROW = {name: literal(name, value) for name, value in (catalog.SAMPLE | {"place": "", "address": ""}).items()}
FILL = f"""
INSERT INTO corner.samples ({", ".join(ROW)}) VALUES ({", ".join(ROW.values())});
INSERT INTO corner.samples DEFAULT VALUES;
SELECT setval('corner.samples_id_seq', 4711);
INSERT INTO public.authors (given, family, "größe") VALUES ('Ada', 'Lovelace', 165);
INSERT INTO corner.articles (id, title, author_id) VALUES ('a', 'One', 1);
INSERT INTO public.tags (name) VALUES ('x'), ('y');
INSERT INTO corner.article_tags VALUES ('a', 2);
INSERT INTO corner.nodes (id, "Mixed Case", parent_id) VALUES ('00000000-0000-4000-8000-000000000001', 'Ä', NULL);
CREATE SEQUENCE corner.lone INCREMENT 7; SELECT nextval('corner.lone'), nextval('corner.lone');
"""
TABLES = """
SELECT format('%I.%I', nspname, relname), relkind::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind IN ('r', 'S') AND nspname IN ('public', 'corner') ORDER BY 1
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that PostgreSQL's account may enter."""
    path = Path(tempfile.mkdtemp(prefix="waterspout-", dir=memory()))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """Create a folder of migrations."""
    (tmp_path / "0001_corner.sql").write_text(catalog.DDL, encoding="utf-8")
    return tmp_path


def run(*arguments: object, code: int = 0, **options: Any) -> subprocess.CompletedProcess[Any]:
    command = [sys.executable, "-m", "server", *map(str, arguments)]
    options = {"capture_output": True, "text": True} | options
    done = subprocess.run(command, timeout=DEADLINE_SECONDS, check=False, **options)
    assert done.returncode == code, done.stderr
    return done


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    async def read() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(read())


def contents(url: str) -> dict[str, Any]:
    """Return every row as PostgreSQL writes it, and the position of each sequence."""
    shown = {"r": "t", "S": "row(last_value, is_called)"}
    return {
        name: [text for (text,) in rows(url, f"SELECT {shown[kind]}::text FROM {name} t ORDER BY 1")]
        for name, kind in rows(url, TABLES)
    }


def test_dump_and_restore_keep_all_types_and_sequences(folder: Path, schema: Path) -> None:
    """The first dump is of a running server, the second of a stopped one. Each copy equals the original."""
    first, second, third = (folder / name for name in ("first", "second", "third"))
    files = ("--migrations", schema)
    run("migrate", "up", "--data-dir", first, *files)
    with embedded.start(first, say=lambda _: None) as server:
        on_server(server.dsn, FILL)
        before = contents(server.dsn)
        dumped = run("dump", folder / "dump", "--data-dir", first, *files)
        assert (dumped.stdout, dumped.stderr) == ("", "")
        # `migrate status` works too while the server runs.
        assert run("migrate", "status", "--data-dir", first, *files).stdout == "applied  0001_corner.sql\n"
    assert before["corner.samples_id_seq"] == ["(4711,t)"]
    assert before["corner.lone"] == ["(8,t)"]
    assert len(before["corner.samples"]) == 2
    assert (folder / "dump").stat().st_mode & 0o777 == 0o600
    assert run("restore", folder / "dump", "--data-dir", second, *files).stdout.endswith(f"restored {folder}/dump\n")
    with (folder / "again").open("wb") as file:
        run("dump", "-", "--data-dir", second, *files, capture_output=False, stdout=file, stderr=subprocess.PIPE)
    run("restore", folder / "again", "--data-dir", third, *files)
    for copy in (second, third):
        with embedded.start(copy, say=lambda _: None) as server:
            assert contents(server.dsn) == before
    assert run("migrate", "verify", "--data-dir", third, *files).stdout == "1 applied file of 1 as on disk\n"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder with a data folder `data`, its `dump`, and their migrations in `schema`. Tests only read it."""
    path = Path(tempfile.mkdtemp(prefix="waterspout-", dir=memory()))
    path.chmod(0o755)
    (path / "schema").mkdir()
    (path / "schema" / "0001_a.sql").write_text("CREATE TABLE a AS SELECT 1 AS id")
    (path / "schema" / "0002_b.sql").write_text("CREATE TABLE b ()")
    flags = ("--data-dir", path / "data", "--migrations", path / "schema")
    run("migrate", "up", *flags)
    run("dump", path / "dump", *flags)
    yield path
    shutil.rmtree(path)


def refused(*arguments: object) -> str:
    done = run(*arguments, code=1)
    return str(done.stderr).splitlines()[-1]


def test_a_restore_refuses_a_database_that_is_not_empty(given: Path) -> None:
    flags = ("--data-dir", given / "data", "--migrations", given / "schema")
    assert refused("restore", given / "dump", *flags) == (
        "Error: the database is not empty, it has public.a: "
        "a dump is restored into a new folder, which --data-dir names"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"0001_a.sql": "CREATE TABLE a ()"}, "Error: 0001_a.sql was changed after it was applied on "),
        ({"0001_x.sql": "SELECT 1"}, "Error: 0001_a.sql was applied to this database and is missing from the folder, "),
    ],
)
def test_a_dump_of_other_migrations_is_refused_before_a_database_is_created(
    given: Path, folder: Path, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    flags = ("--data-dir", folder / "new", "--migrations", tmp_path)
    assert refused("restore", given / "dump", *flags).startswith(message)
    assert list(folder.iterdir()) == []


def test_a_dump_that_is_behind_is_restored_and_reported(given: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(given / "schema", tmp_path, dirs_exist_ok=True)
    (tmp_path / "0003_c.sql").write_text("CREATE TABLE c ()")
    flags = ("--data-dir", folder / "new", "--migrations", tmp_path)
    said = run("restore", given / "dump", *flags).stdout.splitlines()
    assert said[-1] == "its schema is behind: the next serve, or migrate up, applies 0003_c.sql"
    assert run("migrate", "up", *flags).stdout.splitlines()[-1] == "applied 0003_c.sql"


def test_a_dump_without_migrations_is_of_another_schema(given: Path, folder: Path, tmp_path: Path) -> None:
    path = folder / "dump"
    with embedded.start(folder / "data", say=lambda _: None) as server:
        on_server(server.dsn, "CREATE TABLE a ()")
        dumps.dump(server.dsn, path)
    flags = ("--data-dir", folder / "new", "--migrations", given / "schema")
    assert refused("restore", path, *flags) == (
        f"Error: {path} has no record of migrations: it is of another schema than this server's"
    )


def test_the_migrations_of_a_dump(given: Path) -> None:
    found = dumps.applied_migrations(given / "dump")
    assert [(row.number, row.name, row.breaks_older_servers) for row in found] == [
        (1, "0001_a.sql", False),
        (2, "0002_b.sql", False),
    ]
    assert all(len(row.checksum) == 64 and row.applied_at.tzinfo is not None for row in found)


def test_a_file_that_is_no_dump_is_refused(given: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a dump at all\n" * 100)
    with pytest.raises(StartError, match="/text is no dump: pg_restore ended with 1: "):
        dumps.applied_migrations(tmp_path / "text")
    whole = (given / "dump").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StartError, match="/half is no dump: pg_restore ended with 1: "):
        dumps.applied_migrations(tmp_path / "half")
    with pytest.raises(StartError, match=f"^{tmp_path}/nowhere cannot be read: No such file or directory$"):
        dumps.applied_migrations(tmp_path / "nowhere")


def test_a_dump_that_fails_keeps_the_old_file(folder: Path) -> None:
    path = folder / "dump"
    path.write_text("before")
    with pytest.raises(StartError, match="pg_dump ended with 1: "):
        dumps.dump(f"postgresql://nobody@/nothing?host={folder}", path)
    assert [(entry.name, entry.read_text()) for entry in folder.iterdir()] == [("dump", "before")]


def test_a_restore_that_fails_leaves_nothing(given: Path, folder: Path) -> None:
    """One table exists already, so the tables that were restored before it are rolled back. (The command itself would
    have refused the database.)"""
    with embedded.start(folder / "data", say=lambda _: None) as server:
        on_server(server.dsn, "CREATE TABLE b ()")
        with pytest.raises(StartError, match='relation "b" already exists'):
            dumps.restore(server.dsn, given / "dump")
        assert contents(server.dsn) == {"public.b": []}


def test_dumps_are_only_for_the_embedded_database(given: Path) -> None:
    url = ("--database-url", "postgresql://me@db/shop")
    assert "pg_dump --format=custom URL > FILE" in refused("dump", given / "x", *url)
    assert "pg_restore --no-owner --dbname URL FILE" in refused("restore", given / "dump", *url)


@pytest.mark.parametrize(
    "command",
    [("dump", "file"), ("migrate", "status"), ("migrate", "up", "--dry-run"), ("check",), ("explain", "/users")],
)
def test_commands_that_only_read_create_no_database(folder: Path, command: tuple[str, ...]) -> None:
    path = folder / "nowhere"
    assert refused(*command, "--data-dir", path) == (
        f"Error: there is no embedded database in {path}: `waterspout serve` makes one, --data-dir names another "
        "folder, and --database-url your own database"
    )
    assert list(folder.iterdir()) == []


ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()"


def is_asleep(data: Path) -> bool:
    url = embedded.running_dsn(data)
    try:
        return url is not None and rows(url, ASLEEP) == [(1,)]
    except (OSError, asyncpg.CannotConnectNowError):
        return False


def test_a_stopped_command_leaves_no_database_running(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "0001_sleep.sql").write_text("CREATE TABLE a (); SELECT pg_sleep(600)")
    data = folder / "data"
    command = [sys.executable, "-m", "server", "migrate", "up", "--data-dir", data, "--migrations", tmp_path]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: is_asleep(data) or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, errors) == (128 + signal.SIGTERM, b"")
    assert embedded.running_dsn(data) is None
    with embedded.start(data, say=lambda _: None) as server:
        assert contents(server.dsn) == {"public.waterspout_migrations": []}
