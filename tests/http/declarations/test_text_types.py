"""Types whose values are PostgreSQL's texts: each is created, read, changed, filtered, sorted and walked with cursors,
and its invalid texts are refused where they are sent. A row of `CASES` for each type."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import asyncpg
import msgspec
import pytest

import waterspout
from querybuild.declarations.database_types.texts import TEXT_TYPES
from querybuild.declarations.types import ColumnType
from server.schema.live_schema import read_live_schema
from tests.conftest import memory, on_server
from tests.faults.cluster import Cluster
from tests.http.conftest import Api, Serve, Start
from tests.http.expected import target
from waterspout import Attribute, Catalog, Resource, array


class Case(msgspec.Struct):
    """low, high: two values as PostgreSQL writes them, in their order if the type has one. wrong: an invalid text. own:
    the type's own operators, with a value and the ids that it finds: "1" has `low`, "2" `high`, "3" null. column: the
    type of the column, if it has a length."""

    low: str
    high: str
    wrong: str
    own: tuple[tuple[str, Any, list[str]], ...] = ()
    column: str = ""


def ranges(low: str, high: str, member: Any, wrong: str) -> Case:
    """member: a value in `low`, and not in `high`."""
    own = (
        ("contains", member, ["1"]),
        ("contains", low, ["1"]),
        ("contains", "empty", ["1", "2"]),
        ("contained_in", low, ["1"]),
        ("overlaps", low, ["1"]),
        ("overlaps", high, ["2"]),
    )
    return Case(low, high, wrong, own)


def multiranges(low: str, high: str, member: Any, wrong: str) -> Case:
    own = (
        ("contains", member, ["1"]),
        ("contains", low[1:-1], ["1"]),
        ("contains", low, ["1"]),
        ("contained_in", high, ["2"]),
        ("overlaps", low, ["1"]),
    )
    return Case(low, high, wrong, own)


INSTANT = "2024-06-01T12:00:00Z"
CASES: dict[str, Case] = {
    "INET": Case(
        "10.0.0.1",
        "10.1.0.0/16",
        "10.0.0.1.1",
        (
            ("contained_in", "10.0.0.0/8", ["1", "2"]),
            ("contains", "10.1.2.3", ["2"]),
            ("overlaps", "10.1.0.0/24", ["2"]),
            ("eq", "10.0.0.1/32", ["1"]),
        ),
    ),
    "CIDR": Case("10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/8", (("contains", "10.1.2.3", ["1", "2"]),)),
    "MACADDR": Case("08:00:2b:01:02:03", "08:00:2b:01:02:04", "08:00", (("eq", "08002B010203", ["1"]),)),
    "MACADDR8": Case("08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:06", "x"),
    "MONEY": Case("$12.00", "$100.00", "twelve", (("lt", "$99.99", ["1"]),)),
    "BIT": Case("0101", "1010", "012", column="bit(4)"),
    "VARBIT": Case("01", "1010", "21", column="varbit(4)"),
    "XML": Case("<a>1</a>", "<b/>", "<a>"),
    "POINT": Case(
        "(1,2)", "(3,4.5)", "(1,2", (("contained_in", "(2,2),(0,0)", ["1"]), ("eq", "1,2", ["1"]))
    ),
    "LINE": Case("{1,2,3}", "{1,-1,0}", "{0,0,0}"),
    "LSEG": Case("[(0,0),(1,1)]", "[(1,1),(2,2)]", "[(0,0)"),
    "BOX": Case(
        "(2,2),(0,0)",
        "(3,3),(1,1)",
        "(2,2)",
        (
            ("contains", "(0.5,0.5)", ["1"]),
            ("contained_in", "(3,3),(0,0)", ["1", "2"]),
            ("overlaps", "(9,9),(2.5,2.5)", ["2"]),
        ),
    ),
    "PATH": Case("((0,0),(1,1))", "[(0,0),(2,2)]", "(0", (("contains", "(1.5,1.5)", ["2"]),)),
    "POLYGON": Case(
        "((0,0),(2,0),(2,2))",
        "((5,5),(6,5),(6,6))",
        "((0,0)",
        (
            ("contains", "(1.5,1)", ["1"]),
            ("overlaps", "((1,0),(3,0),(3,2))", ["1"]),
            ("contained_in", "((4,4),(9,4),(9,9))", ["2"]),
        ),
    ),
    "CIRCLE": Case("<(0,0),1>", "<(5,5),1>", "<(0,0),-1>", (("contains", "0.5,0", ["1"]),)),
    "INT4RANGE": ranges("[1,5)", "[7,9)", 4, "[5,1)"),
    "INT8RANGE": ranges("[1,5)", "[7,9)", 4, "[1"),
    "NUMRANGE": ranges("[1,5.5]", "(7,9)", "5.5", "[a,b]"),
    "TSRANGE": ranges(
        '["2024-06-01 00:00:00","2024-06-02 00:00:00")', '["2024-07-01 00:00:00",)', INSTANT, "[2024-13-01,)"
    ),
    "TSTZRANGE": ranges(
        '["2024-06-01 00:00:00+00","2024-06-02 00:00:00+00")', '["2024-07-01 00:00:00+00",)', INSTANT, "[x,y)"
    ),
    "DATERANGE": ranges("[2024-06-01,2024-06-08)", "[2024-07-01,)", "2024-06-07", "[2024-06-31,)"),
    "INT4MULTIRANGE": multiranges("{[1,5),[7,9)}", "{[20,30)}", 8, "{[5,1)}"),
    "INT8MULTIRANGE": multiranges("{[1,5)}", "{[20,30)}", 3, "{1}"),
    "NUMMULTIRANGE": multiranges("{[1,5.5]}", "{[20,30)}", "5.5", "{[1,a]}"),
    "TSMULTIRANGE": multiranges(
        '{["2024-06-01 00:00:00","2024-06-02 00:00:00")}', '{["2024-07-01 00:00:00",)}', INSTANT, "{x}"
    ),
    "TSTZMULTIRANGE": multiranges(
        '{["2024-06-01 00:00:00+00","2024-06-02 00:00:00+00")}', '{["2024-07-01 00:00:00+00",)}', INSTANT, "{"
    ),
    "DATEMULTIRANGE": multiranges("{[2024-06-01,2024-06-08)}", "{[2024-07-01,)}", "2024-06-07", "{[2024-06-31,)}"),
    "CITEXT": Case(
        "Anna", "bob", "", (
            *(("eq", "ANNA", ["1"]), ("like", "NN", ["1"]), ("in", ["anna", "BOB"], ["1", "2"]), ("lt", "BOB", ["1"])),
            *(("match", "^AN", ["1"]), ("startswith", "AN", ["1"]), ("endswith", "OB", ["2"]), ("notlike", "N", ["2"])),
        ),
    ),
    "HSTORE": Case(
        '"a"=>"1", "b"=>NULL', '"c"=>"2"', "a=>", (("contains", "a=>1", ["1"]), ("has_key", "c", ["2"]))
    ),
    "LTREE": Case(
        "top.science", "top.science.physics", "top..a",
        (
            ("descendant_of", "top.science", ["1", "2"]),
            ("descendant_of", "top.science.physics", ["2"]),
            ("ancestor_of", "top.science.physics.optics", ["1", "2"]),
            ("ancestor_of", "top.science", ["1"]),
        ),
    ),
    "VECTOR": Case("[1,2,3]", "[2,0,0]", "[1,2", column="vector(3)"),
    "GEOMETRY": Case(
        "SRID=4326;POINT(0.00000004967254213842904 0.3)", "SRID=4326;POLYGON((2 2,5 2,5 5,2 2))", "POINT(1",
        (
            ("eq", "SRID=4326; point(4.967254213842904e-8 0.30)", ["1"]),
            ("contains", "SRID=4326;POINT(2 2)", ["2"]),
            ("contained_in", "SRID=4326;POLYGON((0 0,1 0,1 1,0 1,0 0))", ["1"]),
            ("overlaps", "SRID=4326;LINESTRING(3 0,3 9)", ["2"]),
        ),
        column="geometry(Geometry,4326)",
    ),
    "GEOGRAPHY": Case(
        "SRID=4326;POINT(2.35 48.85)", "SRID=4326;POLYGON((2 2,5 2,5 5,2 2))", "POINT(1 95 3 4 5)",
        (
            ("eq", "POINT(2.35 48.85)", ["1"]),
            ("contains", "POINT(4 3)", ["2"]),
            ("contained_in", "POLYGON((2 48,3 48,3 49,2 49,2 48))", ["1"]),
            ("overlaps", "LINESTRING(3 0,3 9)", ["2"]),
        ),
    ),
}  # fmt: skip
EXTENSIONS = {"CITEXT": "citext", "HSTORE": "hstore", "LTREE": "ltree", "VECTOR": "vector"}
EXTENSIONS |= dict.fromkeys(("GEOMETRY", "GEOGRAPHY"), "postgis")
UNQUOTED = ("BIT", "VARBIT", "XML", "LINE", "NUMRANGE", "TSRANGE", "TSTZRANGE", "DATERANGE", "INT4RANGE", "LTREE")
UNQUOTED += ("HSTORE", "INT4MULTIRANGE", "NUMMULTIRANGE", "DATEMULTIRANGE")
"""The cases whose invalid text PostgreSQL does not quote as a whole. Beside values of other such types, nothing says
which one is invalid."""
NEEDED = EXTENSIONS | {"XML": "<libxml/>"}
"""What a type needs that a PostgreSQL may lack."""
DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def type_of(name: str) -> ColumnType:
    found = getattr(waterspout, name)
    assert isinstance(found, ColumnType)
    return found


@pytest.fixture(scope="module")
def debian_cluster() -> Iterator[Cluster]:
    """Yield a PostgreSQL of the system, which has extensions that the embedded one lacks."""
    if not DEBIAN:
        pytest.skip("the system has no PostgreSQL of its own")
    with tempfile.TemporaryDirectory(prefix="waterspout-test-", dir=memory()) as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder, "cluster"), DEBIAN[-1].parent.parent)
        cluster.create()
        cluster.start()
        yield cluster
        cluster.stop()


@pytest.fixture(params=["embedded", "system"])
def typed(request: pytest.FixtureRequest, serve: Serve) -> tuple[Api, list[str]]:
    """Return a server, and the names of the types of its resource: all of the embedded PostgreSQL, or those that only
    the system's has."""
    is_embedded = request.param == "embedded"
    cluster: Cluster = request.getfixturevalue("shop_cluster" if is_embedded else "debian_cluster")
    on_server(cluster.url(), "DROP DATABASE IF EXISTS typed WITH (FORCE)", "CREATE DATABASE typed")
    url = cluster.url("typed")
    extensions = available(url)
    names = [name for name in CASES if NEEDED.get(name, "") in extensions]
    if not is_embedded:
        names = [name for name in names if name in NEEDED]
    on_server(
        url,
        "CREATE SCHEMA elsewhere; ALTER DATABASE typed SET search_path = public, elsewhere",
        *[
            f"CREATE EXTENSION {name} SCHEMA elsewhere"
            for name in dict.fromkeys(filter(None, map(EXTENSIONS.get, names)))
        ],
    )
    columns = ", ".join(f"{name.lower()} {sql_type(name)}, {name.lower()}s {sql_type(name)}[]" for name in names)
    on_server(url, f"CREATE TABLE things (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, {columns})")
    return serve(url, Catalog([resource(names)])), names


def available(url: str) -> set[str]:
    async def run() -> set[str]:
        connection = await asyncpg.connect(url)
        try:
            found = {"", *[row[0] for row in await connection.fetch("SELECT name FROM pg_available_extensions")]}
            with suppress(asyncpg.FeatureNotSupportedError):
                found.add(await connection.fetchval("SELECT CAST(xml '<libxml/>' AS text)"))
            return found
        finally:
            await connection.close()

    return asyncio.run(run())


def sql_type(name: str) -> str:
    column = CASES[name].column or name.lower()
    return f"elsewhere.{column}" if name in EXTENSIONS else column


def resource(names: list[str]) -> Resource:
    attributes = [
        attribute
        for name in names
        for attribute in (
            Attribute(name.lower(), type_of(name), nullable=True),
            Attribute(f"{name.lower()}s", array(type_of(name)), nullable=True),
        )
    ]
    return Resource("thing", "/things", "things", attributes=tuple(attributes))


async def fill(api: Api, names: list[str]) -> None:
    for number, attributes in enumerate(
        (
            {name.lower(): CASES[name].low for name in names}
            | {f"{name.lower()}s": [CASES[name].low, None, CASES[name].high] for name in names},
            {name.lower(): CASES[name].high for name in names} | {f"{name.lower()}s": [] for name in names},
            {},
        ),
        1,
    ):
        assert await api.create("/things", "thing", attributes) == str(number)


async def found(api: Api, name: str, op: str, val: Any) -> list[str]:
    answer = await api.filter("/things", [{"name": name, "op": op, "val": val}])
    assert answer.status == 200, (name, op, val, answer.body)
    return sorted(answer.ids)


async def test_types_that_this_postgresql_cannot_serve(shop_cluster: Cluster) -> None:
    """The operators of an extension are only found by the search path, and the embedded PostgreSQL has no XML."""
    connection = await asyncpg.connect(shop_cluster.url())
    await connection.execute("DROP DATABASE IF EXISTS typed WITH (FORCE)")
    await connection.execute("CREATE DATABASE typed")
    await connection.close()
    connection = await asyncpg.connect(shop_cluster.url("typed"))
    await connection.execute(
        "CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere; "
        "CREATE TABLE things (id bigint PRIMARY KEY, place elsewhere.vector, note xml, size int)"
    )
    for name, declared, fault in (
        (
            "place",
            waterspout.VECTOR,
            "its type vector is in the schema “elsewhere”, which is not in the search path: PostgreSQL would not find "
            "the operators of the type. Add the schema to the role's search_path, or declare it as OPAQUE",
        ),
        ("note", waterspout.XML, "this PostgreSQL is built without XML: declare it as OPAQUE"),
        ("size", waterspout.INT4RANGE, "it is declared as int4range, and its column is int4: declare it as INT"),
        ("place", waterspout.INET, "it is declared as inet, and its column is vector: declare it as VECTOR"),
    ):
        attribute = Attribute(name, declared, nullable=True)
        things = Resource("thing", "/things", "things", attributes=(attribute,), client_ids=True)
        schema = await read_live_schema(connection, Catalog([things]))
        assert tuple(map(str, schema.faults)) == (f"resource “thing”: attribute “{name}”: {fault}",)
    await connection.close()


async def folding(cluster: Cluster) -> asyncpg.Connection[Any]:
    """Return a connection to a new database with a collation that is not deterministic."""
    connection = await asyncpg.connect(cluster.url())
    await connection.execute("DROP DATABASE IF EXISTS typed WITH (FORCE)")
    await connection.execute("CREATE DATABASE typed")
    await connection.close()
    connection = await asyncpg.connect(cluster.url("typed"))
    await connection.execute(
        "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    return connection


async def test_a_key_has_one_spelling(debian_cluster: Cluster) -> None:
    connection = await folding(debian_cluster)
    await connection.execute(
        "CREATE TABLE genres (code text COLLATE folding PRIMARY KEY, plain text UNIQUE NOT NULL); "
        "CREATE TABLE films (id int8 PRIMARY KEY, genre text COLLATE folding, plain text COLLATE folding)"
    )
    genre = Resource("genre", "/genres", "genres", id=waterspout.Id("code", waterspout.TEXT), client_ids=True)
    by_id = waterspout.ToOne("genre", "genre", column="genre")
    by_other = waterspout.ToOne("plain", "genre", column="plain", references="plain")
    films = Resource("film", "/films", "films", relationships=(by_id, by_other), client_ids=True)
    schema = await read_live_schema(connection, Catalog([genre, films]))
    await connection.close()
    what = "has a collation that is not deterministic, so texts that differ can be equal: ALTER COLUMN"
    assert tuple(map(str, schema.faults)) == (
        f'resource “genre”: its column “code” {what} "code" TYPE text COLLATE "default"',
        f'resource “film”: relationship “genre”: its column “genre” {what} "genre" TYPE text COLLATE "default"',
        f'resource “film”: relationship “plain”: its column “plain” {what} "plain" TYPE text COLLATE "default"',
    )


async def test_a_collation_that_takes_no_patterns(start: Start, debian_cluster: Cluster) -> None:
    connection = await folding(debian_cluster)
    await connection.execute(
        "CREATE TABLE things (id int8 GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text COLLATE folding); "
        "INSERT INTO things VALUES (1, 'Abc')"
    )
    await connection.close()
    attribute = Attribute("name", waterspout.TEXT, nullable=True)
    api = await start(
        debian_cluster.url("typed"), Catalog([Resource("thing", "/things", "things", attributes=(attribute,))])
    )
    assert await found(api, "name", "eq", "aBC") == ["1"]
    for op in ("like", "notilike", "startswith", "match"):
        answer = await api.filter("/things", [{"name": "name", "op": op, "val": "a"}])
        assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "filter"}), (op, answer.body)
        assert "the collation of the column takes no patterns" in answer.errors[0]["detail"]


async def test_fields_with_different_collations(start: Start, database_url: str) -> None:
    """PostgreSQL does not choose between two collations that are not the database's own."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        'CREATE TABLE things (id bigserial PRIMARY KEY, one text COLLATE "C", other text COLLATE "POSIX", plain text); '
        "INSERT INTO things VALUES (1, 'a', 'b', 'a')"
    )
    await connection.close()
    attributes = tuple([Attribute(name, waterspout.TEXT, nullable=True) for name in ("one", "other", "plain")])
    api = await start(database_url, Catalog([Resource("thing", "/things", "things", attributes=attributes)]))
    answer = await api.filter("/things", [{"name": "one", "op": "eq", "field": "plain"}])
    assert (answer.status, answer.ids) == (200, ["1"])
    for op in ("eq", "lt", "is_", "like"):
        filters = [{"name": "plain", "op": "eq", "val": "a"}, {"name": "one", "op": op, "field": "other"}]
        for pages in ("", "page[size]=0&"):
            answer = await api.get(f"/things?{pages}filter={quote(json.dumps(filters))}")
            assert (answer.status, answer.errors[0]["code"]) == (400, "value_refused"), (op, answer.body)
            detail = "[1]: PostgreSQL refuses a value of the filter: the two fields have different collations."
            assert answer.errors[0]["detail"] == detail


async def test_constants_of_rules_are_checked(database_url: str) -> None:
    """Without this, every request that the rule is for would fail."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE TABLE things (id bigint PRIMARY KEY, address inet, nights daterange, parent_id int8)"
    )
    attributes = (
        Attribute("address", waterspout.INET, nullable=True),
        Attribute("nights", waterspout.DATERANGE, nullable=True),
    )
    for rows, fault in (
        ([{"name": "address", "op": "contained_in", "val": "10.0.0.0/8"}], None),
        ([{"name": "address", "op": "in_", "val": ["10.0.0.1", "10.0.0.300"]}], "10.0.0.300"),
        ([{"or": [{"name": "parent.nights", "op": "contains", "val": "[2024-02-31,)"}]}], "[2024-02-31,)"),
        ([{"name": "parent", "op": "has", "val": [{"name": "address", "op": "eq", "val": "x"}]}], "x"),
        ([{"name": "nights", "op": "contains", "val": "2024-02-29"}], None),
    ):
        thing = Resource(
            "thing",
            "/things",
            "things",
            attributes=attributes,
            relationships=(waterspout.ToOne("parent", "thing"),),
            methods=frozenset({"list"}),
            access=(waterspout.Allow(waterspout.ANYONE, "read", rows=rows),),
        )
        faults = map(str, (await read_live_schema(connection, Catalog([thing]))).faults)
        where = "resource “thing”: rule 1 (anyone): `rows`"
        assert [one.partition(" is refused: ")[0] for one in faults] == (
            [f"{where}: the value “{fault}”"] if fault else []
        )
    await connection.close()


@pytest.fixture
def words(serve: Serve, database_url: str) -> Api:
    on_server(
        database_url,
        "CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text, "
        "words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED); "
        "INSERT INTO things (text) VALUES ('a fat rat'), ('a fat cat')",
    )
    attribute = Attribute("words", waterspout.TSVECTOR, nullable=True)
    return serve(database_url, Catalog([Resource("thing", "/things", "things", attributes=(attribute,))]))


async def test_search(words: Api) -> None:
    assert (await words.get("/things/1")).document["data"]["attributes"] == {"words": "'fat':2 'rat':3"}
    for search, ids in (("fat", ["1", "2"]), ("rats", ["1"]), ("fat -rat", ["2"]), ('"( & !', []), ("", [])):
        assert await found(words, "words", "search", search) == ids, search
    answer = await words.post("/things", {"data": {"type": "thing", "attributes": {"words": "'a':1"}}})
    assert (answer.status, answer.errors[0]["source"]) == (422, {"pointer": "/data/attributes/words"})


def test_every_type_has_a_case() -> None:
    assert {name.upper() for name in map(repr, TEXT_TYPES)} == {*CASES, "TSVECTOR"}


async def test_values(typed: tuple[Api, list[str]]) -> None:
    """What is created is read as it was sent, also in arrays, and can be changed."""
    api, names = typed
    await fill(api, names)
    rows = {row["id"]: row["attributes"] for row in (await api.get("/things")).document["data"]}
    for name in names:
        one, case = name.lower(), CASES[name]
        shown = [(row[one], row[f"{one}s"]) for row in rows.values()]
        assert shown == [(case.low, [case.low, None, case.high]), (case.high, []), (None, None)], name
    changed = {name.lower(): CASES[name].high for name in names} | {
        f"{name.lower()}s": [CASES[name].high, CASES[name].low] for name in names
    }
    answer = await api.patch("/things/1", {"data": {"type": "thing", "id": "1", "attributes": changed}})
    assert (answer.status, answer.document["data"]["attributes"]) == (200, changed)
    nothing = dict.fromkeys(changed)
    answer = await api.patch("/things/1", {"data": {"type": "thing", "id": "1", "attributes": nothing}})
    assert (answer.status, answer.document["data"]["attributes"]) == (200, nothing)


async def test_operators(typed: tuple[Api, list[str]]) -> None:
    api, names = typed
    await fill(api, names)
    for name in names:
        one, case, column_type = name.lower(), CASES[name], type_of(name)
        expected: list[tuple[str, Any, list[str]]] = [("is_", None, ["3"]), ("isnot", None, ["1", "2"]), *case.own]
        if column_type.comparison.has_equality:
            expected += [
                *(("eq", case.low, ["1"]), ("ne", case.low, ["2"]), ("is_", case.low, ["1"])),
                *(("isnot", case.low, ["2", "3"]), ("in", [case.low, case.high], ["1", "2"])),
                *(("notin_", [case.low], ["2"]), ("notin_", [], ["1", "2", "3"])),
            ]
        if column_type.comparison.is_ordered:
            expected += [
                *(("lt", case.high, ["1"]), ("le", case.high, ["1", "2"]), ("gt", case.low, ["2"])),
                *(("ge", case.low, ["1", "2"]), ("between", [case.low, case.low], ["1"])),
            ]
        for op, val, ids in expected:
            assert await found(api, one, op, val) == ids, (name, op, val)
        if column_type.comparison.has_equality:
            assert await found(api, f"{one}s", "in", case.high) == ["1"], name
            assert await found(api, f"{one}s", "eq", [case.low, None, case.high]) == ["1"], name
            assert await found(api, f"{one}s", "ne", []) == ["1"], name
            answer = await api.get(target("/things", [(f"filter[{one}]", case.low)]))
            assert (answer.status, answer.ids) == (200, ["1"]), name
            answer = await api.filter("/things", [{"name": one, "op": "eq", "field": one}])
            assert (answer.status, answer.ids) == (200, ["1", "2"]), name
    for op in ("like", "ilike", "startswith", "endswith", "notlike") if "CITEXT" in names else ():
        answer = await api.filter("/things", [{"name": "citext", "op": op, "field": "citext"}])
        assert (answer.status, answer.ids) == (200, [] if op == "notlike" else ["1", "2"]), op
    if "INT4RANGE" in names:
        assert (await api.get("/things?filter[int4range][contains]=4")).ids == ["1"]
        assert (await api.get("/things?filter[int4range][contains]=[8,8]")).ids == ["2"]


async def test_sorts_and_cursors(typed: tuple[Api, list[str]]) -> None:
    """Nulls are last in both directions."""
    api, names = typed
    await fill(api, names)
    for name in names:
        for sort, ids in ((name.lower(), ["1", "2", "3"]), (f"-{name.lower()}", ["2", "1", "3"])):
            answer = await api.get(f"/things?sort={sort}")
            if not type_of(name).comparison.has_order:
                assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "sort"}), name
                continue
            assert (answer.status, answer.ids) == (200, ids), sort
            page = await api.get(f"/things?sort={sort}&page[size]=1&page[after]=")
            walked = page.ids
            while "next" in page.document["links"]:
                page = await api.get(unquote(page.document["links"]["next"]))
                walked += page.ids
            assert walked == ids, sort


async def test_invalid_values(typed: tuple[Api, list[str]]) -> None:
    """PostgreSQL refuses them, and the error points at the one, also beside valid values of the other types."""
    api, names = typed
    await fill(api, names)
    valid = {name.lower(): CASES[name].low for name in names}
    for name in names:
        if not type_of(name).is_checked_by_database:
            continue
        one, wrong = name.lower(), CASES[name].wrong
        for attributes in ({one: wrong}, {f"{one}s": [wrong]}, {one: 1}, valid | {one: wrong}):
            answer = await api.post("/things", {"data": {"type": "thing", "attributes": attributes}})
            (fault,) = answer.errors
            field = f"{one}s" if f"{one}s" in attributes else one
            assert answer.status == 422, (name, answer.body)
            if len(attributes) == 1 or name not in UNQUOTED:
                assert fault["source"] == {"pointer": f"/data/attributes/{field}"}, (name, fault)
                is_text = isinstance(attributes[field], str) or field.endswith("s")
                assert f"is written as in “{type_of(name).json.example}”" in fault["detail"] or not is_text
            else:
                assert (fault["code"], fault["source"]) == ("body_value_refused", {"pointer": "/data"})
            assert "CAST" not in fault["detail"]
        if type_of(name).comparison.has_equality:
            filters = [("filter[id]", "1"), (f"filter[{one}]", wrong), ("filter[id][ne]", "2")]
            answer = await api.get(target("/things", filters))
            assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": f"filter[{one}]"}), name
            assert (await api.get(target("/things", [(f"filter[{one}s]", wrong)]))).status == 400, name
        for op, _, _ in CASES[name].own:
            answer = await api.get(target("/things", [(f"filter[{one}][{op}]", "no [ value"), ("page[size]", "0")]))
            assert answer.status == (200 if op == "has_key" else 400), (name, op)


async def test_the_schema_says_which_texts_may_be_empty(typed: tuple[Api, list[str]]) -> None:
    api, names = typed
    for name in names:
        schema = type_of(name).json.written_schema
        assert schema is not None
        answer = await api.post("/things", {"data": {"type": "thing", "attributes": {f"{name.lower()}s": [""]}}})
        assert answer.status == (422 if schema.get("minLength") else 201), (name, answer.body)
