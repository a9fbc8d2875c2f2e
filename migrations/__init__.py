"""Applies migrations: numbered files of plain SQL.

In: a folder of migrations (`BUILT_IN` for the built-in resources, `SERVER` for the server itself) and an asyncpg
connection. Out: the database as the files describe it, and a table in it that records what was applied. It knows only
asyncpg: no resource, no setting.

    migrations = load(BUILT_IN)
    state = await status(connection, migrations)    # what is applied, pending, ahead of us
    applied = await up(connection, migrations, say=print)

`files` reads a folder, `statements` splits SQL into statements, `record` compares the folder with a database, `locks`
waits for locks, `runner` applies files.
"""

import importlib.resources

from migrations.files import Migration, MigrationError, load, new
from migrations.locks import Connect, LockWait
from migrations.record import SERVER_SCHEMA, SERVER_TABLE, TABLE, Applied, Status, compare, status, verify
from migrations.runner import script, up

__all__ = [
    "BUILT_IN",
    "SERVER",
    "SERVER_SCHEMA",
    "SERVER_TABLE",
    "TABLE",
    "Applied",
    "Connect",
    "LockWait",
    "Migration",
    "MigrationError",
    "Status",
    "compare",
    "load",
    "new",
    "script",
    "status",
    "up",
    "verify",
]

# A folder, or a part of the archive if the program is one file.
BUILT_IN = importlib.resources.files(__name__)
SERVER = BUILT_IN / "server"
"""The tables of the server itself, in the schema `waterspout`."""
