"""A write and the reading of its answer, in one transaction. What comes in: a planned write and the read that
answers it. What goes out: the row's id and what was read; or the answer that a constraint amounts to.
"""

from __future__ import annotations

from typing import Any

from querybuild.changes import PlannedWrite
from querybuild.errors import ApiError
from server.database import Connection, Database
from server.engine import Engine, PreparedRead
from server.execute import ReadResult, refused_write, run_read_at_once, run_write


async def write_and_read(
    database: Database, write: PlannedWrite, read: PreparedRead, engine: Engine
) -> tuple[Any, ReadResult]:
    async def work(connection: Connection) -> tuple[Any, ReadResult]:
        row_id = await run_write(connection, write, engine)
        return row_id, await run_read_at_once(connection, read, row_id, engine)

    try:
        return await database.write(work)
    except ApiError:
        raise
    except Exception as error:
        raise refused_write(error, write, engine) from error


async def write_only(database: Database, write: PlannedWrite, engine: Engine) -> None:
    async def work(connection: Connection) -> None:
        await run_write(connection, write, engine)

    try:
        await database.write(work)
    except ApiError:
        raise
    except Exception as error:
        raise refused_write(error, write, engine) from error
