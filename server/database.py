"""The pool, transactions, and driver errors as ours. What comes in: settings, statements and their values.
What goes out: asyncpg rows, or an answer. No code outside this module picks a connection, and none sees an
asyncpg exception but through `driver_errors.py`.

Two doors: `read` and `write`, one pool today.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from querybuild.errors import ApiError
from server.driver_errors import GONE, LOST, RETRIED, translated
from server.errors import Busy, OutcomeUnknown, Unavailable
from server.settings import Settings

PREPARED_STATEMENTS = 256
"""How many statements each connection keeps prepared; the compiled ones that it has not are prepared again."""

PREPARED_STATEMENT_BYTES = 4096
"""Longer ones are prepared each time: 300 long filters, kept, made a backend of PostgreSQL grow by 200 MB."""

UNUSED_CONNECTION_SECONDS = 300
ATTEMPTS, PAUSE_SECONDS = 3, 0.02
"""How often a transaction is begun that others or a migration made fail, and how long it waits at most before the
second time."""

RESET = (
    "DO $$ DECLARE own text; BEGIN FOR own IN SELECT name FROM pg_prepared_statements WHERE from_sql LOOP "
    "EXECUTE format('DEALLOCATE %I', own); END LOOP; END $$; "
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, but for the prepared statements that the driver keeps count of."""

Result = TypeVar("Result")
Isolation = Literal["read_committed", "repeatable_read"]


class Connection(asyncpg.Connection):
    """A pooled connection. None of our own statements leaves session state behind, so releasing it costs no round trip;
    one that custom code has held is reset in full."""

    _is_held = False
    is_spoilt = False
    """Whether it must not serve another request: it has codecs that are not ours, which cannot all be taken back, or is
    about to end."""

    def hold(self) -> None:
        """Custom code is given the connection."""
        self._is_held = True

    def get_reset_query(self) -> str:
        is_held, self._is_held = self._is_held, False
        return RESET if is_held else ""

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        status = await super().execute(query, *args, **options)
        if query == "COMMIT;" and status == "ROLLBACK":
            # What is sent by asyncpg's transactions. PostgreSQL says it in the tag alone.
            raise RuntimeError("a statement had failed, and custom code went on: nothing was written")
        return status

    def give_up(self) -> None:
        self.is_spoilt = True

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_builtin_type_codec(*args, **options)

    async def reset_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().reset_type_codec(*args, **options)

    async def fetch_at_most(self, sql: str, values: Sequence[Any], limit: int) -> list[asyncpg.Record]:
        """The first `limit` rows, 0 for all. The bound is the protocol's and not a LIMIT, which would have the
        planner hope to stop early and walk an index for it. asyncpg has this in `fetchrow` alone; `_execute`
        is what that calls."""
        rows: list[asyncpg.Record] = await self._execute(sql, values, limit, None)  # type: ignore[attr-defined]
        return rows


class Database:
    """The pool of one process, for as long as it lives."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], acquire_timeout_seconds: float) -> None:
        self.pool = pool
        self._acquire_timeout_seconds = acquire_timeout_seconds

    async def close(self) -> None:
        await self.pool.close()

    def terminate(self) -> None:
        self.pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        connection = await self._acquire()
        try:
            yield connection
        finally:
            await self._release(connection)

    async def _release(self, connection: Connection) -> None:
        # asyncpg detaches the proxy of a connection that broke.
        if getattr(connection, "is_spoilt", False):
            with suppress(pg.InterfaceError):
                connection.terminate()
        await self.pool.release(connection)  # type: ignore[arg-type]  # it is the proxy that acquire gave

    async def _acquire(self) -> Connection:
        """Raises Busy, Unavailable. A connection that lies idle is taken without a timer, which costs a task
        of its own."""
        timeout = None if self.pool.get_idle_size() else self._acquire_timeout_seconds
        try:
            return await self.pool.acquire(timeout=timeout)  # type: ignore[return-value]  # the pool makes our class
        except TimeoutError as error:
            raise Busy("All database connections are in use; try again.") from error
        except (*GONE, pg.InterfaceError, pg.PostgresError) as error:
            raise Unavailable("The database cannot be reached; try again.") from error

    async def read(self, work: Callable[[Connection], Awaitable[Result]], *, is_snapshot: bool) -> Result:
        """Runs reading work, and again when it has to be. is_snapshot: in one snapshot, which a read of a
        single statement is anyway."""
        return await self._attempts(work, "repeatable_read" if is_snapshot else None)

    async def write(
        self, work: Callable[[Connection], Awaitable[Result]], *, committing: Callable[[], None] | None = None
    ) -> Result:
        """Runs writing work in a transaction, and again when others made it fail. What it returns has been
        committed. committing: told before each commit; what has begun to be committed must not be cancelled."""
        return await self._attempts(work, "read_committed", committing)

    async def write_statement(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Runs a write of one statement, which is its own transaction."""

        async def sent(connection: Connection) -> Result:
            try:
                return await work(connection)
            except pg.InternalClientError:
                # It was never sent.
                raise
            except LOST as error:
                _give_up(connection)
                raise _outcome_unknown() from error

        return await self._attempts(sent, None)

    async def _attempts(
        self,
        work: Callable[[Connection], Awaitable[Result]],
        isolation: Isolation | None,
        committing: Callable[[], None] | None = None,
    ) -> Result:
        for attempt in range(1, ATTEMPTS + 1):
            connection = await self._acquire()
            try:
                if isolation is None:
                    return await work(connection)
                return await _transaction(connection, work, isolation, committing)
            except RETRIED as error:
                if attempt == ATTEMPTS:
                    raise Busy("Other writes were in the way; try again.") from error
            except ApiError:
                raise
            except Exception as error:
                if isinstance(error, LOST):
                    _give_up(connection)
                is_misplaced = isolation == "repeatable_read" and isinstance(error, pg.ReadOnlySQLTransactionError)
                answer = translated(error)
                if answer is error or is_misplaced:
                    # A write at the door for reads is a fault, and no state of the database.
                    raise
                raise answer from error
            finally:
                await self._release(connection)
            # Two that were in each other's way must not meet again at once.
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))
        raise AssertionError("unreachable")


@contextmanager
def custom_code(connection: Connection) -> Iterator[None]:
    """Custom code has files and networks of its own, whose failures say nothing of the database."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        if _is_gone(connection):
            raise
        raise RuntimeError("custom code failed") from error


def _give_up(connection: Connection) -> None:
    """A connection on which PostgreSQL has said goodbye goes back to the pool before its socket is closed."""
    with suppress(pg.InterfaceError, AttributeError):
        connection.give_up()


def _is_gone(connection: Connection) -> bool:
    """asyncpg detaches the proxy of a connection that broke: then it answers nothing."""
    try:
        return connection.is_closed()
    except pg.InterfaceError:
        return True


class HeldDatabase:
    """The doors as custom code has them: every connection that it holds is reset in full when it goes back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, work: Callable[[Connection], Awaitable[Result]], *, is_snapshot: bool = True) -> Result:
        return await self._database.read(_held(work), is_snapshot=is_snapshot)

    async def write(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        return await self._database.write(_held(work))


def _held(work: Callable[[Connection], Awaitable[Result]]) -> Callable[[Connection], Awaitable[Result]]:
    async def held(connection: Connection) -> Result:
        connection.hold()
        with custom_code(connection):
            return await work(connection)

    return held


async def _transaction(
    connection: Connection,
    work: Callable[[Connection], Awaitable[Result]],
    isolation: Isolation,
    committing: Callable[[], None] | None,
) -> Result:
    transaction = connection.transaction(isolation=isolation, readonly=isolation == "repeatable_read")
    await transaction.start()
    try:
        result = await work(connection)
    except BaseException:
        # On a connection that broke there is nothing to roll back.
        with suppress(pg.InterfaceError, *LOST):
            await transaction.rollback()
        raise
    if committing is not None:
        committing()
    try:
        await transaction.commit()
    except (*LOST, pg.InterfaceError) as error:
        _give_up(connection)
        if isolation == "read_committed":
            raise _outcome_unknown() from error
        raise
    return result


def _outcome_unknown() -> OutcomeUnknown:
    return OutcomeUnknown("The connection was lost while the write was being committed: look whether it was done.")


async def open_database(url: str, settings: Settings, share: int) -> Database:
    """A pool of `share` connections. Raises what asyncpg raises when the database cannot be reached."""
    pool = await asyncpg.create_pool(
        url,
        # None to begin with: a worker that starts while the database is away answers 503 until it is back.
        min_size=0,
        max_size=share,
        connection_class=Connection,
        timeout=settings.connect_timeout_seconds,
        max_inactive_connection_lifetime=UNUSED_CONNECTION_SECONDS,
        statement_cache_size=PREPARED_STATEMENTS,
        max_cacheable_statement_size=PREPARED_STATEMENT_BYTES,
        server_settings={
            "application_name": "waterspout",
            # Texts and comparisons of times hang on these, and a database or a role may set others.
            "timezone": "UTC",
            "datestyle": "ISO",
            "intervalstyle": "iso_8601",
            "extra_float_digits": "1",
            "statement_timeout": _milliseconds(settings.statement_timeout_seconds),
            "idle_in_transaction_session_timeout": _milliseconds(settings.idle_transaction_timeout_seconds),
        },
    )
    return Database(pool, settings.acquire_timeout_seconds)


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
