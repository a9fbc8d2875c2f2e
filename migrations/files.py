"""Reads a folder of numbered SQL files, and creates the next file. Must not know a database.

A file tells the runner how to run it by marks, each on one of its first lines:

    -- waterspout: no-transaction           its statements run one by one, outside a transaction
    -- waterspout: breaks-older-servers     servers without this file must not start any more
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path

from migrations import statements

NO_TRANSACTION = "-- waterspout: no-transaction"
BREAKS_OLDER_SERVERS = "-- waterspout: breaks-older-servers"
MARKS = (NO_TRANSACTION, BREAKS_OLDER_SERVERS)

MARK = re.compile(r"-- *waterspout *:")
NAME = re.compile(r"([0-9]{4})_[A-Za-z0-9_-]+\.sql")
LOOKS_NUMBERED = re.compile(r"[0-9].*\.sql", re.IGNORECASE)
WHAT = re.compile(r"[A-Za-z0-9_-]+")
LAST_NUMBER = 9999

HEAD = f"""\
-- What this changes, and why.
--
-- All of it is one transaction. Statements that cannot run in one (CREATE INDEX CONCURRENTLY) go in a file of their
-- own that begins with the line `{NO_TRANSACTION}` and may run again after it failed:
--
--     {NO_TRANSACTION}
--     DROP INDEX CONCURRENTLY IF EXISTS public.things_name_idx;
--     CREATE INDEX CONCURRENTLY things_name_idx ON public.things (name);
--
-- A file that servers of an earlier version cannot live with begins with the line
-- `{BREAKS_OLDER_SERVERS}`. Names without a schema mean public.

"""


class MigrationError(RuntimeError):
    """Files and database do not match, or a file failed. The message is complete, and meant for people."""


@dataclass(frozen=True)
class Migration:
    """One file. `sql` is its text with line ends as LF, `checksum` the hexadecimal SHA-256 of that text."""

    number: int
    name: str
    sql: str
    checksum: str
    in_transaction: bool = True
    breaks_older_servers: bool = False

    @cached_property
    def statements(self) -> tuple[statements.MigrationStatement, ...]:
        """The statements of the file, in order."""
        return statements.split(self.sql)


def load(folder: Traversable) -> tuple[Migration, ...]:
    """Return the migrations of a folder in order, numbered from 0001 without a gap.

    Files whose names do not begin with a digit and end in `.sql` (schema.sql, notes) are ignored. Raises MigrationError
    for a folder that cannot be read or has no migrations, a gap, a number that is used twice, a name that is almost a
    migration's, an unknown or misplaced mark, and a text that is not UTF-8.
    """
    migrations = _load(folder)
    if not migrations:
        raise MigrationError(f"{folder} has no migrations; the first one is named 0001_<what>.sql")
    return migrations


def new(folder: Path, what: str) -> Path:
    """Write the next file, which contains only comments, and return its path.

    Creates the folder if its parent exists. Raises MigrationError like `load`, and for an invalid name.
    """
    what = what.strip().replace(" ", "_")
    if not WHAT.fullmatch(what):
        raise MigrationError(f"{what!r} is not allowed in a file name; use the letters a-z, digits, _ and -")
    try:
        folder.mkdir(exist_ok=True)
        number = len(_load(folder)) + 1
        if number > LAST_NUMBER:
            raise MigrationError(f"{folder} is full: the last number is {LAST_NUMBER}")
        path = folder / f"{number:04}_{what}.sql"
        with path.open("x", encoding="utf-8") as file:
            file.write(HEAD)
    except OSError as error:
        raise MigrationError(f"no file can be written in {folder}: {error.strerror}") from error
    return path


def _load(folder: Traversable) -> tuple[Migration, ...]:
    migrations = tuple(_read(path) for path in _numbered(folder))
    for expected, (before, migration) in enumerate(zip((None, *migrations), migrations, strict=False), 1):
        if before is not None and before.number == migration.number:
            raise MigrationError(f"{before.name} and {migration.name} have the same number: renumber one of them")
        if migration.number != expected:
            raise MigrationError(f"{folder} has no {expected:04}_<what>.sql: the next file is {migration.name}")
    return migrations


def _numbered(folder: Traversable) -> list[Traversable]:
    try:
        numbered = [path for path in folder.iterdir() if LOOKS_NUMBERED.fullmatch(path.name)]
    except OSError as error:
        raise MigrationError(f"the migrations folder {folder} cannot be read: {error.strerror}") from error
    for path in numbered:
        if not NAME.fullmatch(path.name):
            raise MigrationError(f"{path.name} looks like a migration, but its name must be NNNN_<what>.sql")
    return sorted(numbered, key=lambda path: path.name)


def _read(path: Traversable) -> Migration:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MigrationError(f"{path.name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise MigrationError(f"{path.name} is not UTF-8 text (byte {error.start})") from error
    sql = text.replace("\r\n", "\n")
    marks = _marks(path.name, sql)
    return Migration(
        number=int(path.name[:4]),
        name=path.name,
        sql=sql,
        checksum=hashlib.sha256(sql.encode()).hexdigest(),
        in_transaction=NO_TRANSACTION not in marks,
        breaks_older_servers=BREAKS_OLDER_SERVERS in marks,
    )


def _marks(name: str, sql: str) -> set[str]:
    """Return the marks on the first lines. An unknown or misplaced mark is an error, because its author relies on
    it."""
    marks: set[str] = set()
    is_head = True
    for number, line in enumerate(sql.split("\n"), 1):
        is_head = is_head and bool(MARK.match(line))
        if not MARK.match(line):
            continue
        mark = line.rstrip()
        if mark not in MARKS:
            raise MigrationError(f"{name}, line {number} is {mark!r}; a mark is {' or '.join(map(repr, MARKS))}")
        if not is_head:
            raise MigrationError(f"{name}, line {number}: marks must be on the first lines, before everything else")
        marks.add(mark)
    return marks
