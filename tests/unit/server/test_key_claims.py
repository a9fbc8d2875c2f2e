"""What a claim knows of its key after the statement that claims it, writes and keeps the answer has failed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import asyncpg.exceptions as pg
import pytest

from querybuild.sql.statement import Statement
from serializers.representation import DocumentForm
from server.execution.writes.keys import KeyClaim, KeyedRequest, KeyRefused
from server.execution.writes.reply import ReplyForm

STATEMENT = Statement('WITH "the answer" AS (SELECT 1)', ())
FORM = ReplyForm(201, DocumentForm("{}"))


class Broken:
    """A connection on which nothing can be executed."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def fetchrow(self, *_: Any) -> None:
        raise self.error


def said(severity: str, code: str) -> Exception:
    error: Exception = pg.PostgresError.new({"S": severity, "V": severity, "C": code, "M": "no"})
    return error


@pytest.mark.parametrize(
    ("error", "is_refused", "is_held"),
    [
        (said("ERROR", "WSKEY"), True, False),
        (said("ERROR", "23505"), False, False),
        (said("FATAL", "57P01"), False, True),
        (pg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), False, True),
        (ConnectionResetError(), False, True),
        (TimeoutError(), False, True),
    ],
)
def test_a_statement_that_fails(error: Exception, is_refused: bool, is_held: bool) -> None:
    """Even if the connection ends right after the error."""
    claim = KeyClaim(KeyedRequest("id", "k", "", "", "", "", ""), 24, 1000)
    with pytest.raises(KeyRefused if is_refused else type(error)):
        asyncio.run(claim.write(cast("Any", Broken(error)), STATEMENT, [], FORM))
    assert claim.is_held is is_held
