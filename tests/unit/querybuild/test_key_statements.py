"""The SQL of keys of several columns, and of keys to other columns than the id."""

from __future__ import annotations

from typing import Any

import pytest

from querybuild.declarations.keys import Key, Referenced, composite_type, split_id
from querybuild.declarations.types import INT, TEXT
from querybuild.declarations.values import ValueFault
from querybuild.planning.changes import plan_write
from querybuild.planning.context import Context, View
from querybuild.planning.planner import plan_collection, plan_resource
from querybuild.query import Change, Identifier, LinkageChange
from querybuild.sql.keys import columns_of, is_any_key, is_key, is_no_key, key_parts, shown_key
from querybuild.sql.select import compile_read
from querybuild.sql.writes.modify import compile_write
from serializers import pointers
from tests.composite import CATALOG, join_id
from tests.planning import LIMITS, parsed

NUMBERS = Key(("a", "b"), (INT, INT))
TEXTS = Key(("a", "b"), (INT, TEXT))
CODE = Key(("c",), (), Referenced("t", "s", Key(("id",), (INT,)), ("code",)))
ENCODED = r"replace(replace($1,E'\\\\',E'\\b'),E'\\,',E'\\c')"
ODD = rf"replace(replace(split_part({ENCODED},',',{{}}),E'\\c',','),E'\\b',E'\\')"

LINE_ID = (
    'CAST("t0"."order_id" AS TEXT)||\',\'||'
    "replace(replace(CAST(\"t0\".\"product\" AS TEXT),E'\\\\',E'\\\\\\\\'),',',E'\\\\,')"
)


@pytest.mark.parametrize(
    ("term", "sql"),
    [
        (shown_key(columns_of("t0"), NUMBERS), 'CAST("t0"."a" AS TEXT)||\',\'||CAST("t0"."b" AS TEXT)'),
        (
            shown_key(columns_of("t0"), TEXTS),
            LINE_ID.replace("order_id", "a").replace("product", "b"),
        ),
        (
            is_key(columns_of("t0"), NUMBERS, _P := columns_of("p")("v")),
            '("t0"."a","t0"."b")=(CAST(split_part("p"."v",\',\',1) AS int4),CAST(split_part("p"."v",\',\',2) AS int4))',
        ),
        (
            is_any_key(columns_of("t0"), NUMBERS, _P),
            '("t0"."a","t0"."b")=ANY(SELECT CAST(split_part("k",\',\',1) AS int4),CAST(split_part("k",\',\',2) AS int4)'
            ' FROM unnest(CAST("p"."v" AS TEXT[])) "k")',
        ),
        (
            is_no_key(columns_of("t0"), NUMBERS, _P),
            '("t0"."a","t0"."b")<>ALL'
            "(SELECT CAST(split_part(\"k\",',',1) AS int4),CAST(split_part(\"k\",',',2) AS int4)"
            ' FROM unnest(CAST("p"."v" AS TEXT[])) "k")',
        ),
        (
            shown_key(columns_of("t0"), CODE),
            '(SELECT "its row"."id" AS "its id" FROM "s"."t" "its row" WHERE "its row"."code"="t0"."c")',
        ),
        (
            is_key(columns_of("t0"), CODE, _P),
            '"t0"."c"=(SELECT "its row"."code" FROM "s"."t" "its row" WHERE "its row"."id"="p"."v")',
        ),
        (
            is_any_key(columns_of("t0"), CODE, _P),
            '"t0"."c"=ANY(SELECT "its row"."code" FROM "s"."t" "its row" WHERE "its row"."id"=ANY("p"."v"))',
        ),
    ],
)
def test_terms(term: Any, sql: str) -> None:
    assert term.get_sql(quote_char='"') == sql


def test_a_part_with_commas_and_backslashes() -> None:
    """Each separating comma is found after `\\\\` and `\\,` are replaced, and the part gets them back."""
    first, second = [term.get_sql(quote_char='"') for term in key_parts(columns_of("p")("v"), TEXTS)]
    parameter = first.partition('"p"."v"')
    assert parameter[1]
    assert first.replace('"p"."v"', "$1") == f"CAST({ODD.format(1)} AS int4)"
    assert second.replace('"p"."v"', "$1") == f"CAST({ODD.format(2)} AS text)"


def _parts(parameter: str) -> str:
    parts = [ODD.replace("$1", parameter).format(number) for number in (1, 2)]
    return f"CAST({parts[0]} AS int4),CAST({parts[1]} AS text)"


READS: list[tuple[str, str, str]] = [
    (
        "line",
        "fields[line]=&page[size]=0",
        f'SELECT {LINE_ID} FROM "shop"."lines" "t0" ORDER BY "t0"."order_id","t0"."product"',
    ),
    (
        "line",
        "fields[line]=&page[size]=0&sort=-quantity",
        f'SELECT {LINE_ID} FROM "shop"."lines" "t0"'
        ' ORDER BY "t0"."quantity" DESC,"t0"."order_id" DESC,"t0"."product" DESC',
    ),
    (
        "line",
        "fields[line]=&page[size]=0&filter[id]=1,tea",
        f'SELECT {LINE_ID} FROM "shop"."lines" "t0" WHERE ("t0"."order_id","t0"."product")=({_parts("$1")})'
        ' ORDER BY "t0"."order_id","t0"."product"',
    ),
    (
        "return",
        "fields[return]=&page[size]=0&filter[line.id][in_]=1\\,tea",
        'SELECT "t0"."id" FROM "shop"."returns" "t0" WHERE ("t0"."order_id","t0"."product")=ANY(SELECT '
        + _parts('"k"')
        + ' FROM unnest(CAST($1 AS TEXT[])) "k") ORDER BY "t0"."id"',
    ),
    (
        "return",
        "fields[return]=&page[size]=0&filter[line.quantity]=3",
        'SELECT "t0"."id" FROM "shop"."returns" "t0" WHERE EXISTS (SELECT 1 FROM "shop"."lines" "t1" WHERE '
        '"t1"."order_id"="t0"."order_id" AND "t1"."product"="t0"."product" AND "t1"."quantity"=$1)'
        ' ORDER BY "t0"."id"',
    ),
]


@pytest.mark.parametrize(("type_name", "query", "sql"), READS, ids=[f"{one[0]} {one[1]}" for one in READS])
def test_reads(type_name: str, query: str, sql: str) -> None:
    errors: list[Any] = []
    read = plan_collection(parsed(query), CATALOG.by_type[type_name], CATALOG, Context(), LIMITS, errors)
    assert not errors
    assert compile_read(read.plan).primary.sql == sql


def test_a_resource() -> None:
    errors: list[Any] = []
    query = parsed("fields[line]=")
    read = plan_resource(query, CATALOG.by_type["line"], CATALOG, Context(), LIMITS, errors)
    where = f'("t0"."order_id","t0"."product")=({_parts("$1")})'
    assert compile_read(read.plan).primary.sql == f'SELECT {LINE_ID} FROM "shop"."lines" "t0" WHERE {where}'


def _change(kind: Any, type_name: str, row_id: str | None, **linked: tuple[str, str] | None) -> Change:
    linkages = {
        name: LinkageChange(() if one is None else (Identifier(*one, "/data"),), False, "/data")
        for name, one in linked.items()
    }
    return Change(kind=kind, type=type_name, id=row_id, relationships=linkages, attributes={}, pointer="/data")


RETURNING = ' RETURNING "returns"."id"'
OF_LINE = " RETURNING " + LINE_ID.replace('"t0"', '"lines"')
TWO, PRODUCT = _parts("$1"), _parts("$2").partition(" AS int4),")[2]
SET = TWO.replace(",CAST(", ',"product"=CAST(')
WRITES: list[tuple[Change, str]] = [
    (_change("create", "line", "1,tea"), f'INSERT INTO "shop"."lines" ("order_id","product") VALUES ({TWO}){OF_LINE}'),
    (
        _change("create", "line", "1,tea", order=("order", "1")),
        f'INSERT INTO "shop"."lines" ("order_id","product") VALUES ($1,{PRODUCT}){OF_LINE}',
    ),
    (
        _change("update", "return", "7", line=("line", "1,tea")),
        f'UPDATE "shop"."returns" SET "order_id"={SET} WHERE "id"=$2{RETURNING}',
    ),
    (
        _change("update", "return", "7", line=None),
        f'UPDATE "shop"."returns" SET "product"={TWO.partition(" AS int4),")[2]} WHERE "id"=$2{RETURNING}',
    ),
    (
        _change("delete", "line", "1,tea"),
        f'DELETE FROM "shop"."lines" WHERE ("order_id","product")=({TWO}){OF_LINE}',
    ),
]


@pytest.mark.parametrize(("change", "sql"), WRITES, ids=[f"{one.kind} {one.type} {one.id}" for one, _ in WRITES])
def test_writes(change: Change, sql: str) -> None:
    errors: list[Any] = []
    planned = plan_write(change, CATALOG.by_type[str(change.type)], View(CATALOG), Context(), pointers, errors)
    assert [error for error in errors if "required" not in error.detail] == []
    row = compile_write(planned.plan).row
    assert row is not None
    assert row.sql == sql


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,tea", ["1", "tea"]),
        (r"1,a\,b", ["1", "a,b"]),
        (r"1,a\\,b", ["1", "a\\", "b"]),
        (",", ["", ""]),
        ("", [""]),
        (r"a\b", None),
        ("a\\", None),
        ("1,\n", ["1", "\n"]),
    ],
)
def test_splitting(text: str, parts: list[str] | None) -> None:
    assert split_id(text) == parts
    assert parts is None or join_id(parts) == text


def test_an_id_has_one_text() -> None:
    read = composite_type((INT, TEXT)).json.from_text
    assert read("1,x") == "1,x"
    for text in ("01,x", "1", "1,x,y", "x,1", "1,\\x", "1,\0", "2147483648,x"):
        with pytest.raises(ValueFault):
            read(text)
