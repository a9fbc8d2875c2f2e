"""The pool, transactions, and driver errors as ours. What comes in: settings, and work to be done on a connection.
What goes out: what the work gives, or an answer. No code outside this module picks a connection. What the driver's
exceptions mean is in `driver_errors.py`; those about a row or a value pass through, for `refusals.py` to point into the
request.

Two doors, one pool today: to read, `read` and `stream`; to write, `write` and `write_statement`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from querybuild.errors import ApiError, raise_as
from server.clients import current_client
from server.errors import Busy, OutcomeUnknown, StatementTimeout, TooManyStreams, Unavailable, too_many_requests
from server.limits import connections_of_client, streams_at_once
from server.observing import metrics
from server.observing.watch import Watch
from server.postgres.connection import Connection, Sending, give_up, is_awaited, lose
from server.postgres.driver_errors import (
    GONE,
    LOST,
    RETRIED,
    is_half_sent,
    is_lost,
    is_rolled_back,
    translated,
    words_of_loss,
)
from server.postgres.hosts import Hosts, silence_of_clients
from server.postgres.pool import UNUSED_CONNECTION_SECONDS, NotOpened, Pool, PoolFigures, ShareHeld
from server.postgres.pooler import SESSION, PooledConnection, check_backend, milliseconds, timeouts
from server.postgres.probe import FAILURES, Probe
from server.postgres.rules import raise_rule
from server.postgres.stream_slots import Reader, ShareStreamed, StreamSlots
from server.postgres.temp_files import connector
from server.settings import Settings

PREPARED_STATEMENTS = 256
"""How many statements each connection keeps prepared; the compiled ones that it has not are prepared again."""

PREPARED_STATEMENT_BYTES = 4096
"""Longer ones are prepared each time: 300 long filters, kept, made a backend of PostgreSQL grow by 200 MB."""

ATTEMPTS, PAUSE_SECONDS = 3, 0.02
"""How often a transaction is begun that others or a migration made fail, and how long it waits at most before the
second time."""

LATE_SECONDS = 1.0
"""How long after its time a statement is given up that PostgreSQL has not ended, and how long what is given up may take
to end before its connection is closed: a client waits for both."""

READ_ONLY_SECONDS = 1.0
"""How often at most all connections are given up because the server that they lead to takes no writes: another one may
by now."""

log = logging.getLogger("server")

Result = TypeVar("Result")
Isolation = Literal["read_committed", "read_only", "repeatable_read"]
"""Of a write, of a read whose statements are not known here, and of a read in one snapshot."""

_TAKES_NO_WRITES = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean"


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class ConnectionLost(Exception):
    """The connection broke. What was under way on it is not done, and will not be."""


class NeverSent(ConnectionLost):
    """It had broken before anything was sent."""


class MaybeDone(ConnectionLost):
    """It broke while a write was being committed."""


class MisplacedWrite(RuntimeError):
    """A write where only reads may be: a fault of the code that sent it, and no state of the database."""


class Database:
    """The pool of one process, for as long as it lives."""

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        probe: Probe,
        settings: Settings,
        streams: int,
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch or Watch(settings)
        lends = settings.max_requests_per_client is None
        self._pool = Pool(pool, self.watch, connections_of_client(settings, pool.get_max_size()), lends=lends)
        self._probe = probe
        self._is_away = False
        self._acquire_timeout_seconds = settings.acquire_timeout_seconds
        self._streams = StreamSlots(streams)
        self._stream_seconds = settings.stream_seconds
        self._network_timeout_seconds = settings.network_timeout_seconds

    def pool_figures(self) -> PoolFigures:
        return self._pool.figures()

    async def close(self) -> None:
        self._probe.close()
        await self._pool.close()

    def terminate(self) -> None:
        self._probe.close()
        self._pool.terminate()

    async def check(self, timeout_seconds: float) -> None:
        """Asks PostgreSQL on a connection that no request uses. Not to be called twice at once.

        Raises Busy where PostgreSQL takes no connection and the pool has none, Unavailable where it does not answer.
        """
        try:
            await self._probe.ask(timeout_seconds)
        except pg.TooManyConnectionsError as error:
            # It answers, and those that the pool has work on.
            if not self._pool.figures().is_open:
                self.watch.record_failure(error)
                raise translated(error) from error
        except TimeoutError as error:
            self.watch.record_failure(error)
            raise Unavailable("The database does not answer in time; try again.") from error
        except FAILURES as error:
            self.watch.record_failure(error)
            raise _unreachable() from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """For those who look at how a server is connected: tests, and the benchmark."""
        connection = await self._acquire()
        try:
            yield connection
        finally:
            try:
                # What was prepared, and not executed, has a transaction open.
                await self._end(connection, lambda: connection.execute("SELECT"))
            finally:
                await self._pool.release(connection)

    async def _acquire(self, client: str | None = None) -> Connection:
        """Raises TooManyRequests, Busy, Unavailable; NeverSent where one broke that was just being opened."""
        begin = time.perf_counter()
        try:
            connection = await self._pool.acquire(self._acquire_timeout_seconds, client)
        except NotOpened as error:
            self.watch.record_failure(error)
            self._tell(error)
            raise _unreachable() from error
        except ShareHeld as error:
            raise too_many_requests() from error
        except TimeoutError as error:
            raise Busy("All database connections are in use; try again.") from error
        except (*GONE, pg.InterfaceError, pg.PostgresError) as error:
            self.watch.record_failure(error)
            self._tell(error)
            if isinstance(error, (pg.PostgresConnectionError, pg.AdminShutdownError, ConnectionResetError)):
                raise NeverSent from error
            is_full = isinstance(error, pg.TooManyConnectionsError)
            raise (translated(error) if is_full else _unreachable()) from error
        finally:
            self.watch.record_acquire(begin)
        self._tell(None)
        return connection

    def _tell(self, error: BaseException | None) -> None:
        """The log has a line when no connection can be opened, and when one can again."""
        if error is not None and not self._is_away:
            log.warning("PostgreSQL cannot be reached: %s", words_of_loss(error))
        elif error is None and self._is_away:
            log.warning("PostgreSQL is reached again")
        self._is_away = error is not None

    async def read(
        self,
        work: Callable[[Connection], Awaitable[Result]],
        *,
        is_snapshot: bool,
        timeout_seconds: float | None = None,
    ) -> Result:
        """Runs reading work, and again when it has to be. is_snapshot: in one snapshot, which a read of a
        single statement is anyway. timeout_seconds: how long the work may take, if that is less than a statement.

        Without a snapshot there is no transaction either: only for a SELECT of the server's own. PostgreSQL would do a
        write there, and it might be sent twice."""
        timed = work if timeout_seconds is None else _timed(work, timeout_seconds)
        return await self._attempts(timed, "repeatable_read" if is_snapshot else None, is_repeatable=_always)

    async def read_unknown(self, work: Callable[[Connection], Awaitable[Result]], *, is_snapshot: bool) -> Result:
        """As `read`, for statements that are not the server's own: PostgreSQL refuses writes. Raises MisplacedWrite."""
        return await self._attempts(work, "repeatable_read" if is_snapshot else "read_only", is_repeatable=_always)

    async def stream(
        self,
        work: Callable[[Connection], Awaitable[Result]],
        reader: Reader,
        *,
        is_begun: Callable[[], bool],
        timeout_seconds: float | None = None,
    ) -> Result:
        """Runs reading work that lasts as long as its reader, in one snapshot. is_begun: whether anything has been
        sent, after which it is not run again. timeout_seconds: of each of its statements.

        Raises TooManyRequests, TooManyStreams."""
        patience = f"SET LOCAL idle_in_transaction_session_timeout={milliseconds(self._stream_seconds)}"
        # Which is compiled by what all rows cost, and would be ready long after the first of them.
        haste = "SET LOCAL jit=off"
        if timeout_seconds is not None:
            haste += f"; SET LOCAL statement_timeout={milliseconds(timeout_seconds)}"

        async def unhurried(connection: Connection) -> Result:
            self.watch.count(metrics.STREAMS)
            await connection.execute(f"{patience}; {haste}")
            try:
                return await work(connection)
            except RETRIED as error:
                if is_begun():
                    raise Busy("A migration was in the way.") from error
                raise

        async with self._one_stream(reader):
            return await self._attempts(unhurried, "repeatable_read", is_repeatable=lambda: not is_begun())

    @asynccontextmanager
    async def _one_stream(self, reader: Reader) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._streams.held(reader, self._acquire_timeout_seconds))
            except ShareStreamed as error:
                raise too_many_requests() from error
            except TimeoutError as error:
                raise TooManyStreams("Too many long answers are being sent: ask for pages, or try again.") from error
            yield

    async def write(
        self, work: Callable[[Connection], Awaitable[Result]], *, committing: Callable[[], None] | None = None
    ) -> Result:
        """Runs writing work in a transaction, and again when others made it fail. What it returns has been
        committed. committing: told before each commit; what has begun to be committed must not be cancelled."""
        return await self._attempts(work, "read_committed", committing)

    async def write_statement(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Runs a write of one statement, which is its own transaction."""

        async def told(connection: Connection) -> Result:
            sending = Sending(connection)
            try:
                return await work(connection)
            except Exception as error:
                if isinstance(error, pg.OutdatedSchemaCacheError):
                    # It was done; what came back cannot be read.
                    raise MaybeDone from error
                if not is_lost(error, connection):
                    raise
                if not sending.is_begun and isinstance(error, TimeoutError):
                    raise
                if not sending.is_begun:
                    raise NeverSent from error
                raise (ConnectionLost() if is_rolled_back(error) else MaybeDone()) from error

        return await self._attempts(told, None)

    async def _attempts(
        self,
        work: Callable[[Connection], Awaitable[Result]],
        isolation: Isolation | None,
        committing: Callable[[], None] | None = None,
        is_repeatable: Callable[[], bool] = _never,
    ) -> Result:
        """is_repeatable: whether the work may be done once more where it may have been done."""
        begun = work if isolation is None else self._in_transaction(work, isolation, committing)
        is_second, attempt = False, 1
        while True:
            try:
                return await self._use(begun)
            except RETRIED as error:
                if attempt == ATTEMPTS:
                    raise Busy("Other writes were in the way; try again.") from error
            except ConnectionLost as error:
                # All that were opened before have been given up: the second time is on a younger one.
                if is_second or not (isinstance(error, NeverSent) or is_repeatable()):
                    raise _answer_to(error) from error.__cause__
                is_second = True
                continue
            except ApiError:
                raise
            except Exception as error:
                if translated(error) is error and is_repeatable is not _never:
                    # What refuses a write is left to `refusals.py`, which knows where the document has it.
                    raise_rule(error)
                raise_as(translated(error), error)
            # Two that were in each other's way must not meet again at once.
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))
            attempt += 1

    async def _use(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        client = current_client.get()
        connection = await self._acquire(client)
        try:
            result = await work(connection)
        except BaseException as error:
            try:
                await self._look_at(error, connection)
            finally:
                await self._pool.release(connection, client)
            raise
        if getattr(connection, "must_be_reset", True):
            await self._pool.release(connection, client)
        else:
            await self._pool.keep(connection, client)
        return result

    async def _look_at(self, error: BaseException, connection: Connection) -> None:
        """Makes of the connection, and of others, what the error says of them. Raises ConnectionLost."""
        is_known = isinstance(error, ConnectionLost)
        self.watch.record_failure(error)
        if isinstance(error, pg.ReadOnlySQLTransactionError):
            if await self._takes_no_writes(connection):
                await self._pool.renew(connection, READ_ONLY_SECONDS)
            else:
                # A standby that has just become the primary, or a hook that said SET TRANSACTION READ ONLY.
                log.warning("a write was refused as read-only by a server that takes writes")
            return
        if not is_known and not is_lost(error, connection):
            if is_half_sent(error) or is_awaited(connection):
                await self._end(connection, lambda: connection.execute("SELECT"))
            return
        lose(connection)
        if await self._pool.renew(connection):
            log.warning("a connection to PostgreSQL broke, and those of before are renewed: %s", words_of_loss(error))
        if not (is_known or isinstance(error, TimeoutError)):
            raise ConnectionLost from error

    async def _takes_no_writes(self, connection: Connection) -> bool:
        """Whether the server itself is read-only, as a standby is. True where it cannot be asked."""
        try:
            async with asyncio.timeout(self._network_timeout_seconds):
                return bool(await connection.fetchval(_TAKES_NO_WRITES))
        except FAILURES:
            return True

    def _in_transaction(
        self,
        work: Callable[[Connection], Awaitable[Result]],
        isolation: Isolation,
        committing: Callable[[], None] | None,
    ) -> Callable[[Connection], Awaitable[Result]]:
        return lambda connection: self._transaction(connection, work, isolation, committing)

    async def _transaction(
        self,
        connection: Connection,
        work: Callable[[Connection], Awaitable[Result]],
        isolation: Isolation,
        committing: Callable[[], None] | None,
    ) -> Result:
        is_read = isolation != "read_committed"
        level: Any = "read_committed" if isolation == "read_only" else isolation
        transaction = connection.transaction(isolation=level, readonly=is_read)
        try:
            await transaction.start()
        except BaseException as error:
            # A BEGIN that was given up may have been done: asyncpg rolls it back when the connection is released, and
            # raises the alarm for those alone that nobody seems to look after.
            transaction._managed = True  # type: ignore[attr-defined]  # the stubs leave it out
            if is_lost(error, connection) and not isinstance(error, TimeoutError):
                raise NeverSent from error
            raise
        try:
            result = await work(connection)
        except BaseException as error:
            if not is_lost(error, connection):
                await self._end(connection, transaction.rollback)
            if is_read and isinstance(error, pg.ReadOnlySQLTransactionError):
                raise MisplacedWrite("a write in database.read: use database.write") from error
            raise
        if committing is not None:
            committing()
        sending = Sending(connection)
        try:
            await transaction.commit()
        except (*LOST, pg.InterfaceError) as error:
            is_sent = not is_read and sending.is_begun
            raise (MaybeDone() if is_sent else ConnectionLost()) from error
        return result

    async def _end(self, connection: Connection, end: Callable[[], Awaitable[object]]) -> None:
        """Ends what is begun: asyncpg first awaits what was cancelled."""
        try:
            async with asyncio.timeout(min(LATE_SECONDS, self._network_timeout_seconds)):
                await end()
        except (*LOST, pg.InterfaceError):
            give_up(connection)


def _timed(
    work: Callable[[Connection], Awaitable[Result]], timeout_seconds: float
) -> Callable[[Connection], Awaitable[Result]]:
    """The clock is ours: to tell PostgreSQL of another time would take a round trip for each read."""

    async def timed(connection: Connection) -> Result:
        clock = asyncio.timeout(timeout_seconds)
        try:
            async with clock:
                return await work(connection)
        except TimeoutError as error:
            if not clock.expired():
                raise
            # The statement is cancelled, and the connection is of use when that is done.
            raise StatementTimeout("The database took too long over this filter.") from error

    return timed


def _unreachable() -> Unavailable:
    return Unavailable("The database cannot be reached; try again.")


def _answer_to(lost: ConnectionLost) -> ApiError:
    if isinstance(lost, MaybeDone):
        return OutcomeUnknown("The connection was lost while the write was being committed: look whether it was done.")
    return _unreachable()


async def open_database(url: str, settings: Settings, size: int, watch: Watch | None = None) -> Database:
    """A pool of `size` connections. watch: the worker's. Raises what asyncpg raises when the database cannot be
    reached."""
    watch = watch or Watch(settings)
    session = _session(settings)

    async def begin(connection: Any) -> None:
        connection.begin(watch)

    pool = await asyncpg.create_pool(
        url,
        connect=connector(url, settings),
        # None to begin with: a worker that starts while the database is away answers 503 until it is back.
        min_size=0,
        max_size=size,
        init=begin,
        max_inactive_connection_lifetime=UNUSED_CONNECTION_SECONDS,
        # PostgreSQL ends a statement that takes too long, unless it is not heard from or does not look at the time, as
        # while it compiles a regular expression.
        command_timeout=settings.statement_timeout_seconds + min(LATE_SECONDS, settings.network_timeout_seconds),
        statement_cache_size=PREPARED_STATEMENTS,
        max_cacheable_statement_size=PREPARED_STATEMENT_BYTES,
        **session,
    )
    # Hosts of its own: whichever the pool asks last, this one finds the one that answers.
    probe = Probe(partial(connector(url, settings), **session))
    return Database(pool, probe, settings, streams_at_once(settings, size), watch)


async def open_alone(url: str, settings: Settings) -> Connection:
    """A connection outside of the pool, without its time limits, for the work before the first request.

    Raises what asyncpg raises, and StartError where a pooler's backends have not the settings that they need.
    """
    is_pooled = settings.pooler == "transaction"
    connection = await Hosts(url, settings).connect(connection_class=PooledConnection if is_pooled else Connection)
    try:
        if is_pooled:
            await check_backend(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _session(settings: Settings) -> dict[str, Any]:
    name = {"application_name": "waterspout"}
    if settings.pooler == "transaction":
        return {"connection_class": PooledConnection, "server_settings": name}
    silence = silence_of_clients(settings.network_timeout_seconds)
    return {"connection_class": Connection, "server_settings": name | SESSION | timeouts(settings) | silence}
