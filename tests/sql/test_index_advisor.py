"""The indexes that `check` suggests: which ones are needed, which existing ones are sufficient, and that the suggested
statements work."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from server.resources import built_in
from server.tools.advising import index_advisor
from server.tools.advising.index_advisor import Suggestion, suggest
from tests import composite
from tests.catalog import CATALOG
from waterspout import (
    ANYONE,
    BIGINT,
    BOOL,
    BYTEA,
    CHAR,
    DATERANGE,
    INET,
    INT,
    INTERVAL,
    JSON,
    JSONB,
    OPAQUE,
    POINT,
    TEXT,
    TSVECTOR,
    Allow,
    Attribute,
    Catalog,
    Id,
    Link,
    Resource,
    Template,
    ToMany,
    ToOne,
    array,
    enum,
)

TABLES = """
CREATE SCHEMA "my shop";
CREATE TABLE owners (id bigint PRIMARY KEY, name text);
CREATE TABLE "my shop"."Things" (
    id bigint PRIMARY KEY, owner_id bigint, "Size" int NOT NULL, age int, flag bool, code varchar(10) NOT NULL,
    colour text NOT NULL, body text, short char(3), words text[], doc jsonb, plain json, raw bytea, place point,
    address inet, nights daterange, found tsvector
);
CREATE TABLE owned_things (owner_id bigint, thing_id bigint);
CREATE VIEW seen AS SELECT * FROM "my shop"."Things";
CREATE TABLE parts (id bigint, owner_id bigint, PRIMARY KEY (id, owner_id)) PARTITION BY RANGE (id);
CREATE TABLE few_parts PARTITION OF parts FOR VALUES FROM (0) TO (100000);
INSERT INTO owners SELECT n FROM generate_series(1, 2000) n;
INSERT INTO "my shop"."Things" (id, "Size", code, colour) SELECT n, 1, '', '' FROM generate_series(1, 1000) n;
INSERT INTO owned_things SELECT n, n FROM generate_series(1, 1000) n;
INSERT INTO parts SELECT n, n FROM generate_series(1, 1000) n;
"""
THINGS = '"my shop"."Things"'


async def suggested(url: str, catalog: Catalog, *statements: str) -> tuple[Suggestion, ...]:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
        return await suggest(connection, catalog)
    finally:
        await connection.close()


@pytest.fixture
def shop_url(io_loop: IOLoop, corner_url: str) -> str:
    io_loop.run_sync(lambda: suggested(corner_url, NOTHING, TABLES))
    return corner_url


def owner(*relationships: ToOne | ToMany, access: tuple[Allow, ...] = ()) -> Resource:
    return Resource("owner", "/owners", "owners", relationships=relationships, access=access)


def ruled(rows: Any) -> tuple[Allow, ...]:
    return (Allow(ANYONE, "read", rows=rows),)


def thing(*fields: Attribute | ToOne | ToMany, **changed: Any) -> Resource:
    declared = {"type": "thing", "path": "/things", "table": "Things", "schema": "my shop"} | changed
    return Resource(
        attributes=tuple(field for field in fields if isinstance(field, Attribute)),
        relationships=tuple(field for field in fields if not isinstance(field, Attribute)),
        **declared,
    )


NOTHING = Catalog((owner(),))
OWNED = ToMany("things", "thing", foreign_key="owner_id")
CLOSED = ToMany("things", "thing", foreign_key="owner_id", methods=frozenset(), includable=False, filterable=False)
ID_IS_1 = {"name": "id", "op": "eq", "val": 1}
BY_OWNER = f'CREATE INDEX CONCURRENTLY "Things_owner_id_id_idx" ON {THINGS} ("owner_id", "id");'
LINK = Link("owned_things", source="owner_id", target="thing_id")
LINKED = ToMany("things", "thing", through=LINK)


def by(columns: str, name: str, using: str = "") -> str:
    return f'CREATE INDEX CONCURRENTLY "Things_{name}_idx" ON {THINGS}{using} ({columns});'


CASES: list[tuple[str, list[Resource], list[tuple[str, str]]]] = [
    # existing indexes, the declarations, the suggestions: relationships
    ("", [owner(OWNED), thing()], [("missing", BY_OWNER)]),
    (f"CREATE INDEX ON {THINGS} (owner_id)", [owner(OWNED), thing()], [("consider", BY_OWNER)]),
    (f"CREATE INDEX ON {THINGS} USING hash (owner_id)", [owner(OWNED), thing()], [("consider", BY_OWNER)]),
    (f"CREATE INDEX ON {THINGS} (owner_id, id, age)", [owner(OWNED), thing()], []),
    (f"CREATE INDEX ON {THINGS} (owner_id, id) WHERE owner_id IS NOT NULL", [owner(OWNED), thing()], []),
    (
        f"CREATE INDEX other_idx ON {THINGS} (owner_id, id) WHERE age > 1",
        [owner(OWNED), thing()],
        [("missing", BY_OWNER)],
    ),
    (f"CREATE INDEX ON {THINGS} ((owner_id + 1), id)", [owner(OWNED), thing()], [("missing", BY_OWNER)]),
    (f"CREATE INDEX ON {THINGS} (id, owner_id)", [owner(OWNED), thing()], [("missing", BY_OWNER)]),
    (f"CREATE UNIQUE INDEX ON {THINGS} (owner_id)", [owner(OWNED), thing()], []),
    # needed twice, suggested once
    ("", [owner(OWNED), thing(ToOne("owner", "owner"))], [("missing", BY_OWNER)]),
    ("", [owner(), thing(ToOne("owner", "owner"))], [("consider", BY_OWNER)]),
    ("", [owner(), thing(ToOne("owner", "owner", filterable=False))], []),
    ("", [owner(CLOSED), thing()], []),
    # the relationships of rules
    ("", [owner(CLOSED, access=ruled({"name": "things.id", "op": "eq", "val": 1})), thing()], [("missing", BY_OWNER)]),
    (
        "",
        [owner(CLOSED, access=ruled({"not": {"name": "things", "op": "any", "val": [ID_IS_1]}})), thing()],
        [("missing", BY_OWNER)],
    ),
    (
        f"CREATE INDEX ON {THINGS} (owner_id)",
        [owner(CLOSED, access=ruled({"or": [{"name": "things.id", "op": "eq", "val": 1}, ID_IS_1]})), thing()],
        [],
    ),
    (
        "",
        [owner(ToOne("thing", "thing", foreign_key="owner_id")), thing()],
        [("missing", f'CREATE UNIQUE INDEX CONCURRENTLY "Things_owner_id_key" ON {THINGS} ("owner_id");')],
    ),
    (
        "",
        [owner(LINKED), thing()],
        [
            (
                "missing",
                'CREATE UNIQUE INDEX CONCURRENTLY "owned_things_owner_id_thing_id_key" ON "public"."owned_things" '
                '("owner_id", "thing_id");',
            )
        ],
    ),
    (
        "CREATE UNIQUE INDEX ON owned_things (thing_id, owner_id)",
        [owner(LINKED), thing()],
        [
            (
                "missing",
                'CREATE INDEX CONCURRENTLY "owned_things_owner_id_thing_id_idx" ON "public"."owned_things" '
                '("owner_id", "thing_id");',
            )
        ],
    ),
    # attributes
    ("", [thing(Attribute("size", INT, column="Size"))], [("consider", by('"Size", "id"', "Size_id"))]),
    (f'CREATE INDEX ON {THINGS} ("Size" DESC)', [thing(Attribute("size", INT, column="Size"))], []),
    ("", [thing(Attribute("size", INT, column="Size", sortable=False))], [("consider", by('"Size", "id"', "Size_id"))]),
    ("", [thing(Attribute("size", INT, column="Size", sortable=False, filterable=False))], []),
    ("", [thing(Attribute("size", INT, column="Size", readable=False))], []),
    (
        "",
        [thing(Attribute("age", INT, nullable=True))],
        [
            ("consider", by('"age", "id"', "age_id")),
            ("consider", by('"age" DESC NULLS LAST, "id" DESC', "age_desc_id_desc")),
        ],
    ),
    (
        f"CREATE INDEX ON {THINGS} (age, id)",
        [thing(Attribute("age", INT, nullable=True))],
        [("consider", by('"age" DESC NULLS LAST, "id" DESC', "age_desc_id_desc"))],
    ),
    (
        f"CREATE INDEX ON {THINGS} (age, id); CREATE INDEX ON {THINGS} (age DESC NULLS LAST, id DESC)",
        [thing(Attribute("age", INT, nullable=True))],
        [],
    ),
    ("", [thing(Attribute("code", TEXT, max_length=10))], [("consider", by('"code", "id"', "code_id"))]),
    ("", [thing(Attribute("colour", enum("red")))], [("consider", by('"colour", "id"', "colour_id"))]),
    ("", [thing(Attribute("body", TEXT, nullable=True))], [("consider", by('"body"', "body", " USING hash"))]),
    # the operators of a type
    (
        "",
        [
            thing(
                *(Attribute("address", INET, nullable=True), Attribute("nights", DATERANGE, nullable=True)),
                *(Attribute("place", POINT, nullable=True), Attribute("found", TSVECTOR, nullable=True)),
            )
        ],
        [
            ("consider", by('"address" inet_ops', "address", " USING gist")),
            ("consider", by('"nights"', "nights", " USING gist")),
            ("consider", by('"place"', "place", " USING gist")),
            ("consider", by('"found"', "found", " USING gin")),
        ],
    ),
    (f"CREATE INDEX ON {THINGS} USING spgist (nights)", [thing(Attribute("nights", DATERANGE, nullable=True))], []),
    (f"CREATE INDEX ON {THINGS} (body)", [thing(Attribute("body", TEXT, nullable=True))], []),
    ("", [thing(Attribute("body", TEXT, nullable=True, filterable=False))], []),
    (
        "",
        [thing(Attribute("short", CHAR, nullable=True, max_length=3, sortable=False))],
        [("consider", by('"short", "id"', "short_id"))],
    ),
    ("", [thing(Attribute("words", array(TEXT), nullable=True))], [("missing", by('"words"', "words", " USING gin"))]),
    (
        f"CREATE INDEX other_idx ON {THINGS} (words)",
        [thing(Attribute("words", array(TEXT), nullable=True))],
        [("missing", by('"words"', "words", " USING gin"))],
    ),
    (f"CREATE INDEX ON {THINGS} USING gin (words)", [thing(Attribute("words", array(TEXT), nullable=True))], []),
    ("", [thing(Attribute("words", array(TEXT), nullable=True, filterable=False))], []),
    (
        "",
        [thing(Attribute("doc", JSONB, nullable=True))],
        [("missing", by('"doc" jsonb_path_ops', "doc", " USING gin"))],
    ),
    (f"CREATE INDEX ON {THINGS} USING gin (doc)", [thing(Attribute("doc", JSONB, nullable=True))], []),
    (
        "",
        [
            thing(
                Attribute("flag", BOOL, nullable=True),
                Attribute("plain", JSON, nullable=True),
                Attribute("raw", BYTEA, nullable=True),
                Attribute("place", OPAQUE, nullable=True),
                Attribute("sum", INT, sql=lambda column: Template("{}+1", column("Size"))),
            )
        ],
        [],
    ),
    # names that exist already, the rest of an earlier attempt, a column that cannot have an index, and a table whose
    # index cannot be created concurrently
    (
        'CREATE TABLE "my shop"."Things_owner_id_id_idx" (); CREATE TABLE "my shop"."Things_owner_id_id_idx1" ()',
        [owner(OWNED), thing()],
        [("missing", BY_OWNER.replace("id_idx", "id_idx2"))],
    ),
    (
        f"INSERT INTO {THINGS} (id, owner_id, \"Size\", code, colour) VALUES (-1, 1, 1, '', ''), (-2, 1, 1, '', '')",
        [owner(ToOne("thing", "thing", foreign_key="owner_id")), thing()],
        [("missing", 'REINDEX INDEX CONCURRENTLY "my shop"."left";')],
    ),
    ("", [owner(OWNED), thing(table="seen", schema=None)], []),
    ("", [owner(OWNED), thing(table="nowhere")], []),
    # a relationship without its column (an error in the declarations), next to a correct one
    ("", [owner(ToMany("things", "thing", foreign_key="no_id")), thing()], []),
    ("", [owner(ToMany("things", "thing", through=Link("owned_things", "no_id", "thing_id"))), thing()], []),
    ("", [thing(Attribute("no", INT), Attribute("age", INT))], [("consider", by('"age", "id"', "age_id"))]),
    (
        "",
        [owner(OWNED), thing(table="few_parts", schema=None)],
        [
            (
                "missing",
                'CREATE INDEX CONCURRENTLY "few_parts_owner_id_id_idx" ON "public"."few_parts" ("owner_id", "id");',
            ),
            ("missing", 'CREATE UNIQUE INDEX CONCURRENTLY "few_parts_id_key" ON "public"."few_parts" ("id");'),
        ],
    ),
    (
        "",
        [owner(OWNED), thing(table="parts", schema=None)],
        [
            ("missing", 'CREATE INDEX "parts_owner_id_id_idx" ON "public"."parts" ("owner_id", "id");'),
            ("missing", 'CREATE UNIQUE INDEX "parts_id_key" ON "public"."parts" ("id");'),
        ],
    ),
]


@pytest.mark.parametrize(("there_is", "resources", "expected"), CASES)
async def test_suggestions(
    shop_url: str, there_is: str, resources: list[Resource], expected: list[tuple[str, str]]
) -> None:
    statements = [there_is] if there_is else []
    if any("REINDEX" in sql for _, sql in expected):
        with pytest.raises(asyncpg.UniqueViolationError):
            await suggested(
                shop_url, NOTHING, there_is, f'CREATE UNIQUE INDEX CONCURRENTLY "left" ON {THINGS} (owner_id)'
            )
        statements = []
    found = await suggested(shop_url, Catalog(tuple(resources)), *statements)
    assert [(suggestion.rank, suggestion.sql) for suggestion in found] == expected


COLUMNS = 'owner_id bigint, word text, "the List" text[], doc jsonb, span interval, number int'
ZOO = f"""
CREATE SCHEMA "zoo's things";
CREATE TABLE plain (id bigint, {COLUMNS});
CREATE UNLOGGED TABLE unlogged (id bigint, {COLUMNS});
CREATE TEMP TABLE temporary (id bigint, {COLUMNS});
CREATE TABLE "zoo's things"."It's a %table" (id bigint, {COLUMNS});
CREATE TABLE parent (id bigint, {COLUMNS});
CREATE TABLE child () INHERITS (parent);
CREATE TABLE by_id (id bigint NOT NULL, {COLUMNS}) PARTITION BY HASH (id);
CREATE TABLE a_part PARTITION OF by_id FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE by_number (id bigint, {COLUMNS}) PARTITION BY RANGE (number, id);
CREATE TABLE by_sum (id bigint, {COLUMNS}) PARTITION BY RANGE ((number + 1));
CREATE TABLE half_indexed (id bigint, {COLUMNS}) PARTITION BY RANGE (id);
CREATE TABLE half_part PARTITION OF half_indexed FOR VALUES FROM (0) TO (1);
CREATE INDEX half ON ONLY half_indexed (owner_id, id);
CREATE VIEW a_view AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW stored AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW unfilled AS SELECT * FROM plain WITH NO DATA;
CREATE TABLE {"x" * 63} (id bigint, {COLUMNS});
"""
ZOO_TABLES = (
    *("plain", "unlogged", "temporary", "It's a %table", "parent", "by_id", "a_part", "by_number", "by_sum"),
    *("half_indexed", "half_part", "a_view", "stored", "unfilled", "x" * 63),
)
VIRTUAL = (
    'CREATE TABLE virtual (id bigint, owner_id bigint, word text, "the List" text[], doc jsonb, span interval,'
    " number int GENERATED ALWAYS AS (1) VIRTUAL)"
)


def kept(table: str) -> Resource:
    attributes = (
        *(Attribute("word", TEXT, nullable=True), Attribute("list", array(TEXT), column="the List", nullable=True)),
        *(Attribute("doc", JSONB, nullable=True), Attribute("span", INTERVAL, nullable=True)),
        Attribute("number", INT, nullable=True),
    )
    relationships = (
        ToOne("owner", "kept"),
        ToMany("owned", "kept", foreign_key="owner_id"),
        ToOne("only", "kept", foreign_key="number"),
        ToMany("linked", "kept", through=Link(table, "owner_id", "id", schema=_schema(table))),
    )
    return Resource("kept", "/kept", table, attributes, relationships, schema=_schema(table))


def _schema(table: str) -> str | None:
    return "zoo's things" if "'" in table else None


@pytest.mark.parametrize("table", [*ZOO_TABLES, "virtual"])
@pytest.mark.parametrize("few_rows", [0, 1000])
async def test_every_suggestion_can_be_executed(
    corner_url: str, monkeypatch: pytest.MonkeyPatch, table: str, few_rows: int, postgres_version: int
) -> None:
    if table == "virtual" and postgres_version < 18:
        pytest.skip("columns are VIRTUAL from PostgreSQL 18 on")
    monkeypatch.setattr(index_advisor, "SMALL_TABLE_ROWS", few_rows)
    connection = await asyncpg.connect(corner_url)
    try:
        await connection.execute(ZOO)
        if table == "virtual":
            await connection.execute(VIRTUAL)
        catalog = Catalog([kept(table)])
        found = await suggest(connection, catalog)
        assert bool(found) == (table != "a_view")
        for suggestion in found:
            await connection.execute(suggestion.sql)
        assert await suggest(connection, catalog) == ()
    finally:
        await connection.close()


async def test_an_index_without_the_partition_key_is_suggested_without_unique(corner_url: str) -> None:
    found = await suggested(corner_url, Catalog([kept("by_number")]), ZOO)
    reason = "kept: the id (PostgreSQL has no unique index without the partition key)"
    assert [one.sql for one in found if one.reason.startswith(reason)] == [
        'CREATE INDEX "by_number_id_idx" ON "public"."by_number" ("id");'
    ]


RETURNS = {
    # The index for the key of two columns begins with that of one.
    "": ["missing order_id,product,id", "consider order_id,id"],
    "(order_id)": ["missing order_id,product,id", "consider order_id,id"],
    "(order_id, id)": ["missing order_id,product,id"],
    "(order_id, product)": ["consider order_id,id", "consider order_id,product,id"],
    "(order_id, product, id)": ["consider order_id,id"],
    "(product, order_id)": ["missing order_id,id", "consider order_id,product,id"],
    "(product, order_id, id)": ["missing order_id,id"],
}
"""An index of the table, and those that are suggested. An order has returns, and so has a line with two columns."""


@pytest.mark.parametrize(("index", "expected"), RETURNS.items())
async def test_keys_of_several_columns(database_url: str, index: str, expected: list[str]) -> None:
    ddl = [composite.DDL, "INSERT INTO shop.returns (reason) SELECT '' FROM generate_series(1, 1000)"]
    ddl += [f"CREATE INDEX ON shop.returns {index}"] if index else []
    found = await suggested(database_url, composite.CATALOG, *ddl)
    of_keys = [one for one in found if one.table == "shop.returns" and not one.reason.endswith((": filters", " sorts"))]
    assert [f"{one.rank} {','.join(one.columns)}" for one in of_keys] == expected


async def test_a_suggestion_has_a_reason(shop_url: str) -> None:
    [found] = await suggested(shop_url, Catalog((owner(OWNED), thing())))
    assert found == Suggestion(
        rank="missing",
        table="my shop.Things",
        columns=("owner_id", "id"),
        reason="owner.things: includes, related resources",
        sql=BY_OWNER,
    )


async def test_missing_indexes_of_a_small_table_are_only_considered(shop_url: str) -> None:
    catalog = Catalog((owner(OWNED), thing(Attribute("size", INT, column="Size"))))
    [found] = await suggested(shop_url, catalog, f"DELETE FROM {THINGS} WHERE id > 999")
    assert (found.rank, found.sql) == ("consider", BY_OWNER)
    assert found.reason.endswith(": includes, related resources (the table has 999 rows)")
    found = (await suggested(shop_url, catalog, f"TRUNCATE {THINGS}"))[0]
    assert found.reason.endswith("(the table has 0 rows)")


async def test_the_statistics_of_a_large_table_are_used(shop_url: str) -> None:
    await suggested(shop_url, NOTHING, f"ANALYZE {THINGS}")
    # Its rows are not counted any more.
    [found] = await suggested(shop_url, Catalog((owner(OWNED), thing())), f"DELETE FROM {THINGS}")
    assert found.rank == "missing"


async def test_a_long_name_is_cut_and_stays_unique(corner_url: str) -> None:
    table = "ä" * 25 + "_with_more"
    columns = ("b" * 40, "c" * 40)
    ddl = f'CREATE TABLE "{table}" (id bigint PRIMARY KEY, {", ".join(f"{column} int NOT NULL" for column in columns)})'
    rows = f'INSERT INTO "{table}" SELECT n, n, n FROM generate_series(1, 1000) n'
    catalog = Catalog((Resource("a", "/a", table, tuple(Attribute(column, BIGINT) for column in columns)),))
    found = await suggested(corner_url, catalog, ddl, rows)
    names = [suggestion.sql.split('"')[1] for suggestion in found]
    assert len(set(names)) == 2
    assert all(len(name.encode()) <= 63 for name in names)
    assert await suggested(corner_url, catalog, *(suggestion.sql for suggestion in found)) == ()


async def test_suggested_indexes_can_be_created_and_are_then_found(
    corner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_advisor, "SMALL_TABLE_ROWS", 0)
    found = await suggested(corner_url, CATALOG)
    assert len(found) > 40
    assert await suggested(corner_url, CATALOG, *(suggestion.sql for suggestion in found)) == ()


NOTES = """
CREATE TABLE notes (id bigint PRIMARY KEY, title text NOT NULL, body text, words tsvector);
INSERT INTO notes (id, title) SELECT n, 'a' FROM generate_series(1, 1000) n
"""


@pytest.mark.parametrize(
    ("attributes", "column"),
    [
        ([Attribute("title", TEXT, searchable="english")], "(to_tsvector('english',\"title\"))"),
        (
            [
                Attribute("title", TEXT, searchable="english"),
                Attribute("body", TEXT, nullable=True, searchable="simple"),
            ],
            "((to_tsvector('english',\"title\")||COALESCE(to_tsvector('simple',\"body\"),'')))",
        ),
        ([Attribute("words", TSVECTOR, nullable=True, searchable="english")], '"words"'),
    ],
)
async def test_words_of_searches(corner_url: str, attributes: list[Attribute], column: str) -> None:
    """One index is missing, for all attributes together."""
    catalog = Catalog([Resource("note", "/notes", "notes", tuple(attributes))])
    found = [one for one in await suggested(corner_url, catalog, NOTES) if one.rank == "missing"]
    assert [one.sql.partition(" USING ")[2] for one in found] == [f"gin ({column});"]
    left = await suggested(corner_url, catalog, found[0].sql)
    assert [one for one in left if one.rank == "missing"] == []


async def test_the_built_in_tables_miss_no_index(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_advisor, "SMALL_TABLE_ROWS", 0)
    found = await suggested(database_url, built_in())
    assert [suggestion for suggestion in found if suggestion.rank == "missing"] == []


async def test_it_only_reads(shop_url: str) -> None:
    found = await suggested(shop_url, Catalog((owner(OWNED), thing())), "SET default_transaction_read_only = on")
    assert len(found) == 1


async def test_a_schema_that_the_role_may_not_use(corner_url: str) -> None:
    """Its rows are not counted. Another check reports that the role cannot read them."""
    resource = Resource("thing", "/things", "things", schema="closed")
    statements = (
        "CREATE SCHEMA closed",
        "CREATE TABLE closed.things (id bigint)",
        "REVOKE ALL ON SCHEMA closed FROM current_user",
    )
    found = await suggested(corner_url, Catalog([resource]), *statements)
    assert [(one.table, one.rank) for one in found] == [("closed.things", "missing")]


async def test_indexes_of_ids_with_several_columns(shop_url: str) -> None:
    """An index has all columns that its name has. With the suggested indexes nothing is suggested any more."""
    grid = """
        CREATE TABLE cells (x int NOT NULL, y int NOT NULL, value int, PRIMARY KEY (x, y));
        CREATE TABLE notes (id bigint PRIMARY KEY, x int, y int, FOREIGN KEY (x, y) REFERENCES cells);
        INSERT INTO cells SELECT n, n, n FROM generate_series(1, 1000) n;
        INSERT INTO notes SELECT n, n, n FROM generate_series(1, 1000) n;
    """
    catalog = Catalog(
        [
            Resource(
                "cell",
                "/cells",
                "cells",
                id=Id(columns=("x", "y"), types=(INT, INT)),
                attributes=(Attribute("value", INT, nullable=True),),
                relationships=(ToMany("notes", "note", foreign_key=("x", "y")),),
            ),
            Resource("note", "/notes", "notes"),
        ]
    )
    found = await suggested(shop_url, catalog, grid)
    assert [one.sql.partition(" INDEX ")[2] for one in found] == [
        'CONCURRENTLY "notes_x_y_id_idx" ON "public"."notes" ("x", "y", "id");',
        'CONCURRENTLY "cells_value_x_y_idx" ON "public"."cells" ("value", "x", "y");',
        'CONCURRENTLY "cells_value_desc_x_desc_y_desc_idx" ON "public"."cells" '
        '("value" DESC NULLS LAST, "x" DESC, "y" DESC);',
    ]
    assert await suggested(shop_url, catalog, *[one.sql for one in found]) == ()
