"""Writes what `waterspout explain` prints: the stages of one read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.errors import ApiError, Several
from querybuild.principal import Principal
from server.authentication.authenticator import Authenticator, Custom
from server.authentication.claims import verified
from server.engine import Engine
from server.errors import InvalidToken, row_of
from server.explaining.asked import AskedRead, read_url
from server.explaining.indexes import helpful
from server.explaining.running import Explained, ExplainedStatement, explain_read
from server.explaining.texts import parameter_lines, plan_lines, query_lines, sql_lines
from server.observing.telemetry import Telemetry
from server.postgres.connection import Connection
from server.postgres.row_security.roles import Roles, roles_of
from server.schema import index_advisor
from server.schema.index_advisor import Suggestion
from server.schema.live_schema import read_live_schema
from server.settings import Settings, StartError


class Section(msgspec.Struct, frozen=True):
    """A part of the report."""

    title: str
    lines: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """What is printed. errors: what the server would answer instead of a document, a line each."""

    sections: tuple[Section, ...]
    errors: tuple[str, ...] = ()


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
        return verified(claims, str(claims.get("iss", "")), settings.auth_roles_claim, 0.0).principal
    except InvalidToken as error:
        raise StartError(f"{path}: {error.detail}") from None


async def explain(
    connection: Connection, settings: Settings, catalog: Catalog, url: str, principal: Principal, custom: Custom | None
) -> Report:
    """Explain the read of a URL for a principal. It only reads. custom: the function AUTHENTICATE, which is not called.
    Raises StartError."""
    schema = await read_live_schema(connection, catalog, is_read_only=settings.read_only, roles=roles_of(settings))
    if schema.faults:
        raise StartError("the declarations do not fit the database:\n" + "\n".join(schema.faults))
    engine = Engine(settings, catalog, schema, Authenticator(settings, custom=custom))
    # Nothing of this is for the logs.
    quiet = msgspec.structs.replace(settings, audit_log=None, tracing=False, slow_statement_seconds="off")
    connection.on_open(Telemetry(quiet))
    try:
        role = Roles(settings).of(principal) if settings.has_row_security else None
        asked = read_url(url, engine, engine.context_of(principal))
    except ApiError as error:
        return Report((), tuple(_error_lines(error)))
    finally:
        engine.authenticator.close()
    explained = await explain_read(connection, asked, engine, role)
    suggestions = helpful(await index_advisor.suggest(connection, engine.catalog), explained.statements)
    sections = _sections(asked, explained, suggestions)
    return Report(tuple(sections), () if explained.error is None else tuple(_error_lines(explained.error)))


def _sections(asked: AskedRead, explained: Explained, suggestions: Sequence[Suggestion]) -> Iterator[Section]:
    yield Section("query", tuple(query_lines(asked.query, has_pages=asked.prepared.plan.is_collection)))
    yield Section("plan", tuple(plan_lines(asked.prepared.plan)))
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
    for one in suggestions:
        yield f"{one.rank:8}  {one.table} ({', '.join(one.columns)}): {one.reason}"
        yield f"          {one.sql}"
    if not suggestions:
        scans = [scan for statement in explained.statements for scan in statement.scans]
        tables = dict.fromkeys(scan.table for scan in scans if not scan.has_condition)
        found = f"Rows of {', '.join(tables)} are found without a condition on an index. No" if tables else "No"
        yield f"{found} index that the declarations suggest would help."


def _error_lines(error: ApiError) -> Iterator[str]:
    """Return a line for each error, as its error object says it."""
    for one in error.errors if isinstance(error, Several) else (error,):
        row, parameter = row_of(one), getattr(one, "parameter", None)
        yield f"{row.status} {row.code}: {getattr(one, 'detail', one)}" + (f" ({parameter})" if parameter else "")
