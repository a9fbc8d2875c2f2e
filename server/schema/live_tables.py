"""Reads tables, views and columns with given names from the system catalog. It must not know: declarations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.keys import UniqueKey
from querybuild.declarations.terms import quote_ident
from server.schema.live_views import IS_COMPUTED_IN_VIEW, IS_NOT_NULL

TYPE_NAME = """CASE WHEN b.typtype = 'e' THEN 'enum'
            WHEN e.typtype = 'e' THEN '_enum'
            WHEN b.typelem <> 0 AND b.typcategory = 'A' THEN '_' || e.typname
            ELSE b.typname END"""


# denied_sequences: the sequences that the column's default uses and the role may not use. OFFSET: so that privileges on
# the table are looked up once.
_COLUMNS = f"""
SELECT a.attrelid::int8 AS oid, a.attname AS name,
       {TYPE_NAME} AS type, b.oid::int8 AS type_oid, d.typtype = 'd' AS is_domain,
       EXISTS (SELECT FROM pg_type t WHERE t.oid = b.typelem AND t.typtype = 'd') AS has_domain_elements,
       CASE WHEN NOT pg_type_is_visible(coalesce(e.oid, b.oid)) THEN (
           SELECT s.nspname FROM pg_namespace s WHERE s.oid = coalesce(e.typnamespace, b.typnamespace)
       ) END AS hidden_schema,
       CASE WHEN NOT pg_type_is_visible(coalesce(e.oid, b.oid)) THEN (
           SELECT s.nspname FROM pg_namespace s WHERE s.oid = coalesce(e.typnamespace, b.typnamespace)
           AND NOT has_schema_privilege(s.oid, 'USAGE')
       ) END AS denied_schema,
       {IS_NOT_NULL} AS is_not_null,
       EXISTS (SELECT FROM pg_collation k WHERE k.oid = a.attcollation AND NOT k.collisdeterministic)
           AS has_nondeterministic_collation,
       a.atthasdef OR a.attidentity <> '' OR d.typdefault IS NOT NULL AS has_default,
       a.attidentity = 'a' OR a.attgenerated <> '' AS is_generated,
       {IS_COMPUTED_IN_VIEW} AS is_computed,
       c.may_select OR has_column_privilege(c.oid, a.attnum, 'SELECT') AS may_select,
       c.may_insert OR has_column_privilege(c.oid, a.attnum, 'INSERT') AS may_insert,
       c.may_update OR has_column_privilege(c.oid, a.attnum, 'UPDATE') AS may_update,
       CASE WHEN a.atthasdef THEN ARRAY(SELECT s.oid::regclass::text FROM pg_attrdef f
             JOIN pg_depend p ON (p.classid, p.objid, p.refclassid)
                 = ('pg_attrdef'::regclass, f.oid, 'pg_class'::regclass)
             JOIN pg_class s ON s.oid = p.refobjid
             WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND CASE WHEN s.relkind = 'S'
                 THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') END) ELSE '{{}}' END AS denied_sequences
FROM (
    SELECT oid, relkind, has_table_privilege(oid, 'SELECT') AS may_select,
           has_table_privilege(oid, 'INSERT') AS may_insert, has_table_privilege(oid, 'UPDATE') AS may_update
    FROM pg_class WHERE oid = ANY($1::oid[]) OFFSET 0
) c JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_type d ON d.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN d.typtype = 'd' THEN (
    WITH RECURSIVE base AS (
        SELECT d.typbasetype AS oid
        UNION ALL
        SELECT t.typbasetype FROM pg_type t JOIN base ON t.oid = base.oid WHERE t.typtype = 'd'
    ) SELECT base.oid FROM base JOIN pg_type t ON t.oid = base.oid WHERE t.typtype <> 'd' LIMIT 1
) ELSE d.oid END
LEFT JOIN pg_type e ON e.oid = (
    WITH RECURSIVE base AS (
        SELECT b.typelem AS oid
        UNION ALL
        SELECT t.typbasetype FROM pg_type t JOIN base ON t.oid = base.oid WHERE t.typtype = 'd'
    ) SELECT base.oid FROM base JOIN pg_type t ON t.oid = base.oid WHERE t.typtype <> 'd' LIMIT 1
)
WHERE a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""

PARTITION_KEY = """CASE WHEN c.relkind = 'p' THEN (
           SELECT CASE
               WHEN p.partexprs IS NULL AND NOT EXISTS (
                   SELECT FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid WHERE l.relkind = 'f'
               ) THEN ARRAY(SELECT a.attname::text FROM pg_attribute a
                            WHERE a.attrelid = c.oid AND a.attnum = ANY(p.partattrs::int2[]))
               ELSE ARRAY[NULL] END
           FROM pg_partitioned_table p WHERE p.partrelid = c.oid) ELSE ARRAY[]::text[] END"""
"""For pg_class `c`: the columns that every unique index must include. With a null in it, no unique index is
possible."""

# cancels_writes counts internal triggers too: until PostgreSQL 14 a trigger of a partitioned table is one of its
# partitions. Those of constraints are AFTER triggers.
# allowed_writes: the bits of pg_relation_is_updatable, with triggers and rules. A table with inheriting tables shows
# their rows as its own, and none of its own indexes covers these.
_TABLES = f"""
SELECT c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind, current_user::text AS role,
       pg_relation_is_updatable(c.oid, true) AS allowed_writes,
       (SELECT coalesce(bit_or(CASE one.ev_type WHEN '2' THEN 4 WHEN '3' THEN 8 ELSE 16 END), 0) FROM (
           SELECT r.ev_type FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type IN ('2', '3', '4')
           GROUP BY r.ev_type HAVING bool_or(r.is_instead) AND NOT bool_or(r.ev_action::text LIKE '%:returningList (%')
       ) one) AS writes_without_returning,
       has_schema_privilege(n.oid, 'USAGE') AS may_use_schema,
       has_table_privilege(c.oid, 'DELETE') AS may_delete,
       has_any_column_privilege(c.oid, 'UPDATE') AS may_lock,
       {PARTITION_KEY} AS partition_key,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
               AND t.tgtype & 1 = 1 AND t.tgtype & 4 = 4 AND t.tgtype & 66 <> 0) AS has_before_insert_trigger,
       c.relkind <> 'r' OR c.relrowsecurity OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
       OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid)
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled <> 'D' AND t.tgtype & 3 = 3)
           AS cancels_writes,
       c.relrowsecurity AS has_policies,
       ARRAY(SELECT DISTINCT a.attname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
             JOIN pg_am m ON m.oid = x.relam AND m.amname = 'btree'
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL) AS indexed,
       ARRAY(SELECT DISTINCT a.attname::text FROM pg_index i
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
             WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL
             AND current_setting('server_version_num')::int < 170000
             AND pg_index_column_has_property(i.indexrelid, 1, 'distance_orderable') IS NOT FALSE) AS knn_indexed,
       EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type <> '1') AS has_rules
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY($1::oid[])
"""

# Not to_regclass for a named schema: it fails if the role may not use the schema.
_OIDS = """
SELECT given.schema, given.name, c.oid::int8 AS oid
FROM unnest($1::text[], $2::text[]) AS given (schema, name)
JOIN pg_class c ON c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.oid = CASE
    WHEN given.schema IS NULL THEN to_regclass(quote_ident(given.name))::oid
    ELSE (SELECT r.oid FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
          WHERE n.nspname = given.schema AND r.relname = given.name) END
"""

# A partition that is itself declared counts as a table.
PARTITIONS = """
SELECT l.oid::int8 AS oid, n.nspname AS schema, l.relname AS name, m.nspname AS of_schema, c.relname AS of_name
FROM pg_class c JOIN pg_namespace m ON m.oid = c.relnamespace
CROSS JOIN LATERAL pg_partition_tree(c.oid) t
JOIN pg_class l ON l.oid = t.relid JOIN pg_namespace n ON n.oid = l.relnamespace
WHERE c.relkind = 'p' AND c.oid = ANY($1::oid[]) AND l.oid <> ALL($1::oid[])
"""

# The error about a NOT NULL constraint names the column.
CONSTRAINTS = """
SELECT n.nspname AS schema, r.relname AS table, c.conname AS name, false AS is_unique, false AS is_immediate,
       false AS has_equal_nulls, c.conrelid AS oid,
       ARRAY(SELECT a.attname FROM unnest(c.conkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns,
       f.relname AS of_table, s.nspname AS of_schema
FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
LEFT JOIN pg_class f ON f.oid = c.confrelid LEFT JOIN pg_namespace s ON s.oid = f.relnamespace
WHERE c.conrelid = ANY($1::oid[]) AND c.contype NOT IN ('p', 'u', 'n')
UNION ALL
SELECT n.nspname, r.relname, x.relname,
       i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL, i.indimmediate,
       i.indnullsnotdistinct, i.indrelid,
       ARRAY(SELECT a.attname FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
       || ARRAY(SELECT DISTINCT a.attname FROM regexp_matches(i.indexprs::text, ':varattno ([0-9]+)', 'g') v
                JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = v[1]::int
                WHERE a.attnum <> ALL(i.indkey::int2[])), NULL, NULL
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class r ON r.oid = i.indrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE (i.indisunique OR i.indisexclusion) AND i.indrelid = ANY($1::oid[])
"""


INSERT, UPDATE, DELETE = 8, 4, 16
"""Bits of pg_relation_is_updatable."""

RELATION_KINDS = {"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table"}
"""What each pg_class.relkind is."""


class LiveColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table or view. type_oid: of its type, or of the base type if it is_domain. has_domain_elements:
    whether it is an array of a domain. hidden_schema: the
    schema of its type, or of the type of its elements, if it is not in the search path. denied_schema: the same, if the
    role may not use it. has_nondeterministic_collation:
    whether texts that differ may be equal. is_generated: GENERATED ALWAYS, so it cannot be written. is_computed:
    computed by a view, so it cannot be written. shows_not_null: whether a view shows a NOT NULL column of its table
    here, or a column that is not certain. denied_sequences: the sequences of its default that the role may not use."""

    type: str
    type_oid: int
    is_domain: bool
    has_domain_elements: bool
    hidden_schema: str | None
    denied_schema: str | None
    is_not_null: bool
    has_nondeterministic_collation: bool
    has_default: bool
    is_generated: bool
    is_computed: bool
    may_select: bool
    may_insert: bool
    may_update: bool
    denied_sequences: tuple[str, ...]
    shows_not_null: bool = False


class LiveTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table or view, and what the role may do with it.

    columns: by name. unique: the column sets of its unique indexes; None if it can have no indexes of its own.
    unique_keys: those that ON CONFLICT may name. kind: a key of RELATION_KINDS. partition_key: the columns that every
    unique index must include; None if there can be none.
    allowed_writes: the bits of the writes that it allows. writes_without_returning: those of them that return no rows.
    may_lock: whether the role may lock its rows. has_children: whether other tables inherit from it.
    has_before_insert_trigger: whether a trigger may change each new row before it is written. cancels_writes: whether a
    trigger, a rule or a policy may cancel the write of a row. has_policies: whether policies may hide rows from it.
    has_rules: whether rules of PostgreSQL rewrite its writes. indexed: the columns that are the first of an index of
    all its rows. knn_indexed: those of an index that orders by distances, before PostgreSQL 17,
    which also uses such an index for an order that goes on."""

    oid: int
    schema: str
    name: str
    kind: str
    role: str
    columns: dict[str, LiveColumn]
    unique: tuple[frozenset[str], ...] | None
    unique_keys: tuple[UniqueKey, ...] = ()
    partition_key: frozenset[str] | None
    allowed_writes: int
    writes_without_returning: int
    may_use_schema: bool
    may_delete: bool
    may_lock: bool
    has_children: bool
    has_before_insert_trigger: bool
    cancels_writes: bool
    has_policies: bool
    has_rules: bool
    indexed: frozenset[str]
    knn_indexed: frozenset[str]

    @property
    def is_table(self) -> bool:
        """Whether it is a table, which may have partitions, and no view or foreign table."""
        return self.kind in ("r", "p")

    @property
    def null_columns(self) -> frozenset[str]:
        """The columns that are null in a new row if they are not set. What a view sets instead is not known."""
        if not self.is_table:
            return frozenset()
        columns = self.columns.items()
        return frozenset([name for name, column in columns if not (column.has_default or column.is_not_null)])

    @property
    def quoted_name(self) -> str:
        """The name for a statement."""
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}"

    def has_unique(self, *names: str) -> bool:
        """Return whether it has a unique index on exactly these columns."""
        return frozenset(names) in (self.unique or ())

    def may_repeat(self, *names: str) -> bool:
        """Return whether these columns have no unique index, although they could have one."""
        is_known = self.unique is not None and set(names) <= self.columns.keys()
        return (
            is_known
            and can_be_unique(self.partition_key, names)
            and not any(columns <= set(names) for columns in self.unique or ())
        )


def parse_partition_key(names: Sequence[str | None]) -> frozenset[str] | None:
    """Return the result of PARTITION_KEY as a set. Return None if it has a null."""
    known = [name for name in names if name is not None]
    return frozenset(known) if len(known) == len(names) else None


def can_be_unique(partition_key: frozenset[str] | None, names: Sequence[str]) -> bool:
    """Return whether a table can have a unique index on exactly these columns."""
    return partition_key is not None and partition_key <= set(names)


Columns = dict[str, LiveColumn]
QualifiedName = tuple[str | None, str]
"""Schema and table, as declared."""
FoundTables = dict[QualifiedName, LiveTable | None]


async def find_oids(
    connection: asyncpg.Connection[Any], names: Iterable[QualifiedName]
) -> dict[QualifiedName, int | None]:
    """Return the oids of tables, None for those that do not exist. Statements find tables in the same way: with the
    schema if one is declared, otherwise by search_path."""
    oids: dict[QualifiedName, int | None] = dict.fromkeys(names)
    rows = await connection.fetch(_OIDS, [schema for schema, _ in oids], [name for _, name in oids])
    return oids | {(row["schema"], row["name"]): row["oid"] for row in rows}


def with_shown_not_null(view: LiveTable, nullable: Container[str]) -> LiveTable:
    """Return a view whose columns are those of its table. nullable: those that may be null."""
    columns = {
        name: msgspec.structs.replace(column, shows_not_null=not column.is_computed and name not in nullable)
        for name, column in view.columns.items()
    }
    return msgspec.structs.replace(view, columns=columns)


def with_privileges(table: LiveTable) -> LiveTable:
    """Return the table as if the role had all privileges on it, for statements that run with other roles."""
    return msgspec.structs.replace(
        table,
        columns={
            name: msgspec.structs.replace(
                column, may_select=True, may_insert=True, may_update=True, denied_sequences=(), denied_schema=None
            )
            for name, column in table.columns.items()
        },
        may_use_schema=True,
        may_delete=True,
        may_lock=True,
    )


async def read_tables(
    connection: asyncpg.Connection[Any], oids: Sequence[int], constraints: Sequence[asyncpg.Record]
) -> dict[int, LiveTable]:
    """Read tables, by oid. constraints: rows of CONSTRAINTS, for these and others."""
    columns: defaultdict[int, dict[str, LiveColumn]] = defaultdict(dict)
    for row in await connection.fetch(_COLUMNS, oids):
        facts = dict(row)
        facts["denied_sequences"] = tuple(facts["denied_sequences"])
        oid, name = facts.pop("oid"), facts.pop("name")
        columns[oid][name] = LiveColumn(**facts)
    unique: defaultdict[int, list[asyncpg.Record]] = defaultdict(list)
    for row in constraints:
        if row["is_unique"]:
            unique[row["oid"]].append(row)
    rows = await connection.fetch(_TABLES, oids)
    return {row["oid"]: _table(row, columns[row["oid"]], unique[row["oid"]]) for row in rows}


def _table(row: asyncpg.Record, columns: Columns, unique: list[asyncpg.Record]) -> LiveTable:
    """Return a table. unique: its unique indexes, as rows of CONSTRAINTS."""
    facts = dict(row)
    facts["partition_key"] = parse_partition_key(facts["partition_key"])
    # An index of a table does not have the rows of the tables that inherit from it.
    for name in ("indexed", "knn_indexed"):
        facts[name] = frozenset(() if facts["has_children"] else facts[name])
    has_indexes = facts["kind"] in ("r", "p", "m") and not facts["has_children"]
    return LiveTable(
        columns=columns,
        unique=tuple([frozenset(key["columns"]) for key in unique]) if has_indexes else None,
        unique_keys=tuple(
            [
                UniqueKey(tuple(key["columns"]), key["has_equal_nulls"])
                for key in unique
                if key["is_immediate"] and facts["kind"] in ("r", "p") and not facts["has_children"]
            ]
        ),
        **facts,
    )
