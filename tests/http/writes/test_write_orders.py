"""Section 6, isolation: concurrent writes have the results and the answers of one order of them. A lock that the test
holds makes them meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests import composite
from tests.catalog import CATALOG
from tests.conftest import on_server
from tests.http.composite_orders import SHOP
from tests.http.conftest import Api, Serve
from tests.http.people import document, linked, of, one
from tests.http.write_orders import BUSY, CORNER, MAX_LOCKED, PEOPLE, Outcome, Scene, Stage, Write, check, to

Open = Callable[[Api, Scene], Stage]


@pytest.fixture
def open_stage(io_loop: IOLoop) -> Iterator[Open]:
    stages: list[Stage] = []

    def opened(api: Api, scene: Scene) -> Stage:
        stages.append(io_loop.run_sync(lambda: Stage.open(api, scene)))
        return stages[-1]

    yield opened
    for stage in stages:
        io_loop.run_sync(stage.close)


@pytest.fixture
def people(api: Api, open_stage: Open) -> Stage:
    return open_stage(api, PEOPLE)


@pytest.fixture
def corners(serve: Serve, corner_url: str, open_stage: Open) -> Stage:
    return open_stage(serve(corner_url, CATALOG), CORNER)


@pytest.fixture
def shop(serve: Serve, database_url: str, open_stage: Open) -> Stage:
    on_server(database_url, composite.DDL)
    return open_stage(serve(database_url, composite.CATALOG), SHOP)


def operations(*sent: Any) -> Write:
    return Write("POST", "/operations", {"atomic:operations": list(sent)})


def set_users(group: str, *ids: str) -> Any:
    return {"op": "update", "ref": to("group", group, "users"), "data": of("user", *ids)}


def set_group(user: str, group: str | None) -> Any:
    return {
        "op": "update",
        "ref": to("user", user, "group"),
        "data": None if group is None else one("group", group),
    }


def users_of(group: str, *ids: str) -> Write:
    return Write("PATCH", f"/groups/{group}/relationships/users", {"data": of("user", *ids)})


def group_of(user: str, group: str | None) -> Write:
    return Write(
        "PATCH", f"/users/{user}/relationships/group", {"data": None if group is None else one("group", group)}
    )


def through_user(user: str, group: str, *ids: str) -> Write:
    body = document("group", id=group, relationships=linked(users=of("user", *ids)))
    return Write("PATCH", f"/users/{user}/group", body)


def edited(author: str, *ids: str) -> Write:
    return Write("PATCH", f"/authors/{author}/relationships/edited", {"data": of("article", *ids)})


MEETINGS = [
    # a row joins while a replacement waits for another row
    ("users WHERE id = 2", [operations(set_users("2", "3", "2"), set_group("4", "1")), users_of("1", "2")]),
    ("users WHERE id = 2", [users_of("1", "2"), operations(set_users("2", "3", "2"), set_group("4", "1"))]),
    ("users WHERE id = 2", [users_of("1", "2"), group_of("4", "1")]),
    ("users WHERE id = 2", [group_of("4", "1"), users_of("1", "2"), users_of("2", "2", "4")]),
    (
        "users WHERE id = 2",
        [
            Write("POST", "/groups/1/users", document("user", {"first_name": "n", "last_name": "n"})),
            users_of("1", "2"),
            users_of("2", "2"),
        ],
    ),
    # the row that both sides name
    ("users WHERE id = 1", [users_of("1", "1", "4"), group_of("4", "1")]),
    ("users WHERE id = 4", [users_of("1", "1", "4"), group_of("4", "1")]),
    # a related to-one is written while its key changes
    (
        "posts WHERE id = 1",
        [Write("PATCH", "/posts/1/relationships/user", {"data": one("user", "2")}), Write("DELETE", "/posts/1/user")],
    ),
    (
        "users WHERE id = 1",
        [Write("DELETE", "/posts/1/user"), Write("PATCH", "/posts/1/relationships/user", {"data": one("user", "2")})],
    ),
    ("users WHERE id = 1", [group_of("1", None), through_user("1", "1", "1", "4")]),
    ("users WHERE id = 1", [through_user("1", "1", "4"), group_of("1", "2")]),
    ("groups WHERE id = 1", [through_user("1", "1", "4"), group_of("1", None)]),
    ("groups WHERE id = 1", [through_user("1", "1", "4"), users_of("1", "2")]),
    # the key is in the related row
    (
        "user_bios WHERE id = 1",
        [
            operations(
                {"op": "update", "ref": to("user_bio", "1", "user"), "data": one("user", "4")},
                {"op": "update", "ref": to("user_bio", "2", "user"), "data": one("user", "1")},
            ),
            Write("DELETE", "/users/1/bio"),
        ],
    ),
]


@pytest.mark.parametrize(("held", "writes"), MEETINGS, ids=lambda value: None if isinstance(value, list) else value)
async def test_writes_that_meet(people: Stage, held: str, writes: list[Write]) -> None:
    await check(people, writes, held)


async def test_a_link_table_is_written_from_both_sides(corners: Stage) -> None:
    """Both requests lock articles and tags in the same order, so there is no deadlock."""
    writes = [
        Write("PATCH", "/articles/a/relationships/tags", {"data": of("tag", "2", "3")}),
        Write("PATCH", "/tags/2/relationships/articles", {"data": of("article", "a", "c")}),
    ]
    for held in CORNER.held:
        for order in (writes, writes[::-1]):
            await check(corners, order, held)


async def test_articles_are_taken_from_each_other(corners: Stage) -> None:
    for held in CORNER.held:
        await check(corners, [edited("1", "a", "b"), edited("2", "b", "c"), edited("1", "c")], held)


ROUNDS = 60


@pytest.mark.parametrize("seed", ["two", "three"])
async def test_any_writes_of_people(people: Stage, seed: str) -> None:
    await check_some(people, PEOPLE, seed)


@pytest.mark.parametrize("seed", ["two", "three"])
async def test_any_writes_of_links(corners: Stage, seed: str) -> None:
    await check_some(corners, CORNER, seed)


@pytest.mark.parametrize("seed", ["two", "three"])
async def test_any_writes_of_keys_of_several_columns(shop: Stage, seed: str) -> None:
    await check_some(shop, SHOP, seed)


async def check_some(stage: Stage, scene: Scene, seed: str) -> None:
    """Random writes, the same in each run."""
    chance = random.Random(seed)
    found: list[Outcome] = []
    for _ in range(ROUNDS if seed == "two" else ROUNDS // 3):
        writes = [scene.writes(chance) for _ in range(2 if seed == "two" else 3)]
        found.append(await check(stage, writes, *chance.sample(scene.held, chance.randint(1, MAX_LOCKED))))
    answers = [answer for outcome in found for answer in outcome.answers]
    assert sum(answer[0] == "2" for answer in answers) > len(answers) / 2
    assert seed == "three" or f"{BUSY}" not in answers
