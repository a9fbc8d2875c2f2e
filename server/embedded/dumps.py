"""Dumps a database into a file, and restores it.

What comes in: a file, and the URL of a database. What goes out: a file in PostgreSQL's archive format, or a restored
database. The pg_dump and pg_restore of the embedded PostgreSQL do the work. A dump is one snapshot, with the positions
of the sequences. The server may run meanwhile.

It must not know: settings, how the database was reached.
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
    """Dump a database into a file. None stands for standard output. The file is created or replaced when it is
    complete, and only its owner may read it. Raises StartError, EmbeddedError."""
    command = [program("pg_dump"), "--format=custom", f"--dbname={url}"]
    if path is None:
        _run(command, None)
        return
    try:
        with _atomic_file(path) as name:
            _run([*command, f"--file={name}"], subprocess.DEVNULL)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def _atomic_file(path: Path) -> Iterator[str]:
    """Return the name of a temporary file, which replaces `path` at the end. A device is written directly."""
    if path.exists() and not path.is_file():
        yield str(path)
        return
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    try:
        # pg_dump itself calls fsync.
        yield name
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def applied_migrations(path: Path) -> tuple[Applied, ...]:
    """Return the migrations that had been applied to the dumped database. Raises StartError for a file that is no dump,
    and EmbeddedError."""
    flags = ["--data-only", "--schema=public", "--table=waterspout_migrations", "--file=-"]
    command = [program("pg_restore"), *flags, str(_check_readable(path))]
    try:
        text = _run(command, subprocess.PIPE)
    except StartError as error:
        raise StartError(f"{path} is no dump: {error}") from error
    match = _RECORD.search(text)
    if match is None:
        return ()
    names = match[1].split(", ")
    return tuple(_applied(dict(zip(names, line.split("\t"), strict=True))) for line in match[2].splitlines())


def _check_readable(path: Path) -> Path:
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
    """Check that the database is empty. Raises StartError."""
    relation = await connection.fetchval(_FIRST_RELATION)
    if relation is not None:
        raise StartError(
            f"the database is not empty, it has {relation}: "
            "a dump is restored into a new folder, which --data-dir names"
        )


def restore(url: str, path: Path) -> None:
    """Restore a dump in one transaction. Raises StartError, EmbeddedError."""
    flags = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", f"--dbname={url}"]
    _run([program("pg_restore"), *flags, str(path)], subprocess.DEVNULL)


def _run(command: Sequence[str], output: int | None) -> str:
    """Run a program. Returns what it wrote, if `output` is a pipe. Raises StartError with its error output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, env=_ENVIRONMENT, check=False
    )
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise StartError(f"{Path(command[0]).name} ended with {done.returncode}: {words[-2000:]}")
    return (done.stdout or b"").decode(errors="replace")
