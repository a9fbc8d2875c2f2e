"""Tries statements on PostgreSQL: the read of each resource, and the attributes that are computed in SQL.

What comes in: a connection and declarations. What goes out: what PostgreSQL says about them. It must not know:
requests, how the tables were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec

from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import OPAQUE, ColumnType
from querybuild.planning.context import Context
from querybuild.planning.plan import ReadPlan, node_of
from querybuild.planning.row_plan import FIRST_ALIAS
from querybuild.planning.rowsets import open_rows
from querybuild.sql.select import compile_read
from server.schema.comparing.reads import type_fault
from server.schema.fault import Fault
from server.schema.live_tables import TYPE_NAME

K = TypeVar("K")

_TYPES = f"""
SELECT b.oid::int8 AS oid, {TYPE_NAME} AS name FROM pg_type b LEFT JOIN pg_type e ON e.oid = b.typelem
WHERE b.oid = ANY($1::oid[])
"""

TOGETHER = 50
"""How many statements are sent together. They are one transaction, and each holds locks on its tables and indexes, of
which PostgreSQL has some thousands."""

GONE = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InsufficientResourcesError)
"""Errors of the connection and of the server, and not of a statement. Ask `is_gone` whether an error is one."""


def is_gone(error: BaseException) -> bool:
    """Return whether the connection or the server is lost. A statement that cannot reach the server of a foreign table
    raises an ERROR, and leaves the connection whole."""
    is_foreign = isinstance(error, asyncpg.PostgresConnectionError) and error.as_dict().get("severity_en") == "ERROR"
    return isinstance(error, GONE) and not is_foreign


class _Refused(Exception):
    """A statement of a declaration is wrong. The message says why."""


class Trial(msgspec.Struct, frozen=True):
    """Tries statements on a connection. roles: which of them to try; without any, the server's own."""

    connection: asyncpg.Connection[Any]
    roles: Sequence[str] = ()

    async def prepare(self, sql: str, *, is_explained: bool) -> tuple[asyncpg.Attribute, ...]:
        """Return the columns of a statement. is_explained: whether privileges are checked too, also those on functions
        and on tables that computed attributes read. Raises asyncpg's errors."""
        if not self.roles:
            return await _prepare(self.connection, sql, is_explained=is_explained)
        for role in self.roles:
            try:
                async with self.connection.transaction():
                    await self.connection.execute(f"SET LOCAL ROLE {quote_ident(role)}")
                    return await _prepare(self.connection, sql, is_explained=is_explained)
            except asyncpg.InsufficientPrivilegeError as error:
                refused = error
        raise refused

    async def refused(self, statements: Mapping[K, str]) -> list[K]:
        """Return the keys of the statements that none of the roles can EXPLAIN."""
        left = list(statements)
        for role in self.roles or ("",):
            parts = [left[start : start + TOGETHER] for start in range(0, len(left), TOGETHER)]
            left = [key for part in parts for key in await self._refused(statements, part, role)]
        return left

    async def _refused(self, statements: Mapping[K, str], keys: list[K], role: str) -> list[K]:
        """Send some statements together. If one is refused, find out which by sending the halves."""
        commands = [f"SET LOCAL ROLE {quote_ident(role)}"] if role else []
        commands += [f"EXPLAIN {statements[key]}" for key in keys]
        try:
            await self.connection.execute(";".join(commands))
        except asyncpg.PostgresError:
            if len(keys) == 1:
                return keys
            half = len(keys) // 2
            return [key for part in (keys[:half], keys[half:]) for key in await self._refused(statements, part, role)]
        return []


async def _prepare(
    connection: asyncpg.Connection[Any], sql: str, *, is_explained: bool
) -> tuple[asyncpg.Attribute, ...]:
    prepared = await connection.prepare(sql)
    if is_explained:
        await _explain(connection, sql)
    return prepared.get_attributes()


def _list_of(resource: Resource, attributes: Sequence[Attribute]) -> str:
    """Return the statement of the list of a resource, with its id and the attributes. Raises _Refused."""
    plan = ReadPlan(node=node_of(open_rows(resource, FIRST_ALIAS, Context()), tuple(attributes)), data="collection")
    try:
        return compile_read(plan).primary.sql
    except Exception as error:  # of a declaration's own function
        raise _Refused(f"it raises {type(error).__name__}: {error}") from error


async def _columns_of(trial: Trial, sql: str, *, is_explained: bool = False) -> tuple[asyncpg.Attribute, ...]:
    """Prepare a statement, and return its columns. Raises _Refused, and asyncpg's errors if the connection is lost."""
    try:
        return await trial.prepare(sql, is_explained=is_explained)
    except GONE:
        raise
    except asyncpg.PostgresError as error:
        raise _Refused(error.args[0]) from error


async def _explain(connection: asyncpg.Connection[Any], sql: str) -> None:
    """Check the privileges of a statement. Raises InsufficientPrivilegeError. Other errors of EXPLAIN are ignored: a
    request would raise them only for some rows."""
    try:
        await connection.execute(f"EXPLAIN {sql}")
    except asyncpg.InsufficientPrivilegeError:
        raise
    except asyncpg.PostgresError as error:
        # The server of a foreign table may be down for now. Requests for the other tables are answered.
        if is_gone(error):
            raise


async def read_refusals(trial: Trial, resources: Iterable[Resource]) -> list[Fault]:
    """Return the faults of resources whose list cannot be read without query parameters."""
    statements: dict[Resource, str] = {}
    reasons: dict[Resource, str] = {}
    for resource in resources:
        try:
            statements[resource] = _list_of(resource, resource.readable_attributes)
        except _Refused as error:
            reasons[resource] = str(error)
    for resource in await trial.refused(statements):
        try:
            await _columns_of(trial, statements[resource], is_explained=True)
        except _Refused as error:
            reasons[resource] = str(error)
    return [Fault(f"it cannot be read: {reason}", refused.type) for refused, reason in reasons.items()]


TermTypes = Mapping[tuple[str, str], int]
"""The type of a resource and the name of an attribute that is computed in SQL -> the oid of the type of its term. For a
domain it is that of its base type."""


async def read_terms(trial: Trial, resources: Iterable[Resource]) -> tuple[TermTypes, list[Fault]]:
    """Return the types of the attributes that are computed in SQL, and the faults."""
    statements: dict[tuple[Resource, Attribute], str] = {}
    types_or_reasons: dict[tuple[Resource, Attribute], int | str] = {}
    computed = [(resource, each) for resource in resources for each in resource.attributes if each.sql is not None]
    for resource, attribute in computed:
        # The declared type may put a cast around the term, and the type of the term itself is wanted.
        bare = msgspec.structs.replace(attribute, type=attribute.type.with_sql(select=None))
        try:
            statements[resource, attribute] = _list_of(resource, (bare,))
        except _Refused as error:
            types_or_reasons[resource, attribute] = str(error)
    keys = list(statements)
    for start in range(0, len(keys), TOGETHER):
        types_or_reasons |= await _types_of(trial, statements, keys[start : start + TOGETHER])
    oids = {oid for oid in types_or_reasons.values() if isinstance(oid, int)}
    names = {row["oid"]: row["name"] for row in await trial.connection.fetch(_TYPES, oids)} if oids else {}
    reasons = {key: _term_fault(key[1], types_or_reasons[key], names) for key in computed}
    faults = [Fault(reason, key[0].type, attribute=key[1].name) for key, reason in reasons.items() if reason]
    return {(key[0].type, key[1].name): oid for key, oid in types_or_reasons.items() if isinstance(oid, int)}, faults


async def _types_of(trial: Trial, statements: Mapping[K, str], keys: list[K]) -> dict[K, int | str]:
    """Prepare lists with one attribute together. Return the oid of the type of each attribute, or why it is refused,
    which is found by preparing the halves."""
    lists = ", ".join([f"({statements[key]}) l{place}" for place, key in enumerate(keys)])
    try:
        columns = await _columns_of(trial, statements[keys[0]] if len(keys) == 1 else f"SELECT * FROM {lists}")
    except _Refused as error:
        if len(keys) == 1:
            return {keys[0]: str(error)}
        half = len(keys) // 2
        return await _types_of(trial, statements, keys[:half]) | await _types_of(trial, statements, keys[half:])
    # Each list has the id before the attribute.
    return {key: column.type.oid for key, column in zip(keys, columns[1::2], strict=True)}


def _term_fault(attribute: Attribute, type_or_reason: int | str, names: Mapping[int, str]) -> str:
    """Return the fault of an attribute that is computed in SQL. Empty if there is none. names: of types, by oid."""
    if isinstance(type_or_reason, str):
        return f"its term cannot be read: {type_or_reason}"
    if attribute.type is OPAQUE or names[type_or_reason] in _compatible_types(attribute.type):
        return ""
    return type_fault(attribute.type, "term", names[type_or_reason])


_WHOLE = ("int2", "int4", "int8")
_FLOATS = ("float4", "float8", *_WHOLE)
_TEXTS = ("text", "varchar", "citext", "name", "bpchar")
_COMPATIBLE_TYPES = {
    **dict.fromkeys(_WHOLE, _WHOLE),
    **dict.fromkeys(("float4", "float8"), _FLOATS),
    "numeric": ("numeric", *_FLOATS),
    **dict.fromkeys(_TEXTS, _TEXTS),
}
"""The name of a type -> the types that an expression may have instead. A numeric expression may stand
for no other type, because it would be shown as a string."""


def _compatible_types(declared: ColumnType) -> frozenset[str]:
    """Return the types of expressions whose values are shown and filtered like those of the declared type."""
    array = "_" if declared.element is not None else ""
    names = [name.removeprefix(array) for name in declared.sql_names]
    return frozenset(f"{array}{compatible}" for name in names for compatible in _COMPATIBLE_TYPES.get(name, (name,)))
