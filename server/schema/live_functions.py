"""Finds the functions of the database that declarations mean, and compares the two. What comes in: a connection and the
Catalog. What goes out: the functions with their signatures, and a Fault for each that does not match.

It must not know: requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Call, Function, Signature
from querybuild.declarations.keys import Key
from querybuild.declarations.terms import quote_ident
from querybuild.errors import listed, nearest, quoted
from querybuild.sql.calls import compile_results
from server.schema.fault import Fault
from server.schema.live_statements import TOGETHER
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
SELECT w.place - 1 AS place, p.oid::int8 AS oid, p.provolatile::text AS volatility, p.prokind::text AS kind,
       p.proretset AS is_set,
       p.provariadic <> 0 AS is_variadic, p.pronargdefaults AS defaults, n.nspname AS schema,
       coalesce(p.proargnames, '{{}}') AS all_names, p.proargmodes::text[] AS modes,
       ARRAY(SELECT format_type(u.type, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(type, place)
             ORDER BY place) AS sql_types,
       ARRAY(SELECT {_BASE % "u.type"}
             FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY u(type, place) ORDER BY place) AS types,
       r.typtype IN ('c') OR r.typname = 'record' AS has_columns, r.typname AS returned,
       has_function_privilege(p.oid, 'EXECUTE') AS may_call, current_user::text AS role,
       format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS shown
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY w(name, schema, place) JOIN pg_proc p ON p.proname = w.name
JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_type r ON r.oid = p.prorettype
WHERE CASE WHEN w.schema IS NULL THEN pg_function_is_visible(p.oid) ELSE n.nspname = w.schema END
ORDER BY w.place, p.oid
"""
_TYPES = f"SELECT u.oid::int8 AS oid, {_BASE % 'u.oid'} AS name FROM unnest($1::oid[]) u(oid)"
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

    def faults(self, function: Function, *, required_only: bool = False) -> Iterator[Fault]:
        """Yield why it does not accept the declared arguments."""
        declared = [attribute for attribute in function.arguments if attribute.required or not required_only]
        for argument in declared:
            name, reason = argument.column_name, ""
            if name not in self.types:
                reason = f"the function has no argument {quoted(name)}.{nearest(name, self.types)}"
            elif self.types[name] not in argument.type.sql_names:
                expected = listed(argument.type.sql_names)
                reason = f"it is declared as {argument.type.name}, and is {self.types[name]}, not {expected}"
            elif not argument.required and name not in self.optional:
                reason = "it has no default: declare required=True"
            if reason:
                yield Fault(reason, function=function.name, argument=argument.name)
        sent = {argument.column_name for argument in declared}
        missing = [name for name in self.names if name not in sent and name not in self.optional]
        if missing:
            names = listed(name or "one without a name" for name in missing)
            yield Fault(f"the function needs more arguments: declare {names}", function=function.name)


async def read_functions(
    connection: asyncpg.Connection[Any], catalog: Catalog, prepare: Prepare, *, has_roles: bool
) -> tuple[tuple[Function, ...], list[Fault]]:
    """Return the functions with their signatures, and the faults. has_roles: whether requests run with other roles, so
    that the privileges of this one do not matter."""
    if not catalog.functions:
        return (), []
    overloads: defaultdict[int, list[_Overload]] = defaultdict(list)
    names, schemas = (
        [declared.name for declared in catalog.functions],
        [declared.schema for declared in catalog.functions],
    )
    for row in await connection.fetch(_FUNCTIONS, names, schemas):
        overloads[row["place"]].append(_overload(row))
    functions: list[Function] = []
    faults: list[list[Fault]] = []
    tried: dict[int, Function] = {}
    for place, function in enumerate(catalog.functions):
        chosen, own = _chosen(function, overloads[place])
        if chosen is not None:
            kind_faults = _kind_faults(function, chosen.facts, has_roles=has_roles)
            own += [Fault(reason, function=function.name) for reason in kind_faults]
            functions.append(msgspec.structs.replace(function, signature=_signature(function, chosen)))
            if not own:
                tried[place] = functions[-1]
        faults.append(own)
    for place, reason in (await _result_faults(connection, tried, catalog, prepare)).items():
        faults[place].append(Fault(reason, function=tried[place].name))
    checked = [
        msgspec.structs.replace(fault, path=function.route_path)
        for function, own in zip(catalog.functions, faults, strict=True)
        for fault in own
    ]
    return tuple(functions), checked


def _overload(row: asyncpg.Record) -> _Overload:
    types = row["types"]
    modes = row["modes"] or ["i"] * len(types)
    given = list(row["all_names"]) or [""] * len(modes)
    names = tuple([name for name, mode in zip(given, modes, strict=True) if mode in ("i", "b", "v")])
    optional = frozenset(names[len(types) - row["defaults"] :]) if row["defaults"] else frozenset()
    return _Overload(
        row, names, dict(zip(names, types, strict=True)), dict(zip(names, row["sql_types"], strict=True)), optional
    )


def _chosen(function: Function, overloads: Sequence[_Overload]) -> tuple[_Overload | None, list[Fault]]:
    """Return the function that the declaration means, or the faults."""
    if len(overloads) == 1:
        return overloads[0], list(overloads[0].faults(function))
    fitting = [overload for overload in overloads if overload.takes(function, required_only=False)]
    reason, shown = "", listed(overload.facts["shown"] for overload in overloads)
    if not overloads:
        reason = "there is no such function in the database" + _where(function)
    elif not fitting:
        reason = f"none of the functions with this name takes these arguments: {shown}"
    # A call without the optional arguments may mean another function.
    elif len(fitting) > 1 or any(
        overload.takes(function, required_only=True) for overload in overloads if overload is not fitting[0]
    ):
        reason = f"several functions with this name take these arguments: {shown}: rename one, or drop it"
    return (None, [Fault(reason, function=function.name)]) if reason else (fitting[0], [])


def _where(function: Function) -> str:
    return "" if function.schema is None else f", in the schema {quoted(function.schema)}"


def _signature(function: Function, chosen: _Overload) -> Signature:
    types = {argument.name: chosen.sql_types.get(argument.column_name, "") for argument in function.arguments}
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
    connection: asyncpg.Connection[Any], functions: Mapping[int, Function], catalog: Catalog, prepare: Prepare
) -> dict[int, str]:
    """Return the faults of what the functions return, by their places."""
    resources = {place: catalog.by_type.get(function.returns) for place, function in functions.items()}
    calls = {
        place: (
            Call(function, tuple([argument.name for argument in function.arguments])),
            None if (resource := resources[place]) is None else resource.id.key,
        )
        for place, function in functions.items()
    }
    places, returned = list(calls), dict[int, int | str]()
    for start in range(0, len(places), TOGETHER):
        returned |= await _returned(prepare, calls, places[start : start + TOGETHER])
    oids = {oid for oid in returned.values() if isinstance(oid, int)}
    types = {row["oid"]: row["name"] for row in await connection.fetch(_TYPES, oids)} if oids else {}
    faults: dict[int, str] = {}
    for place, each in returned.items():
        resource = resources[place]
        if isinstance(each, str):
            faults[place] = each
        elif resource is None or resource.id.key.is_composite or types[each] in resource.id.type.sql_names:
            continue
        else:
            wanted = f"rows of the table {quoted(resource.table)}, or ids, which are {resource.id.type.name}"
            advice = "leave out `returns` to show the value in `meta`"
            faults[place] = f"it returns {types[each]}, and not {wanted}: {advice}"
    return faults


async def _returned(
    prepare: Prepare, calls: Mapping[int, tuple[Call, Key | None]], places: Sequence[int]
) -> dict[int, int | str]:
    """Prepare calls with all arguments together. Return the type of what each returns, or its fault, which is found by
    preparing the halves."""
    try:
        columns = await prepare(compile_results([calls[place] for place in places]).sql)
    except (asyncpg.SyntaxOrAccessError, asyncpg.FeatureNotSupportedError, asyncpg.DataError) as error:
        if len(places) == 1:
            return {places[0]: f"it cannot be called: {error.args[0]}"}
        half = len(places) // 2
        return await _returned(prepare, calls, places[:half]) | await _returned(prepare, calls, places[half:])
    return {place: column.type.oid for place, column in zip(places, columns, strict=True)}
