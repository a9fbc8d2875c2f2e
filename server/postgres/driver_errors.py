"""Classifies the driver's errors: some are retried, some mean that the connection or the database is lost, and some
that it refuses a value. Translates an error into an ApiError if this needs no details of the request. `refusals.py`
translates the others, with a pointer into the request.
"""

from __future__ import annotations

import logging
import re

from asyncpg import exceptions as pg

from querybuild.errors import ApiError
from server.errors import Busy, OutcomeUnknown, SchemaChanged, StatementTimeout, TooExpensive, Unavailable, causes
from server.postgres.connection import PostgresConnection
from server.postgres.said import said

log = logging.getLogger("server")

RETRYABLE = (
    pg.DeadlockDetectedError,
    pg.SerializationError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
"""Conflicts with other transactions or a migration: the transaction is retried."""

LOST = (pg.PostgresConnectionError, pg.AdminShutdownError, pg.CrashShutdownError, pg.InternalClientError, OSError)
"""The connection broke during a statement. asyncpg raises an internal error if PostgreSQL has ended the session and the
socket is not closed yet. A TimeoutError, which is an OSError, is one of them: no answer came in time."""

SHORT = (pg.InsufficientResourcesError, pg.PostgresSystemError)
"""PostgreSQL has no room, no memory, or cannot use a file: SQLSTATE classes 53 and 58."""

FOREIGN_SERVER_DOWN = pg.ClientCannotConnectError
"""PostgreSQL cannot connect to the server of a foreign table. Our own connection is whole, and nothing was done."""

GONE = (
    *LOST,
    pg.CannotConnectNowError,
    pg.DatabaseDroppedError,
    *SHORT,
    pg.IdleInTransactionSessionTimeoutError,
    pg.InvalidAuthorizationSpecificationError,
)
"""The database is down, or refuses this server."""

PostgresMessage = pg.PostgresError | pg.PostgresWarning
"""Every error of PostgreSQL. Those of the SQLSTATE classes 01 and 02, which RAISE can use, are warnings to asyncpg."""

REFUSED = (
    pg.DataError,
    pg.CardinalityViolationError,
    pg.NoDataFoundError,
    pg.TooManyRowsError,
    pg.ProgramLimitExceededError,
    pg.NameTooLongError,
    pg._base.DataError,
)
"""PostgreSQL refuses a value: SQLSTATE classes 22 and 54, 42622 for the type `name`, values that asyncpg refuses to
send, and a subquery or an INTO STRICT that finds several rows or none (21000, P0002, P0003)."""

_PARSERS = frozenset({"hstore_io.c", "ltree_io.c", "jsonpath_scan.l", "jsonpath_gram.y", "tsquery.c", "numeric.c"})
"""The source files that report an invalid value as a syntax error, as an internal error, or as not supported."""
_OF_POSTGIS = ("lwgeom_", "geography_", "gserialized_")
"""With what the names of PostGIS's source files begin. Its errors about values are internal errors."""

PARSED = (pg.PostgresSyntaxError, pg.InternalServerError)
"""The errors of these. Ask `is_value_refused` whether an error is one."""


def is_value_refused(error: BaseException) -> bool:
    """Return whether PostgreSQL or the driver refuses a value."""
    return isinstance(error, REFUSED) or _is_parsed(error)


def _is_parsed(error: BaseException) -> bool:
    source = getattr(error, "server_source_filename", None) or ""
    return source in _PARSERS or source.startswith(_OF_POSTGIS)


def is_quoted(value: object, error: BaseException) -> bool:
    """Return whether PostgreSQL's message has a text of a value in quotes: `invalid input syntax for type inet: "x"`.
    value: a text, or an array of any number of dimensions."""
    if isinstance(value, list):
        return any(is_quoted(item, error) for item in value)
    return isinstance(value, str) and f'"{value}"' in str(error)


_UNKNOWN_CHARACTER = re.compile(r"((?:0x[0-9a-f]{2} ?)+)")


def unknown_character(error: BaseException) -> str | None:
    """Return the character that the encoding of the database does not have, if PostgreSQL refuses one (22P05). The
    message has its bytes."""
    if not isinstance(error, pg.UntranslatableCharacterError):
        return None
    match = _UNKNOWN_CHARACTER.search(str(error))
    octets = bytes([int(octet, 16) for octet in match[1].split()]) if match is not None else b""
    return octets.decode(errors="ignore") or None


def has_text(value: object, part: str) -> bool:
    """Return whether a text, or one of a list of texts, has this part."""
    if isinstance(value, list | tuple):
        return any(has_text(item, part) for item in value)
    return isinstance(value, str) and part in value


UNSUPPORTED = pg.FeatureNotSupportedError
"""SQLSTATE 0A000. A column with a nondeterministic collation takes no patterns. Some of RETRYABLE are such errors."""

COLLATIONS_DIFFER = pg.IndeterminateCollationError
"""SQLSTATE 42P22. Two columns with different collations are compared."""

INTERNAL = (pg.InternalServerError,)
"""SQLSTATE XX000. PostgreSQL has no other code for a pattern that needs more memory than it can allocate."""

VIOLATED = (pg.IntegrityConstraintViolationError,)
"""A constraint does not allow a row."""

OF_VALUES = (*REFUSED, *PARSED, UNSUPPORTED, COLLATIONS_DIFFER)
"""The errors of a read whose reason can be a value of the request."""

OF_ROWS = (*REFUSED, *PARSED, *VIOLATED, UNSUPPORTED)
"""The errors of a read whose reason can be a stored row. Ask `is_of_rows` whether an error is one."""


def is_of_rows(error: BaseException) -> bool:
    """Return whether stored rows can be the reason for an error of a read. A cast to a domain violates a constraint."""
    if not isinstance(error, PostgresMessage) or is_raised(error) or isinstance(error, RETRYABLE):
        return False
    return is_value_refused(error) or isinstance(error, VIOLATED)


SAVEPOINT_GONE = (pg.NoActiveSQLTransactionError, pg.InvalidSavepointSpecificationError)
"""A savepoint cannot be released, because its transaction has ended."""

OUT_OF_RANGE = "22003"
_REFUSALS = {
    OUT_OF_RANGE: "a number is out of range",
    "22008": "a date or time is out of range",
    "22012": "a number is divided by zero",
    "22001": "a text is too long",
    "42622": "a text is too long",
    "2201B": "a regular expression is not valid",
    "0A000": "the collation of the column takes no patterns; `eq`, `in_` and `between` work",
    "42P22": "the two fields have different collations",
    "XX000": "a regular expression is too complex",
    "22025": "a LIKE pattern must not end with a backslash",
    "22P05": "a character cannot be stored",
    "54000": "a value is too large for PostgreSQL or for an index",
    "21000": "a subquery returns several rows",
    "23514": "a domain does not allow it",
    "P0002": "a query returns no row",
    "P0003": "a query returns several rows",
}


def state_of(error: Exception) -> str:
    """Return the SQLSTATE. It is empty for an error of the driver."""
    return getattr(error, "sqlstate", None) or ""


def describe_refusal(error: Exception) -> str:
    """Return the kind of a refusal, without PostgreSQL's own text, which contains internal names."""
    other = "it is out of range or not of the right form"
    if _is_parsed(error) and "SRID" in said(error).message:
        return "its SRID, as in SRID=4326;POINT(1 2), is not that of the column"
    is_known = isinstance(error, (*REFUSED, *VIOLATED))
    is_of_operator = isinstance(error, (*INTERNAL, UNSUPPORTED, COLLATIONS_DIFFER)) and not _is_parsed(error)
    return _REFUSALS.get(state_of(error), other) if is_known or is_of_operator else other


def is_lost(error: BaseException, connection: PostgresConnection) -> bool:
    """Return whether the error means that the connection is broken. Custom code can raise network errors of its own,
    and the driver raises an interface error if it knew already: for these the connection itself is asked.

    PostgreSQL says FATAL when it ends a connection. A trigger or a foreign table can cause an ERROR with the same
    SQLSTATE."""
    if isinstance(error, RETRYABLE) or said(error).severity_en == "ERROR":
        return False
    if isinstance(error, AttributeError):
        # A connection that was aborted has no protocol, and asyncpg does not always look.
        return connection.is_closed()
    if isinstance(error, (OSError, pg.InterfaceError)):
        return connection.is_closed() or connection.is_cancelling
    return isinstance(error, LOST)


def timed_out() -> StatementTimeout:
    """Return the error for a statement or a transaction that took too long."""
    return StatementTimeout("The database took too long over this request.")


def is_timed_out(error: BaseException | None) -> bool:
    """Return whether PostgreSQL ended the connection because of its setting `transaction_timeout`. The transaction was
    rolled back, and other connections are whole."""
    return any(isinstance(cause, pg.TransactionTimeoutError) for cause in causes(error))


def is_raised(error: BaseException) -> bool:
    """Return whether a RAISE of PL/pgSQL caused the error, with any SQLSTATE (exec_stmt_raise in
    src/pl/plpgsql/src/pl_exec.c)."""
    return said(error).server_source_function == "exec_stmt_raise"


def is_refused_by_driver(error: BaseException | None) -> bool:
    """Return whether the driver refused the values after PostgreSQL had parsed the statement. The transaction of the
    parse is then still open."""
    refusal = next((cause for cause in causes(error) if isinstance(cause, (pg.DataError, pg.InterfaceError))), None)
    # PostgreSQL's own errors have a severity.
    return refusal is not None and not said(refusal).severity_en


def is_rolled_back(error: BaseException) -> bool:
    """Return whether PostgreSQL ended the connection before it had executed a statement that is its own transaction.

    The error then names the function that handles interrupts. PostgreSQL does not call it between the commit of such a
    statement and its answer. If it ends while it waits for a standby after the commit, it sends no error
    (SyncRepWaitForLSN in src/backend/replication/syncrep.c). This is not true of COMMIT: PostgreSQL may write a log
    line about its duration between the commit and the answer."""
    sent = error.__cause__ if isinstance(error, pg.ConnectionDoesNotExistError) else error
    facts = said(sent)
    return (facts.severity_en, facts.server_source_function) == ("FATAL", "ProcessInterrupts")


def in_one_line(error: BaseException) -> str:
    """Return the text of an error in one line, for the log and the terminal. PostgreSQL's detail and hint are separate
    lines."""
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines())


def describe_loss(error: BaseException) -> str:
    """Why a connection broke, for the log: the first error of PostgreSQL or the network."""
    *_, first = causes(error)
    if isinstance(first, pg.InternalClientError):
        # asyncpg does not keep an error that PostgreSQL sends outside of a statement, and refuses the next one.
        return "PostgreSQL ended it between two statements"
    said = in_one_line(first)
    return f"{type(first).__name__}: {said}" if said else type(first).__name__


_UNFIT = (
    pg.UndefinedColumnError,
    pg.UndefinedTableError,
    pg.UndefinedFunctionError,
    pg.UndefinedObjectError,
    pg.DatatypeMismatchError,
    pg.CannotCoerceError,
    pg.InvalidSchemaNameError,
)
"""Errors of a statement that names what is not there, or compares what cannot be compared."""

_OF_REMOTE_TABLE = "remote SQL command"
"""What the context of an error begins with that postgres_fdw reports for another database."""


_OF_OTHER_TYPE = (TypeError, AttributeError)
"""Why the driver cannot encode a value of another type."""


def is_schema_changed(error: BaseException) -> bool:
    """Return whether a statement does not fit the tables any more. Ask it only about the server's own statements: those
    of custom code may be wrong. An error in a function of the database has a context, and is one of its author's."""
    if isinstance(error, (pg.DataError, pg._base.DataError)) and isinstance(error.__cause__, _OF_OTHER_TYPE):
        # The driver was given a value of another type than PostgreSQL now takes.
        return True
    if not isinstance(error, pg.PostgresError) or error.context or is_raised(error):
        return False
    is_gone = isinstance(error, pg.InternalServerError) and "cache lookup failed" in str(error)
    return isinstance(error, _UNFIT) or is_gone


def _is_of_remote_table(error: BaseException) -> bool:
    """Return whether another database cannot do what a foreign table needs, for example because its table is gone."""
    is_unfit = isinstance(error, (*_UNFIT, pg.FDWError))
    return is_unfit and (
        isinstance(error, pg.FDWError) or str(getattr(error, "context", "") or "").startswith(_OF_REMOTE_TABLE)
    )


_OPENS_TABLE = "ExecOpenScanRelation"
"""The function of src/backend/executor/execUtils.c that refuses a materialized view WITH NO DATA."""


_WRITES_TABLE = "CheckValidResultRel"
"""The function of src/backend/executor/execMain.c that refuses a write of a read-only foreign table. In some versions
there is more behind its name."""


def translate(error: Exception) -> Exception:
    """Translate a driver's error that the database or the network caused into an ApiError. Return any other exception
    as it is: it is a rule of the database (`rules.py`), or a bug of this server."""
    if isinstance(error, (pg.QueryCanceledError, TimeoutError)) or is_timed_out(error):
        return timed_out()
    if isinstance(error, pg.ReadOnlySQLTransactionError):
        return Unavailable("The database takes no writes for now; try again.")
    if isinstance(error, pg.LockNotAvailableError):
        return Busy("Another write holds a lock; try again.")
    if is_raised(error):
        return error
    if isinstance(error, pg.TooManyConnectionsError):
        return Busy("The database takes no more connections; try again.")
    if isinstance(error, pg.ConfigurationLimitExceededError):
        return TooExpensive("The database would need too much room on disk for this request: ask for less at once.")
    if isinstance(error, SHORT):
        return Unavailable("The database is short of room, memory or another resource; try again.")
    if isinstance(error, pg.ObjectNotInPrerequisiteStateError) and said(error).server_source_function == _OPENS_TABLE:
        return Unavailable("A materialized view, which has some of these rows, has no data until it is refreshed.")
    refusing = said(error).server_source_function
    if isinstance(error, pg.ObjectNotInPrerequisiteStateError) and refusing.startswith(_WRITES_TABLE):
        return Unavailable("A foreign table, which has these rows, does not accept this write now; try again.")
    if is_schema_changed(error):
        return SchemaChanged("The tables of the database are not as this server has read them; try again later.")
    if _is_of_remote_table(error):
        return Unavailable("Another database, which has some of these rows, does not have their table now; try again.")
    if isinstance(error, FOREIGN_SERVER_DOWN):
        return Unavailable("Another database, which has some of these rows, cannot be reached; try again.")
    if isinstance(error, GONE):
        return Unavailable("The database cannot be reached; try again.")
    return error


def is_short(error: BaseException) -> bool:
    """Return whether PostgreSQL lacks something for a request that the operator has to give it."""
    return isinstance(error, SHORT) and not (isinstance(error, pg.ConfigurationLimitExceededError) or is_raised(error))


class ConnectionLost(Exception):
    """The connection broke. The statement on it was not executed, and will not be."""


class NeverSent(ConnectionLost):
    """The connection broke before anything was sent."""


class MaybeDone(ConnectionLost):
    """The connection broke while a write was being committed."""


class Availability:
    """Logs when no connection can be opened, and when one can be opened again. is_unreachable: whether none can."""

    def __init__(self) -> None:
        self.is_unreachable = False

    def log(self, error: BaseException | None) -> None:
        """Log the change, if there is one. error: why no connection could be opened; None if one was opened."""
        if error is not None and not self.is_unreachable:
            log.warning("PostgreSQL cannot be reached: %s", describe_loss(error))
        elif error is None and self.is_unreachable:
            log.warning("PostgreSQL is reached again")
        self.is_unreachable = error is not None


def unreachable() -> Unavailable:
    """Return the error if no connection can be opened."""
    return Unavailable("The database cannot be reached; try again.")


def answer_to(lost: ConnectionLost) -> ApiError:
    """Return the error for a request whose connection was lost."""
    if isinstance(lost, MaybeDone):
        return OutcomeUnknown("The connection was lost while the write was being committed: check whether it was done.")
    return unreachable()
