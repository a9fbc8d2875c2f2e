"""Finds the functions of the database that declarations mean, and compares the two. What comes in: a connection and the
Catalog. What goes out: the functions with their signatures, and a message for each that does not match.

It must not know: requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Call, Function, Signature
from querybuild.declarations.terms import quote_ident
from querybuild.errors import listed, nearest, quoted
from querybuild.sql.calls import compile_ids, compile_value
from server.schema.live_tables import TYPE_NAME

_BASE = f"""(
    WITH RECURSIVE base AS (
        SELECT s.oid, s.typtype, s.typbasetype FROM pg_type s WHERE s.oid = %s
        UNION ALL
        SELECT s.oid, s.typtype, s.typbasetype FROM base JOIN pg_type s ON s.oid = base.typbasetype
    ) SELECT {TYPE_NAME} FROM base JOIN pg_type b ON b.oid = base.oid LEFT JOIN pg_type e ON e.oid = b.typelem
    WHERE base.typtype <> 'd'
)"""
_FUNCTIONS = f"""
SELECT p.oid::int8 AS oid, p.provolatile::text AS volatility, p.prokind::text AS kind, p.proretset AS is_set,
       p.provariadic <> 0 AS is_variadic, p.pronargdefaults AS defaults, n.nspname AS schema,
       coalesce(p.proargnames, '{{}}') AS all_names, p.proargmodes::text[] AS modes,
       ARRAY(SELECT format_type(u.type, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(type, place)
             ORDER BY place) AS sql_types,
       ARRAY(SELECT {_BASE % "u.type"}
             FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(type, place) ORDER BY place) AS types,
       r.typtype IN ('c') OR r.typname = 'record' AS has_columns, r.typname AS returned,
       has_function_privilege(p.oid, 'EXECUTE') AS may_call, current_user::text AS role,
       format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS shown
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_type r ON r.oid = p.prorettype
WHERE p.proname = $1 AND CASE WHEN $2::text IS NULL THEN pg_function_is_visible(p.oid) ELSE n.nspname = $2 END
ORDER BY p.oid
"""
_TYPE_OF = f"SELECT {_BASE % '$1::oid'}"
_OTHER_ROUTINES = {"a": "an aggregate", "w": "a window function", "p": "a procedure"}


Prepare = Callable[[str], Awaitable[Sequence[asyncpg.Attribute]]]
"""Prepares a statement with a role that requests have, and returns its columns. Raises asyncpg's errors."""


class _Overload(msgspec.Struct, frozen=True):
    """One of the functions with a name. names, types, sql_types: of its arguments. optional: those with a default."""

    facts: asyncpg.Record
    names: tuple[str, ...]
    types: dict[str, str]
    sql_types: dict[str, str]
    optional: frozenset[str]

    def takes(self, function: Function, *, required_only: bool) -> bool:
        """Return whether it accepts the declared arguments, or only the required ones."""
        return not list(self.faults(function, required_only=required_only))

    def faults(self, function: Function, *, required_only: bool = False) -> Iterator[str]:
        """Yield why it does not accept the declared arguments."""
        declared = [one for one in function.arguments if one.required or not required_only]
        for argument in declared:
            name, label = argument.column_name, f"argument {quoted(argument.name)}: "
            if name not in self.types:
                yield f"{label}the function has no argument {quoted(name)}.{nearest(name, self.types)}"
            elif self.types[name] not in argument.type.sql_names:
                expected = listed(argument.type.sql_names)
                yield f"{label}it is declared as {argument.type.name}, and is {self.types[name]}, not {expected}"
            elif not argument.required and name not in self.optional:
                yield f"{label}it has no default: declare required=True"
        sent = {argument.column_name for argument in declared}
        missing = [name for name in self.names if name not in sent and name not in self.optional]
        if missing:
            names = listed(name or "one without a name" for name in missing)
            yield f"the function needs more arguments: declare {names}"


async def read_functions(
    connection: asyncpg.Connection[Any], catalog: Catalog, prepare: Prepare, *, has_roles: bool
) -> tuple[tuple[Function, ...], list[str]]:
    """Return the functions with their signatures, and the faults. has_roles: whether requests run with other roles, so
    that the privileges of this one do not matter."""
    functions: list[Function] = []
    faults: list[str] = []
    for function in catalog.functions:
        found = [_overload(row) for row in await connection.fetch(_FUNCTIONS, function.name, function.schema)]
        chosen, own = _chosen(function, found)
        if chosen is not None:
            own += _kind_faults(function, chosen.facts, has_roles=has_roles)
            functions.append(msgspec.structs.replace(function, signature=_signature(function, chosen)))
            if not own:
                own += await _result_faults(connection, functions[-1], catalog, prepare)
        faults += [f"function {quoted(function.name)}: {fault}" for fault in own]
    return tuple(functions), faults


def _overload(row: asyncpg.Record) -> _Overload:
    types = row["types"]
    modes = row["modes"] or ["i"] * len(types)
    given = list(row["all_names"]) or [""] * len(modes)
    names = tuple([name for name, mode in zip(given, modes, strict=True) if mode in ("i", "b", "v")])
    optional = frozenset(names[len(types) - row["defaults"] :]) if row["defaults"] else frozenset()
    return _Overload(
        row, names, dict(zip(names, types, strict=True)), dict(zip(names, row["sql_types"], strict=True)), optional
    )


def _chosen(function: Function, found: Sequence[_Overload]) -> tuple[_Overload | None, list[str]]:
    """Return the function that the declaration means, or the faults."""
    if not found:
        return None, ["there is no such function in the database" + _where(function)]
    if len(found) == 1:
        return found[0], list(found[0].faults(function))
    shown = listed(one.facts["shown"] for one in found)
    fitting = [one for one in found if one.takes(function, required_only=False)]
    if not fitting:
        return None, [f"none of the functions with this name takes these arguments: {shown}"]
    # A call without the optional arguments may mean another function.
    if len(fitting) > 1 or any(one.takes(function, required_only=True) for one in found if one is not fitting[0]):
        return None, [f"several functions with this name take these arguments: {shown}: rename one, or drop it"]
    return fitting[0], []


def _where(function: Function) -> str:
    return "" if function.schema is None else f", in the schema {quoted(function.schema)}"


def _signature(function: Function, chosen: _Overload) -> Signature:
    types = {one.name: chosen.sql_types.get(one.column_name, "") for one in function.arguments}
    facts = chosen.facts
    is_void = facts["returned"] == "void"
    return Signature(types, is_scalar=not facts["has_columns"], is_void=is_void, oid=facts["oid"])


def _kind_faults(function: Function, facts: asyncpg.Record, *, has_roles: bool) -> Iterator[str]:
    if facts["kind"] in _OTHER_ROUTINES:
        yield f"it is {_OTHER_ROUTINES[facts['kind']]}, and only functions are routes"
        return
    if facts["is_variadic"]:
        yield "it is VARIADIC, and a route has a fixed number of arguments"
    if facts["volatility"] == "v" and function.method == "GET":
        yield (
            'it is VOLATILE, and only STABLE and IMMUTABLE functions answer GET: declare method="POST", or ALTER '
            "FUNCTION ... STABLE if it writes nothing"
        )
    if facts["is_set"] and not function.returns:
        yield "it returns a set: declare the type of its resources as `returns`, or make it return one value"
    if not (facts["may_call"] or has_roles):
        grant = f"GRANT EXECUTE ON FUNCTION {facts['shown']} TO {quote_ident(facts['role'])}"
        yield f"the role {quoted(facts['role'])} may not execute it: {grant}"


async def _result_faults(
    connection: asyncpg.Connection[Any], function: Function, catalog: Catalog, prepare: Prepare
) -> list[str]:
    """Prepare a call with all arguments, and return the fault of what it returns."""
    call = Call(function, tuple([one.name for one in function.arguments]))
    resource = catalog.by_type.get(function.returns)
    statement = compile_value(call) if resource is None else compile_ids(call, resource.id.key)
    try:
        columns = await prepare(statement.sql)
    except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError, asyncpg.DataError) as error:
        return [f"it cannot be called: {error.args[0]}"]
    if resource is None or resource.id.key.is_composite:
        return []
    found = await connection.fetchval(_TYPE_OF, columns[0].type.oid)
    if found in resource.id.type.sql_names:
        return []
    wanted = f"rows of the table {quoted(resource.table)}, or ids, which are {resource.id.type.name}"
    return [f"it returns {found}, and not {wanted}: leave out `returns` to show the value in `meta`"]
