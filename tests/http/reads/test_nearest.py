"""`nearTo`. `tests/property/test_nearest.py` compares it with a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from querybuild.principal import ANONYMOUS
from server.preparing.reads import ReadShape
from server.routes import ON_MANY
from tests.conftest import on_server
from tests.faults.cluster import Cluster
from tests.http.conftest import Api, Inspected, Serve
from tests.http.declarations.test_text_types import available, debian_cluster  # noqa: F401
from tests.principals import HEADER, principal, trust_headers
from waterspout import (
    ANYONE,
    GEOGRAPHY,
    GEOMETRY,
    INT,
    POINT,
    TEXT,
    VECTOR,
    Allow,
    Attribute,
    Catalog,
    Function,
    Resource,
    Role,
    ToMany,
    ToOne,
)

DDL = """
CREATE TABLE places (
    id bigint PRIMARY KEY, height integer, at point, name text, version integer NOT NULL DEFAULT 7, parent_id bigint
);
CREATE INDEX ON places (height, id);
INSERT INTO places VALUES
    (1, 10, '(0,0)', 'quay', 7, NULL), (2, 20, '(3,4)', 'quays', 7, 1), (3, 20, '(0,1)', 'tower', 7, 1),
    (4, 35, NULL, 'hill', 7, 2), (5, NULL, '(9,9)', NULL, 7, 2);
CREATE FUNCTION low_places() RETURNS SETOF places LANGUAGE sql STABLE AS 'SELECT * FROM places WHERE height < 30';
"""


def catalog(*rules: Allow, read_by: Any = ANYONE, more: Sequence[Attribute] = ()) -> Catalog:
    return Catalog(
        [
            Resource(
                "place",
                "/places",
                "places",
                (
                    Attribute("height", INT, nullable=True, read_by=read_by),
                    Attribute("at", POINT, nullable=True),
                    Attribute("name", TEXT, nullable=True),
                    Attribute("loud", TEXT, of=("name",), compute=lambda rows: [str(name).upper() for (name,) in rows]),
                    *more,
                ),
                (ToOne("parent", "place"), ToMany("children", "place", foreign_key="parent_id")),
                version="version",
                client_ids=True,
                access=rules,
            ),
            Function("low_places", returns="place"),
        ]
    )


@pytest.fixture
def api(io_loop: IOLoop, inspected: Inspected) -> Api:
    return io_loop.run_sync(lambda: inspected(DDL, catalog()))


async def found(api: Api, url: str) -> list[tuple[str, Any]]:
    answer = await api.get(url)
    assert answer.status == 200, answer.body
    return [(one["id"], one["meta"]["distance"]) for one in answer.document["data"]]


async def test_lists(api: Api) -> None:
    assert await found(api, "/places?nearTo[height]=19") == [("2", 1), ("3", 1), ("1", 9), ("4", 16)]
    assert await found(api, "/places?nearTo[height]=40&page[size]=2") == [("4", 5), ("2", 20)]
    assert await found(api, "/places?nearTo[height]=0&page[number]=1&page[total]=none&page[size]=1") == [("1", 10)]
    assert await found(api, "/places?nearTo[height]=0&page[limit]=1&page[offset]=0") == [("1", 10)]
    assert await found(api, "/places?nearTo[at]=(0,0)") == [("1", 0), ("3", 1), ("2", 5), ("5", 12.727922061357857)]
    assert await found(api, "/places/1/children?nearTo[height]=20") == [("2", 0), ("3", 0)]
    assert await found(api, "/low-places?nearTo[height]=20&filter[at][isnot]=null") == [("2", 0), ("3", 0), ("1", 10)]


async def test_other_values_of_a_form(api: Api) -> None:
    for height, first in ((10, "1"), (21, "2"), (34, "4"), (-5, "1")):
        assert (await found(api, f"/places?nearTo[height]={height}&page[size]=1"))[0][0] == first


async def test_documents(api: Api) -> None:
    """Only primary resources have a distance, beside their version. There is no total and no other page."""
    answer = await api.get("/places?nearTo[height]=11&include=parent&page[size]=2")
    data = answer.document["data"]
    assert [one["meta"] for one in data] == [{"version": "7", "distance": 1}, {"version": "7", "distance": 9}]
    assert [one["attributes"]["loud"] for one in data] == ["QUAY", "QUAYS"]
    assert "included" not in answer.document or answer.document["included"] == []
    assert (answer.document["meta"], sorted(answer.document["links"])) == ({"count": 2}, ["first", "self"])
    answer = await api.get("/places?nearTo[height]=35&include=parent,children&page[size]=1")
    assert [(one["id"], one["meta"]) for one in answer.document["included"]] == [("2", {"version": "7"})]
    answer = await api.request(
        "QUERY", "/places", headers={"Content-Type": FORM}, body="nearTo[height]=35&page[size]=1"
    )
    assert [one["meta"]["distance"] for one in answer.document["data"]] == [0]


FORM = "application/x-www-form-urlencoded"


async def test_an_index_is_read_in_both_directions(api: Api) -> None:
    """Neither part sorts more than the rows of one value."""
    statement = statement_of(api, "/places?nearTo[height]=19&page[size]=2")
    assert statement.count("UNION ALL") == 1
    assert '"height">=' in statement
    assert '"height"<' in statement
    assert "UNION" not in statement_of(api, "/places?nearTo[at]=(1,1)")


def statement_of(api: Api, url: str) -> str:
    engine = api.app.engine
    path, _, query = url.partition("?")
    shape = ReadShape("collection", engine.catalog.by_path[path], accepts=ON_MANY)
    return engine.reads.prepare(shape, query, engine.context_of(ANONYMOUS)).ready.statements.primary.sql


@pytest.mark.parametrize(
    ("query", "parameter", "detail"),
    [
        ("nearTo[height]=a", "nearTo[height]", "The value for “height” must be a whole number from"),
        ("nearTo[height]=", "nearTo[height]", "must be a whole number"),
        ("nearTo[at]=(1,%00)", "nearTo[at]", "must be a text without U+0000"),
        ("nearTo[hight]=1", "nearTo[hight]", "with a distance. Did you mean “height”? There are: height, at"),
        ("nearTo[loud]=1", "nearTo[loud]", "place has no attribute “loud” with a distance."),
        ("nearTo[parent.height]=1", "nearTo[parent.height]", "with a distance."),
        ("nearTo[at]=abc", "nearTo[at]", "PostgreSQL refuses"),
        ("nearTo=1", "nearTo", "names an attribute in brackets: nearTo[attribute]=value."),
        ("nearTo[height][eq]=1", "nearTo[height][eq]", "names an attribute in brackets"),
        ("nearTo[height]=1&nearTo[at]=(1,1)", "nearTo[at]", "Resources are near to one value."),
        ("nearTo[height]=1&sort=name", "sort", "leave “sort” out."),
        ("nearTo[height]=1&groupBy=name", "groupBy", "leave “groupBy” out."),
        ("nearTo[height]=1&page[number]=2", "page[number]", "“nearTo” has one page, without a total."),
        ("nearTo[height]=1&page[offset]=2", "page[offset]", "“nearTo” has one page, without a total."),
        ("nearTo[height]=1&page[after]=", "page[after]", "“nearTo” has one page, without a total."),
        ("nearTo[height]=1&page[total]=exact", "page[total]", "“nearTo” has one page, without a total."),
        ("nearTo[height]=1&page[size]=0", "page[size]", "“nearTo” shows 1 to 1000 resources."),
        ("nearto[height]=1", "nearto[height]", "Did you mean “nearTo[height]”?"),
    ],
)
async def test_refused(api: Api, query: str, parameter: str, detail: str) -> None:
    answer = await api.get(f"/places?{query}")
    [error] = answer.errors
    assert (error["status"], error["source"], detail in error["detail"]) == ("400", {"parameter": parameter}, True), (
        error
    )


async def test_other_routes(api: Api) -> None:
    for url in ("/places/1", "/places/2/parent", "/places/1/relationships/children"):
        assert (await api.get(f"{url}?nearTo[height]=1")).status == 400


async def test_rules(inspected: Inspected) -> None:
    """Hidden rows are not among the nearest, and a hidden attribute has no distance."""
    rules = (Allow(ANYONE, "read", rows={"name": "id", "op": "ne", "val": 2}), Allow(Role("hr"), "read"))
    api = await inspected(DDL, catalog(*rules))
    trust_headers(api.app.engine)
    for roles, ids in (((), ["3", "1"]), (("hr",), ["2", "3"])):
        who = {HEADER: principal("a", roles=roles)}
        assert (await api.request("GET", "/places?nearTo[height]=20&page[size]=2", headers=who)).ids == ids
    api = await inspected(DDL, catalog(*rules, read_by=Role("hr")))
    trust_headers(api.app.engine)
    answer = await api.request("GET", "/places?nearTo[height]=20", headers={HEADER: principal("a")})
    assert answer.errors[0]["detail"] == "place has no attribute “height” with a distance. There are: at."


VECTORS = """
ALTER TABLE places ADD e vector(3);
UPDATE places SET e = ARRAY[id, 1, id % 2]::real[]::vector WHERE id < 5;
CREATE INDEX ON places USING hnsw (e vector_cosine_ops);
"""


@pytest.mark.parametrize(
    ("distance", "ids", "first"),
    [("l2", "2134", 1.0), ("cosine", "4321", 0.029857499854668), ("inner_product", "4321", -8.0)],
)
def test_vectors(serve: Serve, io_loop: IOLoop, shop_cluster: Cluster, distance: str, ids: str, first: float) -> None:
    embedding = Attribute("e", VECTOR, nullable=True, distance=distance)
    api = serve(new_database(shop_cluster, "vector", VECTORS), catalog(more=[embedding]))
    near = io_loop.run_sync(lambda: found(api, "/places?nearTo[e]=[2,0,0]"))
    assert ("".join(number for number, _ in near), near[0][1]) == (ids, pytest.approx(first))
    for bad in ("[1,2]", "[1,2,3", "x"):
        answer = io_loop.run_sync(partial(api.get, f"/places?nearTo[e]={bad}"))
        assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "nearTo[e]"})
    zeros = io_loop.run_sync(lambda: found(api, "/places?nearTo[e]=[0,0,0]&page[size]=1"))
    assert zeros[0][1] == {"l2": pytest.approx(1.7320508), "cosine": None, "inner_product": 0}[distance]


async def test_texts_have_no_distance_without_an_extension(api: Api) -> None:
    answer = await api.get("/places?nearTo[name]=quay")
    assert "with a distance. There are: height, at." in answer.errors[0]["detail"]


def test_texts(serve: Serve, io_loop: IOLoop, debian_cluster: Cluster) -> None:  # noqa: F811
    api = serve(new_database(debian_cluster, "pg_trgm", ""), catalog())
    near = io_loop.run_sync(lambda: found(api, "/places?nearTo[name]=quay"))
    assert [number for number, _ in near][:2] == ["1", "2"]
    assert [far for _, far in near] == [0, pytest.approx(0.4285714), 1, 1]


SPATIAL = """
ALTER TABLE places ADD spot geometry(Geometry, 4326), ADD stop geography(Point);
UPDATE places SET spot = ST_Point(id, 1, 4326), stop = ST_Point(id, 1, 4326) WHERE id < 4;
UPDATE places SET spot = 'SRID=4326;POINT EMPTY' WHERE id = 4;
INSERT INTO places (id, stop) SELECT id, ST_Point(50, 50) FROM generate_series(140, 101, -1) id;
CREATE INDEX ON places USING gist (spot);
CREATE INDEX ON places USING gist (stop);
"""


def test_geometries(serve: Serve, io_loop: IOLoop, debian_cluster: Cluster) -> None:  # noqa: F811
    if "postgis" not in available(debian_cluster.url()):
        pytest.skip("the system's PostgreSQL has no PostGIS")
    attributes = [Attribute("spot", GEOMETRY, nullable=True), Attribute("stop", GEOGRAPHY, nullable=True)]
    api = serve(new_database(debian_cluster, "postgis", SPATIAL), catalog(more=attributes))
    near = io_loop.run_sync(lambda: found(api, "/places?nearTo[spot]=SRID%3D4326;POINT(3.25+1)"))
    assert near == [("3", 0.25), ("2", 1.25), ("1", 2.25)]
    near = io_loop.run_sync(lambda: found(api, "/places?nearTo[stop]=POINT(1.9+1)&page[size]=3"))
    assert [number for number, _ in near] == ["2", "1", "3"]
    assert near[0][1] == pytest.approx(11_118, abs=1)
    # Those of one distance are in the order of their ids, although the index has them in another one.
    near = io_loop.run_sync(lambda: found(api, "/places?nearTo[stop]=POINT(51+50)&page[size]=3"))
    assert [number for number, _ in near] == ["101", "102", "103"]
    for bad, reason in (
        ("spot]=POINT(1", "form"),
        ("spot]=SRID%3D4326;POINT(1", "form"),
        ("spot]=x", "form"),
        ("stop]=POINT(1+2+3+4+5)", "form"),
        ("spot]=%E2%80%AE", "ASCII"),
        ("spot]=POINT(1+2)", "SRID"),
        ("stop]=SRID%3D3857;POINT(1+2)", "form"),
    ):
        answer = io_loop.run_sync(partial(api.get, f"/places?nearTo[{bad}"))
        assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": f"nearTo[{bad[:4]}]"}), bad
        assert reason in answer.errors[0]["detail"], answer.errors
        assert "filter" not in answer.errors[0]["detail"]


def new_database(cluster: Cluster, extension: str, sql: str) -> str:
    """Return the URL of a database with the tables and an extension, which only a superuser may create."""
    on_server(cluster.url(), "DROP DATABASE IF EXISTS nearest WITH (FORCE)", "CREATE DATABASE nearest")
    url = cluster.url("nearest")
    on_server(url, f"CREATE EXTENSION {extension}", DDL, *filter(None, [sql]))
    return url
