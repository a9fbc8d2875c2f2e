"""Waiting for locks without standing in anybody's way.

In: a connection, what is to be tried on it, and how much `Patience` there is. Out: what the attempt gave, or
MigrationError when time is up; lines about what is waited for. Must not know what is tried.

Whoever asks for a lock that others hold stands in a queue, and everybody who comes later stands behind. A migration
that waits for one long report would so keep all requests to its table waiting. So an attempt gives up after a short
`lock_timeout`, is rolled back, and is made again after a pause in which the queue runs empty.
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

# Any number would do, as long as every version of this program keeps to it: the advisory lock of the one
# runner that is at work in a database. The bytes of "watersp".
LOCK = 0x77617465727370
POLL_SECONDS = 0.1

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
FIRST_LOOK_SECONDS = 1.0
LONGEST_LOOK_SECONDS = 10.0
AGAIN = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

# Unqualified names in a file mean `public`, whatever the role's own path; pg_temp last, so that nothing
# shadows them. A time limit of the role's is meant for requests; nothing here waits longer than `lock_timeout`.
SESSION = {"search_path": "public, pg_temp", "statement_timeout": "0", "transaction_timeout": "0"}
KEPT = (*SESSION, "lock_timeout")
READ_SETTINGS = "SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY($1::text[])"
# From pg_settings, because transaction_timeout came with PostgreSQL 17.
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
class Patience:
    """lock_timeout_seconds: how long one attempt stands in a queue, and others behind it. wait_seconds: for how long
    the attempts go on."""

    lock_timeout_seconds: float = 2.0
    wait_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the runner. `connect` opens a second connection, to see who holds a lock; None for no such look."""

    conn: Connection
    patience: Patience
    tell: Say
    connect: Connect | None


@dataclass(slots=True)
class Sight:
    """What was last seen of a wait, and what was told of it."""

    last: str = ""
    told: set[tuple[object, ...]] = field(default_factory=set)


@asynccontextmanager
async def alone(run: Run) -> AsyncIterator[None]:
    """Holds the lock of the runners, and leaves the session's settings as they were."""
    kept = {row["name"]: row["value"] for row in await run.conn.fetch(READ_SETTINGS, KEPT)}
    try:
        await _lock(run.conn, run.tell)
        yield
    finally:
        # Where the session is gone, lock and settings went with it.
        with suppress(asyncpg.InterfaceError, asyncpg.PostgresConnectionError, OSError):
            await _set(run.conn, kept)
            await run.conn.execute("SELECT pg_advisory_unlock($1)", LOCK)


async def _lock(conn: Connection, tell: Say) -> None:
    # Asked for again and again rather than waited for: a session that waits inside pg_advisory_lock() holds
    # a snapshot, a CREATE INDEX CONCURRENTLY of the lock's holder waits for that snapshot, and the two
    # deadlock.
    is_told = False
    while not await conn.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        if not is_told:
            tell("waiting for another server that is applying migrations")
            is_told = True
        await asyncio.sleep(POLL_SECONDS)


async def pin(conn: Connection) -> None:
    """Gives the session the settings that a file is applied with."""
    await _set(conn, SESSION)


async def _set(conn: Connection, settings: dict[str, str]) -> None:
    await conn.fetch(WRITE_SETTINGS, list(settings), list(settings.values()))


async def limit(conn: Connection, seconds: float) -> None:
    """How long each lock is waited for from here on."""
    await _set(conn, {"lock_timeout": milliseconds(seconds)})


def milliseconds(seconds: float) -> str:
    """As PostgreSQL reads it; 0 would be without end."""
    return f"{max(1, round(seconds * 1000))}ms"


async def patiently(run: Run, name: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
    """What the attempt gives, tried until it gets its locks; one that fails must leave nothing behind.

    Raises MigrationError when it did not get them in time, and what else the attempt raises.
    """
    began = time.monotonic()
    sight, pauses = Sight(), _pauses()
    while True:
        left = max(0.0, run.patience.wait_seconds - (time.monotonic() - began))
        await limit(run.conn, min(run.patience.lock_timeout_seconds, left))
        try:
            async with looking(run, name, sight):
                return await attempt()
        except AGAIN as error:
            left = run.patience.wait_seconds - (time.monotonic() - began)
            if left <= 0:
                raise MigrationError(_over(run, name, sight)) from error
            pause = min(next(pauses), left)
            run.tell(f"{name}: {_reason(run, error)}; again in {pause:.1f} s, for up to {left:.0f} s more")
        await asyncio.sleep(pause)


def _pauses() -> Iterator[float]:
    """Longer and longer, and never in step with others that wait as we do."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.5)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _reason(run: Run, error: asyncpg.PostgresError) -> str:
    if isinstance(error, asyncpg.DeadlockDetectedError):
        return "a deadlock with another session"
    return f"no lock within {run.patience.lock_timeout_seconds:g} s"


def _over(run: Run, name: str, sight: Sight) -> str:
    why = f": it {sight.last}" if sight.last else ""
    return f"{name} did not get its locks within {run.patience.wait_seconds:g} s, and left nothing behind{why}"


@asynccontextmanager
async def looking(run: Run, name: str, sight: Sight) -> AsyncIterator[None]:
    """Looks now and then what the connection waits for, and tells each new thing once."""
    if run.connect is None:
        yield
        return
    look = asyncio.create_task(_look(run, run.connect, name, sight))
    try:
        yield
    finally:
        look.cancel()
        with suppress(asyncio.CancelledError):
            await look


async def _look(run: Run, connect: Connect, name: str, sight: Sight) -> None:
    pause = min(FIRST_LOOK_SECONDS, run.patience.lock_timeout_seconds / 2)
    await asyncio.sleep(pause)
    # Whoever is not let in sees nothing, which is no reason to end a migration.
    with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        watcher = await connect()
        try:
            while True:
                await _look_once(watcher, run, name, sight)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)
        finally:
            watcher.terminate()


async def _look_once(watcher: Connection, run: Run, name: str, sight: Sight) -> None:
    pid = run.conn.get_server_pid()
    awaited = await watcher.fetchrow(AWAITED, pid)
    holders = await watcher.fetch(HOLDERS, pid) if awaited else []
    if awaited is None or not holders:
        return
    kind, relation = awaited
    sight.last = f"waits for {_thing(kind, relation)} of {_holder(*holders[0])}"
    sight.last += f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    key = (kind, relation, *(holder[0] for holder in holders))
    if key not in sight.told:
        sight.told.add(key)
        run.tell(f"{name} {sight.last}")


def _thing(kind: str, relation: str) -> str:
    if kind == "relation":
        return f"the lock on {relation}"
    return "the end" if kind in ("virtualxid", "transactionid") else f"a lock ({kind})"


def _holder(pid: int, name: str, seconds: float | None) -> str:
    age = "" if seconds is None else f", in a transaction for {seconds:.0f} s"
    return f"process {pid} ({name}{age})"
