"""Finds out what else happens when a row is written: triggers, rules, policies and functions that read other rows, and
rows that foreign keys change.

Two questions are answered for each table. May several rows be written by one statement, or can something tell this from
writes one after the other? May the written row change after its statement has returned it?

What comes in: a connection. What goes out: facts by the oid of the table. It must not know: declarations, requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg
import msgspec

from querybuild.query import ChangeKind

# Bits of pg_trigger.tgtype: 1 row, 2 BEFORE, 4 INSERT, 8 DELETE, 16 UPDATE, 64 INSTEAD OF. ev_type of pg_rewrite: 2
# UPDATE, 3 INSERT, 4 DELETE.
# sees_others: whether the table is of a kind, or has something, that may see the other rows of a statement. Of
# functions, only built-in ones and those in C are trusted. One that is declared as IMMUTABLE may still read tables.
# PostgreSQL records no dependency on what is built in. A BEFORE trigger of a built-in function reads no table.
# after: the bits of the events after which triggers or rules may change a written row. deferred: the triggers that run
# when the transaction ends.
_TABLES = """
WITH untrusted AS MATERIALIZED (
    SELECT p.oid FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE l.lanname NOT IN ('internal', 'c')
), calling AS MATERIALIZED (
    SELECT d.classid, d.objid FROM pg_depend d
    WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (TABLE untrusted)
    UNION
    SELECT d.classid, d.objid FROM pg_depend d JOIN pg_operator o ON o.oid = d.refobjid
    WHERE d.refclassid = 'pg_operator'::regclass AND o.oprcode IN (TABLE untrusted)
), domain AS MATERIALIZED (
    WITH RECURSIVE part (oid, type) AS (
        SELECT t.oid, t.oid FROM pg_type t WHERE t.typtype = 'd' OR t.typelem <> 0
        UNION
        SELECT part.oid, next.type FROM part JOIN pg_type t ON t.oid = part.type
        CROSS JOIN LATERAL (VALUES (t.typbasetype), (t.typelem)) next (type) WHERE next.type <> 0
    )
    SELECT DISTINCT part.oid FROM part JOIN pg_constraint c ON c.contypid = part.type
    WHERE (c.tableoid, c.oid) IN (TABLE calling)
), expression (oid) AS (
    SELECT conrelid FROM pg_constraint WHERE conrelid <> 0 AND (tableoid, oid) IN (TABLE calling)
    UNION SELECT adrelid FROM pg_attrdef WHERE (tableoid, oid) IN (TABLE calling)
    UNION SELECT i.indrelid FROM pg_index i WHERE ('pg_class'::regclass::oid, i.indexrelid) IN (TABLE calling)
    UNION SELECT a.attrelid FROM pg_attribute a WHERE a.attnum > 0 AND a.atttypid IN (TABLE domain)
    UNION SELECT polrelid FROM pg_policy WHERE (tableoid, oid) IN (TABLE calling)
        OR polqual::text LIKE '%{SUBLINK %' OR polwithcheck::text LIKE '%{SUBLINK %'
)
SELECT c.oid::int8 AS oid,
       c.relkind NOT IN ('r', 'p') OR c.oid IN (TABLE expression)
       OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid)
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D'
                  AND (t.tgtype & 67 <> 3 OR t.tgfoid IN (TABLE untrusted))) AS sees_others,
       CASE WHEN c.relkind = 'f' THEN 28 ELSE 0 END
       | (SELECT coalesce(bit_or(t.tgtype::int & 28), 0) FROM pg_trigger t
          WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 2 = 0)
       | (SELECT coalesce(bit_or(CASE r.ev_type WHEN '2' THEN 16 WHEN '3' THEN 4 ELSE 8 END), 0)
          FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type <> '1') AS after,
       ARRAY(SELECT format('%I.%I', n.nspname, t.tgname) FROM pg_trigger t WHERE t.tgrelid = c.oid
             AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tginitdeferred ORDER BY t.tgname) AS deferred
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.oid >= 16384
"""

# below: the partitions and the inheriting tables of a table, and the relations that a view reads. updated, deleted: the
# tables whose rows a foreign key changes if a row that they refer to is updated or deleted.
_NEIGHBOURS = """
SELECT i.inhparent::int8 AS oid, i.inhrelid::int8 AS other, 'below' AS how FROM pg_inherits i
UNION
SELECT r.ev_class::int8, d.refobjid::int8, 'below' FROM pg_rewrite r
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
WHERE r.rulename = '_RETURN' AND d.refobjid <> r.ev_class AND r.ev_class >= 16384
UNION
SELECT c.confrelid::int8, c.conrelid::int8, 'updated' FROM pg_constraint c
WHERE c.contype = 'f' AND c.confupdtype IN ('c', 'n', 'd')
UNION
SELECT c.confrelid::int8, c.conrelid::int8, 'deleted' FROM pg_constraint c
WHERE c.contype = 'f' AND c.confdeltype IN ('c', 'n', 'd')
"""

_INSERTED, _DELETED, _UPDATED = 4, 8, 16


class SideEffects(msgspec.Struct, frozen=True):
    """What can tell how rows of a table are written.

    merged: the kinds of writes of which one statement may do several: nothing can tell it from several statements.
    returned: the kinds of writes after which the row is as RETURNING has it.
    deferred: the names of the triggers that run when the transaction ends, as SQL writes them.
    """

    merged: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    deferred: tuple[str, ...] = ()


class _Relation(msgspec.Struct, frozen=True):
    """What the system catalog says of a table. after: the bits of events."""

    sees_others: bool
    after: int
    deferred: tuple[str, ...]


class _Graph:
    """All tables, and how a write of one leads to others. neighbours: by the oid, and how."""

    def __init__(self, relations: Mapping[int, _Relation], neighbours: Mapping[tuple[int, str], list[int]]) -> None:
        self._relations = relations
        self._neighbours = neighbours

    def side_effects(self, oid: int) -> SideEffects:
        """Return what can tell how rows of this table are written."""
        created, updated = list(self._reached(oid)), list(self._reached(oid, "updated"))
        deleted = list(self._reached(oid, "updated", "deleted"))
        reached: dict[ChangeKind, list[_Relation]] = {"create": created, "update": updated, "delete": deleted}
        merged = {
            event for event, relations in reached.items() if not any(relation.sees_others for relation in relations)
        }
        # An UPDATE moves a row from one partition to another by a DELETE and an INSERT.
        is_moved = len(created) > 1
        updating = _INSERTED | _DELETED | _UPDATED if is_moved else _UPDATED
        bits: dict[ChangeKind, int] = {"create": _INSERTED, "update": updating}
        returned = {
            event for event, bit in bits.items() if not any(relation.after & bit for relation in reached[event])
        }
        deferred = dict.fromkeys(name for relation in updated for name in relation.deferred)
        return SideEffects(frozenset(merged), frozenset(returned), tuple(deferred))

    def _reached(self, oid: int, *hows: str) -> Iterator[_Relation]:
        """Yield the table, and all tables that a write of it writes. hows: the actions of foreign keys."""
        seen, left = {oid}, [oid]
        while left:
            relation_oid = left.pop()
            if relation_oid in self._relations:
                yield self._relations[relation_oid]
            for how in ("below", *hows):
                neighbours = [other for other in self._neighbours.get((relation_oid, how), ()) if other not in seen]
                seen.update(neighbours)
                left += neighbours


async def read_side_effects(connection: asyncpg.Connection[Any], oids: list[int]) -> dict[int, SideEffects]:
    """Return what can tell how rows of these tables are written, by oid."""
    relations = {
        row["oid"]: _Relation(row["sees_others"], row["after"], tuple(row["deferred"]))
        for row in await connection.fetch(_TABLES)
    }
    neighbours: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for row in await connection.fetch(_NEIGHBOURS):
        neighbours[row["oid"], row["how"]].append(row["other"])
    graph = _Graph(relations, neighbours)
    return {oid: graph.side_effects(oid) for oid in oids}
