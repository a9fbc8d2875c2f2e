"""Checks refused requests: their errors, word for word, and that nothing in the database changed. What comes in: an Api
and a table of cases."""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec

from tests.http.conftest import MEDIA_TYPE, Answer, Api

Error = dict[str, Any]

TITLES = {
    "invalid_parameter": (400, "Invalid Parameter"),
    "invalid_include": (400, "BadRequest"),
    "invalid_fields": (400, "Invalid Sparse Fieldset"),
    "malformed_json": (400, "Malformed JSON"),
    "invalid_document": (422, "Invalid Document"),
    "invalid_attribute": (422, "Invalid Attribute"),
    "invalid_relationship": (422, "Invalid Relationship"),
    "body_value_refused": (422, "Value Refused"),
    "database_rule": (422, "Database Rule"),
    "database_forbids": (403, "Database Forbids"),
    "not_written": (409, "Not Written"),
    "write_forbidden": (403, "Write Forbidden"),
    "type_conflict": (409, "Type Conflict"),
    "id_conflict": (409, "Id Conflict"),
    "linkage_type_conflict": (409, "Linkage Type Conflict"),
    "conflict": (409, "Conflict"),
    "client_id_forbidden": (403, "Client-Generated Id Forbidden"),
    "required_link": (403, "Required Link"),
    "related_not_found": (404, "Related Resource Not Found"),
    "resource_not_found": (404, "Resource Not Found"),
}
"""code -> status and title, as in docs/errors.md."""


def error(code: str, detail: str, pointer: str | None = None, *, parameter: str | None = None) -> Error:
    """Return an error object as `Answer.errors` shows it: without its id."""
    status, title = TITLES[code]
    found: Error = {"status": str(status), "code": code, "title": title, "detail": detail}
    if pointer is not None:
        found["source"] = {"pointer": pointer}
    if parameter is not None:
        found["source"] = {"parameter": parameter}
    return found


def attribute(name: str, detail: str) -> Error:
    return error("invalid_attribute", detail, "/data/attributes/" + name.replace("~", "~0").replace("/", "~1"))


class Refused(msgspec.Struct):
    """A request and its errors. body: sent as it is, instead of the document. status: needed if the errors have
    different ones."""

    method: str
    path: str
    document: Any
    errors: list[Error]
    status: int | None = None
    body: str | bytes | None = None

    @property
    def expected(self) -> tuple[int, list[Error]]:
        return self.status or int(self.errors[0]["status"]), self.errors


async def check_refused(api: Api, cases: list[Refused]) -> None:
    """Check that every case is refused with its errors, and leaves every row of every table unchanged."""
    connection = await asyncpg.connect(api.database_url)
    try:
        before = await contents(connection)
        for case in cases:
            answer = await send(api, case)
            came, sent = (answer.status, answer.errors), case.body or case.document
            assert came == case.expected, (
                f"{case.method} {case.path} {sent!r}\ncame:     {came}\nexpected: {case.expected}"
            )
            assert await contents(connection) == before, sent
    finally:
        await connection.close()


async def send(api: Api, case: Refused) -> Answer:
    if case.body is None:
        return await api.request(case.method, case.path, case.document)
    return await api.request(case.method, case.path, headers={"Content-Type": MEDIA_TYPE}, body=case.body)


async def contents(connection: asyncpg.Connection[Any]) -> list[tuple[str, str]]:
    """Return all rows of all tables as text. Sequences are left out, because a rollback does not reset them."""
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    rows = [f"SELECT '{table}' AS place, t::text AS shown FROM public.\"{table}\" t" for (table,) in tables]
    return [tuple(row) for row in await connection.fetch(" UNION ALL ".join(rows) + " ORDER BY 1, 2")]
