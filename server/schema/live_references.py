"""Finds the relationships whose rows are counted faster by their foreign keys. What comes in: a connection and the
Catalog. It must not know: requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import asyncpg

from querybuild.declarations.catalog import Catalog
from querybuild.planning.reads.counting import Reference, References
from server.schema.live_tables import QualifiedName

MIN_REFERENCE_BYTES, MAX_SIZE_RATIO = 2**18, 10
"""Rows are counted by their keys if the referenced table has at least MIN_REFERENCE_BYTES, and the referring table is
at most MAX_SIZE_RATIO times as large. For a smaller table, PostgreSQL looks up the rows of each key in an index, and
reads less."""

# A foreign key says nothing about rows that the role may not see, and about rows of inheriting tables. In the system
# catalog, a foreign key to a partitioned table also refers to each of its partitions. With another type or collation,
# two different keys may refer to one row.
_FOREIGN_KEYS = """
SELECT c.conrelid, keys.own, c.confrelid, keys.theirs
FROM pg_constraint c
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY k.place) AS own, array_agg(t.attname::text ORDER BY k.place) AS theirs,
           bool_and((a.atttypid, a.attcollation) = (t.atttypid, t.attcollation)) AS are_same
    FROM unnest(c.conkey, c.confkey) WITH ORDINALITY k (own, theirs, place)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.own
    JOIN pg_attribute t ON t.attrelid = c.confrelid AND t.attnum = k.theirs
) keys
WHERE c.contype = 'f' AND c.convalidated AND keys.are_same AND c.conrelid = ANY($1::oid[])
AND pg_relation_size(c.confrelid) >= $2 AND pg_relation_size(c.conrelid) <= $3 * pg_relation_size(c.confrelid)
AND NOT EXISTS (
    SELECT FROM pg_class r
    WHERE r.oid IN (c.conrelid, c.confrelid) AND (r.relrowsecurity OR r.relhassubclass OR r.relispartition))
"""


async def read_references(
    connection: asyncpg.Connection[Any], catalog: Catalog, oids: Mapping[QualifiedName, int | None]
) -> References:
    """Return the declared relationships with foreign keys by which counting is faster. oids: of the tables."""
    known = [oid for oid in oids.values() if oid is not None]
    rows = await connection.fetch(_FOREIGN_KEYS, known, MIN_REFERENCE_BYTES, MAX_SIZE_RATIO)
    keys = {(table, frozenset(zip(own, theirs, strict=True)), target) for table, own, target, theirs in rows}
    return frozenset(reference for reference in _declared_references(catalog) if _ends(oids, reference) in keys)


def _declared_references(catalog: Catalog) -> Iterator[Reference]:
    """Return the relationships whose keys are in the target's rows."""
    for resource in catalog:
        for relationship in resource.relationships:
            if relationship.foreign_key and not relationship.references:
                yield Reference(catalog.target(relationship), relationship.foreign_columns, resource)


def _ends(
    oids: Mapping[QualifiedName, int | None], reference: Reference
) -> tuple[int | None, frozenset[tuple[str, str]], int | None]:
    """Return a reference as a row of _FOREIGN_KEYS: the tables, and the pairs of columns."""
    resource, target = reference.resource, reference.target
    table, target_table = oids[resource.schema, resource.table], oids[target.schema, target.table]
    return table, frozenset(zip(reference.columns, target.id.key.columns, strict=True)), target_table
