"""Ids of new resources: clients may choose them where this is allowed, and their ids never collide with those of the
server."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.http.conftest import Api
from tests.http.people import create_household, document, linked, select
from tests.http.refusals import Refused, check_refused, error
from tests.http.writes.test_create import FULL


async def test_a_client_may_choose_the_id_of_a_person(api: Api) -> None:
    for sent, shown in (("7", "7"), (8, "8"), ("0", "0"), ("-3", "-3"), (str(2**63 - 1), str(2**63 - 1))):
        answer = await api.post("/persons", document("person", {"name": "Noor"}, id=sent))
        assert answer.status == 201, answer.body
        assert answer.document["data"]["id"] == shown
        assert answer.headers["Location"] == answer.document["data"]["links"]["self"] == f"/persons/{shown}"
        assert (await api.get(f"/persons/{shown}")).status == 200


async def test_a_client_id_that_is_refused(api: Api) -> None:
    await api.create("/persons", "person", {"name": "first"})
    await api.post("/persons", document("person", {"name": "mine"}, id="7"))
    taken = error("conflict", "Another person has this value already: “id”.", "/data/id")

    def refused(id_value: Any, found: Any) -> Refused:
        return Refused("POST", "/persons", document("person", {"name": "n"}, id=id_value), [found])

    formless: list[Any] = [True, 7.5, [], {}]
    of_no_form = error("invalid_document", "`id` must be a string or a whole number.", "/data/id")
    await check_refused(
        api,
        [
            refused("1", taken),
            refused("7", taken),
            refused(7, taken),
            refused(7.0, taken),
            *(refused(id_value, of_no_form) for id_value in formless),
        ],
    )


async def test_a_null_id_is_ignored(api: Api) -> None:
    """Some clients send null as the id of a new resource."""
    for path, type_name in (("/persons", "person"), ("/parents", "parent")):
        answer = await api.post(path, {"data": {"type": type_name, "id": None, "attributes": {"name": "n"}}})
        assert (answer.status, answer.document["data"]["id"].isdecimal()) == (201, True)


async def test_a_client_id_that_is_not_canonical(api: Api) -> None:
    for id_text in ("007", "+7", " 7", "7 ", "", "x", "-0", "7.0", "1e3", str(2**63), "9" * 40, "٧"):
        answer = await api.post("/persons", document("person", {"name": "n"}, id=id_text))
        assert answer.status == 422
        (found,) = answer.errors
        assert (found["title"], found["source"]) == ("Invalid Attribute", {"pointer": "/data/id"})
    assert await select(api, "SELECT count(*) FROM persons") == [(0,)]


async def test_a_client_id_is_forbidden_by_default(api: Api) -> None:
    await create_household(api)
    types = {path: (type_name, attributes, links) for path, type_name, attributes, links in FULL if path != "/persons"}
    cases = [
        Refused(
            "POST",
            path,
            document(type_name, attributes, id="99", relationships=linked(**links)),
            [
                error(
                    "client_id_forbidden",
                    f"The server chooses ids of type “{type_name}”: leave `id` out.",
                    "/data/id",
                )
            ],
        )
        for path, (type_name, attributes, links) in types.items()
    ]
    assert len(cases) == 9
    await check_refused(api, cases)


async def test_a_create_skips_ids_that_clients_chose(api: Api) -> None:
    for number in (1, 2, 4):
        await api.post("/persons", document("person", {"name": "mine"}, id=number))
    created = [await api.create("/persons", "person", {"name": "n"}) for _ in range(3)]
    assert created == ["3", "5", "6"]


async def test_a_create_skips_fifty_taken_ids(api: Api) -> None:
    await api.sql("INSERT INTO persons (id, name) SELECT n, 'mine' FROM generate_series(1, 50) n")
    await api.sql("INSERT INTO persons (id, name) VALUES (52, 'mine'), ($1, 'mine')", 2**63 - 1)
    assert [await api.create("/persons", "person", {"name": "n"}) for _ in range(2)] == ["51", "53"]


async def test_concurrent_creates_skip_taken_ids(api: Api) -> None:
    await api.sql("INSERT INTO persons (id, name) SELECT n, 'mine' FROM generate_series(5, 54) n")
    created = await asyncio.gather(*(api.create("/persons", "person", {"name": "n"}) for _ in range(40)))
    assert len(set(created)) == 40
    assert await select(api, "SELECT count(*) FROM persons") == [(90,)]


async def test_a_taken_id_at_the_end_of_bigint_does_not_prevent_creates(api: Api) -> None:
    """With any plan that PostgreSQL chooses for the search of a free id; this one reads all ids."""
    await api.sql("INSERT INTO persons (id, name) SELECT n, 'mine' FROM generate_series(1, 3000) n")
    await api.sql("INSERT INTO persons (id, name) VALUES ($1, 'mine')", 2**63 - 1)
    await api.sql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_nestloop = off', current_database()); END $$"
    )
    await api.sql("ANALYZE persons")
    # The first connection of the pool is older than the setting: two concurrent requests open another one.
    created = await asyncio.gather(*(api.create("/persons", "person", {"name": "n"}) for _ in range(3)))
    assert len(set(created)) == 3
    assert await select(api, "SELECT count(*) FROM persons") == [(3004,)]
