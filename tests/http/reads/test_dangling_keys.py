"""To-one relationships without an enforced foreign key: linkage to nothing is a 404, and a key that leads to nothing is
null everywhere."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.conftest import Api, Inspected
from tests.http.operating import extended
from waterspout import INT, TEXT, Attribute, Catalog, Id, Resource, ToMany, ToOne

OWNERS = (
    "CREATE TABLE owners (id int PRIMARY KEY, name text, code text UNIQUE); INSERT INTO owners VALUES (1, 'a', 'a');"
)
PETS = (
    "CREATE TABLE pets (id int PRIMARY KEY, owner_id int); INSERT INTO pets VALUES (1, 1), (2, 77), (3, NULL), (4, 1);"
)
VIEW = "CREATE VIEW seen AS SELECT * FROM owners WHERE name = 'a'; INSERT INTO owners VALUES (77, 'b', 'b');"
KEY = "ALTER TABLE pets ADD FOREIGN KEY (owner_id) REFERENCES owners"
KINDS = {
    "no key": (OWNERS + PETS, "owners"),
    "a view that hides rows": (f"{OWNERS}{VIEW}{PETS}{KEY};", "seen"),
    "not enforced": (f"{OWNERS}{PETS}{KEY} NOT ENFORCED;", "owners"),
    "not valid": (f"{OWNERS}{PETS}{KEY} NOT VALID;", "owners"),
    "an inherited table": (
        f"{OWNERS}CREATE TABLE pets (id int PRIMARY KEY, owner_id int REFERENCES owners); "
        "INSERT INTO pets VALUES (1, 1), (4, 1); CREATE TABLE cats () INHERITS (pets); "
        "INSERT INTO cats VALUES (2, 77), (3, NULL);",
        "owners",
    ),
}
PET = {"type": "pet", "id": "1"}
NOBODY = {"type": "owner", "id": "77"}
POINTER = "/data/relationships/owner/data"


def catalog(table: str) -> Catalog:
    name = Attribute("name", TEXT, nullable=True)
    pets = ToMany("pets", "pet", foreign_key="owner_id")
    owner = Resource(
        "owner", "/owners", table, id=Id("id", INT), client_ids=True, attributes=(name,), relationships=(pets,)
    )
    to_owner = (ToOne("owner", "owner"),)
    pet = Resource("pet", "/pets", "pets", id=Id("id", INT), client_ids=True, relationships=to_owner)
    return Catalog([owner, pet])


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, postgres_version: int) -> str:
    """Return a kind of key that leads to nothing."""
    if request.param == "not enforced" and postgres_version < 18:
        pytest.skip("a key may be NOT ENFORCED from PostgreSQL 18 on")
    return str(request.param)


async def opened(inspected: Inspected, kind: str) -> Api:
    tables, table = KINDS[kind]
    return await inspected(tables, catalog(table))


async def test_linkage_to_nothing(inspected: Inspected, kind: str) -> None:
    api = await opened(inspected, kind)
    rows = await api.sql("SELECT * FROM pets ORDER BY id")
    linked = {"relationships": {"owner": {"data": NOBODY}}}
    for method, path, data, pointer in (
        ("POST", "/pets", {"type": "pet", "id": "9"} | linked, POINTER),
        ("PATCH", "/pets/1", PET | linked, POINTER),
        ("PATCH", "/pets/1?include=owner", PET | linked, POINTER),
        ("PATCH", "/pets/1/relationships/owner", NOBODY, "/data"),
    ):
        answer = await api.request(method, path, {"data": data})
        assert (answer.status, answer.errors[0]["source"]) == (404, {"pointer": pointer}), (method, path)
    operations = [{"op": "add", "data": {"type": "pet", "id": str(n)} | linked} for n in (8, 9)]
    answer = await extended(api, *operations)
    assert (answer.status, answer.errors[0]["source"]) == (404, {"pointer": f"/atomic:operations/0{POINTER}"})
    assert await api.sql("SELECT * FROM pets ORDER BY id") == rows
    good = await api.patch("/pets/3/relationships/owner", {"data": {"type": "owner", "id": "1"}})
    assert (good.status, good.document["data"]["id"]) == (200, "1")


async def test_linkage_to_a_row_that_an_earlier_operation_adds(inspected: Inspected) -> None:
    api = await opened(inspected, "no key")
    owner = {"type": "owner", "id": "5", "lid": "o"}
    linked = {"owner": {"data": {"type": "owner", "lid": "o"}}}
    pet = {"op": "add", "data": {"type": "pet", "id": "9", "relationships": linked}}
    assert (await extended(api, {"op": "add", "data": owner}, pet)).status == 200
    assert await api.sql("SELECT owner_id FROM pets WHERE id = 9") == [(5,)]


READS = [
    "/pets/2?include=owner",
    "/pets?include=owner",
    "/pets?include=owner&page[size]=0",
    "/pets?include=owner&sort=id",
]


async def test_a_key_that_leads_to_nothing_is_null(inspected: Inspected, kind: str) -> None:
    api = await opened(inspected, kind)
    assert (await api.get("/pets/2/relationships/owner")).document["data"] is None
    assert (await api.get("/pets/2/owner")).document["data"] is None
    for path in READS:
        data = (await api.get(path)).document["data"]
        row = data if isinstance(data, dict) else next(one for one in data if one["id"] == "2")
        assert row["relationships"]["owner"]["data"] is None, path

    async def found(*filters: Any) -> list[str]:
        return (await api.get(f"/pets?sort=id&filter={quote(json.dumps(filters))}")).ids

    assert await found({"name": "owner.id", "op": "is_", "val": None}) == ["2", "3"]
    assert await found({"not": {"name": "owner.id", "op": "is_", "val": None}}) == ["1", "4"]
    assert await found({"name": "owner_id", "op": "eq", "val": 77}) == []
    assert await found({"name": "owner_id", "op": "eq", "val": 1}) == ["1", "4"]
    assert (await api.get("/pets?sort=owner.id,-id")).ids == ["4", "1", "3", "2"]
    assert (await api.get("/pets?filter[owner.name]=a&sort=id")).ids == ["1", "4"]
    pages = [(await api.get(f"/pets?sort=owner.name&page[size]=1&page[number]={n}")).ids[0] for n in (1, 2, 3, 4)]
    assert pages == (await api.get("/pets?sort=owner.name")).ids


async def test_a_validated_key_is_trusted(inspected: Inspected, sent: list[str]) -> None:
    api = await inspected(f"{OWNERS}{PETS.replace('77', '1')}{KEY};", catalog("owners"))
    del sent[:]
    assert (await api.get("/pets/1?include=owner")).status == 200
    assert "EXISTS" not in "".join(sent)
