"""Requests for pages far into a list and for pages that begin at a cursor, and their statements. `tests/unit/` compares
the text, `tests/sql/` runs the same cases on PostgreSQL."""

from __future__ import annotations

from urllib.parse import quote

from querybuild.cursors import encode_cursor, mark_of
from querybuild.planning.reads.list_names import list_name
from tests.catalog import CATALOG
from tests.planning import parsed
from tests.statements import Read


def cursor_read(type_name: str, sort: str, way: str, values: tuple[str | None, ...], sql: str) -> Read:
    """Return a read of a page of two rows before or after the row with these sort keys, without fields."""
    query = f"fields[{type_name}]=&page[size]=2&sort={quote(sort)}"
    cursor = encode_cursor(mark_of(list_name(parsed(query), CATALOG.by_type[type_name]), []), values)
    bound = tuple(value for value in values if value is not None)
    return Read(type_name, f"{query}&page[{way}]={cursor}", sql, (*bound, 3))


ROWS = 'FROM "authors" "t0"'
BY_ID = f'SELECT "t0"."author_no",CAST("t0"."author_no" AS TEXT) {ROWS}'
BY_GIVEN = f'SELECT "t0"."author_no",CAST("t0"."given" AS TEXT),CAST("t0"."author_no" AS TEXT) {ROWS}'
BY_BORN = f'SELECT "t0"."author_no",CAST("t0"."born" AS TEXT),CAST("t0"."author_no" AS TEXT) {ROWS}'
BY_BOTH = (
    'SELECT "t0"."author_no",CAST("t0"."given" AS TEXT),CAST("t0"."born" AS TEXT),CAST("t0"."author_no" AS TEXT)'
    f" {ROWS}"
)
IDS = f'SELECT "t0"."author_no" {ROWS}'
FOUND = 'WHERE "t0"."author_no"=ANY(ARRAY('
ARTICLES = 'FROM "corner"."articles" "t0" LEFT JOIN "authors" "t1" ON "t1"."author_no"="t0"."editor_id"'

GIVEN_DOWN = 'ORDER BY "t0"."given" DESC,"t0"."author_no" DESC'
GIVEN_UP_BORN_DOWN = 'ORDER BY "t0"."given","t0"."born" DESC NULLS LAST,"t0"."author_no" DESC'
GIVEN_DOWN_BORN_UP = 'ORDER BY "t0"."given" DESC,"t0"."born" NULLS FIRST,"t0"."author_no"'
BORN_UP = 'ORDER BY "t0"."born","t0"."author_no"'
BORN_DOWN = 'ORDER BY "t0"."born" DESC,"t0"."author_no" DESC'
BORN_DOWN_NULLS_LAST = 'ORDER BY "t0"."born" DESC NULLS LAST,"t0"."author_no" DESC'
EDITOR_UP = 'ORDER BY "t1"."born","t0"."id"'

NUMBERS = tuple(f"CAST(CAST(${number} AS TEXT) AS int4)" for number in (1, 2, 3))

PAGES = [
    # one part: a comparison of rows, because no null follows and all keys have the same direction
    cursor_read(
        "author",
        "id",
        "after",
        ("5",),
        f'{BY_ID} WHERE ("t0"."author_no")>({NUMBERS[0]}) ORDER BY "t0"."author_no" LIMIT $2',
    ),
    cursor_read(
        "author",
        "-id",
        "before",
        ("5",),
        f'{BY_ID} WHERE ("t0"."author_no")>({NUMBERS[0]}) ORDER BY "t0"."author_no" LIMIT $2',
    ),
    cursor_read(
        "author",
        "given-name",
        "before",
        ("A", "5"),
        f'{BY_GIVEN} WHERE ("t0"."given","t0"."author_no")<($1,{NUMBERS[1]}) {GIVEN_DOWN} LIMIT $3',
    ),
    cursor_read(
        "author",
        "-given-name",
        "after",
        ("A", "5"),
        f'{BY_GIVEN} WHERE ("t0"."given","t0"."author_no")<($1,{NUMBERS[1]}) {GIVEN_DOWN} LIMIT $3',
    ),
    cursor_read(
        "author",
        "born",
        "before",
        ("1900", "5"),
        f'{BY_BORN} WHERE ("t0"."born","t0"."author_no")<({NUMBERS[0]},{NUMBERS[1]}) {BORN_DOWN} LIMIT $3',
    ),
    cursor_read(
        "author",
        "born",
        "after",
        (None, "5"),
        f'{BY_BORN} WHERE "t0"."born" IS NULL AND ("t0"."author_no")>({NUMBERS[0]}) {BORN_UP} LIMIT $2',
    ),
    # a column that is named twice sorts only once
    cursor_read(
        "author",
        "-born,born,-id,given-name",
        "after",
        (None, "5"),
        f'{BY_BORN} WHERE "t0"."born" IS NULL AND ("t0"."author_no")<({NUMBERS[0]}) {BORN_DOWN_NULLS_LAST} LIMIT $2',
    ),
    # two parts: nulls follow, or values that are not null follow the nulls
    cursor_read(
        "author",
        "born",
        "after",
        ("1900", "5"),
        f"{BY_BORN} {FOUND}"
        f'({IDS} WHERE ("t0"."born","t0"."author_no")>({NUMBERS[0]},{NUMBERS[1]}) {BORN_UP} LIMIT $3)'
        f' UNION ALL ({IDS} WHERE "t0"."born" IS NULL {BORN_UP} LIMIT $3))) {BORN_UP} LIMIT $3',
    ),
    cursor_read(
        "author",
        "-born",
        "after",
        ("1900", "5"),
        f"{BY_BORN} {FOUND}"
        f'({IDS} WHERE ("t0"."born","t0"."author_no")<({NUMBERS[0]},{NUMBERS[1]})'
        f" {BORN_DOWN_NULLS_LAST} LIMIT $3)"
        f' UNION ALL ({IDS} WHERE "t0"."born" IS NULL {BORN_DOWN_NULLS_LAST} LIMIT $3)))'
        f" {BORN_DOWN_NULLS_LAST} LIMIT $3",
    ),
    cursor_read(
        "author",
        "born",
        "before",
        (None, "5"),
        f'{BY_BORN} {FOUND}({IDS} WHERE "t0"."born" IS NOT NULL {BORN_DOWN} LIMIT $2)'
        f' UNION ALL ({IDS} WHERE "t0"."born" IS NULL AND ("t0"."author_no")<({NUMBERS[0]})'
        f" {BORN_DOWN} LIMIT $2))) {BORN_DOWN} LIMIT $2",
    ),
    # one more part wherever the direction changes
    cursor_read(
        "author",
        "given-name,-born",
        "after",
        ("A", "1900", "5"),
        f'{BY_BOTH} {FOUND}({IDS} WHERE ("t0"."given")>($1) {GIVEN_UP_BORN_DOWN} LIMIT $4)'
        f' UNION ALL ({IDS} WHERE "t0"."given"=$1 AND ("t0"."born","t0"."author_no")<({NUMBERS[1]},{NUMBERS[2]})'
        f" {GIVEN_UP_BORN_DOWN} LIMIT $4)"
        f' UNION ALL ({IDS} WHERE "t0"."given"=$1 AND "t0"."born" IS NULL {GIVEN_UP_BORN_DOWN} LIMIT $4)))'
        f" {GIVEN_UP_BORN_DOWN} LIMIT $4",
    ),
    cursor_read(
        "author",
        "given-name,-born",
        "before",
        ("A", None, "5"),
        f'{BY_BOTH} {FOUND}({IDS} WHERE ("t0"."given")<($1) {GIVEN_DOWN_BORN_UP} LIMIT $3)'
        f' UNION ALL ({IDS} WHERE "t0"."given"=$1 AND "t0"."born" IS NOT NULL {GIVEN_DOWN_BORN_UP} LIMIT $3)'
        f' UNION ALL ({IDS} WHERE "t0"."given"=$1 AND "t0"."born" IS NULL AND ("t0"."author_no")>({NUMBERS[1]})'
        f" {GIVEN_DOWN_BORN_UP} LIMIT $3))) {GIVEN_DOWN_BORN_UP} LIMIT $3",
    ),
    # keys of another table: each part has its own join
    cursor_read(
        "article",
        "editor.born",
        "after",
        ("1900", "a"),
        f'SELECT "t0"."id",CAST("t1"."born" AS TEXT),CAST("t0"."id" AS TEXT) {ARTICLES}'
        f' WHERE "t0"."id"=ANY(ARRAY((SELECT "t0"."id" {ARTICLES}'
        f' WHERE ("t1"."born","t0"."id")>({NUMBERS[0]},$2) {EDITOR_UP} LIMIT $3)'
        f' UNION ALL (SELECT "t0"."id" {ARTICLES} WHERE "t1"."born" IS NULL {EDITOR_UP} LIMIT $3)))'
        f" {EDITOR_UP} LIMIT $3",
    ),
    # the page of the default size: a constant number, unless there is a filter
    Read(
        "tag",
        "page[number]=2&page[total]=none",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" ORDER BY "t0"."id" LIMIT 31 OFFSET $1',
        (31, 30),
    ),
    Read(
        "tag",
        "page[total]=none&filter[name]=x",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" WHERE "t0"."name"=$1 ORDER BY "t0"."id" LIMIT $2',
        ("x", 31),
    ),
    Read(
        "author",
        "page[after]=&fields[author]=",
        f'{BY_ID} ORDER BY "t0"."author_no" LIMIT 31',
        (31,),
    ),
    # far into a list
    Read(
        "tag",
        "page[size]=10&page[number]=100&page[total]=none",
        'SELECT "t0"."id","t0"."name" FROM "tags" "t0" ORDER BY "t0"."id" LIMIT $1 OFFSET $2',
        (11, 990),
    ),
    Read(
        "tag",
        "page[size]=10&page[number]=101&filter[name]=x",
        'SELECT "t0"."id","t0"."name",(SELECT COUNT(*) FROM "tags" "t0" WHERE "t0"."name"=$1) FROM "tags" "t0"'
        ' WHERE "t0"."id"=ANY(ARRAY(SELECT "t0"."id" FROM "tags" "t0" WHERE "t0"."name"=$1'
        ' ORDER BY "t0"."id" LIMIT $2 OFFSET $3)) ORDER BY "t0"."id" LIMIT $2',
        ("x", 10, 1000),
        'SELECT COUNT(*) FROM "tags" "t0" WHERE "t0"."name"=$1',
    ),
    Read(
        "article",
        "page[limit]=10&page[offset]=1000&page[total]=none&fields[article]=&sort=-editor.born",
        f'SELECT "t0"."id" {ARTICLES} WHERE "t0"."id"=ANY(ARRAY(SELECT "t0"."id" {ARTICLES}'
        ' ORDER BY "t1"."born" DESC NULLS LAST,"t0"."id" DESC LIMIT $1 OFFSET $2))'
        ' ORDER BY "t1"."born" DESC NULLS LAST,"t0"."id" DESC LIMIT $1',
        (11, 1000),
    ),
]
