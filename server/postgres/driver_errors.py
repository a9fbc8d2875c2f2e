"""The driver's errors, by what they mean to a request. What comes in: exceptions of asyncpg and of the network. What
goes out: which of them are tried again, which say that the database is away, which that it refuses a value; an answer
where that much is all that there is to say.

Refusals that point into a request are made of these in `refusals.py`.
"""

from __future__ import annotations

from asyncpg import exceptions as pg

from server.errors import Busy, StatementTimeout, TooExpensive, Unavailable, causes
from server.postgres.connection import Connection, is_open

RETRIED = (
    pg.DeadlockDetectedError,
    pg.SerializationError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
"""Others, or a migration, were in the way: the transaction is begun again."""

LOST = (pg.PostgresConnectionError, pg.AdminShutdownError, pg.CrashShutdownError, pg.InternalClientError, OSError)
"""The connection broke while a statement was under way. asyncpg has an internal error of it where PostgreSQL has said
goodbye and the socket is not closed yet. A TimeoutError is one of them: no answer came, and whatever comes is late."""

GONE = (
    *LOST,
    pg.CannotConnectNowError,
    pg.DatabaseDroppedError,
    pg.InsufficientResourcesError,
    pg.PostgresSystemError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.InvalidAuthorizationSpecificationError,
)
"""The database is not there, or not for us."""

REFUSED = (pg.DataError, pg.ProgramLimitExceededError, pg.NameTooLongError, pg._base.DataError)
"""A value that PostgreSQL does not take: SQLSTATE classes 22 and 54, 42622 of the type `name`, and what asyncpg refuses
before it is sent."""

BROKEN_INSIDE = (pg.InternalServerError,)
"""SQLSTATE XX000. Of a pattern that takes more memory than PostgreSQL can ask for it has no better word."""

VIOLATED = (pg.IntegrityConstraintViolationError,)
"""A row that a constraint does not allow."""

ENDED = (pg.NoActiveSQLTransactionError, pg.InvalidSavepointSpecificationError)
"""A savepoint cannot be released: it is gone with its transaction."""

OUT_OF_RANGE = "22003"
_REFUSALS = {
    OUT_OF_RANGE: "a number is out of range",
    "22008": "a date or time is out of range",
    "22001": "a text is too long",
    "42622": "a text is too long",
    "2201B": "a regular expression is not valid",
    "XX000": "a regular expression is too complex",
    "22025": "a LIKE pattern must not end with a backslash",
    "22P05": "a character cannot be stored",
    "54000": "a text is too long for an index",
}


def words(error: Exception) -> str:
    """What kind of refusal it was, without the database's own text, which names its parts."""
    return _REFUSALS.get(getattr(error, "sqlstate", None) or "", "it is out of range or not of the right form")


def is_lost(error: BaseException, connection: Connection) -> bool:
    """Whether the connection is of no use any more. Others than the driver have errors of the network, and the driver
    has an interface error where it knew before."""
    if isinstance(error, RETRIED):
        return False
    if isinstance(error, (OSError, pg.InterfaceError)):
        return not is_open(connection) or connection.is_late
    return isinstance(error, LOST)


def is_half_sent(error: BaseException | None) -> bool:
    """Whether the driver has had a statement parsed and has then refused its values: the transaction in which that is
    done is open still."""
    told = next((one for one in causes(error) if isinstance(one, (pg.DataError, pg.InterfaceError))), None)
    # PostgreSQL's own errors have a severity.
    return told is not None and getattr(told, "severity_en", None) is None


def is_rolled_back(error: BaseException) -> bool:
    """Whether PostgreSQL has ended the connection before a statement that is its own transaction was done.

    It says so, with the name of the function that heeds interrupts. That is not called between the commit of such a
    statement and its answer, and where it ends while it waits for a standby after the commit, it says nothing
    (SyncRepWaitForLSN in src/backend/replication/syncrep.c). Not so of COMMIT, of whose duration there may be a line in
    PostgreSQL's log between the two.
    """
    word = error.__cause__ if isinstance(error, pg.ConnectionDoesNotExistError) else error
    source = getattr(word, "server_source_function", None)
    return isinstance(word, pg.PostgresError) and word.severity_en == "FATAL" and source == "ProcessInterrupts"


def in_one_line(error: BaseException) -> str:
    """What an error says, for the log and the terminal: PostgreSQL's detail and hint are lines of their own."""
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines())


def words_of_loss(error: BaseException) -> str:
    """Why a connection broke, for the log: PostgreSQL's last words or the network's."""
    *_, first = causes(error)
    said = in_one_line(first)
    return f"{type(first).__name__}: {said}" if said else type(first).__name__


def translated(error: Exception) -> Exception:
    """A driver's error as an answer where it is the world's doing; any other exception is itself, a fault of ours."""
    if isinstance(error, (pg.QueryCanceledError, TimeoutError)):
        return StatementTimeout("The database took too long over this request.")
    if isinstance(error, pg.ReadOnlySQLTransactionError):
        return Unavailable("The database takes no writes for now; try again.")
    if isinstance(error, pg.LockNotAvailableError):
        return Busy("Another write holds a lock; try again.")
    if isinstance(error, pg.TooManyConnectionsError):
        return Busy("The database takes no more connections; try again.")
    if isinstance(error, pg.ConfigurationLimitExceededError):
        return TooExpensive("The database would need too much room on disk for this request: ask for less at once.")
    if isinstance(error, (pg.InsufficientResourcesError, pg.PostgresSystemError)):
        return Unavailable("The database is short of room, memory or another resource; try again.")
    if isinstance(error, GONE):
        return Unavailable("The database cannot be reached; try again.")
    return error
