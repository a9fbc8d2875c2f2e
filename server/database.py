"""The pool, transactions, and driver errors as ours. What comes in: settings, statements and their values.
What goes out: asyncpg rows, or an answer. No code outside this module picks a connection, and none sees an
asyncpg exception but through `driver_errors.py`.

Two doors: `read` and `write`, one pool today.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Literal, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from querybuild.errors import ApiError
from server.connection import Connection
from server.driver_errors import GONE, LOST, RETRIED, translated
from server.errors import Busy, OutcomeUnknown, TooManyStreams, Unavailable
from server.pool import UNUSED_CONNECTION_SECONDS, Pool, is_open
from server.settings import Settings

PREPARED_STATEMENTS = 256
"""How many statements each connection keeps prepared; the compiled ones that it has not are prepared again."""

PREPARED_STATEMENT_BYTES = 4096
"""Longer ones are prepared each time: 300 long filters, kept, made a backend of PostgreSQL grow by 200 MB."""

ATTEMPTS, PAUSE_SECONDS = 3, 0.02
"""How often a transaction is begun that others or a migration made fail, and how long it waits at most before the
second time."""

Result = TypeVar("Result")
Isolation = Literal["read_committed", "repeatable_read"]


class Database:
    """The pool of one process, for as long as it lives."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], settings: Settings, streams: int) -> None:
        self._pool = Pool(pool)
        self._acquire_timeout_seconds = settings.acquire_timeout_seconds
        self._streams = asyncio.Semaphore(streams)
        self._stream_seconds = settings.stream_seconds

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()

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
        await self._pool.release(connection)

    async def _acquire(self) -> Connection:
        """Raises Busy, Unavailable."""
        try:
            return await self._pool.acquire(self._acquire_timeout_seconds)
        except TimeoutError as error:
            raise Busy("All database connections are in use; try again.") from error
        except (*GONE, pg.InterfaceError, pg.PostgresError) as error:
            raise Unavailable("The database cannot be reached; try again.") from error

    async def read(self, work: Callable[[Connection], Awaitable[Result]], *, is_snapshot: bool) -> Result:
        """Runs reading work, and again when it has to be. is_snapshot: in one snapshot, which a read of a
        single statement is anyway."""
        return await self._attempts(work, "repeatable_read" if is_snapshot else None)

    async def stream(self, work: Callable[[Connection], Awaitable[Result]], *, is_begun: Callable[[], bool]) -> Result:
        """Runs reading work that lasts as long as its reader, in one snapshot. is_begun: whether anything has been
        sent, after which it is not run again. Raises TooManyStreams."""
        patience = f"SET LOCAL idle_in_transaction_session_timeout={_milliseconds(self._stream_seconds)}"
        # Which is compiled by what all rows cost, and would be ready long after the first of them.
        haste = "SET LOCAL jit=off"

        async def unhurried(connection: Connection) -> Result:
            await connection.execute(f"{patience}; {haste}")
            try:
                return await work(connection)
            except RETRIED as error:
                if is_begun():
                    raise Busy("A migration was in the way.") from error
                raise

        async with self._one_stream():
            return await self._attempts(unhurried, "repeatable_read")

    @asynccontextmanager
    async def _one_stream(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._acquire_timeout_seconds):
                await self._streams.acquire()
        except TimeoutError as error:
            raise TooManyStreams("Too many long answers are being sent: ask for pages, or try again.") from error
        try:
            yield
        finally:
            self._streams.release()

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
        begun = work if isolation is None else _in_transaction(work, isolation, committing)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._use(begun)
            except RETRIED as error:
                if attempt == ATTEMPTS:
                    raise Busy("Other writes were in the way; try again.") from error
            except ApiError:
                raise
            except Exception as error:
                is_misplaced = isolation == "repeatable_read" and isinstance(error, pg.ReadOnlySQLTransactionError)
                answer = translated(error)
                if answer is error or is_misplaced:
                    # A write at the door for reads is a fault, and no state of the database.
                    raise
                raise answer from error
            # Two that were in each other's way must not meet again at once.
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))
        raise AssertionError("unreachable")

    async def _use(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        connection = await self._acquire()
        try:
            result = await work(connection)
        except BaseException as error:
            if isinstance(error, LOST):
                _give_up(connection)
            await self._release(connection)
            raise
        if getattr(connection, "must_be_reset", True):
            await self._release(connection)
        else:
            await self._pool.keep(connection)
        return result


@contextmanager
def custom_code(connection: Connection) -> Iterator[None]:
    """Custom code has files and networks of its own, whose failures say nothing of the database."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        if not is_open(connection):
            raise
        raise RuntimeError("custom code failed") from error


def _give_up(connection: Connection) -> None:
    """A connection on which PostgreSQL has said goodbye goes back to the pool before its socket is closed."""
    with suppress(pg.InterfaceError, AttributeError):
        connection.give_up()


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


def _in_transaction(
    work: Callable[[Connection], Awaitable[Result]], isolation: Isolation, committing: Callable[[], None] | None
) -> Callable[[Connection], Awaitable[Result]]:
    return lambda connection: _transaction(connection, work, isolation, committing)


async def _transaction(
    connection: Connection,
    work: Callable[[Connection], Awaitable[Result]],
    isolation: Isolation,
    committing: Callable[[], None] | None,
) -> Result:
    transaction = connection.transaction(isolation=isolation, readonly=isolation == "repeatable_read")
    try:
        await transaction.start()
    except BaseException:
        # A BEGIN that was given up may have been done: asyncpg rolls it back when the connection is released, and
        # raises the alarm for those alone that nobody seems to look after.
        transaction._managed = True  # type: ignore[attr-defined]  # the stubs leave it out
        raise
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
    return Database(pool, settings, _streams(settings, share))


def _streams(settings: Settings, share: int) -> int:
    """How many of a worker's connections may stream at once."""
    of_all = settings.max_streams or settings.pool_size // 4
    return min(max(1, of_all // settings.workers), share)


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
