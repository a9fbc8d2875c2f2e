"""Compiles the parts of statements that write: their beginnings, the version, and ON CONFLICT.

It must not know: values.
"""

from __future__ import annotations

from typing import Any

from pypika import PostgreSQLQuery, Table
from pypika.terms import Term

from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.writes.write_plan import Assignment, RowConflict
from querybuild.sql.arrays import is_of_json, typed_json
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


def as_shown(assignment: Assignment, column: Term, value: Term) -> Term:
    """Return the value to set. An array stays as it is if what is shown of it is written back: no answer shows where
    its subscripts begin, and which null in an array of JSON is one of JSON."""
    written = None if assignment.attribute is None else assignment.attribute.type
    if written is None or written.element is None:
        return value
    if is_of_json(written):
        same = "CAST(to_jsonb({0}) AS TEXT)=CAST(to_jsonb({1}) AS TEXT)"
        return Template(f"CASE WHEN {same} THEN {{0}} ELSE {{1}} END", column, typed_json(written, value))
    if written.sql.bound is None and not written.comparison.has_equality:
        return value
    same = "CAST({0}[:] AS TEXT)=CAST({1} AS TEXT)" if written.sql.bound is not None else "{0}[:]={1}"
    text = f"CASE WHEN array_dims({{0}})<>array_dims({{0}}[:]) AND {same} THEN {{0}} ELSE {{1}} END"
    return Template(text, column, value)


def updated_instead(query: Any, resource: Resource, conflict: RowConflict) -> Any:
    """Return an INSERT with `ON CONFLICT ("email") DO UPDATE SET "age"="excluded"."age"`."""
    query = query.on_conflict(*[assignment.column for assignment in conflict.key])
    for assignment in conflict.updated:
        present, sent = [column(rows, assignment.column) for rows in (resource.table, "excluded")]
        query = query.do_update(assignment.column, as_shown(assignment, present, sent))
    version = resource.abilities.version
    if version is not None and version.is_counted:
        query = query.do_update(version.column, Template("COALESCE({},0)+1", column(resource.table, version.column)))
    return query


def is_updated(resource: Resource) -> str:
    """Return the term that tells whether such an INSERT has updated the row that it returns."""
    return sql_of(Template("{}<>0", column(resource.table, "xmax")))
