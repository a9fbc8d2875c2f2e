"""Gives custom code access to the database. Every connection that custom code has used is fully reset when it is
released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from asyncpg import exceptions as pg

from querybuild.principal import Principal
from server.limits.running import CancelScope
from server.postgres.connection import PostgresConnection, Work
from server.postgres.database import Database, Door
from server.postgres.driver_errors import is_lost, is_schema_changed
from server.postgres.rules import raise_rule

Result = TypeVar("Result")


@contextmanager
def custom_code(connection: PostgresConnection) -> Iterator[None]:
    """Turn an OSError of custom code into a RuntimeError, unless the connection to the database was lost. Custom code
    uses other files and networks, and their errors say nothing about the database. A statement of custom code that does
    not fit the tables says nothing about those of the server."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        if is_lost(error, connection):
            raise
        raise RuntimeError("custom code failed") from error
    except (pg.PostgresError, pg.DataError) as error:
        if is_schema_changed(error):
            raise RuntimeError("a statement of custom code does not fit the tables") from error
        raise


class CustomCodeDatabase:
    """The database of a custom handler, with `read` and `write`. It acts as the owner: rules do not apply, and with
    `row_security` statements run with the server's own role, and not with that of the request.

    door: that of the next statements. After a write, the code reads what it has written."""

    def __init__(self, database: Database, cancel_scope: CancelScope, door: Door) -> None:
        self._database = database
        self._cancel_scope = cancel_scope
        self.door = door

    def acting_for(self, principal: Principal, door: Door) -> Database:
        """Return the database for the statements of a principal, with its role."""
        self.door = "write" if door == "write" else self.door
        return self._database.acting_for(principal, self.door)

    async def read(self, work: Work[Result], *, is_snapshot: bool = True) -> Result:
        """Run work that reads. PostgreSQL refuses writes. is_snapshot: whether all statements see the same snapshot."""
        return await self._cancel_scope.run(
            self._database.acting_as_server(self.door).read_unknown(_for_custom_code(work), is_snapshot=is_snapshot)
        )

    async def write(self, work: Work[Result]) -> Result:
        """Run work in a transaction that is committed at its end."""
        self.door = "write"
        database = self._database.acting_as_server(self.door)
        try:
            return await self._cancel_scope.run(
                database.write(_for_custom_code(work), committing=self._cancel_scope.shield)
            )
        except pg.PostgresError as error:
            raise_rule(error)
            raise


def _for_custom_code(
    work: Work[Result],
) -> Work[Result]:
    async def held(connection: PostgresConnection) -> Result:
        connection.require_reset()
        await connection.settle()
        with custom_code(connection):
            return await work(connection)

    return held
