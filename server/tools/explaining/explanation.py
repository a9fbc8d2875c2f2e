"""Writes what `waterspout explain` prints: the stages of one read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from querybuild.errors import ApiError, Several
from querybuild.principal import Principal
from querybuild.sql.expressions import inner_values, matched_texts
from server.authentication.claims import ClaimsReader
from server.engine import Engine
from server.error_answers import INTERNAL, row_of
from server.errors import InvalidToken, RouteNotFound
from server.explaining.requested import RequestedRead, read_url
from server.explaining.running import Explained, ExplainedStatement, explain_read
from server.explaining.texts import parameter_lines, plan_lines, query_parts, sql_lines
from server.observing.telemetry import Telemetry
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import in_one_line
from server.postgres.row_security.roles import Roles
from server.settings import Settings, StartError
from server.settings.served import path_hint
from server.tools.advising import index_advisor
from server.tools.advising.index_advisor import Suggestion
from server.tools.explaining.indexes import helpful, is_scanned, wanted_for_text, wanted_inside


class Section(msgspec.Struct, frozen=True):
    """A part of an explanation, for people."""

    title: str
    lines: tuple[str, ...]


class AnswerError(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error that the server would answer with."""

    status: int
    code: str
    detail: str
    parameter: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}" + (f" ({self.parameter})" if self.parameter else "")


class Explanation(msgspec.Struct, frozen=True, eq=False):
    """What is known about a read. requested, explained: None if the URL is refused. suggestions: indexes that would
    help. errors: what the server would answer instead of a document. hint: what may be wrong, for people."""

    requested: RequestedRead | None = None
    explained: Explained | None = None
    suggestions: tuple[Suggestion, ...] = ()
    errors: tuple[AnswerError, ...] = ()
    hint: str = ""

    def sections(self) -> Iterator[Section]:
        """Yield the parts for people."""
        if self.requested is not None and self.explained is not None:
            yield from _sections(self.requested, self.explained, self.suggestions)

    def document(self) -> dict[str, Any]:
        """Return the explanation as JSON values, for programs."""
        requested, explained = self.requested, self.explained
        statements = () if explained is None else explained.statements
        return {
            "query": [] if requested is None else [{"part": part, "text": text} for part, text in _query(requested)],
            "plan": [] if requested is None else list(plan_lines(requested.prepared.plan)),
            "is_stream": explained is not None and explained.is_stream,
            "statements": [
                {
                    "name": statement.name,
                    "sql": statement.sql,
                    "parameters": list(statement.values),
                    "plan": statement.tree,
                    "notes": statement.plan,
                }
                for statement in statements
            ],
            "indexes": self.suggestions,
            "errors": self.errors,
        }


def principal_of_file(path: Path, settings: Settings) -> Principal:
    """Return the principal with the claims in a JSON file. Raises StartError."""
    try:
        claims = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is no JSON: {error}") from None
    if not isinstance(claims, dict):
        raise StartError(f"{path}: expected a JSON object, the claims of a token")
    try:
        return ClaimsReader.of(settings).verified(claims, str(claims.get("iss", "")), 0.0).principal
    except InvalidToken as error:
        raise StartError(f"{path}: {error.detail}") from None


async def explain(
    connection: PostgresConnection,
    engine: Engine,
    url: str,
    principal: Principal,
    *,
    is_run: bool = True,
    has_lines: bool = True,
) -> Explanation:
    """Explain the read of a URL for a principal. It only reads. is_run, has_lines: as for `explain_read`."""
    settings = engine.settings
    # Nothing of this is for the logs.
    quiet = msgspec.structs.replace(settings, audit_log=None, tracing=False, slow_statement_seconds="off")
    connection.on_open(Telemetry(quiet))
    try:
        role = Roles(settings).of(principal) if settings.has_row_security else None
        requested = read_url(url, engine, engine.context_of(principal))
    except ApiError as error:
        paths = [resource.path for resource in engine.catalog if "list" in resource.methods]
        hint = path_hint(paths, settings) if isinstance(error, RouteNotFound) else ""
        return Explanation(errors=tuple(_answer_errors(error)), hint=hint)
    explained = await explain_read(connection, requested, engine, role, is_run=is_run, has_lines=has_lines)
    statements = explained.statements
    suggestions = helpful(await index_advisor.suggest(connection, engine.catalog), statements)
    plan, value_of = requested.prepared.plan, requested.sent.value_of
    wanted = [wanted_inside(value) for value in inner_values(plan, value_of)]
    wanted += [wanted_for_text(matched) for matched in matched_texts(plan, value_of)]
    suggestions += [
        suggestion
        for suggestion in await index_advisor.missing(connection, wanted)
        if any(is_scanned(suggestion.table, statement) for statement in statements)
    ]
    errors = () if explained.error is None else tuple(_answer_errors(explained.error))
    return Explanation(requested, explained, tuple(suggestions), errors)


def _query(requested: RequestedRead) -> list[tuple[str, str]]:
    return list(query_parts(requested.query, has_pages=requested.prepared.plan.is_collection))


def _sections(requested: RequestedRead, explained: Explained, suggestions: Sequence[Suggestion]) -> Iterator[Section]:
    yield Section("query", tuple([f"{part:8} {text}" for part, text in _query(requested)]))
    yield Section("plan", tuple(plan_lines(requested.prepared.plan)))
    if explained.is_stream:
        lines = (
            "The answer is a stream. After the first rows, the server reads each of the following",
            "statements in pieces, and the linkage of the rows of each piece.",
        )
        yield Section("stream", lines)
    for number, statement in enumerate(explained.statements, 1):
        title = f"statement {number} of {len(explained.statements)}: {statement.name}"
        yield Section(title, tuple(_statement_lines(statement)))
    yield Section("indexes", tuple(_index_lines(explained, suggestions)))


def _statement_lines(statement: ExplainedStatement) -> Iterator[str]:
    yield from sql_lines(statement.sql)
    yield ""
    if statement.values:
        yield from parameter_lines(statement.values)
        yield ""
    yield from statement.plan


def _index_lines(explained: Explained, suggestions: Sequence[Suggestion]) -> Iterator[str]:
    for suggestion in suggestions:
        yield f"{suggestion.rank:8}  {suggestion.sql}  -- {suggestion.reason}"
    if not suggestions:
        scans = [scan for statement in explained.statements for scan in statement.scans]
        tables = dict.fromkeys(scan.table for scan in scans if not scan.has_condition)
        first = f"Rows of {', '.join(tables)} are found without a condition on an index. No" if tables else "No"
        yield f"{first} index that the declarations suggest would help."


def _answer_errors(error: Exception) -> Iterator[AnswerError]:
    """Return the errors, as their error objects say them. What is no answer is a 500, whose reason is in the log."""
    for cause in error.errors if isinstance(error, Several) else (error,):
        if isinstance(cause, ApiError):
            row, detail = row_of(cause), str(getattr(cause, "detail", cause))
        else:
            row, detail = INTERNAL, in_one_line(cause)
        yield AnswerError(row.status, row.code, detail, getattr(cause, "parameter", None) or "")
