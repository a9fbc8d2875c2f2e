"""Errors of the database: unique and foreign keys are a 409 and a 404 with the pointer of the field, and a request with
many writes is atomic."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.http.conftest import Api
from tests.http.people import create_household, create_user, document, linked, of, one, select, user
from tests.http.refusals import Refused, check_refused, error

PAIRS = "/parent-to-child-association"


def pair(parent: Any, child: Any) -> dict[str, Any]:
    sides = linked(parent=one("parent", parent), child=one("child", child))
    return document("parent-to-child-association", relationships=sides)


async def test_a_unique_attribute(api: Api) -> None:
    await create_household(api)
    await api.create("/groups", "group", {"name": "climbers"})
    taken = error("conflict", "Another group has this value already: “name”.", "/data/attributes/name")
    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "rowers"}), [taken]),
            Refused(
                "POST",
                "/groups",
                document("group", {"name": "rowers"}, relationships=linked(users=of("user", "1", "2"))),
                [taken],
            ),
            Refused("PATCH", "/groups/2", document("group", {"name": "rowers"}, id="2"), [taken]),
        ],
    )
    same = await api.patch("/groups/2", document("group", {"name": "climbers"}, id="2"))
    assert same.status == 200


async def test_a_unique_relationship(api: Api) -> None:
    await create_household(api)
    await create_user(api)
    other = await api.create("/user-bio", "user_bio", {"birth_city": "Rome"}, user=one("user", "3"))
    taken = error("conflict", "Another user_bio has this value already: “user”.", "/data/relationships/user/data")
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/user-bio",
                document("user_bio", {"birth_city": "Bath"}, relationships=linked(user=one("user", "1"))),
                [taken],
            ),
            Refused(
                "PATCH",
                f"/user-bio/{other}",
                document("user_bio", id=other, relationships=linked(user=one("user", "1"))),
                [taken],
            ),
        ],
    )


async def test_a_unique_pair(api: Api) -> None:
    await create_household(api)
    await api.create("/parents", "parent", {"name": "sam"})
    other = (await api.post(PAIRS, pair("2", "1"))).document["data"]["id"]
    pair_taken = "Another parent-to-child-association has these values already: “parent”, “child”."
    parent_taken = "Another parent-to-child-association has this value already: “parent”."
    pointer = "/data/relationships/parent/data"
    moved = document("parent-to-child-association", id=other, relationships=linked(parent=one("parent", "1")))
    await check_refused(
        api,
        [
            Refused("POST", PAIRS, pair("1", 1), [error("conflict", pair_taken, pointer)]),
            Refused(
                "PATCH",
                f"{PAIRS}/{other}",
                moved,
                [error("conflict", parent_taken, pointer)],
            ),
        ],
    )


async def test_linkage_to_a_missing_resource(api: Api) -> None:
    await create_household(api)
    detail = "There is no {} with the id “9”."
    await check_refused(
        api,
        [
            Refused(
                "POST",
                PAIRS,
                pair("1", "9"),
                [error("related_not_found", detail.format("child"), "/data/relationships/child/data")],
            ),
            Refused(
                "PATCH",
                "/posts/1",
                document("post", {"title": "x"}, id="1", relationships=linked(user=one("user", "9"))),
                [error("related_not_found", detail.format("user"), "/data/relationships/user/data")],
            ),
        ],
    )


async def test_a_create_with_many_writes_is_atomic(api: Api) -> None:
    """The row is inserted, computers are moved, and then the last relationship fails."""
    await create_household(api)
    last = error("related_not_found", "There is no user_bio with the id “9”.", "/data/relationships/bio/data")
    sent = user(
        group=one("group", "1"), computers=of("computer", "1", "3"), posts=of("post", "1"), bio=one("user_bio", "9")
    )
    await check_refused(api, [Refused("POST", "/users", sent, [last])])


async def test_an_update_with_many_writes_is_atomic(api: Api) -> None:
    await create_household(api)
    last = error("related_not_found", "There is no user_bio with the id “9”.", "/data/relationships/bio/data")
    relationships = linked(
        group=None, computers=of("computer", "3"), posts=of("post", "1", "2"), bio=one("user_bio", "9")
    )
    sent = document("user", {"age": 1, "words": []}, id="1", relationships=relationships)
    await check_refused(api, [Refused("PATCH", "/users/1", sent, [last])])


async def test_one_of_many_concurrent_creates_gets_the_name(api: Api) -> None:
    sent = document("group", {"name": "rowers"})
    answers = await asyncio.gather(*(api.post("/groups", sent) for _ in range(20)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 19
    assert await select(api, "SELECT count(*) FROM groups") == [(1,)]


async def test_a_delete_of_a_group_concurrent_with_its_first_user(api: Api) -> None:
    """In any order: either the user has an existing group, or the group is gone and the user was refused."""
    for _ in range(10):
        group = await api.create("/groups", "group", {"name": "g"})
        created, deleted = await asyncio.gather(
            api.post("/users", user(group=one("group", group))), api.delete(f"/groups/{group}")
        )
        assert (created.status, deleted.status) in ((201, 409), (404, 200))
        await api.sql("DELETE FROM users")
        await api.sql("DELETE FROM groups")


async def test_a_deferred_constraint(api: Api) -> None:
    """A deferred constraint fails at the COMMIT, not at the statement."""
    await api.sql("ALTER TABLE groups DROP CONSTRAINT groups_name_key")
    await api.sql("ALTER TABLE groups ADD CONSTRAINT groups_name_key UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
    await api.create("/groups", "group", {"name": "rowers"})
    await api.create("/groups", "group", {"name": "climbers"})
    taken = error("conflict", "Another group has this value already: “name”.", "/data/attributes/name")
    members = linked(users=of("user", await create_user(api)))
    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "rowers"}), [taken]),
            Refused("POST", "/groups", document("group", {"name": "rowers"}, relationships=members), [taken]),
            Refused(
                "PATCH", "/groups/2", document("group", {"name": "rowers"}, id="2", relationships=members), [taken]
            ),
        ],
    )
    operations = [
        {"op": "add", "data": {"type": "group", "attributes": {"name": name}}} for name in ("divers", "rowers")
    ]
    answer = await api.post("/operations", {"atomic:operations": operations})
    assert (answer.status, await api.sql("SELECT count(*) FROM groups")) == (422, [(2,)])
