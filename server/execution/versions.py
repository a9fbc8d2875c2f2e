"""Finds the version of what a document shows, for its entity tag. It must not know: HTTP, how a tag is written."""

from __future__ import annotations

from typing import Any

from querybuild.planning.context import Context
from serializers.tags import version_of_ids, version_of_related
from server.execution.arguments import Arguments
from server.execution.execute import ReadResult
from server.postgres.connection import PostgresConnection
from server.preparing.reads import PreparedLinkage, PreparedRead

_PLAIN_TEXTS = frozenset({"int2", "int4", "int8", "uuid", "text", "varchar"})
"""The types whose values in Python have the same texts as in PostgreSQL."""


async def read_linkage_version(
    connection: PostgresConnection, linkage: PreparedLinkage, context: Context, row_id: Any
) -> str | None:
    """Return the version of the linkage of a row, or None if there are too many links."""
    planned = linkage.planned
    sent = Arguments(planned.values, context.values, row_id, planned.page_values)
    [row] = await connection.fetch(linkage.statement.sql, *sent.of(linkage.statement))
    return row[1] if row[0] <= linkage.max_count else None


def shown_version(read: PreparedRead, result: ReadResult) -> str | None:
    """Return the version of what a document shows: of its resource, or of its linkage. None if it has none. That of
    linkage is also None if its rows are only some of the links, or if only PostgreSQL has the texts of their ids."""
    plan, rows = read.plan, result.rows[0]
    if plan.is_linkage:
        return result.linkage_version or (
            version_of_ids([str(row[0]) for row in rows]) if is_whole(read, result) else None
        )
    version = plan.node.version
    if version is None or plan.is_collection or not rows:
        return None
    [row] = rows
    own: str = row[plan.node.position_of_version]
    return own if plan.scope is None else version_of_related(row[0], own)


def form_of_tag(read: PreparedRead) -> str:
    """Return the form of the entity tag of one resource: its gap has the version, and PostgreSQL cannot compute the
    hash."""
    return '""' if read.plan.node.version is None else '"%s."'


def is_whole(read: PreparedRead, result: ReadResult) -> bool:
    """Return whether the rows of linkage tell its version: they are all links, and their ids are plain texts."""
    key = read.plan.node.resource.id.key
    is_plain = key.is_composite or not _PLAIN_TEXTS.isdisjoint(key.types[0].sql_names)
    rows = read.plan.rows
    return is_plain and not (result.has_more or read.page.offset or rows.keyset is not None or rows.conditions)
