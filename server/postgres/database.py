"""Runs functions on connections of the pool, in transactions and with retries, and translates driver errors.

No code outside this module acquires a connection. `driver_errors.py` classifies the driver's exceptions. Those about a
row or a value pass through, so that `execution/refusals.py` can add a pointer into the request.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from querybuild.errors import ApiError, raise_as
from querybuild.principal import Principal
from serializers.errors import AnswerTooLarge
from server.errors import Busy, TooManyStreams, Unavailable, too_many_requests
from server.limits.clients import current_client
from server.observing.telemetry import Telemetry
from server.postgres.connection import SYNC, PostgresConnection, SendCheck, Work, is_cancel_pending
from server.postgres.driver_errors import (
    GONE,
    LOST,
    RETRYABLE,
    Availability,
    ConnectionLost,
    MaybeDone,
    NeverSent,
    answer_to,
    describe_loss,
    in_one_line,
    is_lost,
    is_refused_by_driver,
    is_rolled_back,
    is_schema_changed,
    is_short,
    is_timed_out,
    timed_out,
    translate,
    unreachable,
)
from server.postgres.pool import ConnectionShareUsed, NotOpened, Pool, PoolFigures, shared_pool
from server.postgres.probe import FAILURES, Probe
from server.postgres.row_security.connection import check_role
from server.postgres.row_security.roles import SET_ROLE, RequestRole, Roles
from server.postgres.rules import raise_rule
from server.postgres.sharing.stream_slots import StreamReader, StreamShareUsed, StreamSlots
from server.postgres.sharing.stream_turn import NoFreeSlot, NoSnapshot, StreamTurn
from server.postgres.time_limits import timed
from server.settings import Settings

ATTEMPTS, PAUSE_SECONDS = 3, 0.02
"""How often a transaction is tried if other transactions or a migration make it fail, and the longest pause before the
second attempt."""

GRACE_SECONDS = 1.0
"""How long after `statement_timeout` we cancel a statement that PostgreSQL has not ended, and how long the cancellation
may take before the connection is closed. The client waits for both."""

READ_ONLY_RETIRE_SECONDS = 1.0
"""The least time between two retirements of all connections because their server is read-only. Another host may be the
primary by now."""

log = logging.getLogger("server")

Result = TypeVar("Result")
Isolation = Literal["read_committed", "read_only", "repeatable_read"]
"""For a write, for a read with statements of custom code, and for a read in one snapshot."""

Door = Literal["read", "write"]
"""Which server a request needs. read: one that may be behind, for a request that writes nothing. write: the one that
takes writes, also for what a request reads before and after them."""

_SCHEMA_CHANGED = (
    "a statement does not fit the tables any more: %s; reload the server after a migration (SIGHUP), or change the "
    "declarations and start it again"
)
_IS_READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean"


Committed = Callable[[PostgresConnection], Awaitable[None]]
"""What follows a commit on its connection."""


async def _tell(committed: Committed | None, connection: PostgresConnection) -> None:
    """Run what follows a commit. If it fails, the write stands: then the connection is not used again."""
    if committed is None:
        return
    try:
        await committed(connection)
    except Exception as error:
        log.warning("a statement after the commit of a write failed: %s", in_one_line(error))
        connection.retire()


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class MisplacedWrite(RuntimeError):
    """A write in a read-only transaction: a bug of the code that sent it, not a state of the database."""


class Database:
    """The database of one process: its pool, and the probe of the readiness check. read_pool: connections to a server
    that only answers reads, if there is one. pool: the connections that the next statements use.

    With `row_security`, statements only run on what `acting_for` and `acting_as_server` return."""

    role: RequestRole | None = None

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        probe: Probe,
        settings: Settings,
        streams: int,
        telemetry: Telemetry | None = None,
        read_pool: asyncpg.Pool[asyncpg.Record] | None = None,
    ) -> None:
        self.telemetry = telemetry or Telemetry(settings)
        self.pool = shared_pool(pool, settings, self.telemetry)
        reading = self.pool if read_pool is None else shared_pool(read_pool, settings, self.telemetry)
        self.pools: dict[Door, Pool] = {"read": reading, "write": self.pool}
        self._probe = probe
        self._availability = Availability()
        self._roles = Roles(settings) if settings.has_row_security else None
        self.is_assigned = self._roles is None
        self._acquire_timeout_seconds = settings.acquire_timeout_seconds
        self._streams = StreamSlots(streams)
        self._stream_seconds = settings.stream_seconds
        self._network_timeout_seconds = settings.network_timeout_seconds

    def pool_figures(self) -> PoolFigures:
        """Return how many connections are open and how many requests wait."""
        return self.pool.figures()

    def acting_for(self, principal: Principal, door: Door) -> Database:
        """Return the database for the statements of a principal. With `row_security` they run with its role. Raises
        Unauthenticated, Forbidden."""
        return self._acting_as(None if self._roles is None else self._roles.of(principal), door)

    def acting_as_server(self, door: Door) -> Database:
        """Return the database for statements with the server's own role."""
        return self._acting_as(None, door)

    def _acting_as(self, role: RequestRole | None, door: Door) -> Database:
        if self._roles is None and self.pools[door] is self.pool:
            return self
        acting = copy.copy(self)
        acting.role, acting.is_assigned, acting.pool = role, True, self.pools[door]
        return acting

    async def close(self) -> None:
        """Wait for connections in use, and close all."""
        self._probe.close()
        for pool in set(self.pools.values()):
            await pool.close()

    def terminate(self) -> None:
        """Close all connections at once."""
        self._probe.close()
        for pool in set(self.pools.values()):
            pool.terminate()

    async def check(self, timeout_seconds: float) -> None:
        """Check that PostgreSQL answers, on a connection that no request uses. Do not call it concurrently.

        Raises Busy if PostgreSQL accepts no connection and the pool has none, Unavailable if it does not answer.
        """
        try:
            await self._probe.ask(timeout_seconds)
        except pg.TooManyConnectionsError as error:
            # PostgreSQL answers, and the pool's open connections still work.
            if not self.pool.figures().is_open:
                self.telemetry.record_failure(error)
                raise translate(error) from error
        except TimeoutError as error:
            self.telemetry.record_failure(error)
            raise Unavailable("The database does not answer in time; try again.") from error
        except FAILURES as error:
            self.telemetry.record_failure(error)
            raise unreachable() from error

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[PostgresConnection]:
        """Yield a connection of the pool, for tests and the benchmark."""
        connection = await self._acquire()
        try:
            yield connection
        finally:
            try:
                # A statement that was prepared and not executed leaves a transaction open.
                await self._finish_or_retire(connection, lambda: connection.execute(SYNC))
            finally:
                await self.pool.release(connection)

    async def _acquire(self, client: str | None = None) -> PostgresConnection:
        """Acquire a connection. Raises TooManyRequests, Busy, Unavailable; NeverSent if its opening failed."""
        begin = time.perf_counter()
        try:
            connection = await self.pool.acquire(self._acquire_timeout_seconds, client)
        except NotOpened as error:
            self.telemetry.record_failure(error)
            self._availability.log(error)
            raise unreachable() from error
        except ConnectionShareUsed as error:
            raise too_many_requests() from error
        except TimeoutError as error:
            raise Busy("All database connections are in use; try again.") from error
        except (*GONE, pg.InterfaceError, pg.PostgresError) as error:
            self.telemetry.record_failure(error)
            self._availability.log(error)
            if isinstance(error, (pg.PostgresConnectionError, pg.AdminShutdownError, ConnectionResetError)):
                raise NeverSent from error
            is_full = isinstance(error, pg.TooManyConnectionsError)
            raise (translate(error) if is_full else unreachable()) from error
        finally:
            self.telemetry.record_acquire(begin)
        if self._availability.is_unreachable:
            self._availability.log(None)
        return connection

    async def read(
        self,
        work: Work[Result],
        *,
        is_snapshot: bool,
        timeout_seconds: float | None = None,
    ) -> Result:
        """Run work that reads, and retry it if necessary. is_snapshot: whether it needs one snapshot for several
        statements. timeout_seconds: the time limit of the work, if it is shorter than that of a statement.

        Without a snapshot there is no transaction. This is only for the server's own SELECTs: PostgreSQL would execute
        a write, and a retry would send it twice."""
        limited = work if timeout_seconds is None else timed(work, timeout_seconds)
        return await self._attempts(limited, "repeatable_read" if is_snapshot else None, is_repeatable=_always)

    async def read_unknown(self, work: Work[Result], *, is_snapshot: bool) -> Result:
        """Read with a statement of custom code, like `read`: PostgreSQL refuses writes. Raises MisplacedWrite."""
        return await self._attempts(work, "repeatable_read" if is_snapshot else "read_only", is_repeatable=_always)

    async def read_all(
        self,
        work: Callable[[PostgresConnection, StreamTurn], Awaitable[Result]],
        reader: StreamReader,
        *,
        is_begun: Callable[[], bool],
        is_single_statement: bool,
        timeout_seconds: float | None = None,
    ) -> Result:
        """Run work that reads a list of any length in one snapshot. If the list is long, the work begins a stream, and
        then may take as long as its client. If no slot is free for it, or if the first rows are too large to be read
        together, the work begins again. is_begun: whether anything was sent to the client; the work is not retried
        after that. is_single_statement: whether a short list is one statement, which is a snapshot without a
        transaction. timeout_seconds: the time limit of each statement of a stream.

        Raises TooManyRequests, TooManyStreams."""
        turn = StreamTurn(self._streams, reader, self.telemetry, self._stream_seconds, timeout_seconds)
        turn.is_snapshot = not is_single_statement

        async def tried(connection: PostgresConnection) -> Result:
            try:
                return await work(connection, turn)
            except RETRYABLE as error:
                if is_begun():
                    raise Busy("A migration was in the way.") from error
                raise

        try:
            while True:
                isolation: Isolation | None = "repeatable_read" if turn.is_snapshot else None
                try:
                    return await self._attempts(tried, isolation, is_repeatable=lambda: not is_begun())
                except NoSnapshot:
                    turn.is_snapshot = True
                except NoFreeSlot:
                    await self._wait_for_slot(reader)
                    turn.is_held = True
                except AnswerTooLarge:
                    if turn.is_long:
                        raise
                    turn.is_long = turn.is_snapshot = True
        finally:
            if turn.is_held:
                self._streams.give_back(reader)

    async def _wait_for_slot(self, reader: StreamReader) -> None:
        try:
            await self._streams.wait(reader, self._acquire_timeout_seconds)
        except StreamShareUsed as error:
            raise too_many_requests() from error
        except TimeoutError as error:
            raise TooManyStreams("Too many long answers are being sent: ask for pages, or try again.") from error

    async def write(
        self,
        work: Work[Result],
        *,
        committing: Callable[[], None] | None = None,
        committed: Committed | None = None,
    ) -> Result:
        """Run work that writes in a transaction, and commit it. Retry it if other transactions made it fail.
        committing: called before each commit. From then on the work must not be cancelled. committed: called after the
        commit, with the connection."""
        return await self._attempts(work, "read_committed", committing, committed)

    async def write_statement(self, work: Work[Result], *, committed: Committed | None = None) -> Result:
        """Run a write of one statement, without an explicit transaction. committed: as for `write`."""

        async def tracked(connection: PostgresConnection) -> Result:
            check = SendCheck(connection)
            try:
                result = await work(connection)
            except Exception as error:
                if isinstance(error, pg.OutdatedSchemaCacheError):
                    # The statement was executed; only its result cannot be read.
                    raise MaybeDone from error
                if not is_lost(error, connection):
                    raise
                if not check.has_sent and isinstance(error, TimeoutError):
                    raise
                if not check.has_sent:
                    raise NeverSent from error
                raise (ConnectionLost() if is_rolled_back(error) else MaybeDone()) from error
            await _tell(committed, connection)
            return result

        return await self._attempts(tracked, None)

    async def let_next_begin(self) -> None:
        """Let a request that was waiting for the connection of the last write send its statement. Call it before the
        answer to that write is encoded: meanwhile PostgreSQL executes the next one."""
        if self.pool.has_handed_on:
            await asyncio.sleep(0)

    async def _attempts(
        self,
        work: Work[Result],
        isolation: Isolation | None,
        committing: Callable[[], None] | None = None,
        committed: Committed | None = None,
        is_repeatable: Callable[[], bool] = _never,
    ) -> Result:
        """Run the work, with retries. is_repeatable: whether the work may be repeated if it may have been executed."""
        if not self.is_assigned:
            raise RuntimeError("with row_security, statements need a principal")
        begun = work
        if isolation is not None:
            begun = lambda connection: self._transaction(connection, work, isolation, committing, committed)  # noqa: E731
        elif self.role is not None:
            begun = self._alone(work, self.role)
        is_second, attempt = False, 1
        while True:
            try:
                return await self._run_once(begun)
            except RETRYABLE as error:
                if attempt == ATTEMPTS:
                    raise Busy("Other writes were in the way; try again.") from error
            except ConnectionLost as error:
                if is_timed_out(error) and not isinstance(error, MaybeDone):
                    raise timed_out() from error
                # All connections opened before have been retired: the second attempt uses a newer one.
                if is_second or not (isinstance(error, NeverSent) or is_repeatable()):
                    raise answer_to(error) from error.__cause__
                is_second = True
                continue
            except ApiError:
                raise
            except Exception as error:
                if is_repeatable is not _never and translate(error) is error:
                    # A refused write is left to `refusals.py`, which can point into the document.
                    raise_rule(error)
                if is_schema_changed(error):
                    log.error(_SCHEMA_CHANGED, in_one_line(error))
                raise_as(translate(error), error)
            # Random, so that two transactions in conflict do not meet again.
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))
            attempt += 1

    async def _run_once(self, work: Work[Result]) -> Result:
        client = current_client.get()
        connection = await self._acquire(client)
        try:
            result = await work(connection)
        except BaseException as error:
            try:
                await self._handle_error(error, connection)
            finally:
                await self.pool.release(connection, client)
            raise
        if connection.must_be_reset:
            await self.pool.release(connection, client)
        else:
            await self.pool.keep(connection, client)
        return result

    async def _handle_error(self, error: BaseException, connection: PostgresConnection) -> None:
        """Retire the connection, and others, if the error shows that they are broken. Raises ConnectionLost."""
        is_known = isinstance(error, ConnectionLost)
        self.telemetry.record_failure(error)
        if isinstance(error, pg.ReadOnlySQLTransactionError):
            if await self._is_read_only(connection):
                await self.pool.retire_all(connection, READ_ONLY_RETIRE_SECONDS)
            else:
                # A standby that has just become the primary, or a hook that executed SET TRANSACTION READ ONLY.
                log.warning("a write was refused as read-only by a server that takes writes")
            return
        if not is_known and not is_lost(error, connection):
            if is_short(error):
                log.warning("PostgreSQL lacks what a request needs: %s", in_one_line(error))
            if is_refused_by_driver(error) or is_cancel_pending(connection):
                await self._finish_or_retire(connection, lambda: connection.execute(SYNC))
            return
        connection.mark_lost()
        if is_timed_out(error):
            return
        if await self.pool.retire_all(connection):
            log.warning("a connection to PostgreSQL broke, and all older ones are replaced: %s", describe_loss(error))
        if not (is_known or isinstance(error, TimeoutError)):
            raise ConnectionLost from error

    async def _is_read_only(self, connection: PostgresConnection) -> bool:
        """Return whether the server itself is read-only, like a standby. True if it does not answer."""
        try:
            async with asyncio.timeout(self._network_timeout_seconds):
                return bool(await connection.fetchval(_IS_READ_ONLY))
        except FAILURES:
            return True

    def _alone(self, work: Work[Result], role: RequestRole) -> Work[Result]:
        """Return work whose statements are their own transactions, with the role of the request."""

        async def acting(connection: Any) -> Result:
            with connection.acting_as(role):
                return await work(connection)

        return acting

    async def _transaction(
        self,
        connection: Any,
        work: Work[Result],
        isolation: Isolation,
        committing: Callable[[], None] | None,
        committed: Committed | None,
    ) -> Result:
        is_read = isolation != "read_committed"
        level: Any = "read_committed" if isolation == "read_only" else isolation
        transaction = connection.transaction(isolation=level, readonly=is_read)
        begun, role = await connection.queue(transaction.start()), self.role
        set_role = None if role is None else await connection.pipeline(SET_ROLE, (role.name, role.claims))
        try:
            result = await work(connection)
        except BaseException as error:
            if not is_lost(error, connection):
                await self._finish_or_retire(connection, transaction.rollback)
            elif begun.tag is None and not isinstance(error, TimeoutError):
                raise NeverSent from error
            if role is not None:
                check_role(set_role, role, error)
            if is_read and isinstance(error, pg.ReadOnlySQLTransactionError):
                raise MisplacedWrite("a write in database.read: use database.write") from error
            raise
        if committing is not None:
            committing()
        check = SendCheck(connection)
        try:
            await transaction.commit()
        except (*LOST, pg.InterfaceError) as error:
            is_sent = not is_read and check.has_sent
            raise (MaybeDone() if is_sent else ConnectionLost()) from error
        await _tell(committed, connection)
        return result

    async def _finish_or_retire(self, connection: PostgresConnection, end: Callable[[], Awaitable[object]]) -> None:
        """Call `end`, or retire the connection if that takes too long. asyncpg first awaits a cancelled statement."""
        try:
            async with asyncio.timeout(min(GRACE_SECONDS, self._network_timeout_seconds)):
                await end()
        except (*LOST, pg.InterfaceError):
            connection.retire()
