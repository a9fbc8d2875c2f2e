"""Decides which tables and functions are inspected.

What comes in: schemas, patterns of names, the facts of a table. What goes out: the reason to leave it out, or None.

It must not know: columns, resources, files.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

import migrations
from querybuild.declarations.terms import quote_ident
from querybuild.errors import nearest, quoted
from server.tools.inspecting.catalog.model import InspectedDatabase, LeftOut

MIGRATION_TABLES = frozenset(
    {
        "__diesel_schema_migrations",
        "__drizzle_migrations",
        "__efmigrationshistory",
        "_prisma_migrations",
        "_sqlx_migrations",
        "alembic_version",
        "ar_internal_metadata",
        "databasechangelog",
        "databasechangeloglock",
        "django_migrations",
        "doctrine_migration_versions",
        "flyway_schema_history",
        "goose_db_version",
        "knex_migrations",
        "knex_migrations_lock",
        "mikro_orm_migrations",
        "migration_versions",
        "phinxlog",
        "pgmigrations",
        "procrastinate_version",
        "refinery_schema_history",
        "schema_migrations",
        "schema_version",
        "sequelizemeta",
        "typeorm_metadata",
        "waterspout_migrations",
        "yoyo_lock",
        "_yoyo_log",
        "_yoyo_migration",
        "_yoyo_version",
    }
)
"""Tables in which tools keep what they have applied, in lower case."""


_WILDCARDS = frozenset("*?[")


class TableChoice(msgspec.Struct, frozen=True):
    """Which tables and functions are inspected.

    schemas: only these; empty for all that are not PostgreSQL's own. only, skip: patterns of names, with or without the
    schema, such as `audit_*` or `sales.*`. One with `()` at its end is only for functions: `*()`.
    """

    schemas: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def has_schema(self, schema: str) -> bool:
        """Return whether a schema is looked at."""
        return not self.schemas or schema in self.schemas

    def unknown(self, database: InspectedDatabase) -> list[str]:
        """Return a message for each name that fits no table and no function, with the nearest name. Patterns with
        wildcards may fit none."""
        functions = database.function_names
        names = {*database.names, *functions, *((schema, name.removesuffix("()")) for schema, name in functions)}
        schemas = {schema for schema, _ in names}
        messages = [
            f"there is no table in a schema {quoted(name)}.{nearest(name, schemas)}"
            for name in self.schemas
            if name not in schemas
        ]
        for pattern in dict.fromkeys((*self.only, *self.skip)):
            if not _WILDCARDS.intersection(pattern) and not any(matches((pattern,), *name) for name in names):
                known = {f"{schema}.{name}" if "." in pattern else name for schema, name in names}
                kind = "function" if pattern.endswith("()") else "table"
                messages.append(f"there is no {kind} {quoted(pattern)}.{nearest(pattern, known)}")
        return messages

    def reason_against(self, row: Mapping[str, Any]) -> LeftOut | None:
        """Return why a table is left out, or None. row: of the query for tables."""
        schema, name = row["schema"], row["name"]
        full_name = full_name_of(row)
        # With --only, every other table is left out, so none of them is mentioned.
        if self.only and not matches(self.only, schema, name):
            return LeftOut(full_name, kind="other table")
        if matches(self.skip, schema, name):
            return LeftOut(full_name, kind="skipped table")
        if row["parted"] == "a partition":
            return LeftOut(full_name, kind="partition")
        if row["is_of_extension"]:
            return LeftOut(full_name, kind="extension table")
        if name.lower() in MIGRATION_TABLES:
            return LeftOut(full_name, kind="migration table")
        if schema == migrations.SERVER_SCHEMA:
            return LeftOut(full_name, kind="server table")
        if row["parted"]:
            return LeftOut(full_name, kind="child table")
        if row["has_no_handler"]:
            return LeftOut(full_name, "it cannot be read: its foreign data wrapper has no handler")
        if not row["may_use_schema"]:
            grant = f"GRANT USAGE ON SCHEMA {quote_ident(schema)} TO {quote_ident(row['role'])}"
            return LeftOut(full_name, f"the role may not use the schema: {grant}")
        return None

    def reason_against_function(self, schema: str, name: str) -> str:
        """Return what a function is called that is left out, or an empty text."""
        only, skip = [
            tuple([pattern.removesuffix("()") for pattern in patterns]) for patterns in (self.only, self.skip)
        ]
        if only and not matches(only, schema, name):
            return "other function"
        return "skipped function" if matches(skip, schema, name) else ""


def full_name_of(row: Mapping[str, Any]) -> str:
    """Return the schema and the name of a table, for people. row: of the query for tables. `public` is left out."""
    return str(row["name"] if row["is_default"] else f"{row['schema']}.{row['name']}")


def matches(patterns: tuple[str, ...], schema: str, name: str) -> bool:
    """Return whether one of the patterns fits a table. A pattern with a dot is for the schema and the name.

    >>> matches(("sales.*",), "sales", "orders"), matches(("order?",), "sales", "orders")
    (True, True)
    """
    return any(fnmatchcase(f"{schema}.{name}" if "." in pattern else name, pattern) for pattern in patterns)
