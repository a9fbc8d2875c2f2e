"""The driver's errors, by what they mean to a request. What comes in: exceptions of asyncpg and of the network. What
goes out: which of them are tried again, which say that the database is away, which that it refuses a value; an answer
where that much is all that there is to say.

Refusals that point into a request are made of these in `refusals.py`.
"""

from __future__ import annotations

from asyncpg import exceptions as pg

from server.errors import Busy, StatementTimeout, Unavailable

RETRIED = (
    pg.DeadlockDetectedError,
    pg.SerializationError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
"""Others, or a migration, were in the way: the transaction is begun again."""

LOST = (pg.PostgresConnectionError, pg.AdminShutdownError, pg.CrashShutdownError, pg.InternalClientError, OSError)
"""The connection broke while a statement was under way. asyncpg has an internal error of it where PostgreSQL has said
goodbye and the socket is not closed yet."""

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

REFUSED = (pg.DataError, pg.ProgramLimitExceededError, pg._base.DataError)
"""A value that PostgreSQL does not take: SQLSTATE classes 22 and 54, and what asyncpg refuses before it is sent."""

VIOLATED = (pg.IntegrityConstraintViolationError,)
"""A row that a constraint does not allow."""

ENDED = (pg.NoActiveSQLTransactionError, pg.InvalidSavepointSpecificationError)
"""A savepoint cannot be released: it is gone with its transaction."""

_REFUSALS = {
    "22003": "a number is out of range",
    "22008": "a date or time is out of range",
    "22001": "a text is too long",
    "2201B": "a regular expression is not valid",
    "22025": "a LIKE pattern must not end with a backslash",
    "22P05": "a character cannot be stored",
    "54000": "a text is too long for an index",
}


def words(error: Exception) -> str:
    """What kind of refusal it was, without the database's own text, which names its parts."""
    return _REFUSALS.get(getattr(error, "sqlstate", None) or "", "it is out of range or not of the right form")


def translated(error: Exception) -> Exception:
    """A driver's error as an answer where it is the world's doing; any other exception is itself, a fault of ours."""
    if isinstance(error, pg.QueryCanceledError):
        return StatementTimeout("The database took too long over this request.")
    if isinstance(error, pg.ReadOnlySQLTransactionError):
        return Unavailable("The database takes no writes for now; try again.")
    if isinstance(error, pg.LockNotAvailableError):
        return Busy("Another write holds a lock; try again.")
    if isinstance(error, (TimeoutError, *GONE)):
        return Unavailable("The database cannot be reached; try again.")
    is_closed = isinstance(error, pg.InterfaceError) and "clos" in str(error)
    return Unavailable("The database cannot be reached; try again.") if is_closed else error
