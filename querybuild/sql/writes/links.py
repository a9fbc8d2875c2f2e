"""Compiles the statements that write the links of a row: keys of the related rows, or rows of a link table.

It must not know: values. `locks.py` explains which rows are locked.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pypika import PostgreSQLQuery
from pypika.terms import ExistsCriterion, NullValue

from querybuild.declarations.keys import Key, referring
from querybuild.declarations.resource import Link, link_of, referring_key
from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.row_plan import Slot
from querybuild.planning.writes.write_plan import LinkWrite, LockStrength
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import criterion, decides_again, from_rows, is_writable, link_table, one_of, table
from querybuild.sql.keys import (
    columns_of,
    compared_key,
    each_key_parts,
    equal_keys,
    is_any_key,
    is_key,
    is_no_key,
    key_is_not_null,
    key_parameter,
    key_parts,
    key_value,
    shown_key,
)
from querybuild.sql.statement import Statement
from querybuild.sql.writes.locks import lock_clause
from querybuild.sql.writes.parts import delete_from, into, set_version, update_of

ROW, KEYS = Slot("row"), Slot("keys")


class LinkStatements(msgspec.Struct, frozen=True):
    """The statements that write the links of one relationship. Each is None if the mode does not need it.

    lock: locks the related rows, in the order of their ids. Returns (id, key or null), and whether the row may be
        updated, if there are rights.
    leaving: finds the related rows whose links are removed one by one, if something can tell this from a removal of
        all by one statement.
    detach: removes links.
    attach: creates links.
    is_detached, is_attached: check the result in a link table. They return a row if a link was not removed or created.
    changed: returns the ids of the related rows in which columns would change that the link must keep. None if there
        are no such columns.
    find: returns what `lock` returns, without locks, if PostgreSQL may refuse to lock related rows that can be read.
    is_referable: returns a row if the owner has values in the columns that the keys refer to. None if these are its id.
    """

    lock: Statement | None
    detach: Statement | None
    attach: Statement | None
    is_detached: Statement | None = None
    is_attached: Statement | None = None
    is_referable: Statement | None = None
    find: Statement | None = None
    leaving: Statement | None = None
    changed: Statement | None = None


def compile_link(link: LinkWrite) -> LinkStatements:
    """Compile the write of a link."""
    through = link_of(link.relationship)
    return _foreign_key(link) if through is None else _through(link, through)


def _foreign_key(link: LinkWrite) -> LinkStatements:
    """Return the statements for a key in the related rows."""
    return LinkStatements(
        lock=_lock_related(link),
        detach=None if link.mode == "add" else _detach(link),
        attach=None if link.mode == "remove" else _attach(link),
        is_referable=None if link.mode == "remove" else _is_referable(link),
        changed=_find_changed(link) if link.mode != "remove" and link.kept else None,
        find=_find_related(link) if link.mode != "add" and link.target.abilities.cancels_writes else None,
    )


def _lock_related(link: LinkWrite) -> Statement:
    """Lock the named rows. A replacement also locks the linked rows. A removal only locks the named rows that are
    linked, with AND instead of OR.

    `SELECT "id","owner_id" FROM "computers" WHERE "id"=ANY($1) OR "owner_id"=$2 ORDER BY "id" FOR NO KEY UPDATE`

    If there are rights, a third column says whether the row may be updated.
    """
    statement = _find_related(link)
    return msgspec.structs.replace(statement, sql=statement.sql + lock_clause(LockStrength.NO_KEY_UPDATE, link.target))


def _find_related(link: LinkWrite) -> Statement:
    binds, rows = Binds(), table(link.target)
    of, id_key, key = rows.field, link.target.id.key, foreign_key_of(link)
    query = PostgreSQLQuery.from_(rows).select(shown_key(of, id_key), shown_key(of, key))
    query = query.select(*is_writable(link.rows, binds))
    meant = is_any_key(of, id_key, binds.request(link.slot))
    if link.mode != "add":
        joined = "{} OR {}" if link.mode == "replace" else "{} AND {}"
        meant = Template(joined, meant, is_key(of, key, binds(ROW)))
    query = query.where(one_of(link.rows, meant, binds)).orderby(*map(of, id_key.columns))
    return Statement(query.get_sql(), binds.slots, decides_again(link.rows))


def _detach(link: LinkWrite) -> Statement:
    """Remove locked rows from their owner: `UPDATE "computers" SET "owner_id"=null WHERE "id"=ANY($1)`"""
    binds, rows = Binds(), table(link.target)
    query = update_of(rows)
    for name in link.emptied:
        query = query.set(rows.field(name), NullValue())
    query = set_version(query, link.target).where(is_any_key(rows.field, link.target.id.key, binds(KEYS)))
    return Statement(query.get_sql(), binds.slots)


def _attach(link: LinkWrite) -> Statement:
    """Compile `UPDATE "computers" SET "owner_id"=$1 WHERE "id"=ANY($2) AND "owner_id" IS DISTINCT FROM $1`"""
    binds, rows = Binds(), table(link.target)
    of, key = rows.field, foreign_key_of(link)
    query = update_of(rows)
    for name, value in zip(key.columns, key_parts(binds(ROW), key), strict=True):
        query = query.set(of(name), value)
    query = set_version(query, link.target)
    query = query.where(is_any_key(of, link.target.id.key, binds.request(link.slot)))
    distinct = Template("{} IS DISTINCT FROM {}", compared_key(of, key), key_value(binds(ROW), key))
    query = query.where(distinct)
    if key.referenced is not None:
        # The owner may have no value in the columns that the keys refer to.
        query = query.where(Template("{} IS NOT NULL", key_value(binds(ROW), key)))
    return Statement(query.get_sql(), binds.slots)


def _is_referable(link: LinkWrite) -> Statement | None:
    """Compile `SELECT 1 FROM "countries" WHERE "id"=$1 AND NOT "code" IS NULL`"""
    referenced = foreign_key_of(link).referenced
    if referenced is None:
        return None
    binds, owners = Binds(), table(link.resource)
    of = owners.field
    query = PostgreSQLQuery.from_(owners).select(1).where(is_key(of, link.resource.id.key, binds(ROW)))
    return Statement(query.where(key_is_not_null(of, Key(referenced.columns, ()))).get_sql(), binds.slots)


def _find_changed(link: LinkWrite) -> Statement:
    """Compile `SELECT "id" FROM "members" WHERE "id"=ANY($1) AND "tenant_id" IS DISTINCT FROM $2`"""
    binds, rows = Binds(), table(link.target)
    of, key = rows.field, foreign_key_of(link)
    query = PostgreSQLQuery.from_(rows).select(shown_key(of, link.target.id.key))
    query = query.where(is_any_key(of, link.target.id.key, binds.request(link.slot)))
    values = dict(zip(key.columns, key_parts(binds(ROW), key), strict=True))
    tests = [Template("{} IS DISTINCT FROM {}", of(name), values[name]) for name in link.kept]
    return Statement(query.where(Template("(" + " OR ".join(["{}"] * len(tests)) + ")", *tests)).get_sql(), binds.slots)


def foreign_key_of(link: LinkWrite) -> Key:
    """Return the columns of the related rows that refer to the owner."""
    return referring_key(link.relationship, link.relationship.foreign_columns, link.resource)


def _through(link: LinkWrite, through: Link) -> LinkStatements:
    """Return the statements for a link table."""
    is_each = link.mode != "add" and "delete" not in through.merged
    removed = msgspec.structs.replace(link, mode="remove") if is_each else link
    return LinkStatements(
        lock=None if link.mode == "remove" else _lock_linked(link),
        leaving=_find_leaving(link, through) if is_each else None,
        detach=None if link.mode == "add" else _unlink(removed, through),
        attach=None if link.mode == "remove" else _make_links(link, through),
        is_detached=None if link.mode == "add" else _find_left(link, through),
        is_attached=None if link.mode == "remove" else _find_missing(link, through),
    )


def _lock_linked(link: LinkWrite) -> Statement:
    """Compile `SELECT "id",null FROM "tags" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE`"""
    binds, rows = Binds(), table(link.target)
    of, key = rows.field, link.target.id.key
    query = PostgreSQLQuery.from_(rows).select(shown_key(of, key), NullValue())
    meant = is_any_key(of, key, binds.request(link.slot))
    query = query.where(one_of(link.rows, meant, binds)).orderby(*map(of, key.columns))
    sql = query.get_sql() + lock_clause(LockStrength.KEY_SHARE, link.target)
    return Statement(sql, binds.slots, decides_again(link.rows))


def _unlink(link: LinkWrite, through: Link) -> Statement:
    """Compile `DELETE FROM "post_tags" WHERE "post_id"=$1 AND "tag_id"<>ALL($2)`"""
    binds, links = Binds(), link_table(through)
    query = delete_from(links)
    return Statement(_leaving(query, link, through, binds).get_sql(), binds.slots)


def _find_left(link: LinkWrite, through: Link) -> Statement:
    """Compile `SELECT 1 FROM "post_tags" WHERE "post_id"=$1 AND "tag_id"<>ALL($2) LIMIT 1`"""
    binds, links = Binds(), link_table(through)
    query = PostgreSQLQuery.from_(links).select(1).limit(1)
    return Statement(_leaving(query, link, through, binds).get_sql(), binds.slots)


def _find_leaving(link: LinkWrite, through: Link) -> Statement:
    """Compile `SELECT "tag_id" FROM "post_tags" WHERE "post_id"=$1 AND "tag_id"<>ALL($2) ORDER BY "tag_id"`"""
    binds, links = Binds(), link_table(through)
    target = _target_of(link, through)
    query = (
        PostgreSQLQuery.from_(links).select(shown_key(links.field, target)).orderby(*map(links.field, target.columns))
    )
    return Statement(_leaving(query, link, through, binds).get_sql(), binds.slots)


def _leaving(query: Any, link: LinkWrite, through: Link, binds: Binds) -> Any:
    """Add the condition that a link is one of those to remove."""
    of, target = link_table(through).field, _target_of(link, through)
    query = query.where(is_key(of, _source_of(link, through), binds(ROW)))
    named = binds.request(link.slot)
    leaves = is_any_key(of, target, named) if link.mode == "remove" else is_no_key(of, target, named)
    query = query.where(leaves)
    for condition in link.criteria:
        query = query.where(criterion(condition, binds))
    visible = link.visible
    if visible is None:
        return query
    pair = target, link.target.id.key
    is_target = equal_keys(columns_of(through.table), columns_of(visible.alias), pair)
    return query.where(ExistsCriterion(from_rows(visible, binds).select(1).where(is_target)))


def _make_links(link: LinkWrite, through: Link) -> Statement:
    """Compile `INSERT INTO "post_tags" ("post_id","tag_id") SELECT $1::int8,unnest($2::int8[]) ON CONFLICT DO
    NOTHING`. Columns that rules set follow."""
    binds, links = Binds(), link_table(through)
    source, target = _source_of(link, through), _target_of(link, through)
    sources = key_parts(key_parameter(binds(ROW), source), source)
    values = [attribute.type.bind(binds(slot)) for attribute, slot in link.assigned]
    query = into(links).columns(
        *source.columns, *target.columns, *[attribute.column_name for attribute, _ in link.assigned]
    )
    query = query.select(*sources, *each_key_parts(binds.request(link.slot), target), *values)
    return Statement(query.get_sql() + " ON CONFLICT DO NOTHING", binds.slots)


def _find_missing(link: LinkWrite, through: Link) -> Statement:
    """Compile `SELECT 1 FROM unnest($2::int8[]) "x" WHERE "x"<>ALL(ARRAY(SELECT "tag_id" FROM "post_tags" WHERE
    "post_id"=$1)) LIMIT 1`"""
    binds, links = Binds(), link_table(through)
    target = _target_of(link, through)
    query = PostgreSQLQuery.from_(links).select(shown_key(links.field, target))
    query = query.where(is_key(links.field, _source_of(link, through), binds(ROW)))
    for condition in link.criteria:
        query = query.where(criterion(condition, binds))
    there = query.get_sql()
    targets = sql_of(key_parameter(binds.request(link.slot), target, is_array=True))
    return Statement(f'SELECT 1 FROM unnest({targets}) "x" WHERE "x"<>ALL(ARRAY({there})) LIMIT 1', binds.slots)


def _source_of(link: LinkWrite, through: Link) -> Key:
    """Return the columns of the link table that refer to the owner."""
    return referring(through.source_columns, link.resource.id.key, through.source_types)


def _target_of(link: LinkWrite, through: Link) -> Key:
    """Return the columns of the link table that refer to the related rows."""
    return referring(through.target_columns, link.target.id.key, through.target_types)
