"""Waits for locks without blocking other sessions.

In: a connection, an attempt to run on it, and a `LockWait`. Out: the result of the attempt, or MigrationError at the
timeout; log lines about what it waits for. Must not know what the attempt does.

A session that requests a lock waits in a queue, and all later requests wait behind it. A migration that waits for one
long report would so block all requests to its table. So an attempt has a short `lock_timeout`, is rolled back, and is
repeated after a pause in which the queue can drain.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import asyncpg

from migrations.files import MigrationError
from migrations.record import Connection

Say: TypeAlias = Callable[[str], None]
Connect: TypeAlias = Callable[[], Awaitable["asyncpg.Connection[asyncpg.Record]"]]
Result = TypeVar("Result")

# The advisory lock that only one runner holds in a database. Any number would do, but all versions of this program must
# use the same. The bytes of "watersp".
LOCK = 0x77617465727370
POLL_SECONDS = 0.1

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
FIRST_CHECK_SECONDS = 1.0
LONGEST_CHECK_SECONDS = 10.0
RETRYABLE = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

# Unqualified names in a file mean `public`, whatever the role's search_path; pg_temp is last, so that it shadows
# nothing. Timeouts of the role are meant for requests; nothing here waits longer than `lock_timeout`.
SESSION = {"search_path": "public, pg_temp", "statement_timeout": "0", "transaction_timeout": "0"}
RESTORED = (*SESSION, "lock_timeout")
READ_SETTINGS = "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY($1::text[])"
# From pg_settings, because transaction_timeout exists only since PostgreSQL 17.
WRITE_SETTINGS = """\
SELECT set_config(name, given.value, false)
FROM unnest($1::text[], $2::text[]) AS given (name, value) JOIN pg_settings USING (name)"""

AWAITED = """\
SELECT locktype, quote_ident(nspname) || '.' || quote_ident(relname)
FROM pg_locks LEFT JOIN pg_class ON pg_class.oid = relation
LEFT JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE pid = $1 AND NOT granted LIMIT 1"""
HOLDERS = """\
SELECT pid, coalesce(nullif(application_name, ''), usename, 'another role'),
       extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity WHERE pid = ANY(pg_blocking_pids($1)) ORDER BY xact_start, pid"""


@dataclass(frozen=True, slots=True)
class LockWait:
    """How long to wait for locks. lock_timeout_seconds: how long one attempt waits in a lock queue, and blocks those
    behind it. wait_seconds: how long attempts are repeated."""

    lock_timeout_seconds: float = 2.0
    wait_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the runner. `connect` opens a second connection, to see which sessions hold a lock; None disables
    this. table: that of applied migrations."""

    conn: Connection
    lock_wait: LockWait
    say: Say
    connect: Connect | None
    table: str


@dataclass(slots=True)
class Blockers:
    """The blocking sessions of a wait: the last message about them, and what was reported already."""

    last: str = ""
    reported: set[tuple[object, ...]] = field(default_factory=set)


@asynccontextmanager
async def hold_runner_lock(run: Run) -> AsyncIterator[None]:
    """Hold the advisory lock of the runners, and restore the session's settings at the end."""
    kept = {row["name"]: row["value"] for row in await run.conn.fetch(READ_SETTINGS, RESTORED)}
    try:
        await _lock(run.conn, run.say)
        yield
    finally:
        # If the session is gone, its lock and settings are gone too.
        with suppress(asyncpg.InterfaceError, asyncpg.PostgresConnectionError, OSError):
            await _set(run.conn, kept)
            await run.conn.execute("SELECT pg_advisory_unlock($1)", LOCK)


async def _lock(conn: Connection, say: Say) -> None:
    # Polled, because pg_advisory_lock() would deadlock: a session that waits in it holds a snapshot, and a CREATE INDEX
    # CONCURRENTLY of the lock's holder waits for that snapshot.
    is_reported = False
    while not await conn.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        if not is_reported:
            say("waiting for another server that is applying migrations")
            is_reported = True
        await asyncio.sleep(POLL_SECONDS)


async def apply_session_settings(conn: Connection) -> None:
    """Set the session settings that a file is applied with."""
    await _set(conn, SESSION)


async def _set(conn: Connection, settings: dict[str, str]) -> None:
    await conn.fetch(WRITE_SETTINGS, list(settings), list(settings.values()))


async def set_lock_timeout(conn: Connection, seconds: float) -> None:
    """Set lock_timeout for the session."""
    await _set(conn, {"lock_timeout": milliseconds(seconds)})


def milliseconds(seconds: float) -> str:
    """Return the time as a setting of PostgreSQL, at least 1 ms: 0 would disable the timeout."""
    return f"{max(1, round(seconds * 1000))}ms"


async def retry_for_locks(run: Run, name: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat the attempt until it gets its locks, and return its result. A failed attempt must leave nothing behind.

    Raises MigrationError if it did not get the locks in time, and any other error of the attempt.
    """
    began = time.monotonic()
    blockers, pauses = Blockers(), _pauses()
    while True:
        left = max(0.0, run.lock_wait.wait_seconds - (time.monotonic() - began))
        await set_lock_timeout(run.conn, min(run.lock_wait.lock_timeout_seconds, left))
        try:
            async with report_blockers(run, name, blockers):
                return await attempt()
        except RETRYABLE as error:
            left = run.lock_wait.wait_seconds - (time.monotonic() - began)
            if left <= 0:
                raise MigrationError(_timeout_message(run, name, blockers)) from error
            pause = min(next(pauses), left)
            run.say(f"{name}: {_reason(run, error)}; again in {pause:.1f} s, for up to {left:.0f} s more")
        await asyncio.sleep(pause)


def _pauses() -> Iterator[float]:
    """Yield the pauses between attempts: exponential backoff with jitter, so that several servers do not retry at the
    same time."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _reason(run: Run, error: asyncpg.PostgresError) -> str:
    if isinstance(error, asyncpg.DeadlockDetectedError):
        return "a deadlock with another session"
    return f"no lock within {run.lock_wait.lock_timeout_seconds:g} s"


def _timeout_message(run: Run, name: str, blockers: Blockers) -> str:
    why = f": it {blockers.last}" if blockers.last else ""
    return f"{name} did not get its locks within {run.lock_wait.wait_seconds:g} s, and left nothing behind{why}"


@asynccontextmanager
async def report_blockers(run: Run, name: str, blockers: Blockers) -> AsyncIterator[None]:
    """Check periodically what the connection waits for, and report each new blocker once."""
    if run.connect is None:
        yield
        return
    look = asyncio.create_task(_watch_blockers(run, run.connect, name, blockers))
    try:
        yield
    finally:
        look.cancel()
        with suppress(asyncio.CancelledError):
            await look


async def _watch_blockers(run: Run, connect: Connect, name: str, blockers: Blockers) -> None:
    pause = min(FIRST_CHECK_SECONDS, run.lock_wait.lock_timeout_seconds / 2)
    await asyncio.sleep(pause)
    # A failed second connection only means that blockers are not reported.
    with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        watcher = await connect()
        try:
            while True:
                await _check_blockers(watcher, run, name, blockers)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_CHECK_SECONDS)
        finally:
            watcher.terminate()


async def _check_blockers(watcher: Connection, run: Run, name: str, blockers: Blockers) -> None:
    pid = run.conn.get_server_pid()
    awaited = await watcher.fetchrow(AWAITED, pid)
    holders = await watcher.fetch(HOLDERS, pid) if awaited else []
    if awaited is None or not holders:
        return
    kind, relation = awaited
    blockers.last = f"waits for {_thing(kind, relation)} of {_holder(*holders[0])}"
    blockers.last += f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    key = (kind, relation, *(holder[0] for holder in holders))
    if key not in blockers.reported:
        blockers.reported.add(key)
        run.say(f"{name} {blockers.last}")


def _thing(kind: str, relation: str) -> str:
    if kind == "relation":
        return f"the lock on {relation}"
    return "the end" if kind in ("virtualxid", "transactionid") else f"a lock ({kind})"


def _holder(pid: int, name: str, seconds: float | None) -> str:
    age = "" if seconds is None else f", in a transaction for {seconds:.0f} s"
    return f"process {pid} ({name}{age})"
