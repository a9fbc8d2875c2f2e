"""Defines what the system catalog says about a database, as immutable values.

It must not know: how it is read, resources, names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from querybuild.declarations.terms import quote_ident

INSERT, UPDATE, DELETE = 8, 4, 16
"""Bits of pg_relation_is_updatable."""

UNSUPPORTED = "-"
"""The kind of a type that this PostgreSQL is built without."""

VIEWS = frozenset("vmf")
"""Kinds of relations whose keys no index of their own guarantees: views, materialized views, foreign tables."""


class Type(msgspec.Struct, frozen=True):
    """The type of a column, below its domains.

    name: as in pg_type, such as `int4` or `varchar`. kind: pg_type.typtype, such as `b`, `e` (enum) or `c` (composite).
    shown: as PostgreSQL writes it, such as `character varying(40)`.
    modifier: of pg_attribute, -1 for none. labels: of an enum. element: of an array. domains: their names.
    checks: the expressions of the domains, about VALUE. schema: of a composite type, unless it is `public`. fields:
    those of a composite type.
    """

    name: str
    kind: str
    shown: str
    modifier: int = -1
    labels: tuple[str, ...] = ()
    element: Type | None = None
    domains: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    schema: str = ""
    fields: tuple[tuple[str, Type], ...] = ()


class InspectedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table or view.

    is_generated: GENERATED ALWAYS, so it cannot be written. is_computed: computed by a view. has_default: also an
    identity and the default of a domain. has_default_below: whether the table of a view has a default
    for it, or a trigger that fills it. is_deterministic: whether texts that differ are never equal.
    dimensions: as declared, for an array. origin: for a column of a view, the oid and the number of the column that it
    shows. denied_sequences: of its default, which the role may not use, as SQL writes their names. has_few_values: by
    the statistics of PostgreSQL.
    """

    name: str
    number: int
    type: Type
    is_not_null: bool
    has_default: bool
    is_generated: bool
    is_computed: bool
    is_deterministic: bool
    dimensions: int
    comment: str
    may_select: bool
    may_insert: bool
    may_update: bool
    denied_sequences: tuple[str, ...]
    has_few_values: bool = False
    origin: tuple[int, int] | None = None
    has_default_below: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether no statement can write it."""
        return self.is_generated or self.is_computed


class ForeignKey(msgspec.Struct, frozen=True):
    """A foreign key. target: the oid of the table that it refers to. references: the columns there."""

    name: str
    columns: tuple[str, ...]
    target: int
    references: tuple[str, ...]


class Check(msgspec.Struct, frozen=True):
    """A CHECK constraint. columns: those in its expression. expression: as pg_get_expr writes it."""

    name: str
    columns: tuple[str, ...]
    expression: str


class Trigger(msgspec.Struct, frozen=True):
    """An enabled trigger of a table, for each row. is_before: BEFORE. events: the bits of INSERT, UPDATE, DELETE here.
    source: the text of its function. arguments: those of the trigger."""

    name: str
    is_before: bool
    is_instead: bool
    events: int
    source: str
    arguments: str


class InspectedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table, view, materialized view or foreign table, and what the role may do with it.

    role: the user of the connection. kind: pg_class.relkind.
    is_default: whether a statement finds it without its schema, because this is `public`.
    primary_key: its columns. unique: the columns of each unique index with all rows, with the primary key. shown_key:
    the columns of a view that show the key of a table, and are unique. disproved: the columns of keys that rows repeat.
    why_unknown: why its rows say nothing about a key: `empty`, `slow` or `refused`.
    partial_keys: foreign keys that only some partitions have. grouped: the columns by which a view groups its rows.
    allowed_writes: the bits of the writes that the table and its triggers and rules allow.
    is_guarded: whether row-level security is on. shows_rows_once: whether a view shows each row of one table once.
    is_plain: whether such a view is written without rules and triggers of its own.
    """

    oid: int
    role: str
    schema: str
    name: str
    kind: str
    is_default: bool
    comment: str
    columns: tuple[InspectedColumn, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    foreign_keys: tuple[ForeignKey, ...]
    partial_keys: tuple[ForeignKey, ...]
    checks: tuple[Check, ...]
    triggers: tuple[Trigger, ...]
    allowed_writes: int
    has_children: bool
    is_guarded: bool
    is_populated: bool
    shows_rows_once: bool
    is_plain: bool
    may_delete: bool
    may_lock: bool
    may_use_schema: bool
    grouped: tuple[str, ...] = ()
    shown_key: tuple[str, ...] = ()
    disproved: tuple[tuple[str, ...], ...] = ()
    why_unknown: str = ""

    @property
    def full_name(self) -> str:
        """The schema and the name, for people. `public` is left out."""
        return self.name if self.is_default else f"{self.schema}.{self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key, or else the smallest unique NOT NULL columns, or else that of a view. Empty without any."""
        needed = {column.name for column in self.columns if column.is_not_null}
        keys = [columns for columns in self.unique if needed.issuperset(columns)]
        return self.primary_key or min(keys, key=lambda columns: (len(columns), columns), default=self.shown_key)

    def grant(self, privilege: str, *columns: str) -> str:
        """Return the statement that gives the role a privilege on columns, or without columns on the table."""
        names = f" ({', '.join(map(quote_ident, columns))})" if columns else ""
        table = f"{quote_ident(self.schema)}.{quote_ident(self.name)}"
        return f"GRANT {privilege}{names} ON {table} TO {quote_ident(self.role)}"

    def is_set_by_trigger(self, name: str) -> bool:
        """Return whether a trigger BEFORE INSERT sets a column: its function assigns it, or has its name as the first
        argument, like tsvector_update_trigger."""
        own = re.escape(name)
        assigned = re.compile(rf'\bnew\.(?:{own}|"{own}")\s*:?=[^=]|\binto\s+(?:strict\s+)?new\.{own}\b', re.IGNORECASE)
        return any(
            trigger.is_before
            and trigger.events & INSERT
            and (assigned.search(trigger.source) or name in trigger.arguments.split()[:1])
            for trigger in self.triggers
        )

    def column(self, name: str) -> InspectedColumn:
        """Return the column with this name. Raises StopIteration if there is none."""
        return next(column for column in self.columns if column.name == name)


class Argument(msgspec.Struct, frozen=True):
    """An argument that a call sends. name: empty if it has none. has_default: whether a call may leave it out."""

    name: str
    type: Type
    has_default: bool = False


class Routine(msgspec.Struct, frozen=True, kw_only=True):
    """A function, with what it returns. Only those that are called for their result are inspected.

    role: the user of the connection. is_set: SETOF, or TABLE.
    is_default: whether a call finds it without its schema, because this is `public`.
    is_definer: SECURITY DEFINER. columns: those that it returns, if it says so itself (RETURNS TABLE, OUT).
    result: the type of its result. table: the oid of the table of whose rows it returns; 0 for other results.
    """

    role: str
    schema: str
    name: str
    is_default: bool
    arguments: tuple[Argument, ...]
    columns: tuple[str, ...]
    result: Type
    table: int
    comment: str
    owner: str
    is_volatile: bool
    is_set: bool
    is_variadic: bool
    is_definer: bool
    may_execute: bool
    may_use_schema: bool

    @property
    def full_name(self) -> str:
        """The schema and the name, for people. `public` is left out."""
        return self.name if self.is_default else f"{self.schema}.{self.name}"

    @property
    def shown(self) -> str:
        """The full name with the types of the arguments, which tell functions of one name apart."""
        return f"{self.full_name}({self.shown_types})"

    @property
    def shown_types(self) -> str:
        """The types of the arguments."""
        return ", ".join(argument.type.shown for argument in self.arguments)


class LeftOut(msgspec.Struct, frozen=True):
    """A table or a function that is not inspected. reason: why, for the file. kind: what it is, if the file does not
    mention it."""

    full_name: str
    reason: str = ""
    kind: str = ""


class InspectedDatabase(msgspec.Struct, frozen=True):
    """The tables and functions of a database, sorted by name. left_out: those that are not inspected. names: schema and
    name of each table, also of schemas that are not looked at. function_names: the same of functions, whose names end
    in `()`. full_names: of each table, by oid."""

    tables: tuple[InspectedTable, ...]
    left_out: tuple[LeftOut, ...]
    names: tuple[tuple[str, str], ...] = ()
    routines: tuple[Routine, ...] = ()
    function_names: tuple[tuple[str, str], ...] = ()
    full_names: Mapping[int, str] = {}
