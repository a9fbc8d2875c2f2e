"""A write by an id that several rows have writes nothing. The answer is a 409."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Inspected
from tests.http.operating import extended
from waterspout import INT, TEXT, Attribute, Catalog, Id, Resource, ToMany, ToOne

INHERITED = """
CREATE TABLE owners (id int PRIMARY KEY, name text); INSERT INTO owners VALUES (1, 'x'), (2, 'y');
CREATE TABLE base (id int PRIMARY KEY, v text, owner_id int REFERENCES owners);
CREATE TABLE kids (extra text) INHERITS (base);
INSERT INTO base VALUES (1, 'b1', NULL), (2, 'b2', 2); INSERT INTO kids VALUES (1, 'k1'), (3, 'k3');
"""
OWNER = {"type": "owner", "id": "1"}
BASE = {"type": "base", "id": "1"}
WRITES = {
    "PATCH": ("PATCH", "/bases/1", {"data": BASE | {"attributes": {"v": "N"}}}),
    "PATCH with include": ("PATCH", "/bases/1?include=owner", {"data": BASE | {"attributes": {"v": "N"}}}),
    "a to-one in a document": ("PATCH", "/bases/1", {"data": BASE | {"relationships": {"owner": {"data": OWNER}}}}),
    "a to-one": ("PATCH", "/bases/1/relationships/owner", {"data": OWNER}),
    "the other side": ("POST", "/owners/1/relationships/bases", {"data": [BASE]}),
    "all of the other side": ("PATCH", "/owners/2/relationships/bases", {"data": [BASE]}),
    "the other side in a document": (
        "PATCH",
        "/owners/1",
        {"data": OWNER | {"relationships": {"bases": {"data": [BASE]}}}},
    ),
    "a new other side": (
        "POST",
        "/owners",
        {"data": {"type": "owner", "id": "3", "relationships": {"bases": {"data": [BASE]}}}},
    ),
    "DELETE": ("DELETE", "/bases/1", None),
}
ROWS = "SELECT tableoid::regclass::text, id, v, owner_id FROM base ORDER BY 1, 2"


@pytest.mark.parametrize("write", list(WRITES))
async def test_an_inherited_table(inspected: Inspected, write: str) -> None:
    api = await inspected(INHERITED)
    before = await api.sql(ROWS)
    method, path, document = WRITES[write]
    answer = await api.request(method, path, document)
    assert (answer.status, answer.errors[0]["code"]) == (409, "ambiguous_ids")
    assert await api.sql(ROWS) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "update", "data": BASE | {"attributes": {"v": "N"}}},
        {"op": "remove", "ref": BASE},
        {"op": "add", "ref": OWNER | {"relationship": "bases"}, "data": [BASE]},
    ],
)
@pytest.mark.parametrize("number", [1, 3])
async def test_operations(inspected: Inspected, operation: Any, number: int) -> None:
    api = await inspected(INHERITED)
    before = await api.sql(ROWS)
    other = {"op": "update", "data": {"type": "base", "id": "3", "attributes": {"v": "N"}}}
    answer = await extended(api, *[other] * (number - 1), operation)
    assert (answer.status, answer.errors[0]["code"]) == (409, "ambiguous_ids")
    assert answer.errors[0]["source"]["pointer"].startswith(f"/atomic:operations/{number - 1}/")
    assert await api.sql(ROWS) == before


async def test_an_id_that_one_row_has_is_written(inspected: Inspected) -> None:
    api = await inspected(INHERITED)
    answer = await api.patch("/bases/3", {"data": {"type": "base", "id": "3", "attributes": {"v": "N"}}})
    assert (answer.status, answer.document["data"]["attributes"]) == (200, {"v": "N"})
    links = {"data": [{"type": "base", "id": "3"}]}
    assert (await api.request("POST", "/owners/1/relationships/bases", links)).status == 200
    assert (await api.delete("/bases/3")).status == 200


PARTS = """
CREATE TABLE parts (region text, id int, v text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a');
CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b');
INSERT INTO parts VALUES ('a', 1, 'a1'), ('b', 1, 'b1'), ('b', 2, 'b2');
CREATE VIEW shown AS SELECT id, v FROM parts;
"""


@pytest.mark.parametrize("table", ["parts", "shown"])
@pytest.mark.parametrize("soft_delete", [True, False])
async def test_partitions_and_views(inspected: Inspected, table: str, soft_delete: bool) -> None:
    methods = frozenset({"list", "detail", "update", "delete"})
    attributes = (Attribute("v", TEXT, nullable=True),)
    part = Resource(
        "part", "/parts", table, id=Id("id", INT), attributes=attributes, methods=methods, soft_delete=soft_delete
    )
    api = await inspected(PARTS, Catalog([part]))
    rows = await api.sql("SELECT * FROM parts ORDER BY region, id")
    for method, document in (
        ("PATCH", {"data": {"type": "part", "id": "1", "attributes": {"v": "N"}}}),
        ("DELETE", None),
    ):
        answer = await api.request(method, "/parts/1", document)
        assert (answer.status, answer.errors[0]["code"]) == (409, "ambiguous_ids")
    assert await api.sql("SELECT * FROM parts ORDER BY region, id") == rows
    assert (await api.patch("/parts/2", {"data": {"type": "part", "id": "2", "attributes": {"v": "N"}}})).status == 200


async def test_the_reverse_side_of_a_to_one(inspected: Inspected) -> None:
    tables = "".join(
        [
            "CREATE TABLE makers (id bigint PRIMARY KEY DEFAULT 5); INSERT INTO makers VALUES (1); ",
            "CREATE TABLE kept (id bigint PRIMARY KEY DEFAULT 5, name text, maker_id bigint); ",
            "INSERT INTO kept VALUES (1, 'a', 1), (2, 'b', 1); CREATE VIEW seen AS SELECT * FROM kept; ",
        ]
    )
    seen = Resource(
        "seen",
        "/seen",
        "seen",
        attributes=(Attribute("name", TEXT, nullable=True),),
        relationships=(ToOne("maker", "maker"),),
    )
    maker = Resource("maker", "/makers", "makers", relationships=(ToOne("seen", "seen", foreign_key="maker_id"),))
    api = await inspected(tables, Catalog([seen, maker]))
    document = {"data": {"type": "seen", "id": "1", "attributes": {"name": "N"}}}
    for method, sent in (("PATCH", document), ("DELETE", None)):
        answer = await api.request(method, "/makers/1/seen", sent)
        assert (answer.status, answer.errors[0]["code"]) == (409, "ambiguous_ids")
    assert [tuple(row) for row in await api.sql("SELECT id, name FROM kept")] == [(1, "a"), (2, "b")]


async def test_a_parent_whose_id_is_repeated(inspected: Inspected) -> None:
    tables = "".join(
        [
            "CREATE TABLE lots (id bigint DEFAULT 5, n int); INSERT INTO lots VALUES (1, 1), (1, 2), (2, 3); ",
            "CREATE TABLE bids (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, lot_id bigint); ",
        ]
    )
    lot = Resource(
        "lot", "/lots", "lots", id=Id(unique=True), relationships=(ToMany("bids", "bid", foreign_key="lot_id"),)
    )
    bid = Resource("bid", "/bids", "bids", relationships=(ToOne("lot", "lot"),))
    api = await inspected(tables, Catalog([lot, bid]))
    assert (await api.post("/lots/1/bids", {"data": {"type": "bid"}})).status == 409
    linkage = {"lot": {"data": {"type": "lot", "id": "1"}}}
    answer = await api.post("/bids", {"data": {"type": "bid", "relationships": linkage}})
    assert (answer.status, answer.errors[0]["source"]) == (409, {"pointer": "/data/relationships/lot/data"})
    assert await api.sql("SELECT FROM bids") == []
    assert (await api.post("/lots/2/bids", {"data": {"type": "bid"}})).status == 201
