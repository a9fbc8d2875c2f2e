"""The meaning of the driver's errors: `server/postgres/driver_errors.py` with exceptions as the driver creates them."""

from __future__ import annotations

from typing import Any

import pytest
from asyncpg import exceptions as pg

from server.errors import Busy, SchemaChanged, StatementTimeout, Unavailable
from server.postgres.driver_errors import RETRYABLE, describe_loss, is_refused_by_driver, is_rolled_back, translate

AWAY = "The database cannot be reached; try again."
SHORT = "The database is short of room, memory or another resource; try again."
CHANGED = "The tables of the database are not as this server has read them; try again later."
SLOW = "The database took too long over this request."


def said(code: str, severity: str = "ERROR", **fields: str) -> Any:
    """Return an error message of PostgreSQL. fields: by the letters of the protocol."""
    return pg.PostgresError.new({"S": severity, "V": severity, "C": code, "M": "said", **fields})


@pytest.mark.parametrize(
    ("code", "answer", "detail"),
    [
        ("57014", StatementTimeout, SLOW),  # statement_timeout, or pg_cancel_backend
        ("25006", Unavailable, "The database takes no writes for now; try again."),
        ("55P03", Busy, "Another write holds a lock; try again."),
        ("53300", Busy, "The database takes no more connections; try again."),
        ("53100", Unavailable, SHORT),  # the disk is full
        ("53200", Unavailable, SHORT),  # no memory
        ("58030", Unavailable, SHORT),  # the disk fails
        ("57P01", Unavailable, AWAY),  # an administrator
        ("57P02", Unavailable, AWAY),  # a crash of another backend
        ("57P03", Unavailable, AWAY),  # it starts, or stops
        ("57P04", Unavailable, AWAY),  # the database is gone
        ("25P03", Unavailable, AWAY),  # idle_in_transaction_session_timeout
        ("08006", Unavailable, AWAY),
        ("28P01", Unavailable, AWAY),  # the password has changed
        ("42P01", SchemaChanged, CHANGED),  # a table was dropped
        ("42703", SchemaChanged, CHANGED),  # a column was dropped
    ],
)
def test_an_error_that_is_an_answer(code: str, answer: type[Exception], detail: str) -> None:
    found = translate(said(code))
    assert (type(found), str(found)) == (answer, detail)


@pytest.mark.parametrize("code", ["42601", "XX000", "0A000"])
def test_an_error_that_is_a_fault(code: str) -> None:
    error = said(code)
    assert translate(error) is error


@pytest.mark.parametrize("error", [TimeoutError(), OSError(), ConnectionResetError()])
def test_the_network(error: Exception) -> None:
    """A TimeoutError is one of the driver, whose timeout has passed."""
    assert type(translate(error)) is (StatementTimeout if isinstance(error, TimeoutError) else Unavailable)


def test_a_conflict_with_recovery_is_tried_again() -> None:
    """A standby cancels statements to keep up with its primary, with the code of a serialization failure."""
    assert isinstance(said("40001", M="canceling statement due to conflict with recovery"), RETRYABLE)


def lost(word: Exception | None) -> Exception:
    """Return a closed connection, as the driver reports it."""
    error = pg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
    error.__cause__ = word
    return error


@pytest.mark.parametrize(
    ("error", "is_certain"),
    [
        (lost(said("57P01", "FATAL", R="ProcessInterrupts")), True),
        (said("57P01", "FATAL", R="ProcessInterrupts"), True),
        (lost(said("25P04", "FATAL", R="ProcessInterrupts")), True),
        # A warning may come after the commit.
        (lost(said("57P01", "WARNING", R="ProcessInterrupts")), False),
        (lost(said("57P02", "FATAL", R="quickdie")), False),
        # A message of a pooler has no function.
        (lost(said("57P01", "FATAL")), False),
        (lost(said("08P01", "FATAL")), False),
        (lost(ConnectionResetError()), False),
        (lost(None), False),
        (TimeoutError(), False),
    ],
)
def test_is_rolled_back(error: Exception, is_certain: bool) -> None:
    assert is_rolled_back(error) is is_certain


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_half"),
    [
        (pg.DataError("invalid input for query argument $1"), True),
        (caused(ValueError(), pg.DataError("invalid input for query argument $1")), True),
        (pg.InterfaceError("the server expects 1 argument for this query, 2 were passed"), True),
        (said("22003"), False),
        (caused(ValueError(), said("22003")), False),
        (said("23505"), False),
        (ValueError(), False),
    ],
)
def test_is_refused_by_driver(error: Exception, is_half: bool) -> None:
    assert is_refused_by_driver(error) is is_half


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (lost(ConnectionResetError()), "ConnectionResetError"),
        (lost(ConnectionRefusedError(111, "refused")), "ConnectionRefusedError: [Errno 111] refused"),
        (
            pg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
            "PostgreSQL ended it between two statements",
        ),
        (
            said("57P03", "FATAL", D="Consistent recovery state has not been yet reached.", H="wait"),
            "CannotConnectNowError: said; DETAIL: Consistent recovery state has not been yet reached.; HINT: wait",
        ),
    ],
)
def test_describe_loss_is_one_line(error: Exception, words: str) -> None:
    assert describe_loss(error) == words
