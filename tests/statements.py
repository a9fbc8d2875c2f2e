"""Requests and their statements. `tests/unit/` compares the text, `tests/sql/` runs the same cases on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

TOKEN = "123e4567-e89b-12d3-a456-426614174000"


class Where(msgspec.Struct, frozen=True):
    """A filter on a resource type, its SQL condition, and the bound values."""

    type: str
    filter: Any
    sql: str
    values: tuple[Any, ...] = ()


def value(name: str, op: str, val: Any, sql: str, *values: Any, type: str = "sample") -> Where:
    return Where(type, [{"name": name, "op": op, "val": val}], sql, values)


def field(name: str, op: str, other: str, sql: str, type: str = "sample") -> Where:
    return Where(type, [{"name": name, "op": op, "field": other}], sql)


# every type, compared with a value
TYPES = [
    value("flag", "eq", True, '"t0"."flag"=$1', True),
    value("small", "eq", -32768, '"t0"."small"=$1', -32768),
    value("medium", "eq", 2147483647, '"t0"."medium"=$1', 2147483647),
    value("large", "eq", 9007199254740993, '"t0"."large"=$1', 9007199254740993),
    value("exact", "eq", "3.14159265358979323846", '"t0"."exact"=$1', Decimal("3.14159265358979323846")),
    value("price", "eq", 12.5, '"t0"."price"=$1', Decimal("12.5")),
    value("double", "eq", 0.1, '"t0"."double"=$1', 0.1),
    value("single", "eq", 0.5, '"t0"."single"=$1', 0.5),
    value("words", "eq", "Käse", '"t0"."words"=$1', "Käse"),
    value("short", "eq", "short", '"t0"."short"=$1', "short"),
    value("fixed", "eq", "abc", '"t0"."fixed"=$1', "abc"),
    value("mood", "eq", "ok", '"t0"."mood"=$1', "ok"),
    value("colour", "eq", "red", '"t0"."colour"=$1', "red"),
    value("token", "eq", TOKEN, '"t0"."token"=$1', UUID(TOKEN)),
    value("day", "eq", "2024-02-29", '"t0"."day"=$1', date(2024, 2, 29)),
    value("clock", "eq", "23:59:59.5", '"t0"."clock"=$1', time(23, 59, 59, 500000)),
    value("moment", "eq", "2024-05-31T12:00:00+02:00", '"t0"."moment"=$1', datetime(2024, 5, 31, 10)),
    value("instant", "eq", "2024-05-31T12:00:00+02:00", '"t0"."instant"=$1', datetime(2024, 5, 31, 10, tzinfo=UTC)),
    value("span", "eq", "P1M", '"t0"."span"=CAST(CAST($1 AS TEXT) AS INTERVAL)', "P1M"),
    value("flags", "eq", [True], '"t0"."flags"[:]=$1', [True]),
    value("numbers", "eq", [1, -2], '"t0"."numbers"[:]=$1', [1, -2]),
    value("amounts", "eq", ["1.50"], '"t0"."amounts"[:]=$1', [Decimal("1.50")]),
    value("singles", "eq", [0.25], '"t0"."singles"[:]=$1', [0.25]),
    value("texts", "eq", [], '"t0"."texts"[:]=$1', []),
    value("fixeds", "eq", ["ab"], '"t0"."fixeds"[:]=$1', ["ab"]),
    value("moods", "eq", ["ok"], '"t0"."moods"[:]=$1', ["ok"]),
    value("tokens", "eq", [TOKEN], '"t0"."tokens"[:]=$1', [UUID(TOKEN)]),
    value("days", "eq", ["2024-02-29"], '"t0"."days"[:]=$1', [date(2024, 2, 29)]),
    value("clocks", "eq", ["12:00:00"], '"t0"."clocks"[:]=$1', [time(12)]),
    value("moments", "eq", ["2024-05-31T12:00:00Z"], '"t0"."moments"[:]=$1', [datetime(2024, 5, 31, 12)]),
    value("instants", "eq", ["2024-05-31T12:00:00Z"], '"t0"."instants"[:]=$1', [datetime(2024, 5, 31, 12, tzinfo=UTC)]),
    value("spans", "eq", ["P1D"], '"t0"."spans"[:]=CAST(CAST($1 AS TEXT[]) AS INTERVAL[])', ["P1D"]),
    value("blobs", "eq", ["AAE="], '"t0"."blobs"[:]=$1', [b"\0\1"]),
    value("percent", "eq", 7, '"t0"."percent"=$1', 7),
    value("label", "eq", "x", '"t0"."label"=$1', "x"),
    value("code", "eq", "X", '"t0"."code"=$1', "X"),
    value("place", "eq", "(1,2)", 'CAST("t0"."place" AS TEXT)=$1', "(1,2)"),
    value("address", "eq", "10.0.0.1", 'CAST("t0"."address" AS TEXT)=$1', "10.0.0.1"),
]

# every operator on each kind of type that has it, with a value, with null and with a field
OPERATORS = [
    value("medium", "ne", 1, '"t0"."medium"<>$1', 1),
    value("texts", "ne", ["a"], '"t0"."texts"[:]<>$1', ["a"]),
    field("medium", "eq", "large", '"t0"."medium"="t0"."large"'),
    field("medium", "ne", "double", '"t0"."medium"<>"t0"."double"'),
    field("flag", "eq", "flag", '"t0"."flag"="t0"."flag"'),
    field("texts", "eq", "texts", '"t0"."texts"[:]="t0"."texts"[:]'),
    field("place", "eq", "address", 'CAST("t0"."place" AS TEXT)=CAST("t0"."address" AS TEXT)'),
    value("medium", "lt", 1, '"t0"."medium"<$1', 1),
    value("words", "le", "m", '"t0"."words"<=$1', "m"),
    value("mood", "gt", "sad", '"t0"."mood">$1', "sad"),
    value("span", "ge", "PT1H", '"t0"."span">=CAST(CAST($1 AS TEXT) AS INTERVAL)', "PT1H"),
    value("token", "gt", TOKEN, '"t0"."token">$1', UUID(TOKEN)),
    field("medium", "lt", "small", '"t0"."medium"<"t0"."small"'),
    field("exact", "le", "price", '"t0"."exact"<="t0"."price"'),
    field("day", "gt", "moment", '"t0"."day">"t0"."moment"'),
    field("moment", "ge", "instant", '"t0"."moment">="t0"."instant"'),
    field("words", "lt", "mood", '"t0"."words"<CAST("t0"."mood" AS TEXT)'),
    field("fixed", "lt", "words", 'CAST("t0"."fixed" AS TEXT)<"t0"."words"'),
    field("mood", "eq", "colour", 'CAST("t0"."mood" AS TEXT)=CAST("t0"."colour" AS TEXT)'),
    field("fixed", "eq", "mood", 'CAST("t0"."fixed" AS TEXT)=CAST("t0"."mood" AS TEXT)'),
    value("medium", "between", [1, 2], '"t0"."medium" BETWEEN $1 AND $2', 1, 2),
    value(
        "day",
        "between",
        ["2024-01-01", "2024-12-31"],
        '"t0"."day" BETWEEN $1 AND $2',
        date(2024, 1, 1),
        date(2024, 12, 31),
    ),
    value(
        "span",
        "between",
        ["P1D", "P2D"],
        '"t0"."span" BETWEEN CAST(CAST($1 AS TEXT) AS INTERVAL) AND CAST(CAST($2 AS TEXT) AS INTERVAL)',
        "P1D",
        "P2D",
    ),
    value("medium", "in_", [1, 2], '"t0"."medium"=ANY($1)', [1, 2]),
    value("medium", "in", [], '"t0"."medium"=ANY($1)', []),
    value("mood", "in_", ["ok"], '"t0"."mood"=ANY($1)', ["ok"]),
    value("fixed", "in_", ["ab"], '"t0"."fixed"=ANY($1)', ["ab"]),
    value("flag", "in_", [True], '"t0"."flag"=ANY($1)', [True]),
    value("span", "in_", ["P1D"], '"t0"."span"=ANY(CAST(CAST($1 AS TEXT[]) AS INTERVAL[]))', ["P1D"]),
    value("place", "in_", ["(1,2)"], 'CAST("t0"."place" AS TEXT)=ANY($1)', ["(1,2)"]),
    value("medium", "notin_", [1], '"t0"."medium"<>ALL($1)', [1]),
    value("medium", "notin_", [], '"t0"."medium"<>ALL($1)', []),
    value("span", "notin_", ["P1D"], '"t0"."span"<>ALL(CAST(CAST($1 AS TEXT[]) AS INTERVAL[]))', ["P1D"]),
    value("texts", "in_", "a", '("t0"."texts" OPERATOR(pg_catalog.&&) $1 AND cardinality($1)>0)', ["a"]),
    value("texts", "in", ["a", "b"], '("t0"."texts" OPERATOR(pg_catalog.&&) $1 AND cardinality($1)>0)', ["a", "b"]),
    value(
        "spans",
        "in_",
        "P1D",
        '("t0"."spans" OPERATOR(pg_catalog.&&) CAST(CAST($1 AS TEXT[]) AS INTERVAL[])'
        " AND cardinality(CAST(CAST($1 AS TEXT[]) AS INTERVAL[]))>0)",
        ["P1D"],
    ),
    field("texts", "in_", "texts", '"t0"."texts" OPERATOR(pg_catalog.&&) "t0"."texts"'),
    value("texts", "notin_", ["a"], '(NOT "t0"."texts" OPERATOR(pg_catalog.&&) $1 OR cardinality($1)=0)', ["a"]),
    value("moods", "notin_", "ok", '(NOT "t0"."moods" OPERATOR(pg_catalog.&&) $1 OR cardinality($1)=0)', ["ok"]),
    value(
        "spans",
        "notin_",
        ["P1D"],
        '(NOT "t0"."spans" OPERATOR(pg_catalog.&&) CAST(CAST($1 AS TEXT[]) AS INTERVAL[])'
        " OR cardinality(CAST(CAST($1 AS TEXT[]) AS INTERVAL[]))=0)",
        ["P1D"],
    ),
    value("medium", "is_", None, '"t0"."medium" IS NULL'),
    value("medium", "is_", 3, '("t0"."medium"=$1 AND "t0"."medium" IS NOT NULL)', 3),
    field("medium", "is_", "small", '"t0"."medium" IS NOT DISTINCT FROM "t0"."small"'),
    value("tree", "is_", None, '"t0"."tree" IS NULL'),
    value("place", "is_", None, 'CAST("t0"."place" AS TEXT) IS NULL'),
    value("blob", "eq", "AAE=", '"t0"."blob"=$1', b"\0\1"),
    value("blob", "in_", ["AAE=", ""], '"t0"."blob"=ANY($1)', [b"\0\1", b""]),
    value("blob", "lt", "AAE=", '"t0"."blob"<$1', b"\0\1"),
    value("blob", "isnot", None, '"t0"."blob" IS NOT NULL'),
    value("medium", "isnot", 3, '"t0"."medium" IS DISTINCT FROM $1', 3),
    value("texts", "isnot", ["a"], '"t0"."texts"[:] IS DISTINCT FROM $1', ["a"]),
    value("span", "isnot", "P1D", '"t0"."span" IS DISTINCT FROM CAST(CAST($1 AS TEXT) AS INTERVAL)', "P1D"),
    field("medium", "isnot", "small", '"t0"."medium" IS DISTINCT FROM "t0"."small"'),
    value("words", "like", "50%", '"t0"."words" LIKE $1', "50%"),
    value("words", "like", r"a_b\c", '"t0"."words" LIKE $1', r"%a\_b\\c%"),
    value("words", "ilike", "ab", '"t0"."words" ILIKE $1', "%ab%"),
    value("words", "notlike", "ab", '"t0"."words" NOT LIKE $1', "%ab%"),
    value("words", "notilike", "a%", '"t0"."words" NOT ILIKE $1', "a%"),
    value("mood", "like", "app", 'CAST("t0"."mood" AS TEXT) LIKE $1', "%app%"),
    value("colour", "like", "e", 'CAST("t0"."colour" AS TEXT) LIKE $1', "%e%"),
    value("fixed", "like", "c", 'CAST("t0"."fixed" AS TEXT) LIKE $1', "%c%"),
    value("words", "startswith", "5%_", '"t0"."words" LIKE $1', r"5\%\_%"),
    value("words", "endswith", "5%", '"t0"."words" LIKE $1', r"%5\%"),
    value("fixed", "endswith", "c", 'CAST("t0"."fixed" AS TEXT) LIKE $1', "%c"),
    value("words", "match", "^a.c$", """(CAST('' AS TEXT)~$1) IS NOT NULL AND "t0"."words"~$1""", "^a.c$"),
    field("words", "like", "short", 'strpos("t0"."words","t0"."short")>0'),
    field("words", "ilike", "mood", 'strpos(LOWER("t0"."words"),LOWER(CAST("t0"."mood" AS TEXT)))>0'),
    field("words", "notlike", "short", 'NOT strpos("t0"."words","t0"."short")>0'),
    field("words", "notilike", "short", 'NOT strpos(LOWER("t0"."words"),LOWER("t0"."short"))>0'),
    field("words", "startswith", "fixed", 'starts_with("t0"."words",CAST("t0"."fixed" AS TEXT))'),
    field("words", "endswith", "short", 'right("t0"."words",length("t0"."short"))="t0"."short"'),
    field("words", "match", "short", '"t0"."words"~"t0"."short"'),
    value("tree", "jsonb_contains", {"a": [1, 2.50]}, '("t0"."tree"@>$1)', '{"a":[1,2.5]}'),
]

# ids, keys, computed attributes, names that need quotes
NAMES = [
    value("id", "eq", "7", '"t0"."author_no"=$1', 7, type="author"),
    value("id", "eq", 7, '"t0"."author_no"=$1', 7, type="author"),
    value("id", "in_", ["7", 8], '"t0"."author_no"=ANY($1)', [7, 8], type="author"),
    value("id", "eq", TOKEN, '"t0"."id"=$1', UUID(TOKEN), type="node"),
    value("id", "like", "a", '"t0"."id" LIKE $1', "%a%", type="article"),
    value("id", "between", [1, 9], '"t0"."id" BETWEEN $1 AND $2', 1, 9, type="sample"),
    field("id", "gt", "born", '"t0"."author_no">"t0"."born"', type="author"),
    value("title", "eq", "x", '"t0"."Mixed Case"=$1', "x", type="node"),
    value("größe", "gt", 170, '"t0"."größe">$1', 170, type="author"),
    value("full-name", "eq", "A B", '("t0"."given"||\' \'||"t0"."family")=$1', "A B", type="author"),
    value("author", "eq", "7", '"t0"."author_id"=$1', 7, type="article"),
    value("author_id", "eq", 7, '"t0"."author_id"=$1', 7, type="article"),
    value("author.id", "eq", 7, '"t0"."author_id"=$1', 7, type="article"),
    value("editor", "is_", None, '"t0"."editor_id" IS NULL', type="article"),
    value("editor.id", "isnot", None, '"t0"."editor_id" IS NOT NULL', type="article"),
    field("author", "ne", "editor", '"t0"."author_id"<>"t0"."editor_id"', type="article"),
    field("author", "lt", "pages", '"t0"."author_id"<"t0"."pages"', type="article"),
]

# custom operators
CUSTOM = [
    value("pages", "even", True, '(("t0"."pages"%2=0)=$1)', True, type="article"),
    value(
        "title",
        "named_as_tag",
        "sq",
        'EXISTS (SELECT 1 FROM "tags" "named" WHERE "named"."name"="t0"."title" AND (starts_with("named"."name",$1)))',
        "sq",
        type="article",
    ),
    Where(
        "author",
        [{"name": "articles.pages", "op": "even", "val": False}],
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no"'
        ' AND (("t1"."pages"%2=0)=$1))',
        (False,),
    ),
]

# each kind of relationship, and groups of conditions
RELATIONSHIPS = [
    # to-one, the key in the row itself
    value(
        "author.family-name",
        "eq",
        "x",
        'EXISTS (SELECT 1 FROM "authors" "t1" WHERE "t1"."author_no"="t0"."author_id" AND "t1"."family"=$1)',
        "x",
        type="article",
    ),
    Where(
        "article",
        [{"name": "editor", "op": "has", "val": []}],
        'EXISTS (SELECT 1 FROM "authors" "t1" WHERE "t1"."author_no"="t0"."editor_id")',
    ),
    Where(
        "article",
        [{"name": "editor", "op": "has", "val": {"name": "born", "op": "gt", "val": 1900}}],
        'EXISTS (SELECT 1 FROM "authors" "t1" WHERE "t1"."author_no"="t0"."editor_id" AND "t1"."born">$1)',
        (1900,),
    ),
    # to-many, the key in the other row
    Where(
        "author",
        [{"name": "edited", "op": "any", "val": []}],
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."editor_id"="t0"."author_no")',
    ),
    value(
        "articles.id",
        "eq",
        "a",
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no" AND "t1"."id"=$1)',
        "a",
        type="author",
    ),
    # reverse to-one
    Where(
        "author",
        [{"name": "desk", "op": "has", "val": {"name": "room", "op": "eq", "val": "1"}}],
        'EXISTS (SELECT 1 FROM "corner"."desks" "t1" WHERE "t1"."author_no"="t0"."author_no" AND "t1"."room"=$1)',
        ("1",),
    ),
    value(
        "desk.id",
        "eq",
        "3",
        'EXISTS (SELECT 1 FROM "corner"."desks" "t1" WHERE "t1"."author_no"="t0"."author_no" AND "t1"."id"=$1)',
        3,
        type="author",
    ),
    value(
        "desk",
        "is_",
        None,
        '(SELECT "t1"."id" FROM "corner"."desks" "t1" WHERE "t1"."author_no"="t0"."author_no" LIMIT 1) IS NULL',
        type="author",
    ),
    Where(
        "author",
        [{"not": {"name": "desk.id", "op": "eq", "val": "3"}}],
        'NOT ((SELECT "t1"."id" FROM "corner"."desks" "t1" WHERE "t1"."author_no"="t0"."author_no" LIMIT 1)=$1)',
        (3,),
    ),
    # a link table, from both sides
    Where(
        "article",
        [{"name": "tags", "op": "any", "val": {"name": "name", "op": "eq", "val": "sql"}}],
        'EXISTS (SELECT 1 FROM "tags" "t2" JOIN "corner"."article_tags" "t1" ON "t1"."tag_id"="t2"."id"'
        ' WHERE "t1"."article_id"="t0"."id" AND "t2"."name"=$1)',
        ("sql",),
    ),
    Where(
        "tag",
        [{"name": "articles", "op": "any", "val": []}],
        'EXISTS (SELECT 1 FROM "corner"."articles" "t2"'
        ' JOIN "corner"."article_tags" "t1" ON "t1"."article_id"="t2"."id" WHERE "t1"."tag_id"="t0"."id")',
    ),
    # a relationship to its own type
    value(
        "parent.parent.weight",
        "gt",
        1,
        'EXISTS (SELECT 1 FROM "corner"."nodes" "t1" WHERE "t1"."id"="t0"."parent_id" AND'
        ' EXISTS (SELECT 1 FROM "corner"."nodes" "t2" WHERE "t2"."id"="t1"."parent_id" AND "t2"."weight">$1))',
        1,
        type="node",
    ),
    value(
        "parent.parent",
        "is_",
        None,
        'EXISTS (SELECT 1 FROM "corner"."nodes" "t1" WHERE "t1"."id"="t0"."parent_id" AND "t1"."parent_id" IS NULL)',
        type="node",
    ),
    Where(
        "node",
        [{"name": "children.children", "op": "any", "val": [{"name": "weight", "op": "lt", "val": 5}]}],
        'EXISTS (SELECT 1 FROM "corner"."nodes" "t1" WHERE "t1"."parent_id"="t0"."id" AND'
        ' EXISTS (SELECT 1 FROM "corner"."nodes" "t2" WHERE "t2"."parent_id"="t1"."id" AND "t2"."weight"<$1))',
        (5,),
    ),
    # two conditions on one related row, and on two rows
    Where(
        "author",
        [
            {
                "name": "articles",
                "op": "any",
                "val": {"and": [{"name": "pages", "op": "gt", "val": 1}, {"name": "title", "op": "eq", "val": "x"}]},
            }
        ],
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no"'
        ' AND ("t1"."pages">$1 AND "t1"."title"=$2))',
        (1, "x"),
    ),
    Where(
        "author",
        [{"name": "articles.pages", "op": "gt", "val": 1}, {"name": "articles.title", "op": "eq", "val": "x"}],
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no" AND "t1"."pages">$1)'
        ' AND EXISTS (SELECT 1 FROM "corner"."articles" "t2" WHERE "t2"."author_id"="t0"."author_no"'
        ' AND "t2"."title"=$2)',
        (1, "x"),
    ),
    # a field of the related row compared with one of the row itself
    field(
        "born",
        "gt",
        "articles.pages",
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no"'
        ' AND "t0"."born">"t1"."pages")',
        type="author",
    ),
    field(
        "articles.pages",
        "gt",
        "born",
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no"'
        ' AND "t1"."pages">"t0"."born")',
        type="author",
    ),
    # two fields of a to-many relationship are those of one row
    field(
        "articles.title",
        "eq",
        "articles.id",
        'EXISTS (SELECT 1 FROM "corner"."articles" "t1" WHERE "t1"."author_id"="t0"."author_no"'
        ' AND "t1"."title"="t1"."id")',
        type="author",
    ),
    field(
        "author.articles.title",
        "eq",
        "author.articles.editor.family-name",
        'EXISTS (SELECT 1 FROM "authors" "t1" WHERE "t1"."author_no"="t0"."author_id" AND'
        ' EXISTS (SELECT 1 FROM "corner"."articles" "t2" WHERE "t2"."author_id"="t1"."author_no" AND'
        ' EXISTS (SELECT 1 FROM "authors" "t3" WHERE "t3"."author_no"="t2"."editor_id"'
        ' AND "t2"."title"="t3"."family")))',
        type="article",
    ),
]

GROUPS = [
    Where("tag", [], ""),
    Where(
        "tag",
        [{"name": "id", "op": "gt", "val": 1}, {"name": "name", "op": "ne", "val": "x"}],
        '"t0"."id">$1 AND "t0"."name"<>$2',
        (1, "x"),
    ),
    Where("tag", {"name": "id", "op": "gt", "val": 1}, '"t0"."id">$1', (1,)),
    Where(
        "tag",
        [{"or": [{"name": "id", "op": "eq", "val": 1}, {"name": "id", "op": "eq", "val": 2}]}],
        '("t0"."id"=$1 OR "t0"."id"=$2)',
        (1, 2),
    ),
    Where(
        "tag",
        [{"or": [{"and": [{"name": "id", "op": "eq", "val": 1}]}, {"not": {"name": "name", "op": "eq", "val": "x"}}]}],
        '(("t0"."id"=$1) OR NOT ("t0"."name"=$2))',
        (1, "x"),
    ),
    Where("tag", [{"or": []}], "FALSE"),
    Where("tag", [{"and": []}], "TRUE"),
    Where("tag", [{"not": {"or": []}}], "NOT (FALSE)"),
]

WHERES = [*TYPES, *OPERATORS, *NAMES, *CUSTOM, *RELATIONSHIPS, *GROUPS]

TABLES = {
    "sample": ('"corner"."samples"', "id"),
    "author": ('"authors"', "author_no"),
    "node": ('"corner"."nodes"', "id"),
    "article": ('"corner"."articles"', "id"),
    "tag": ('"tags"', "id"),
}


class Read(msgspec.Struct, frozen=True):
    """The query string of a collection, and the statements of its answer: the rows, the count (for a page without
    rows), and one for each branch."""

    type: str
    query: str
    primary: str
    values: tuple[Any, ...] = ()
    count: str | None = None
    branches: tuple[str | None, ...] = ()


AUTHOR_COLUMNS = (
    '"t0"."author_no","t0"."given","t0"."family","t0"."given"||\' \'||"t0"."family","t0"."born","t0"."größe"'
)
ARTICLE_COLUMNS = '"t0"."id","t0"."title","t0"."pages"'
NODE_COLUMNS = '"t0"."id","t0"."Mixed Case","t0"."weight"'


def each(column: str, element: str) -> str:
    """Return an array of one or two dimensions whose elements are shown as `element`."""
    return (
        f'CASE WHEN array_ndims("t0"."{column}")=2 THEN (SELECT array_agg("x" ORDER BY "n") FROM (SELECT'
        f' ("n"-1)/array_length("t0"."{column}",2) AS "n",array_agg({element} ORDER BY "n") AS "x"'
        f' FROM unnest("t0"."{column}") WITH ORDINALITY AS "(elements)" ("x","n") GROUP BY 1) "(elements)")'
        f' WHEN "t0"."{column}" IS NULL THEN NULL ELSE ARRAY(SELECT {element} FROM unnest("t0"."{column}") AS "x") END'
    )


def moment_between(term: str) -> str:
    limits = "'0001-01-01 23:59:59.999999+00'),'0001-01-01 23:59:59.999999+00'),'9999-12-31 00:00+00')"
    return f"NULLIF(NULLIF(GREATEST(LEAST({term},'9999-12-31 00:00+00'),{limits}"


def joined(alias: str) -> str:
    return NODE_COLUMNS.replace('"t0"', f'"{alias}"')


READS = [
    # columns
    Read("author", "page[size]=0", f'SELECT {AUTHOR_COLUMNS} FROM "authors" "t0" ORDER BY "t0"."author_no"'),
    Read("tag", "page[size]=0&fields[tag]=", 'SELECT "t0"."id" FROM "tags" "t0" ORDER BY "t0"."id"'),
    Read(
        "author",
        "page[size]=0&fields[author]=gr%C3%B6%C3%9Fe,full-name",
        'SELECT "t0"."author_no","t0"."given"||\' \'||"t0"."family","t0"."größe" FROM "authors" "t0"'
        ' ORDER BY "t0"."author_no"',
    ),
    Read(
        "sample",
        "page[size]=0&fields[sample]=exact,single,fixed,clock,span,place,amounts,fixeds,spans",
        'SELECT "t0"."id",CAST("t0"."exact" AS TEXT),CAST(CAST("t0"."single" AS TEXT) AS FLOAT8),'
        'CAST("t0"."fixed" AS TEXT),CAST("t0"."clock" AS TEXT),interval_send("t0"."span"),'
        'CAST("t0"."amounts" AS TEXT[]),CAST("t0"."fixeds" AS TEXT[]),'
        + each("spans", 'interval_send("x")')
        + ',CAST("t0"."place" AS TEXT) FROM "corner"."samples" "t0" ORDER BY "t0"."id"',
    ),
    Read(
        "sample",
        "page[size]=0&fields[sample]=token,singles,tokens,clocks",
        'SELECT "t0"."id","t0"."token",CAST(CAST("t0"."singles" AS TEXT[]) AS FLOAT8[]),"t0"."tokens",'
        'CAST("t0"."clocks" AS TEXT[])'
        ' FROM "corner"."samples" "t0" ORDER BY "t0"."id"',
    ),
    # a date that cannot be shown is null in the answer; conditions and orders use the column
    Read(
        "sample",
        "page[size]=0&fields[sample]=day,days&filter[day]=2024-02-29&sort=day",
        'SELECT "t0"."id",NULLIF(NULLIF(GREATEST(LEAST("t0"."day",\'9999-12-31\'),\'0001-01-01\'),'
        "'0001-01-01'),'9999-12-31'),"
        'CASE WHEN (\'0001-01-01\'<ALL("t0"."days") AND \'9999-12-31\'>ALL("t0"."days")) IS NOT FALSE'
        ' THEN "t0"."days" ELSE '
        + each("days", """NULLIF(NULLIF(GREATEST(LEAST("x",'9999-12-31'),'0001-01-01'),'0001-01-01'),'9999-12-31')""")
        + ' END FROM "corner"."samples" "t0" WHERE "t0"."day"=$1 ORDER BY "t0"."day","t0"."id"',
        (date(2024, 2, 29),),
    ),
    Read(
        "sample",
        "page[size]=0&fields[sample]=moment,moments",
        'SELECT "t0"."id",timezone(\'UTC\',NULLIF(NULLIF(GREATEST(LEAST(CAST("t0"."moment" AS TIMESTAMP),'
        "'9999-12-31 00:00+00'),"
        "'0001-01-01 23:59:59.999999+00'),'0001-01-01 23:59:59.999999+00'),'9999-12-31 00:00+00')),"
        + each("moments", "timezone('UTC'," + moment_between('CAST("x" AS TIMESTAMP)') + ")")
        + ' FROM "corner"."samples" "t0" ORDER BY "t0"."id"',
    ),
    Read(
        "sample",
        "page[size]=0&fields[sample]=instant,instants",
        'SELECT "t0"."id",NULLIF(NULLIF(GREATEST(LEAST(CAST("t0"."instant" AS TIMESTAMPTZ),\'9999-12-31 00:00+00\'),'
        "'0001-01-01 23:59:59.999999+00'),'0001-01-01 23:59:59.999999+00'),'9999-12-31 00:00+00'),"
        'CASE WHEN (\'0001-01-01 23:59:59.999999+00\'<ALL("t0"."instants")'
        ' AND \'9999-12-31 00:00+00\'>ALL("t0"."instants")) IS NOT FALSE'
        ' THEN "t0"."instants" ELSE '
        + each("instants", moment_between('CAST("x" AS TIMESTAMPTZ)'))
        + ' END FROM "corner"."samples" "t0" ORDER BY "t0"."id"',
    ),
    # page and count
    Read(
        "tag",
        "",
        'SELECT "t0"."id","t0"."name",(SELECT COUNT(*) FROM "tags" "t0") FROM "tags" "t0" ORDER BY "t0"."id" LIMIT 30',
        (30,),
        'SELECT COUNT(*) FROM "tags" "t0"',
    ),
    Read(
        "tag",
        "page[size]=2&page[number]=3",
        'SELECT "t0"."id","t0"."name",(SELECT COUNT(*) FROM "tags" "t0") FROM "tags" "t0"'
        ' ORDER BY "t0"."id" LIMIT $1 OFFSET $2',
        (2, 4),
        'SELECT COUNT(*) FROM "tags" "t0"',
    ),
    Read(
        "tag",
        "page[limit]=2&page[offset]=99999999999999999999999&filter[name]=x",
        'SELECT "t0"."id","t0"."name",(SELECT COUNT(*) FROM "tags" "t0" WHERE "t0"."name"=$1) FROM "tags" "t0"'
        ' WHERE "t0"."id"=ANY(ARRAY(SELECT "t0"."id" FROM "tags" "t0" WHERE "t0"."name"=$1'
        ' ORDER BY "t0"."id" LIMIT $2 OFFSET $3)) ORDER BY "t0"."id" LIMIT $2',
        ("x", 2, 9223372036854775807),
        'SELECT COUNT(*) FROM "tags" "t0" WHERE "t0"."name"=$1',
    ),
    Read(
        "tag",
        "page[total]=none",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" ORDER BY "t0"."id" LIMIT 31',
        (31,),
    ),
    Read(
        "tag",
        "page[total]=estimated&filter[name][like]=x",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" WHERE "t0"."name" LIKE $1 ORDER BY "t0"."id" LIMIT $2',
        ("%x%", 31),
        'EXPLAIN (FORMAT JSON) SELECT 1 FROM "tags" "t0" WHERE "t0"."name" LIKE $1',
    ),
    # order
    Read(
        "author",
        "page[size]=0&fields[author]=&sort=-born,given-name",
        'SELECT "t0"."author_no" FROM "authors" "t0"'
        ' ORDER BY "t0"."born" DESC NULLS LAST,"t0"."given","t0"."author_no"',
    ),
    Read(
        "author",
        "page[size]=0&fields[author]=&sort=born,-given-name",
        'SELECT "t0"."author_no" FROM "authors" "t0" ORDER BY "t0"."born","t0"."given" DESC,"t0"."author_no" DESC',
    ),
    Read(
        "author",
        "page[size]=0&fields[author]=&sort=-id",
        'SELECT "t0"."author_no" FROM "authors" "t0" ORDER BY "t0"."author_no" DESC',
    ),
    Read(
        "author",
        "page[size]=0&fields[author]=&sort=-full-name",
        'SELECT "t0"."author_no" FROM "authors" "t0"'
        ' ORDER BY ("t0"."given"||\' \'||"t0"."family") DESC,"t0"."author_no" DESC',
    ),
    Read(
        "sample",
        "page[size]=0&fields[sample]=&sort=mood,-texts,span",
        'SELECT "t0"."id" FROM "corner"."samples" "t0"'
        ' ORDER BY "t0"."mood","t0"."texts" DESC NULLS LAST,"t0"."span","t0"."id"',
    ),
    Read(
        "article",
        "page[size]=0&fields[article]=&sort=author.family-name,-editor.born,-author.desk.room,editor_id,-author.id",
        'SELECT "t0"."id" FROM "corner"."articles" "t0"'
        ' LEFT JOIN "authors" "t1" ON "t1"."author_no"="t0"."author_id"'
        ' LEFT JOIN "authors" "t2" ON "t2"."author_no"="t0"."editor_id"'
        ' LEFT JOIN "corner"."desks" "t3" ON "t3"."author_no"="t1"."author_no"'
        ' ORDER BY "t1"."family","t2"."born" DESC NULLS LAST,"t3"."room" DESC NULLS LAST,"t0"."editor_id",'
        '"t0"."author_id" DESC,"t0"."id" DESC',
    ),
    # a filter and a sort by the same relationship: an EXISTS and a join, each with its own alias
    Read(
        "article",
        "page[size]=0&fields[article]=&filter[editor.born]=1900&sort=-editor.id,editor.born",
        'SELECT "t0"."id" FROM "corner"."articles" "t0" LEFT JOIN "authors" "t2" ON "t2"."author_no"="t0"."editor_id"'
        ' WHERE EXISTS (SELECT 1 FROM "authors" "t1" WHERE "t1"."author_no"="t0"."editor_id" AND "t1"."born"=$1)'
        ' ORDER BY "t0"."editor_id" DESC NULLS LAST,"t2"."born","t0"."id"',
        (1900,),
    ),
    # include: a key in the row itself, then one in the other row
    Read(
        "node",
        "page[size]=0&include=parent.children",
        f'SELECT {NODE_COLUMNS},"t0"."parent_id" FROM "corner"."nodes" "t0" ORDER BY "t0"."id"',
        branches=(
            f'SELECT {NODE_COLUMNS} FROM "corner"."nodes" "t0" WHERE "t0"."id"=ANY($1) ORDER BY "t0"."id"',
            f'SELECT {NODE_COLUMNS},"t0"."parent_id" FROM "corner"."nodes" "t0" WHERE "t0"."parent_id"=ANY($1)'
            ' ORDER BY "t0"."id"',
        ),
    ),
    # a short page: rows whose keys are in the rows before them are joined, as far as possible
    Read(
        "node",
        "page[size]=2&page[total]=none&include=parent.parent,parent.children",
        f'SELECT {NODE_COLUMNS},"t0"."parent_id",{joined("j1")},"j1"."parent_id",{joined("j2")}'
        ' FROM "corner"."nodes" "t0" LEFT JOIN "corner"."nodes" "j1" ON "j1"."id"="t0"."parent_id"'
        ' LEFT JOIN "corner"."nodes" "j2" ON "j2"."id"="j1"."parent_id" ORDER BY "t0"."id" LIMIT $1',
        (3,),
        branches=(
            None,
            None,
            f'SELECT {NODE_COLUMNS},"t0"."parent_id" FROM "corner"."nodes" "t0" WHERE "t0"."parent_id"=ANY($1)'
            ' ORDER BY "t0"."id"',
        ),
    ),
    # sorted: rows outside of the page are not joined
    Read(
        "node",
        "page[size]=2&page[number]=2&include=parent&sort=title&fields[node]=title",
        'SELECT "t0"."id","t0"."Mixed Case","t0"."parent_id","j1"."id","j1"."Mixed Case",'
        '(SELECT COUNT(*) FROM "corner"."nodes" "t0") FROM "corner"."nodes" "t0"'
        ' LEFT JOIN "corner"."nodes" "j1" ON "j1"."id"="t0"."parent_id" WHERE "t0"."id"=ANY(ARRAY('
        'SELECT "t0"."id" FROM "corner"."nodes" "t0" ORDER BY "t0"."Mixed Case","t0"."id" LIMIT $1 OFFSET $2))'
        ' ORDER BY "t0"."Mixed Case","t0"."id" LIMIT $1',
        (2, 2),
        count='SELECT COUNT(*) FROM "corner"."nodes" "t0"',
        branches=(None,),
    ),
    # a link table from both sides, reverse to-one, fieldsets
    Read(
        "author",
        "page[size]=0&include=articles.tags,profile,desk&fields[author]=articles&fields[tag]=&fields[desk]=author",
        'SELECT "t0"."author_no" FROM "authors" "t0" ORDER BY "t0"."author_no"',
        branches=(
            f'SELECT {ARTICLE_COLUMNS},"t0"."author_id" FROM "corner"."articles" "t0" WHERE "t0"."author_id"=ANY($1)'
            ' ORDER BY "t0"."id"',
            'SELECT "t0"."id","t1"."article_id" FROM "tags" "t0"'
            ' JOIN "corner"."article_tags" "t1" ON "t1"."tag_id"="t0"."id" WHERE "t1"."article_id"=ANY($1)'
            ' ORDER BY "t0"."id"',
            'SELECT "t0"."id","t0"."motto","t0"."author_no" FROM "corner"."profiles" "t0"'
            ' WHERE "t0"."author_no"=ANY($1) ORDER BY "t0"."id"',
            'SELECT "t0"."id","t0"."author_no" FROM "corner"."desks" "t0" WHERE "t0"."author_no"=ANY($1)'
            ' ORDER BY "t0"."id"',
        ),
    ),
    Read(
        "tag",
        "page[size]=0&include=articles.editor",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" ORDER BY "t0"."id"',
        branches=(
            f'SELECT {ARTICLE_COLUMNS},"t0"."editor_id","t1"."tag_id" FROM "corner"."articles" "t0"'
            ' JOIN "corner"."article_tags" "t1" ON "t1"."article_id"="t0"."id" WHERE "t1"."tag_id"=ANY($1)'
            ' ORDER BY "t0"."id"',
            f'SELECT {AUTHOR_COLUMNS} FROM "authors" "t0" WHERE "t0"."author_no"=ANY($1) ORDER BY "t0"."author_no"',
        ),
    ),
]


class Sent(msgspec.Struct, frozen=True):
    """A statement and its bound values. ROW stands for the id of the written row, LEAVING for the ids of the locked
    rows that leave it."""

    sql: str
    values: tuple[Any, ...] = ()


ROW = "<row>"
LEAVING = "<leaving>"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A resource object that is sent to a collection (`id` is "") or to a resource, and its statements.

    links: lock, detach and attach of each relationship whose key is not in the row.
    """

    type: str
    id: str = ""
    data: dict[str, Any]
    lock: Sent | None = None
    row: Sent | None = None
    links: tuple[tuple[Sent, Sent, Sent], ...] = ()


def linked(**linkage: Any) -> dict[str, Any]:
    """Return the member `relationships` of `linked(group=("group", "1"), tags=[("tag", "1")])`."""
    return {name: {"data": linkage_of(given)} for name, given in linkage.items()}


def linkage_of(given: Any) -> Any:
    """Return linkage, given as pairs of type and id."""
    if isinstance(given, list):
        return [linkage_of(item) for item in given]
    return None if given is None else {"type": given[0], "id": given[1]}


NAMED = {"attributes": {"name": "x"}}

WRITES = [
    Write(
        type="tag",
        data=NAMED,
        row=Sent('INSERT INTO "tags" ("name") VALUES ($1) RETURNING "tags"."id"', ("x",)),
    ),
    Write(
        type="undetailed",
        data={},
        row=Sent('INSERT INTO "corner"."entries" ("id") VALUES (DEFAULT) RETURNING "entries"."id"'),
    ),
    Write(
        type="country",
        data={"id": "de", **NAMED},
        row=Sent(
            'INSERT INTO "corner"."countries" ("code","name") VALUES ($1,$2) RETURNING "countries"."code"', ("de", "x")
        ),
    ),
    # ids that clients may choose, but this request does not
    Write(
        type="node",
        data={"attributes": {"title": "x"}, "relationships": linked(parent=None)},
        row=Sent(
            'INSERT INTO "corner"."nodes" ("Mixed Case","parent_id") VALUES ($1,$2) RETURNING "nodes"."id"',
            ("x", None),
        ),
    ),
    Write(
        type="sample",
        data={"attributes": {"span": "P1D", "spans": ["P1D"], "tree": {"a": 1.50}}},
        row=Sent(
            'INSERT INTO "corner"."samples" ("span","spans","tree")'
            " VALUES (CAST(CAST($1 AS TEXT) AS INTERVAL),CAST(CAST($2 AS TEXT[]) AS INTERVAL[]),$3)"
            ' RETURNING "samples"."id"',
            ("P1D", ["P1D"], '{"a":1.5}'),
        ),
    ),
    Write(
        type="article",
        data={
            "id": "a",
            "attributes": {"title": "x"},
            "relationships": linked(author=("author", "7"), tags=[("tag", "1"), ("tag", "2"), ("tag", "1")]),
        },
        row=Sent(
            'INSERT INTO "corner"."articles" ("id","title","author_id") VALUES ($1,$2,$3) RETURNING "articles"."id"',
            ("a", "x", 7),
        ),
        links=(
            (
                Sent('SELECT "id",null FROM "tags" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', ([1, 2],)),
                Sent('DELETE FROM "corner"."article_tags" WHERE "article_id"=$1 AND "tag_id"<>ALL($2)', (ROW, [1, 2])),
                Sent(
                    'INSERT INTO "corner"."article_tags" ("article_id","tag_id")'
                    " SELECT $1::text,unnest($2::int4[]) ON CONFLICT DO NOTHING",
                    (ROW, [1, 2]),
                ),
            ),
        ),
    ),
    Write(
        type="tag",
        id="1",
        data=NAMED,
        row=Sent('UPDATE "tags" SET "name"=$1 WHERE "id"=$2 RETURNING "tags"."id"', ("x", 1)),
    ),
    Write(
        type="node",
        id=TOKEN,
        data={"attributes": {"title": "x", "weight": 2}, "relationships": linked(parent=("node", TOKEN))},
        row=Sent(
            'UPDATE "corner"."nodes" SET "Mixed Case"=$1,"weight"=$2,"parent_id"='
            'COALESCE((SELECT "id" FROM "corner"."nodes" WHERE "id"=$3 FOR KEY SHARE),$3)'
            ' WHERE "id"=$4 RETURNING "nodes"."id"',
            ("x", 2, UUID(TOKEN), UUID(TOKEN)),
        ),
    ),
    # the row does not change: it is locked, to check that it exists
    Write(
        type="tag", id="1", data={}, lock=Sent('SELECT "tags"."id" FROM "tags" WHERE "id"=$1 FOR NO KEY UPDATE', (1,))
    ),
    # a read-only attribute is sent back
    Write(
        type="author",
        id="1",
        data={"attributes": {"born": 1900, "full-name": "A B"}},
        lock=Sent(
            'SELECT "authors"."author_no","authors"."given"||\' \'||"authors"."family"'
            ' FROM "authors" WHERE "author_no"=$1 FOR NO KEY UPDATE',
            (1,),
        ),
        row=Sent(
            'UPDATE "authors" SET "born"=$1 WHERE "author_no"=$2 RETURNING "authors"."author_no"',
            (1900, 1),
        ),
    ),
    Write(
        type="tag",
        id="1",
        data={"relationships": linked(articles=[])},
        lock=Sent('SELECT "tags"."id" FROM "tags" WHERE "id"=$1 FOR UPDATE', (1,)),
        links=(
            (
                Sent('SELECT "id",null FROM "corner"."articles" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE', ([],)),
                Sent('DELETE FROM "corner"."article_tags" WHERE "tag_id"=$1 AND "article_id"<>ALL($2)', (ROW, [])),
                Sent(
                    'INSERT INTO "corner"."article_tags" ("tag_id","article_id")'
                    " SELECT $1::int4,unnest($2::text[]) ON CONFLICT DO NOTHING",
                    (ROW, []),
                ),
            ),
        ),
    ),
    # the key is in the other rows: to-many, and reverse to-one
    Write(
        type="author",
        id="1",
        data={"relationships": linked(articles=[("article", "b"), ("article", "a")], desk=("desk", "2"))},
        lock=Sent('SELECT "authors"."author_no" FROM "authors" WHERE "author_no"=$1 FOR UPDATE', (1,)),
        links=(
            (
                Sent(
                    'SELECT "id","author_id" FROM "corner"."articles" WHERE "id"=ANY($1) OR "author_id"=$2'
                    ' ORDER BY "id" FOR NO KEY UPDATE',
                    (["b", "a"], ROW),
                ),
                Sent(
                    'UPDATE "corner"."articles" SET "author_id"=null WHERE "id"=ANY($1)',
                    (LEAVING,),
                ),
                Sent(
                    'UPDATE "corner"."articles" SET "author_id"=$1 WHERE "id"=ANY($2)'
                    ' AND "author_id" IS DISTINCT FROM $1',
                    (ROW, ["b", "a"]),
                ),
            ),
            (
                Sent(
                    'SELECT "id","author_no" FROM "corner"."desks" WHERE "id"=ANY($1) OR "author_no"=$2'
                    ' ORDER BY "id" FOR NO KEY UPDATE',
                    ([2], ROW),
                ),
                Sent(
                    'UPDATE "corner"."desks" SET "author_no"=null WHERE "id"=ANY($1)',
                    (LEAVING,),
                ),
                Sent(
                    'UPDATE "corner"."desks" SET "author_no"=$1 WHERE "id"=ANY($2) AND "author_no" IS DISTINCT FROM $1',
                    (ROW, [2]),
                ),
            ),
        ),
    ),
    # a relationship to its own type
    Write(
        type="node",
        id=TOKEN,
        data={"relationships": linked(children=[("node", TOKEN)])},
        lock=Sent('SELECT "nodes"."id" FROM "corner"."nodes" WHERE "id"=$1 FOR UPDATE', (UUID(TOKEN),)),
        links=(
            (
                Sent(
                    'SELECT "id","parent_id" FROM "corner"."nodes" WHERE "id"=ANY($1) OR "parent_id"=$2'
                    ' ORDER BY "id" FOR NO KEY UPDATE',
                    ([UUID(TOKEN)], ROW),
                ),
                Sent(
                    'UPDATE "corner"."nodes" SET "parent_id"=null WHERE "id"=ANY($1)',
                    (LEAVING,),
                ),
                Sent(
                    'UPDATE "corner"."nodes" SET "parent_id"=$1 WHERE "id"=ANY($2) AND "parent_id" IS DISTINCT FROM $1',
                    (ROW, [UUID(TOKEN)]),
                ),
            ),
        ),
    ),
]
