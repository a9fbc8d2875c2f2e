"""The schema in plain numbered SQL, and the runner that applies it.

In: a folder of migrations (the built-in catalogue's own is `BUILT_IN`) and an asyncpg connection. Out: the
database as the files describe it, and a record there of what was applied. Knows asyncpg alone: no resource,
no setting.

    migrations = load(BUILT_IN)
    state = await status(connection, migrations)    # what is applied, pending, ahead of us
    applied = await up(connection, migrations, say=print)

`files` reads a folder, `statements` takes a text apart, `record` compares the folder with a database, `locks` waits,
`runner` applies.
"""

import importlib.resources

from migrations.files import Migration, MigrationError, load, new
from migrations.locks import Connect, Patience
from migrations.record import Applied, Status, compare, status, verify
from migrations.runner import script, up

__all__ = [
    "BUILT_IN",
    "Applied",
    "Connect",
    "Migration",
    "MigrationError",
    "Patience",
    "Status",
    "compare",
    "load",
    "new",
    "script",
    "status",
    "up",
    "verify",
]

# A folder, or a part of the archive that the program in one file is.
BUILT_IN = importlib.resources.files(__name__)
