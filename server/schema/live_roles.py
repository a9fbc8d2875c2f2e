"""Checks the roles of requests (`row_security`), and to whom the policies of the tables apply. What comes in: names of
roles and the oids of tables. What goes out: messages.

It must not know: requests, declarations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import asyncpg

from querybuild.declarations.terms import quote_ident
from querybuild.errors import quoted
from server.schema.fault import Fault

# Before version 16 every member of a role may set it.
_ROLES = """
SELECT r.name, session_user::text AS own, p.oid IS NOT NULL AS is_there,
       pg_has_role(session_user, p.oid, {right}) AS may_set
FROM unnest($1::text[]) WITH ORDINALITY r(name, place) LEFT JOIN pg_roles p ON p.rolname = r.name ORDER BY r.place
"""

# skips: whether the policies of the table do not apply to the role. is_invoker: whether a view reads its tables with
# the rights of the role that reads the view.
_TABLES = """
SELECT c.relname AS name, c.relkind::text AS kind, c.relrowsecurity AS has_policies, p.rolname AS role,
       p.rolsuper OR p.rolbypassrls
           OR (pg_has_role(p.oid, c.relowner, 'USAGE') AND NOT c.relforcerowsecurity) AS skips,
       EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o
               WHERE o.option_name = 'security_invoker' AND o.option_value::boolean) AS is_invoker
FROM pg_class c CROSS JOIN pg_roles p
WHERE c.oid = ANY($1::oid[]) AND p.rolname = ANY($2::text[])
ORDER BY array_position($2::text[], p.rolname::text), c.relname
"""


# PostgreSQL inlines such a function, and checks EXECUTE when it plans the statement, only for the role of that moment.
_SOME_MAY_CALL = """
SELECT EXISTS (
    SELECT FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'sql'
    WHERE p.prokind = 'f' AND NOT p.prosecdef AND p.proconfig IS NULL AND p.proacl IS NOT NULL
    AND (SELECT count(DISTINCT has_function_privilege(r.oid, p.oid, 'EXECUTE')) > 1
         FROM pg_roles r WHERE r.rolname = ANY($1::text[])))
"""


async def plans_depend_on_role(connection: asyncpg.Connection[Any], roles: Sequence[str]) -> bool:
    """Return whether the plan of a statement for one of the roles may contain a function that another may not call."""
    return bool(roles) and bool(await connection.fetchval(_SOME_MAY_CALL, roles))


async def find_role_faults(connection: asyncpg.Connection[Any], roles: Sequence[str]) -> tuple[Fault, ...]:
    """Return a Fault for each role that does not exist or that the server's role may not set."""
    if not roles:
        return ()
    right = "'SET'" if connection.get_server_version().major >= 16 else "'MEMBER'"
    faults = []
    for row in await connection.fetch(_ROLES.format(right=right), roles):
        if not row["is_there"]:
            faults.append(Fault(f"row_security: there is no role {quoted(row['name'])} in the database"))
        elif not row["may_set"]:
            grant = f"GRANT {quote_ident(row['name'])} TO {quote_ident(row['own'])}"
            own = f"the role {quoted(row['own'])}"
            faults.append(Fault(f"row_security: {own} may not set {quoted(row['name'])}: {grant}"))
    return tuple(faults)


async def policy_warnings(
    connection: asyncpg.Connection[Any], oids: Sequence[int], roles: Sequence[str]
) -> tuple[str, ...]:
    """Return a message for each reason why policies do not apply to the rows of these tables. roles: those of requests;
    none without `row_security`."""
    own = await connection.fetchval("SELECT current_user::text")
    rows = await connection.fetch(_TABLES, oids, list(roles) or [own])
    warnings = list(_skipped(rows, is_on=bool(roles)))
    if roles:
        bare = _names(row for row in rows if row["kind"] in "rp" and not row["has_policies"])
        views = _names(row for row in rows if row["kind"] == "m" or (row["kind"] == "v" and not row["is_invoker"]))
        if bare:
            warnings.append(f"row_security: privileges alone decide about {bare}, without ENABLE ROW LEVEL SECURITY")
        if views:
            warnings.append(
                f"row_security: the views {views} read their tables with the rights of their owner, and not of the "
                "request: make them views WITH (security_invoker)"
            )
    return tuple(warnings)


def _skipped(rows: Sequence[asyncpg.Record], *, is_on: bool) -> Iterator[str]:
    for role in dict.fromkeys(row["role"] for row in rows):
        if names := _names(row for row in rows if row["role"] == role and row["has_policies"] and row["skips"]):
            advice = "" if is_on else "; the setting row_security is off"
            yield (
                f"the policies of {names} do not apply to the role {quoted(role)}, which owns them, is a superuser or "
                f"has BYPASSRLS{advice}"
            )


def _names(rows: Iterable[asyncpg.Record]) -> str:
    return ", ".join(dict.fromkeys(quoted(row["name"]) for row in rows))
