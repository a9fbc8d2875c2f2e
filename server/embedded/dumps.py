"""The embedded data in one file, and back. What comes in: a file, and the URL of a database. What goes out: the file in
PostgreSQL's own archive format, or a database as it was.

pg_dump and pg_restore do it, those that come with the embedded PostgreSQL: one snapshot, with where the sequences are,
whether or not a server is at work. It must not know: settings, how the database was reached.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from migrations import Applied
from server.embedded.folder import sync_folder
from server.embedded.postgres import program
from server.settings import StartError

_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
_RECORD = re.compile(
    r"^COPY public\.waterspout_migrations \(([^)]*)\) FROM stdin;\n(.*?)^\\\.$", re.MULTILINE | re.DOTALL
)
_FIRST_RELATION = """
SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%' AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
ORDER BY 1 LIMIT 1
"""


def dump(url: str, path: Path | None) -> None:
    """Writes all of a database; None is standard output. A file appears, or takes another's place, when it is whole,
    and is its owner's alone to read. Raises StartError, EmbeddedError."""
    command = [program("pg_dump"), "--format=custom", f"--dbname={url}"]
    if path is None:
        _run(command, None)
        return
    try:
        with _written(path) as name:
            _run([*command, f"--file={name}"], subprocess.DEVNULL)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _written(path: Path) -> Iterator[str]:
    """The name of what will be the file. What is no file, such as a device, is written as it is."""
    if path.exists() and not path.is_file():
        yield str(path)
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    try:
        # pg_dump waits until what it wrote is on disk.
        yield name
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def record_of(path: Path) -> tuple[Applied, ...]:
    """The migrations that were applied to what is in a dump. Raises StartError for what is none, EmbeddedError."""
    flags = ["--data-only", "--schema=public", "--table=waterspout_migrations", "--file=-"]
    command = [program("pg_restore"), *flags, str(_readable(path))]
    try:
        text = _run(command, subprocess.PIPE)
    except StartError as error:
        raise StartError(f"{path} is no dump: {error}") from error
    found = _RECORD.search(text)
    if found is None:
        return ()
    names = found[1].split(", ")
    return tuple(_applied(dict(zip(names, line.split("\t"), strict=True))) for line in found[2].splitlines())


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
    return path


def _applied(row: dict[str, str]) -> Applied:
    return Applied(
        number=int(row["number"]),
        name=row["name"],
        checksum=row["checksum"],
        applied_at=datetime.fromisoformat(row["applied_at"]),
        breaks_older_servers=row.get("breaks_older_servers") == "t",
    )


async def check_empty(connection: asyncpg.Connection[Any]) -> None:
    """Raises StartError."""
    found = await connection.fetchval(_FIRST_RELATION)
    if found is not None:
        raise StartError(
            f"the database is not empty, it has {found}: a dump is restored into a new folder, which --data-dir names"
        )


def restore(url: str, path: Path) -> None:
    """All of a dump, or nothing of it. Raises StartError, EmbeddedError."""
    flags = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", f"--dbname={url}"]
    _run([program("pg_restore"), *flags, str(path)], subprocess.DEVNULL)


def _run(command: Sequence[str], output: int | None) -> str:
    """What a program wrote, where that is a pipe. Raises StartError with the words of one that failed."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, env=_ENVIRONMENT, check=False
    )
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise StartError(f"{Path(command[0]).name} ended with {done.returncode}: {words[-2000:]}")
    return (done.stdout or b"").decode(errors="replace")
