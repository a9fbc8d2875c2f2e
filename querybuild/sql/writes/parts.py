"""Compiles the parts of statements that write: their beginnings, the version, and ON CONFLICT.

It must not know: values.
"""

from __future__ import annotations

from typing import Any

from pypika import PostgreSQLQuery, Table

from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.writes.write_plan import RowConflict
from querybuild.sql.clauses import table
from querybuild.sql.keys import column


def into(rows: Table) -> Any:
    """Return `INSERT INTO "users"`. For PyPika's type hints, `columns`, `set` and `returning` of it are a Field."""
    return PostgreSQLQuery.into(rows)


def delete_from(rows: Table) -> Any:
    """Return `DELETE FROM "users"`."""
    return PostgreSQLQuery.from_(rows).delete()


def update_of(rows: Table) -> Any:
    """Return `UPDATE "users"`."""
    return PostgreSQLQuery.update(rows)


def set_version(query: Any, resource: Resource, *, is_only: bool = False) -> Any:
    """Add `"version"=COALESCE("version",0)+1` to an UPDATE, if the server counts the version of the rows. is_only:
    whether the UPDATE sets nothing else. Then a version that a trigger changes is set to itself."""
    version = resource.abilities.version
    if version is None or not (version.is_written if is_only else version.is_counted):
        return query
    column = table(resource).field(version.column)
    return query.set(column, Template("COALESCE({},0)+1", column) if version.is_counted else column)


def updated_instead(query: Any, resource: Resource, conflict: RowConflict) -> Any:
    """Return an INSERT with `ON CONFLICT ("email") DO UPDATE SET "age"="excluded"."age"`."""
    query = query.on_conflict(*[assignment.column for assignment in conflict.key])
    for assignment in conflict.updated:
        query = query.do_update(assignment.column, column("excluded", assignment.column))
    version = resource.abilities.version
    if version is not None and version.is_counted:
        query = query.do_update(version.column, Template("COALESCE({},0)+1", column(resource.table, version.column)))
    return query


def is_updated(resource: Resource) -> str:
    """Return the term that tells whether such an INSERT has updated the row that it returns."""
    return sql_of(Template("{}<>0", column(resource.table, "xmax")))
