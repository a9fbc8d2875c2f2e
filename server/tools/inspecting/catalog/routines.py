"""Reads the functions of a database from the system catalog, with one query whatever their number.

What comes in: a connection, the choice of names, and the Database with its tables. What goes out: the Database with
its functions.
It must not know: resources, names of the API, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import asyncpg
import msgspec

from server.tools.inspecting.catalog.choosing import TableChoice
from server.tools.inspecting.catalog.model import Argument, InspectedDatabase, LeftOut, Routine, Type
from server.tools.inspecting.catalog.reading import read_types

Connection: TypeAlias = "asyncpg.Connection[Any]"

# is_used: whether a constraint, a default, a generated column, an index, a policy, an operator, a cast, an aggregate
# or another type calls it, or it belongs to a range type.
_ROUTINES = """
SELECT p.oid::int8 AS oid, current_user::text AS role, n.nspname AS schema, p.proname AS name, p.prokind::text AS kind,
       n.nspname = 'public' AND pg_function_is_visible(p.oid) AS is_default,
       p.provolatile = 'v' AS is_volatile, p.proretset AS is_set, p.provariadic <> 0 AS is_variadic,
       p.prosecdef AS is_definer, p.pronargdefaults::int4 AS defaults,
       p.proargtypes::oid[]::int8[] AS types, p.proargmodes::text[] AS modes,
       coalesce(p.proargnames::text[], '{}') AS names, p.prorettype::int8 AS result,
       r.typtype::text AS result_kind, r.typname AS result_name, r.typrelid::int8 AS "table",
       pg_get_userbyid(p.proowner)::text AS owner, coalesce(obj_description(p.oid, 'pg_proc'), '') AS comment,
       has_function_privilege(p.oid, 'EXECUTE') AS may_execute,
       has_schema_privilege(n.oid, 'USAGE') AS may_use_schema,
       e.is_of_extension IS TRUE AS is_of_extension, e.is_used IS TRUE AS is_used
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_type r ON r.oid = p.prorettype
LEFT JOIN (
    SELECT one.oid, bool_or(one.is_of_extension) AS is_of_extension, bool_or(one.is_used) AS is_used FROM (
        SELECT d.objid AS oid, true AS is_of_extension, false AS is_used FROM pg_depend d
        WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
        UNION ALL
        SELECT d.objid, false, true FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'i'
        UNION ALL
        SELECT d.refobjid, false, true FROM pg_depend d
        LEFT JOIN pg_proc a ON d.classid = 'pg_proc'::regclass AND a.oid = d.objid
        WHERE d.refclassid = 'pg_proc'::regclass AND d.classid <> 'pg_rewrite'::regclass
        AND d.classid <> 'pg_trigger'::regclass AND (d.classid <> 'pg_proc'::regclass OR a.prokind = 'a')
    ) one GROUP BY one.oid
) e ON e.oid = p.oid
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
ORDER BY n.nspname <> 'public', n.nspname, p.proname, p.pronargs, p.proargtypes::oid[]::regtype[]::text[]
"""

_OTHER_ROUTINES = {"a": "aggregate", "w": "window function", "p": "procedure"}
_EVENTS = ("trigger", "event_trigger")
_VALUES = ("void", "record")
"""Pseudo-types that a call returns. Besides these, the polymorphic ones: `anyelement`."""


async def with_routines(connection: Connection, choice: TableChoice, database: InspectedDatabase) -> InspectedDatabase:
    """Return the database with the functions of the choice. Raises asyncpg's errors."""
    kept: list[asyncpg.Record] = []
    names: dict[tuple[str, str], None] = {}
    left_out: list[LeftOut] = []
    for row in await connection.fetch(_ROUTINES):
        if not row["is_of_extension"]:
            names[row["schema"], f"{row['name']}()"] = None
        if not choice.has_schema(row["schema"]):
            continue
        if kind := _reason_against(row, choice):
            left_out.append(LeftOut(row["name"], kind=kind))
        else:
            kept.append(row)
    oids = {oid for row in kept for oid in (row["result"], *row["types"])}
    types = await read_types(connection, oids)
    routines = tuple([_routine(row, types) for row in kept])
    return msgspec.structs.replace(
        database, routines=routines, left_out=(*database.left_out, *left_out), function_names=tuple(names)
    )


def _reason_against(row: asyncpg.Record, choice: TableChoice) -> str:
    """Return what a function is that is left out, or an empty text."""
    if row["is_of_extension"]:
        return "extension function"
    if chosen := choice.reason_against_function(row["schema"], row["name"]):
        return chosen
    if row["kind"] in _OTHER_ROUTINES:
        return _OTHER_ROUTINES[row["kind"]]
    result = row["result_name"]
    if result in _EVENTS:
        return "trigger function"
    is_internal = row["result_kind"] == "p" and result not in _VALUES and not result.startswith("any")
    return "internal function" if is_internal or row["is_used"] else ""


def _routine(row: asyncpg.Record, types: Mapping[int, Type]) -> Routine:
    sent = row["types"]
    # Without any names PostgreSQL has no list of them, and without any but IN arguments none of the modes.
    modes = row["modes"] or ["i"] * len(sent)
    names = list(row["names"]) or [""] * len(modes)
    given = [name for name, mode in zip(names, modes, strict=True) if mode in "ibv"]
    required = len(sent) - row["defaults"]
    return Routine(
        arguments=tuple(
            [
                Argument(name, types[oid], index >= required)
                for index, (name, oid) in enumerate(zip(given, sent, strict=True))
            ]
        ),
        columns=tuple([name for name, mode in zip(names, modes, strict=True) if mode in "obt"]),
        result=types[row["result"]],
        **{
            name: row[name]
            for name in (
                *("role", "schema", "name", "is_default", "table", "comment", "owner", "is_volatile", "is_set"),
                *("is_variadic", "is_definer", "may_execute", "may_use_schema"),
            )
        },
    )
