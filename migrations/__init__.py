"""The schema in plain numbered SQL, and the runner that applies it.

In: a folder of migrations (the built-in catalogue's own is `BUILT_IN`) and an asyncpg connection. Out: the
database as the files describe it, and a record there of what was applied. Knows asyncpg alone: no resource,
no setting.

    migrations = load(BUILT_IN)
    state = await status(connection, migrations)    # what is applied, pending, ahead of us
    applied = await up(connection, migrations, say=print)
"""

from pathlib import Path

from migrations.runner import Migration, MigrationError, Status, load, status, up

__all__ = ["BUILT_IN", "Migration", "MigrationError", "Status", "load", "status", "up"]

BUILT_IN = Path(__file__).parent
