"""A create with `onConflict` updates the row that has the same unique values, if there is one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.http.conftest import MEDIA_TYPE, Answer, Api, Inspected, Sent
from tests.http.operating import EXTENDED, add, remove, unchanged, update
from tests.http.people import document, linked, of
from tests.principals import HEADER, principal, trust_headers
from waterspout import (
    INT,
    SIGNED_IN,
    SUBJECT,
    TEXT,
    Allow,
    Attribute,
    Catalog,
    Change,
    Hooks,
    Id,
    Link,
    Resource,
    Role,
    ToMany,
    ToOne,
)

TABLES = """
CREATE TABLE makers (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE tags (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE cars (
    id bigserial PRIMARY KEY, plate text NOT NULL UNIQUE, country text, number int, colour text DEFAULT 'grey',
    doors int, maker_id bigint REFERENCES makers, slot int, row_version bigint NOT NULL DEFAULT 1, owner text,
    UNIQUE (country, number), UNIQUE NULLS NOT DISTINCT (slot)
);
CREATE UNIQUE INDEX partial ON cars (doors) WHERE doors > 9;
CREATE TABLE cars_tags (car_id bigint REFERENCES cars, tag_id bigint REFERENCES tags, PRIMARY KEY (car_id, tag_id));
CREATE TABLE words (word text PRIMARY KEY, meaning text, other text UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO makers (name) VALUES ('m'), ('n');
INSERT INTO tags (name) VALUES ('red'), ('fast');
INSERT INTO cars (plate, country, number, colour, doors, maker_id, slot, owner) VALUES
    ('A', 'de', 1, 'blue', 4, 1, -1, 'ann'), ('B', 'de', 2, 'blue', 4, 1, -2, 'bob');
INSERT INTO words VALUES ('sea', 'water', 'x');
"""


def car(*, hooks: Hooks | None = None, version: str | None = "row_version", **options: Any) -> Resource:
    return Resource(
        "car",
        "/cars",
        "cars",
        (
            Attribute("plate", TEXT, required=True),
            *[Attribute(name, TEXT, nullable=True) for name in ("country", "colour", "owner")],
            *[Attribute(name, INT, nullable=True) for name in ("number", "doors", "slot")],
        ),
        (
            ToOne("maker", "maker"),
            ToMany("tags", "tag", through=Link("cars_tags", source="car_id", target="tag_id")),
        ),
        version=version,
        **({} if hooks is None else {"hooks": hooks}),
        **options,
    )


OTHERS = (
    Resource("maker", "/makers", "makers", (Attribute("name", TEXT, required=True),)),
    Resource("tag", "/tags", "tags", (Attribute("name", TEXT, required=True),)),
    Resource(
        "word",
        "/words",
        "words",
        (Attribute("meaning", TEXT, nullable=True), Attribute("other", TEXT, nullable=True)),
        id=Id("word", TEXT),
        client_ids=True,
    ),
)
CATALOG = Catalog((car(), *OTHERS))
COLUMNS = "plate, country, number, colour, doors, maker_id, slot, row_version, owner"


async def cars(api: Api) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await api.sql(f"SELECT id, {COLUMNS} FROM cars ORDER BY id")]


A = {"id": 1, "plate": "A", "country": "de", "number": 1, "colour": "blue", "doors": 4, "maker_id": 1, "slot": -1}
A |= {"row_version": 2, "owner": "ann"}
NEW = dict.fromkeys(A) | {"id": 3, "plate": "N", "colour": "grey", "row_version": 1}


@pytest.mark.parametrize(
    ("fields", "sent", "status", "changes"),
    [
        ("plate", {"plate": "A", "doors": 5}, 200, {"doors": 5}),
        ("plate", {"plate": "A"}, 200, {}),
        ("plate", {"plate": "A", "colour": None}, 200, {"colour": None}),
        ("country,number", {"plate": "C", "country": "de", "number": 1}, 200, {"plate": "C"}),
        ("number,country", {"plate": "C", "country": "de", "number": 1}, 200, {"plate": "C"}),
        ("plate", {"plate": "N", "slot": 1}, 201, {"slot": 1}),
        ("country,number", {"plate": "N", "country": "de", "number": None}, 201, {"country": "de"}),
        ("slot", {"plate": "N", "slot": 7}, 201, {"slot": 7}),
        ("slot", {"plate": "C", "slot": -1}, 200, {"plate": "C"}),
    ],
)
async def test_one(inspected: Inspected, fields: str, sent: Any, status: int, changes: dict[str, Any]) -> None:
    api = await inspected(TABLES, CATALOG)
    expected = tuple(((A if status == 200 else NEW) | changes).values())
    answer = await api.post(f"/cars?onConflict={fields}", document("car", sent))
    assert answer.status == status, answer.body
    assert [row for row in await cars(api) if row[0] == expected[0]] == [expected]
    assert answer.document["data"]["id"] == str(expected[0])
    version = answer.document["data"]["meta"]["version"]
    assert version == str(expected[8])
    assert answer.headers.get("Location") == (f"/cars/{expected[0]}" if status == 201 else None)
    assert answer.headers["Etag"].startswith(f'"{version}.')
    shown = (await api.get(f"/cars/{expected[0]}")).document["data"]
    assert answer.document["data"] == shown
    assert len(await cars(api)) == (3 if status == 201 else 2)


async def test_equal_nulls(inspected: Inspected) -> None:
    """NULLS NOT DISTINCT: a null meets a null. In another unique key it meets nothing."""
    api = await inspected(TABLES + "DELETE FROM cars WHERE id = 2; UPDATE cars SET slot = NULL;", CATALOG)
    answer = await api.post("/cars?onConflict=slot", document("car", {"plate": "Z", "slot": None}))
    assert (answer.status, answer.document["data"]["id"]) == (200, "1")


async def test_relationships(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    one = document("car", {"plate": "A"}, relationships=linked(maker=of("maker", "2")[0]))
    assert (await api.post("/cars?onConflict=plate", one)).status == 200
    many = document("car", {"plate": "A"}, relationships=linked(tags=of("tag", "1", "2")))
    answer = await api.post("/cars?onConflict=plate&include=tags", many)
    assert (answer.status, len(answer.document["included"])) == (200, 2)
    new = document("car", {"plate": "N", "slot": 3}, relationships=linked(tags=of("tag", "1")))
    assert (await api.post("/cars?onConflict=plate", new)).status == 201
    assert [row[6] for row in await cars(api)] == [2, 1, None]
    assert len(await api.sql("SELECT FROM cars_tags")) == 3


async def test_ids_of_clients(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    for word, meaning, status in (("sea", "salt", 200), ("sky", "blue", 201), ("sky", "grey", 200)):
        answer = await api.post("/words?onConflict=id", document("word", {"meaning": meaning}, id=word))
        assert (answer.status, answer.document["data"]["attributes"]["meaning"]) == (status, meaning)
    rows = await api.sql("SELECT word, meaning, other FROM words ORDER BY 1")
    assert [tuple(row) for row in rows] == [("sea", "salt", "x"), ("sky", "grey", None)]


async def test_an_id_that_is_not_that_of_the_row(inspected: Inspected) -> None:
    catalog = Catalog((car(client_ids=True), *OTHERS))
    api = await inspected(TABLES, catalog)
    for row_id, status in (("2", 409), ("7", 409), ("1", 200)):
        answer = await api.post("/cars?onConflict=plate", document("car", {"plate": "A"}, id=row_id))
        assert answer.status == status, answer.body
        if status == 409:
            [error] = answer.errors
            assert (error["code"], error["source"]) == ("id_conflict", {"pointer": "/data/id"})
    new = await api.post("/cars?onConflict=plate", document("car", {"plate": "N", "slot": 4}, id="40"))
    assert (new.status, new.document["data"]["id"]) == (201, "40")
    free = await api.post("/cars?onConflict=plate", document("car", {"plate": "O", "slot": 5}))
    assert (free.status, free.document["data"]["id"]) == (201, "3")


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/cars?onConflict=doors", {"plate": "A", "doors": 4}),
        ("/cars?onConflict=colour", {"plate": "A", "colour": "blue"}),
        ("/cars?onConflict=nothing", {"plate": "A"}),
        ("/cars?onConflict=row_version", {"plate": "A"}),
        ("/cars?onConflict=id", {"plate": "A"}),
        ("/cars?onConflict=tags", {"plate": "A"}),
        ("/cars?onConflict=plate,colour", {"plate": "A", "colour": "x"}),
        ("/cars?onConflict=country", {"plate": "A", "country": "x"}),
        ("/cars?onConflict=country,number", {"plate": "A", "country": "de"}),
        ("/cars?onConflict=slot", {"plate": "A"}),
        ("/words?onConflict=other", {"other": "x"}),
    ],
)
async def test_what_is_not_possible(inspected: Inspected, path: str, sent: Any) -> None:
    api = await inspected(TABLES, CATALOG)
    kind = path[1:].partition("s?")[0]
    body = document(kind, sent) if kind == "car" else document(kind, sent, id="w")
    async with unchanged(api):
        answer = await api.post(path, body)
    [error] = answer.errors
    assert (answer.status, error["code"], error["source"]) == (
        *(400, "invalid_on_conflict"),
        {"parameter": "onConflict"},
    )
    operation = add(kind, sent) if kind == "car" else add(kind, sent, id="w")
    operation["meta"] = {"onConflict": path.partition("=")[2]}
    async with unchanged(api):
        answer = await api.request(
            "POST", "/operations", {"atomic:operations": [operation]}, headers={"Content-Type": EXTENDED}
        )
    [error] = answer.errors
    assert (answer.status, error["code"], error["source"]) == (
        *(400, "invalid_on_conflict"),
        {"pointer": "/atomic:operations/0/meta/onConflict"},
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/cars?onConflict=plate"),
        ("GET", "/cars/1?onConflict=plate"),
        ("PATCH", "/cars/1?onConflict=plate"),
        ("DELETE", "/cars/1?onConflict=plate"),
        ("POST", "/cars?onconflict=plate"),
        ("POST", "/cars?OnConflict=plate"),
        ("POST", "/cars?onConflict[a]=plate"),
        ("POST", "/cars?onConflict="),
        ("POST", "/cars?onConflict=plate,"),
        ("POST", "/cars?onConflict=plate,plate"),
        ("POST", "/cars?onConflict=plate&onConflict=plate"),
        ("POST", "/operations?onConflict=plate"),
        ("POST", "/cars/1/relationships/tags?onConflict=plate"),
    ],
)
async def test_where_it_is_not_possible(inspected: Inspected, method: str, path: str) -> None:
    api = await inspected(TABLES, CATALOG)
    body = {"data": of("tag", "1")} if "relationships" in path else document("car", {"plate": "A"})
    body = {"atomic:operations": [add("car", {"plate": "A"})]} if "operations" in path else body
    body = document("car", {"plate": "A"}, id="1") if method == "PATCH" else body
    async with unchanged(api):
        answer = await api.request(method, path, None if method in ("GET", "DELETE") else body)
    assert answer.status == 400, answer.body
    assert answer.errors[0]["source"]["parameter"].lower().startswith("onconflict")


@pytest.mark.parametrize("value", [7, "", "plate,", None, ["plate"]])
async def test_malformed_in_operations(inspected: Inspected, value: Any) -> None:
    api = await inspected(TABLES, CATALOG)
    for operation in (add("car", {"plate": "A"}), update("car", {"plate": "A"}, id="1"), remove("car", id="1")):
        async with unchanged(api):
            answer = await api.post("/operations", {"atomic:operations": [operation | {"meta": {"onConflict": value}}]})
        assert answer.status == 422


async def test_resources_that_are_not_updated(inspected: Inspected) -> None:
    for resource in (
        car(methods=frozenset({"list", "detail", "create"})),
        car(requires_match=True),
    ):
        api = await inspected(TABLES, Catalog((resource, *OTHERS)))
        answer = await api.post("/cars?onConflict=plate", document("car", {"plate": "A"}))
        assert (answer.status, answer.errors[0]["code"]) == (400, "invalid_on_conflict")


# Many.


def adds(rows: Sequence[dict[str, Any]], fields: str = "plate") -> dict[str, Any]:
    return {"atomic:operations": [add("car", row) | {"meta": {"onConflict": fields}} for row in rows]}


@pytest.mark.parametrize("count", [1, 3, 9, 40, 300])
async def test_operations(inspected: Inspected, count: int) -> None:
    api = await inspected(TABLES, CATALOG)
    rows = [{"plate": plate, "doors": n, "slot": n} for n, plate in enumerate(["A", *map(str, range(count))][:count])]
    answer = await api.post("/operations", adds(rows))
    assert answer.status == 200, answer.body
    shown = [one["data"]["attributes"] for one in answer.document["atomic:results"]]
    assert [(one["plate"], one["doors"]) for one in shown] == [(row["plate"], row["doors"]) for row in rows]
    assert answer.document["atomic:results"][0]["data"]["id"] == "1"
    assert [one["meta"]["version"] for one in answer.document["atomic:results"]] == ["2"] + ["1"] * (count - 1)
    assert len(await cars(api)) == count + 1
    again = await api.post("/operations", adds(rows))
    assert [one["data"]["id"] for one in again.document["atomic:results"]] == [
        one["data"]["id"] for one in answer.document["atomic:results"]
    ]
    assert len(await cars(api)) == count + 1


@pytest.mark.parametrize("count", [3, 40])
async def test_the_later_updates_the_earlier(inspected: Inspected, count: int) -> None:
    api = await inspected(TABLES, CATALOG)
    answer = await api.post("/operations", adds([{"plate": "N", "doors": n, "slot": 9} for n in range(count)]))
    results = answer.document["atomic:results"]
    assert {one["data"]["id"] for one in results} == {results[0]["data"]["id"]}
    assert [one["data"]["attributes"]["doors"] for one in results] == list(range(count))
    assert [(row[1], row[5], row[8]) for row in await cars(api)][2:] == [("N", count - 1, count)]


async def test_a_lid_of_a_row_that_was_there(inspected: Inspected) -> None:
    for sent in ({}, {"relationships": linked(tags=of("tag", "1"))}):
        api = await inspected(TABLES, CATALOG)
        body = {
            "atomic:operations": [
                add("car", {"plate": "B"}, lid="b", **sent) | {"meta": {"onConflict": "plate"}},
                update("car", {"doors": 9}, lid="b"),
            ]
        }
        answer = await api.post("/operations", body)
        assert answer.status == 200, answer.body
        assert [row[5] for row in await cars(api)] == [4, 9]


async def test_one_statement(inspected: Inspected, sent: Sent) -> None:
    api = await inspected(TABLES, CATALOG)
    await api.post("/cars?onConflict=plate", document("car", {"plate": "A"}))
    sent.clear()
    assert (await api.post("/cars?onConflict=plate", document("car", {"plate": "A", "doors": 3}))).status == 200
    assert len(sent) == 1
    assert 'ON CONFLICT ("plate") DO UPDATE SET "plate"="excluded"."plate","doors"="excluded"."doors"' in sent[0]


# Rules and custom code.


OWN = {"name": "owner", "op": "eq", "val": SUBJECT}
OWN_CARS = [Allow(SIGNED_IN, "all", rows=OWN, assign={"owner": SUBJECT})]


async def own_cars(inspected: Inspected, tables: str = TABLES, access: Sequence[Allow] = OWN_CARS) -> Api:
    """Start a server with rules for cars: each principal has only their own."""
    everything = [Allow(SIGNED_IN, "all")]
    others = [Resource(one.type, one.path, one.table, one.attributes, access=everything) for one in OTHERS[:2]]
    api = await inspected(tables, Catalog((car(access=access), *others)))
    trust_headers(api.app.engine)
    return api


async def by_ann(api: Api, body: Any, path: str = "/operations") -> Answer:
    media_type = MEDIA_TYPE if path != "/operations" else EXTENDED
    return await api.request("POST", path, body, headers={HEADER: principal("ann"), "Content-Type": media_type})


async def test_rules(inspected: Inspected) -> None:
    access = [
        Allow(SIGNED_IN, "create", "update", "delete", rows=OWN, assign={"owner": SUBJECT}),
        Allow(SIGNED_IN, "read", rows={"name": "colour", "op": "eq", "val": "blue"}),
        Allow(SIGNED_IN, "read", rows=OWN),
        Allow(Role("all"), "all"),
    ]
    hidden_car = "INSERT INTO cars (plate, colour, owner, slot) VALUES ('H', 'green', 'bob', 1);"
    api = await own_cars(inspected, TABLES + hidden_car, access)

    async def ann(sent: Any, path: str = "/cars?onConflict=plate") -> Answer:
        return await by_ann(api, document("car", sent), path)

    mine = await ann({"plate": "A", "doors": 6})
    assert (mine.status, mine.document["data"]["id"]) == (200, "1")
    forbidden = await ann({"plate": "B", "doors": 6})
    assert (forbidden.status, forbidden.errors[0]["code"]) == (403, "forbidden")
    hidden = await ann({"plate": "H", "doors": 6})
    plain = await ann({"plate": "H", "doors": 6}, "/cars")
    assert (hidden.status, hidden.errors) == (409, plain.errors)
    new = await ann({"plate": "N", "slot": 5})
    assert (new.status, new.document["data"]["attributes"]["owner"]) == (201, "ann")
    rows = await api.sql("SELECT plate, doors, owner FROM cars ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("A", 6, "ann"),
        ("B", 4, "bob"),
        ("H", None, "bob"),
        ("N", None, "ann"),
    ]


async def test_a_thousand_under_rules(inspected: Inspected, sent: Sent) -> None:
    """They are batches, although a rule asks who may update which row."""
    api = await own_cars(inspected)
    for status in (201, 200):
        rows = [{"plate": str(n), "doors": status + n, "slot": n} for n in range(1_000)]
        sent.clear()
        answer = await by_ann(api, adds(rows))
        assert answer.status == 200, answer.body
        shown = [one["data"]["attributes"] for one in answer.document["atomic:results"]]
        assert [(one["plate"], one["doors"], one["owner"]) for one in shown] == [
            (row["plate"], row["doors"], "ann") for row in rows
        ]
        assert len(sent) < 20, sent
    assert len(await cars(api)) == 1_002


async def test_the_refused_one_of_many(inspected: Inspected) -> None:
    """A hidden row makes a conflict with its own pointer, and nothing is written."""
    api = await own_cars(inspected)
    before = await cars(api)
    for plates in (["N", "B", "A"], ["A", "N", "B", "A"], ["B", *map(str, range(40))]):
        rows = [{"plate": plate, "doors": 9, "slot": n} for n, plate in enumerate(plates)]
        answer = await by_ann(api, adds(rows))
        pointer = f"/atomic:operations/{plates.index('B')}/data/attributes/plate"
        assert [(one["code"], one["source"]["pointer"]) for one in answer.errors] == [("conflict", pointer)]
        assert await cars(api) == before


async def test_a_batch_with_lids(inspected: Inspected) -> None:
    """Later operations know the ids of the rows that were there, and of the new ones."""
    api = await own_cars(inspected)
    body = adds([{"plate": plate, "slot": n} for n, plate in enumerate("NAM")])
    for operation in body["atomic:operations"]:
        operation["data"]["lid"] = operation["data"]["attributes"]["plate"]
    for plate in "ANM":
        change = {"op": "update", "data": {"type": "car", "lid": plate, "attributes": {"colour": plate}}}
        body["atomic:operations"].append(change)
    answer = await by_ann(api, body)
    assert answer.status == 200, answer.body
    assert {row[1]: row[4] for row in await cars(api)} == {"A": "A", "N": "N", "M": "M", "B": "blue"}


async def test_hooks(inspected: Inspected) -> None:
    ran: list[tuple[str, Any]] = []

    def before(kind: str) -> Any:
        async def hook(_: Any, changes: list[Change]) -> list[Change]:
            ran.append((f"before {kind}", [(one.kind, one.id) for one in changes]))
            return [one.assign(colour=kind) for one in changes]

        return hook

    def after(kind: str) -> Any:
        async def hook(_: Any, done: Any) -> None:
            ran.append((f"after {kind}", [one.id for one in done]))

        return hook

    async def committed(done: Any) -> None:
        ran.append(("committed", [(one.change.kind, one.id) for one in done]))

    hooks = Hooks(
        before_create=before("create"),
        before_update=before("update"),
        after_create=after("create"),
        after_update=after("update"),
        after_commit=committed,
    )
    api = await inspected(TABLES, Catalog((car(hooks=hooks), *OTHERS)))
    assert (await api.post("/cars?onConflict=plate", document("car", {"plate": "A"}))).status == 200
    assert ran == [("before update", [("update", "1")]), ("after update", [1]), ("committed", [("update", 1)])]
    ran.clear()
    assert (await api.post("/cars?onConflict=plate", document("car", {"plate": "N", "slot": 1}))).status == 201
    assert [name for name, _ in ran] == ["before create", "after create", "committed"]
    assert [row[4] for row in await cars(api)] == ["update", "blue", "create"]


async def test_a_hook_that_sends_what_is_missing(inspected: Inspected) -> None:
    async def before(_: Any, changes: list[Change]) -> list[Change]:
        return [one.assign(plate=f"P{(one.attributes or {})['slot']}") for one in changes]

    api = await inspected(TABLES, Catalog((car(hooks=Hooks(before_create=before)), *OTHERS)))
    for slot, status in ((-1, 200), (7, 201), (7, 200)):
        answer = await api.post("/cars?onConflict=slot", document("car", {"slot": slot}))
        assert answer.status == status, answer.body
    assert [row[1] for row in await cars(api)] == ["A", "B", "P7"]
    refused = await api.post("/cars?onConflict=slot", document("car", {"doors": 7}))
    assert [one["code"] for one in refused.errors] == ["invalid_on_conflict"]


async def test_triggers(inspected: Inspected) -> None:
    """One that runs before inserts runs for both; and what a trigger changes is shown."""
    trigger = """
        CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN NEW.colour := coalesce(NEW.colour, '') || TG_OP; RETURN NEW; END $$;
        CREATE TRIGGER shout BEFORE INSERT OR UPDATE ON cars FOR EACH ROW EXECUTE FUNCTION shout();
    """
    api = await inspected(TABLES + trigger, CATALOG)
    for sent, status in (({"plate": "A", "doors": 1}, 200), ({"plate": "N", "slot": 2}, 201)):
        answer = await api.post("/cars?onConflict=plate", document("car", sent))
        assert answer.status == status
        row = (await api.get(f"/cars/{answer.document['data']['id']}")).document["data"]
        assert answer.document["data"] == row


@pytest.mark.parametrize("kind", ["partitioned", "view", "xmin", "composite"])
async def test_other_tables(inspected: Inspected, kind: str) -> None:
    tables = {
        "partitioned": "CREATE TABLE items (id bigserial, name text NOT NULL DEFAULT '', n int, UNIQUE (name)) "
        "PARTITION BY HASH (name); CREATE TABLE items_0 PARTITION OF items FOR VALUES WITH (MODULUS 1, REMAINDER 0);",
        "view": "CREATE TABLE base (id bigserial PRIMARY KEY, name text UNIQUE, n int); "
        "CREATE VIEW items AS SELECT id, name, n FROM base;",
        "xmin": "CREATE TABLE items (id bigserial PRIMARY KEY, name text UNIQUE, n int);",
        "composite": "CREATE TABLE items (a int, b int, name text UNIQUE, n int, PRIMARY KEY (a, b));",
    }
    keys = {"composite": Id(columns=("a", "b"), types=(INT, INT)), "view": Id(unique=True)}
    keys["partitioned"] = keys["view"]
    attributes = (Attribute("name", TEXT, nullable=kind != "partitioned"), Attribute("n", INT, nullable=True))
    resource = Resource("item", "/items", "items", attributes, id=keys.get(kind, Id()), client_ids=kind == "composite")
    api = await inspected(tables[kind], Catalog((resource,)))
    own = {"id": "1,2"} if kind == "composite" else {}
    for n, status in ((1, 201), (2, 200), (3, 200)):
        answer = await api.post("/items?onConflict=name", document("item", {"name": "a", "n": n}, **own))
        if kind == "view":
            assert (answer.status, answer.errors[0]["code"]) == (400, "invalid_on_conflict")
            continue
        assert (answer.status, answer.document["data"]["attributes"]["n"]) == (status, n)
    if kind == "composite":
        by_id = await api.post("/items?onConflict=id", document("item", {"name": "b"}, id="1,2"))
        assert (by_id.status, by_id.document["data"]["attributes"]) == (200, {"name": "b", "n": 3})


async def test_clients_at_once(inspected: Inspected) -> None:
    """All updates are there: none is a conflict, and each key has one row."""
    api = await inspected(TABLES, CATALOG)
    statuses: list[int] = []

    async def client(number: int) -> None:
        for _ in range(15):
            plate, tags = f"P{random.randrange(3)}", random.random() < 0.5
            body = document("car", {"plate": plate, "doors": number, "slot": int(plate[1:])})
            if tags:
                body["data"]["relationships"] = linked(tags=of("tag", "1"))
            statuses.append((await api.post("/cars?onConflict=plate", body)).status)

    for _ in range(4):
        statuses.clear()
        await api.sql("TRUNCATE cars_tags")
        await api.sql("DELETE FROM cars WHERE plate LIKE 'P%'")
        await asyncio.gather(*[client(number) for number in range(8)])
        assert set(statuses) == {200, 201}
    assert statuses.count(201) == 3
    [row] = await api.sql("SELECT count(*)::int, sum(row_version)::int FROM cars WHERE plate LIKE 'P%'")
    assert tuple(row) == (3, 120)


@pytest.mark.parametrize("has_rules", [False, True])
async def test_a_model(inspected: Inspected, has_rules: bool) -> None:
    """Random creates, by one statement and under locks, leave the rows that a table in Python has."""
    chance, tables = random.Random(3), TABLES + "DELETE FROM cars;"
    api = await (own_cars(inspected, tables) if has_rules else inspected(tables, CATALOG))
    model: dict[str, dict[str, Any]] = {}
    for _ in range(60):
        rows = [
            {"plate": plate, "slot": ord(plate)}
            | {name: chance.choice((None, 1, 2)) for name in chance.sample(("doors", "number"), chance.randrange(3))}
            for plate in chance.choices("ABCDEF", k=chance.choice((1, 1, 2, 12)))
        ]
        if len(rows) == 1 and chance.random() < 0.7:
            answer = await by_ann(api, document("car", rows[0]), "/cars?onConflict=plate")
            assert answer.status == (200 if rows[0]["plate"] in model else 201)
        else:
            answer = await by_ann(api, adds(rows))
            assert answer.status == 200, answer.body
        for row in rows:
            model.setdefault(row["plate"], {"doors": None, "number": None, "count": 0}).update(row)
            model[row["plate"]]["count"] += 1
    found = await api.sql("SELECT plate, doors, number, slot, row_version FROM cars")
    assert {row[0]: tuple(row)[1:] for row in found} == {
        plate: (row["doors"], row["number"], row["slot"], row["count"]) for plate, row in model.items()
    }


async def test_with_a_key(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG, idempotency="on")
    headers = {"Idempotency-Key": "k"}
    answers = [
        await api.request("POST", "/cars?onConflict=plate", document("car", {"plate": "A"}), headers=headers)
        for _ in range(2)
    ]
    assert [(one.status, one.headers["Idempotent-Replayed"]) for one in answers] == [(200, "false"), (200, "true")]
    assert (await cars(api))[0][8] == 2


async def test_a_try(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    async with unchanged(api):
        answer = await api.request(
            "POST", "/cars?onConflict=plate", document("car", {"plate": "A"}), headers={"Prefer": "tx=rollback"}
        )
    assert answer.status == 200
    assert json.loads(answer.body)["data"]["id"] == "1"
