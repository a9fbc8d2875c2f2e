"""Section 6, related routes of a to-one: PATCH and DELETE write the related resource."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

import asyncpg

from tests.http.conftest import Api
from tests.http.people import create_household, document, linked, of, one, select
from tests.http.reads.test_snapshot import Between, between, writer
from tests.http.refusals import Refused, attribute, check_refused, error
from tests.http.writes.test_related_writes import invalid

__all__ = ["between"]

DELETED = {"jsonapi": {"version": "1.0"}, "meta": {"message": "Object successfully deleted"}}


def patch(path: str, sent: Any, *errors: Any) -> Refused:
    return Refused("PATCH", path, sent, list(errors))


def delete(path: str, *errors: Any) -> Refused:
    return Refused("DELETE", path, None, list(errors))


async def test_an_update_of_a_to_one(api: Api) -> None:
    """Like a PATCH of the resource itself, except for the `self` link of the document."""
    await create_household(api)
    answer = await api.patch("/users/1/group", document("group", {"name": "divers"}, id="1"))
    assert answer.status == 200
    found = (await api.get("/users/1/group")).document
    assert found["links"] == {"self": "/users/1/group"}
    assert answer.document == found
    assert found["data"]["attributes"] == {"name": "divers"}
    assert "Location" not in answer.headers


async def test_an_update_of_a_reverse_to_one(api: Api) -> None:
    await create_household(api)
    path = "/users/2/bio?include=user&fields[user_bio]=birth_city,user&fields[user]=age"
    sent = document("user_bio", {"birth_city": "Lyon"}, id=2, relationships=linked(user=one("user", "2")))
    answer = await api.patch(path, sent)
    assert (answer.status, answer.document) == (200, (await api.get(path)).document)
    assert answer.document["data"]["attributes"] == {"birth_city": "Lyon"}
    assert [item["id"] for item in answer.document["included"]] == ["2"]
    assert await select(api, "SELECT id, birth_city FROM user_bios ORDER BY id") == [(1, "London"), (2, "Lyon")]


async def test_an_update_that_ends_the_relationship(api: Api) -> None:
    """The answer is the written resource, whatever it is related to now."""
    await create_household(api)
    answer = await api.patch("/users/1/group", document("group", id="1", relationships=linked(users=of("user", "2"))))
    assert answer.status == 200
    assert answer.document["data"]["relationships"]["users"]["data"] == of("user", "2")
    assert (await api.get("/users/1/group")).document["data"] is None


async def test_an_update_is_refused(api: Api) -> None:
    await create_household(api)
    await api.create("/groups", "group", {"name": "divers"})
    none = error("resource_not_found", "The user “2” has no “group” to write.")
    city = attribute("birth_city", "The attribute “birth_city” is required.")
    name = attribute("name", "“name” must be a string, not 1.")
    taken = error("conflict", "Another group has this value already: “name”.", "/data/attributes/name")
    cases = [
        patch("/users/2/group", document("group", {"name": "x"}, id="1"), none),
        patch("/users/1/bio", document("user_bio", {}, id="1"), city),
        patch("/users/1/group", document("group", {"name": 1}, id="1"), name),
        patch("/users/1/group", document("group", {"name": "divers"}, id="1"), taken),
        patch(
            "/users/1/group",
            document("user", {"name": "x"}, id="1"),
            error("type_conflict", "This route is for resources of type “group”, not “user”.", "/data/type"),
        ),
        patch("/users/1/group", document("group", {"name": "x"}), invalid("There is no `id`.", "/data/id")),
        patch("/users/1/group", {"data": None}, invalid("`data` must be one resource object.", "/data")),
        patch(
            "/users/1/bio",
            document("user_bio", id="1", relationships=linked(user=None)),
            error("required_link", "The relationship “user” must not be empty.", "/data/relationships/user/data"),
        ),
        patch(
            "/users/1/group?sort=name",
            document("group", {"name": "x"}, id="1"),
            error("invalid_parameter", "This route does not accept “sort”.", parameter="sort"),
        ),
    ]
    await check_refused(api, cases)
    for path, sent in (
        ("/users/1/group", document("group", {"name": "x"}, id="2")),
        ("/users/1/bio", document("user_bio", {"birth_city": "x"}, id="2")),
    ):
        answer = await api.patch(path, sent)
        assert (answer.status, answer.errors[0]["code"], answer.errors[0]["source"]) == (
            409,
            "id_conflict",
            {"pointer": "/data/id"},
        )
    assert await select(api, "SELECT name FROM groups ORDER BY id") == [("rowers",), ("divers",)]
    assert await select(api, "SELECT birth_city FROM user_bios ORDER BY id") == [("London",), ("Paris",)]


# DELETE


async def test_a_delete_of_a_to_one(api: Api) -> None:
    await create_household(api)
    answer = await api.delete("/users/1/bio")
    assert (answer.status, answer.document) == (200, DELETED)
    assert await select(api, "SELECT id FROM user_bios") == [(2,)]
    answer = await api.delete("/computers/3/owner")
    assert (answer.status, answer.document) == (200, DELETED)
    assert await select(api, "SELECT id FROM users") == [(1,)]
    assert await select(api, "SELECT id, owner_id FROM computers ORDER BY id") == [(1, 1), (2, 1), (3, None), (4, None)]


async def test_a_delete_ignores_a_body(api: Api) -> None:
    await create_household(api)
    answer = await api.request("DELETE", "/users/1/bio", headers={"Content-Type": "text/plain"}, body=b"x")
    assert (answer.status, answer.document) == (200, DELETED)


async def test_a_delete_is_refused(api: Api) -> None:
    await create_household(api)
    await check_refused(
        api,
        [
            delete("/users/2/group", error("resource_not_found", "The user “2” has no “group” to write.")),
            delete("/computers/4/owner", error("resource_not_found", "The computer “4” has no “owner” to write.")),
            delete("/users/1/group", error("conflict", "This group is still referred to by other resources.")),
            delete(
                "/users/1/bio?include=user",
                error("invalid_parameter", "This route does not accept “include”.", parameter="include"),
            ),
        ],
    )


async def test_a_second_delete_finds_nothing(api: Api) -> None:
    await create_household(api)
    answers = [await api.delete("/users/1/bio") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 404]
    assert answers[1].errors == [error("resource_not_found", "The user “1” has no “bio” to write.")]


async def test_a_delete_while_the_other_end_moves(api: Api, between: Between) -> None:
    """Between each two statements of the delete in turn, another client gives the biography to user 3. Either it comes
    too late, or user 2 has none to delete and user 3 keeps it."""
    await create_household(api)
    await api.create("/users", "user", {"first_name": "Cy", "last_name": "Byron"})
    told: list[str] = []
    async with writer(api) as connection:
        await connection.execute("SET lock_timeout = '200ms'")

        async def move() -> None:
            with suppress(asyncpg.LockNotAvailableError):
                told.append(await connection.execute("UPDATE user_bios SET user_id = 3 WHERE user_id = 2"))

        for place in itertools.count(1):
            await connection.execute("DELETE FROM user_bios WHERE user_id > 1")
            await connection.execute("INSERT INTO user_bios (birth_city, user_id) VALUES ('Paris', 2)")
            told.clear()
            between.arm(place, move)
            answer = await api.delete("/users/2/bio")
            left = await select(api, "SELECT user_id FROM user_bios WHERE user_id > 1")
            moved = told == ["UPDATE 1"]
            assert (answer.status, left) == ((404, [(3,)]) if moved else (200, [])), (place, told, answer.body)
            if between.count <= place:
                break


async def test_an_update_of_attributes_does_not_wait_for_new_references(api: Api) -> None:
    """A client that creates a post of user 1 locks the user in the same way until it commits."""
    await create_household(api)
    async with writer(api) as connection, connection.transaction():
        await connection.execute("SELECT FROM users WHERE id = 1 FOR KEY SHARE")
        sent = document("user", {"age": 37}, id="1")
        async with asyncio.timeout(60):
            assert (await api.patch("/posts/1/user", sent)).status == 200
