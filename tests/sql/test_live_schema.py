"""The catalogue held against the live tables: each message, and the constraints that are found."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from querybuild.types import ColumnType
from server import live_schema
from server.live_schema import LiveSchema, read_live_schema
from tests.catalog import CATALOG
from waterspout import (
    BIGINT,
    CHAR,
    DATE,
    FLOAT,
    INT,
    INTERVAL,
    JSON,
    NUMERIC_NUMBER,
    OPAQUE,
    TEXT,
    TIMESTAMPTZ,
    UUID,
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
    functions,
)

TABLES = """
CREATE TABLE things (
    id bigint PRIMARY KEY, name text NOT NULL, size integer NOT NULL DEFAULT 1, note text, other_id bigint,
    must_id bigint NOT NULL, small smallint NOT NULL GENERATED ALWAYS AS IDENTITY, words text[], "where" point,
    code_id uuid
);
CREATE TABLE links (a bigint, b bigint, PRIMARY KEY (a, b));
CREATE TABLE loose (a bigint, b bigint);
CREATE TABLE nameless (id bigint UNIQUE);
CREATE VIEW seen AS SELECT id, name FROM things;
-- Stands for the extension's type, which not every PostgreSQL has.
CREATE TYPE citext AS (text text);
CREATE TABLE folded (id citext PRIMARY KEY);
"""


async def live(url: str, catalog: Catalog, *statements: str) -> LiveSchema:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
        return await read_live_schema(connection, catalog)
    finally:
        await connection.close()


async def test_the_corner_catalog_fits_its_tables(corner_url: str) -> None:
    assert (await live(corner_url, CATALOG)).faults == ()


async def test_constraints(corner_url: str) -> None:
    found = (await live(corner_url, CATALOG)).constraints
    keys = ("articles_author_id_fkey", "profiles_author_no_key", "article_tags_pkey", "samples_colour_check")
    assert {key[2]: constraint for key, constraint in found.items() if key[2] in keys} == {
        "articles_author_id_fkey": ("author_id",),
        "profiles_author_no_key": ("author_no",),
        "article_tags_pkey": ("article_id", "tag_id"),
        "samples_colour_check": ("colour",),
    }
    assert found["public", "tags", "tags_name_key"] == ("name",)


EDITED, BY = "corner.articles", "articles_editor_id_fkey"
REFERS = "FOREIGN KEY (editor_id) REFERENCES authors (author_no)"


def edited(schema: LiveSchema) -> bool:
    """Whether the articles that an author has edited are known to have that author."""
    names = {(one.resource.type, one.column, one.target.type) for one in schema.references}
    assert ("node", "parent_id", "node") in names
    return ("article", "editor_id", "author") in names


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are never too small to be counted by keys."""
    monkeypatch.setattr(live_schema, "LEAST_BYTES", 0)


async def test_references(corner_url: str, any_size: None) -> None:
    assert edited(await live(corner_url, CATALOG))


@pytest.mark.parametrize(
    "statements",
    [
        (f"ALTER TABLE {EDITED} DROP CONSTRAINT {BY}",),
        (
            f"ALTER TABLE {EDITED} DROP CONSTRAINT {BY}",
            f"ALTER TABLE {EDITED} ADD CONSTRAINT {BY} {REFERS} NOT VALID",
        ),
        (
            f"ALTER TABLE {EDITED} DROP CONSTRAINT {BY}",
            "CREATE TABLE others (id integer PRIMARY KEY)",
            f"ALTER TABLE {EDITED} ADD CONSTRAINT {BY} FOREIGN KEY (editor_id) REFERENCES others (id)",
        ),
        ("ALTER TABLE authors ENABLE ROW LEVEL SECURITY",),
        ("CREATE TABLE late_authors () INHERITS (authors)",),
        (f"CREATE TABLE late_articles () INHERITS ({EDITED})",),
        (f"ALTER TABLE {EDITED} ALTER editor_id TYPE bigint",),
    ],
)
async def test_what_a_foreign_key_does_not_say(corner_url: str, any_size: None, statements: tuple[str, ...]) -> None:
    assert not edited(await live(corner_url, CATALOG, *statements))


OWNERS = Catalog(
    [
        Resource("owner", "/owners", "early_owners", relationships=(ToMany("owned", "owned", foreign_key="owner_id"),)),
        Resource("owned", "/owned", "owned"),
    ]
)

PARTITIONED = """
CREATE TABLE owners (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE early_owners PARTITION OF owners FOR VALUES FROM (0) TO (100);
CREATE TABLE late_owners PARTITION OF owners FOR VALUES FROM (100) TO (200);
CREATE TABLE owned (id bigint PRIMARY KEY, owner_id bigint REFERENCES owners);
"""


async def test_who_is_in_a_partition_no_foreign_key_says(corner_url: str, any_size: None) -> None:
    """There is one to each of them by pg_constraint."""
    found = await live(corner_url, OWNERS, PARTITIONED)
    assert (found.faults, found.references) == ((), frozenset())


SIZED = """
CREATE TABLE early_owners (id bigint PRIMARY KEY, note text);
CREATE TABLE owned (id bigint PRIMARY KEY, owner_id bigint REFERENCES early_owners, note text);
INSERT INTO early_owners SELECT n, repeat('a', 1000) FROM generate_series(1, {}) n;
INSERT INTO owned SELECT n, 1, repeat('a', 1000) FROM generate_series(1, {}) n;
"""


@pytest.mark.parametrize(("owners", "owned", "is_worth"), [(200, 200, False), (350, 350, True), (350, 4000, False)])
async def test_what_is_worth_to_be_counted_by(corner_url: str, owners: int, owned: int, is_worth: bool) -> None:
    """Few who have much are looked at one by one."""
    found = await live(corner_url, OWNERS, SIZED.format(owners, owned))
    assert bool(found.references) == is_worth


@pytest.fixture
def things_url(io_loop: IOLoop, corner_url: str) -> str:
    io_loop.run_sync(lambda: live(corner_url, CATALOG, TABLES))
    return corner_url


def thing(*attributes: Attribute, relationships: tuple[ToOne | ToMany, ...] = (), **changed: object) -> Resource:
    declared = {"type": "thing", "path": "/things", "table": "things"} | changed
    return Resource(attributes=attributes, relationships=relationships, **declared)  # type: ignore[arg-type]


def computed(type: ColumnType, text: str, **changed: Any) -> Attribute:
    return Attribute("computed", type, sql=lambda column: Template(text), **changed)


def _raising(column: Any) -> Any:
    raise KeyError("where")


TERM = "attribute “computed”: its term cannot be read: "

CASES: list[tuple[Resource, list[str]]] = [
    (thing(table="thongs"), ["there is no table “thongs” in the database"]),
    (thing(table="Things"), ["there is no table “Things” in the database"]),
    (thing(schema="corner"), ["there is no table “things” in the database"]),
    (thing(schema="nowhere"), ["there is no table “things” in the database"]),
    (thing(id=Id(column="no")), ["the table “things” has no column “no”. Did you mean “note”?"]),
    (thing(id=Id(type=INT)), ["the id is declared as int, and its column is int8"]),
    (thing(id=Id(type=UUID)), ["the id is declared as uuid, and its column is int8"]),
    (
        thing(table="folded", id=Id(type=TEXT)),
        ["its column is citext, and two texts that differ cannot be one id: declare the column as text"],
    ),
    (thing(table="nameless"), ["its column “id” may be null, and an id is not: make it NOT NULL"]),
    (
        thing(Attribute("nane", TEXT)),
        ["attribute “nane”: the table “things” has no column “nane”. Did you mean “name”?"],
    ),
    (
        thing(Attribute("title", TEXT, column="titel")),
        ["attribute “title”: the table “things” has no column “titel”."],
    ),
    (
        thing(Attribute("size", BIGINT)),
        ["attribute “size”: it is declared as bigint, and its column is int4, not int8"],
    ),
    (
        thing(Attribute("name", enum("a"), required=True), Attribute("note", DATE, nullable=True)),
        ["attribute “note”: it is declared as date, and its column is text, not date"],
    ),
    (
        thing(Attribute("words", array(INT), nullable=True)),
        ["attribute “words”: it is declared as int[], and its column is _text, not _int4"],
    ),
    (thing(Attribute("where", OPAQUE, nullable=True)), []),
    (
        thing(Attribute("where", TEXT, nullable=True)),
        ["attribute “where”: it is declared as text, and its column is point, not text, varchar, citext, name"],
    ),
    (
        thing(Attribute("name", TEXT, required=True, nullable=True)),
        ["attribute “name”: it is declared nullable, and its column is NOT NULL"],
    ),
    (thing(Attribute("note", TEXT)), ["attribute “note”: it is not declared nullable, and its column is"]),
    (
        thing(Attribute("name", TEXT)),
        ["attribute “name”: it is not required on create, and its column is NOT NULL without a default"],
    ),
    (thing(Attribute("name", TEXT, creatable=False)), []),
    (thing(Attribute("size", INT)), []),
    (thing(computed(TEXT, "now()::text")), []),
    # terms that PostgreSQL refuses
    (
        thing(Attribute("computed", INT, sql=lambda column: functions.Length(column("nane")))),
        [f"{TERM}column t0.nane does not exist"],
    ),
    (
        thing(
            computed(INT, 'lenght("t0"."name")'),
            Attribute("other", TEXT, sql=lambda column: Template("{}||", column("name")), readable=False),
        ),
        [
            f"{TERM}function lenght(text) does not exist",
            'attribute “other”: its term cannot be read: syntax error at or near "FROM"',
        ],
    ),
    (
        thing(computed(BIGINT, "count(*)")),
        [f'{TERM}column "t0.id" must appear in the GROUP BY clause or be used in an aggregate function'],
    ),
    (thing(computed(DATE, "'x'::date")), [f'{TERM}invalid input syntax for type date: "x"']),
    (thing(Attribute("computed", TEXT, sql=_raising)), [f"{TERM}it raises KeyError: 'where'"]),
    (
        thing(Attribute("nane", TEXT), computed(INT, "nothing")),
        [
            "attribute “nane”: the table “things” has no column “nane”. Did you mean “name”?",
            f'{TERM}column "nothing" does not exist',
        ],
    ),
    # terms of another type
    (
        thing(computed(INT, '"size"/2.0')),
        ["attribute “computed”: it is declared as int, and its term is numeric, not int4"],
    ),
    (
        thing(computed(FLOAT, "(SELECT avg(size) FROM things)")),
        ["attribute “computed”: it is declared as float, and its term is numeric, not float8"],
    ),
    (
        thing(computed(INTERVAL, '"size"')),
        ["attribute “computed”: it is declared as interval, and its term is int4, not interval"],
    ),
    (
        thing(computed(DATE, "date_trunc('month', now())")),
        ["attribute “computed”: it is declared as date, and its term is timestamptz, not date"],
    ),
    (
        thing(computed(JSON, "to_jsonb(name)")),
        ["attribute “computed”: it is declared as json, and its term is jsonb, not json"],
    ),
    (
        thing(computed(array(INT), "words")),
        ["attribute “computed”: it is declared as int[], and its term is _text, not _int4"],
    ),
    (
        thing(computed(TEXT, "'sad'::corner.mood")),
        ["attribute “computed”: it is declared as text, and its term is enum, not text, varchar, citext, name"],
    ),
    # terms of a type that is shown alike
    (thing(computed(INT, "count(*) OVER ()")), []),
    (thing(computed(BIGINT, '"small"')), []),
    (thing(computed(FLOAT, '"size"')), []),
    (thing(computed(FLOAT, '"size"::real')), []),
    (thing(computed(NUMERIC_NUMBER, '"size"/2.0')), []),
    (thing(computed(NUMERIC_NUMBER, "sqrt(size)")), []),
    (thing(computed(CHAR, '"name"')), []),
    (thing(computed(TEXT, "'a'::char(3)")), []),
    (thing(computed(TEXT, "'a'::corner.label")), []),
    (thing(computed(TEXT, "'a'")), []),
    (thing(computed(TIMESTAMPTZ, "now()")), []),
    (thing(computed(enum("sad"), "'sad'::corner.mood")), []),
    (thing(computed(enum("sad"), '"name"')), []),
    (thing(computed(array(enum("sad")), "ARRAY['sad'::corner.mood]")), []),
    (thing(computed(array(BIGINT), 'ARRAY["size"]')), []),
    (thing(computed(OPAQUE, '"where"')), []),
    # a read that is too long, of columns that are in order
    (
        thing(*(Attribute(f"note{number}", TEXT, column="note", nullable=True) for number in range(1664))),
        ["it cannot be read: target lists can have at most 1664 entries"],
    ),
    (
        thing(relationships=(ToOne("author", "thing"),)),
        ["relationship “author”: the table “things” has no column “author_id”. Did you mean “other_id”?"],
    ),
    (
        thing(relationships=(ToOne("must", "thing"),)),
        ["relationship “must”: it is declared nullable, and its column is NOT NULL"],
    ),
    (
        thing(relationships=(ToOne("other", "thing", nullable=False),)),
        ["relationship “other”: it is declared not nullable, and its column is nullable"],
    ),
    (
        thing(relationships=(ToMany("all", "thing", foreign_key="othr_id"),)),
        ["relationship “all”: the table “things” has no column “othr_id”. Did you mean “other_id”?"],
    ),
    (
        thing(relationships=(ToOne("one", "thing", foreign_key="nil"),)),
        ["relationship “one”: the table “things” has no column “nil”."],
    ),
    (
        thing(relationships=(ToMany("all", "thing", through=Link("lunks", source="a", target="b")),)),
        ["relationship “all”: there is no table “lunks” in the database"],
    ),
    (
        thing(relationships=(ToMany("all", "thing", through=Link("links", source="a", target="c")),)),
        ["relationship “all”: the table “links” has no column “c”."],
    ),
    (thing(relationships=(ToMany("all", "thing", through=Link("links", source="a", target="b")),)), []),
    (
        thing(relationships=(ToMany("all", "thing", through=Link("loose", source="a", target="b")),)),
        ["relationship “all”: the table “loose” has no unique index on a, b"],
    ),
    (
        thing(
            Attribute("nope", TEXT),
            Attribute("note", TEXT),
            relationships=(ToOne("must", "thing"),),
            id=Id(type=TEXT),
        ),
        [
            "the id is declared as text, and its column is int8",
            "attribute “nope”: the table “things” has no column “nope”. Did you mean “note”?",
            "attribute “note”: it is not declared nullable, and its column is",
            "relationship “must”: its column “must_id” is int8, and the id it holds is text",
            "relationship “must”: it is declared nullable, and its column is NOT NULL",
        ],
    ),
]


def test_messages(io_loop: IOLoop, things_url: str) -> None:
    async def told() -> list[list[str]]:
        return [list((await live(things_url, Catalog([resource]))).faults) for resource, _ in CASES]

    found = io_loop.run_sync(told)
    assert found == [[f"resource “thing”: {fault}" for fault in faults] for _, faults in CASES]


async def test_a_key_of_another_type_than_the_id_that_it_holds(things_url: str) -> None:
    """Each of them would be a statement that PostgreSQL refuses: uuid = bigint."""
    own = thing(relationships=(ToOne("code", "thing"),))
    theirs = thing(relationships=(ToMany("all", "thing", foreign_key="code_id"),))
    linked = thing(
        relationships=(ToMany("all", "thing", through=Link("article_tags", "article_id", "tag_id", "corner")),)
    )
    faults = [(await live(things_url, Catalog([resource]))).faults for resource in (own, theirs, linked)]
    assert faults == [
        ("resource “thing”: relationship “code”: its column “code_id” is uuid, and the id it holds is int8",),
        ("resource “thing”: relationship “all”: its column “code_id” is uuid, and the id it holds is int8",),
        (
            "resource “thing”: relationship “all”: its column “article_id” is text, and the id it holds is int8",
            "resource “thing”: relationship “all”: its column “tag_id” is int4, and the id it holds is int8",
        ),
    ]


async def test_a_view_is_as_good_as_a_table(things_url: str) -> None:
    """For reading: a view's columns are nullable as far as PostgreSQL tells."""
    resource = thing(Attribute("name", TEXT, nullable=True), table="seen", methods=frozenset({"list", "detail"}))
    assert (await live(things_url, Catalog([resource]))).faults == ()
