"""Section 7 of the decisions, and "Atomic operations route" of the specification: successful operations and their
results.

test_operation_linkage.py tests operations on relationships; test_operation_failures.py and test_operation_rollback.py
test failures."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import asyncpg
import pytest

from server.resources import built_in
from tests.catalog import CATALOG
from tests.http.conftest import MEDIA_TYPE, Api, Start
from tests.http.operating import (
    EXTENDED,
    add,
    by_lid,
    extended,
    extended_results,
    operate,
    remove,
    results,
    unchanged,
    update,
)
from tests.http.people import ADA, create_household, linked, of, one, select

BEA = {
    "first_name": "Bea",
    "last_name": "Byron",
    "display_name": "Bea Byron",
    "age": 7,
    "email": None,
    "status": "active",
    "birth_date": None,
    "gender": None,
    "words": [],
}


def shown(type_name: str, id_text: str, **attributes: Any) -> dict[str, Any]:
    return {"type": type_name, "id": id_text, "attributes": attributes}


async def test_every_kind_in_order(api: Api) -> None:
    """Each result is at the position of its operation: the resource with only its attributes, or null."""
    await create_household(api)
    [created] = await select(api, "SELECT date_create::text FROM users WHERE id = 2")
    answer = await operate(
        api,
        add("parent", {"name": "new"}),
        remove("computer", id="4"),
        update("user", {"age": 7}, id="2"),
        add("computer", {"name": "edsac"}, relationships=linked(owner=one("user", "2"))),
        update("post", id="1"),
        remove("person", id=1),
        update("computer", {"serial": "x"}, id=3, relationships=linked(owner=None)),
    )
    assert results(answer) == [
        shown("parent", "2", name="new"),
        None,
        shown("user", "2", **BEA, date_create=created[0]),
        shown("computer", "5", name="edsac", serial=None),
        shown("post", "1", title="first", body="text"),
        None,
        shown("computer", "3", name="cray", serial="x"),
    ]
    assert list(answer.document) == ["atomic:results"]
    assert answer.headers["Vary"] == "Accept"
    assert await select(api, "SELECT id, owner_id FROM computers ORDER BY id") == [(1, 1), (2, 1), (3, None), (5, 2)]
    assert await select(api, "SELECT id FROM persons") == []


async def test_with_the_extension(api: Api) -> None:
    """The answer has the same `ext`, and results omit an empty `meta`."""
    await create_household(api)
    answer = await extended(api, add("group", {"name": "g"}), remove("person", id="1"), update("group", id="1"))
    assert extended_results(answer) == [shown("group", "2", name="g"), None, shown("group", "1", name="rowers")]
    assert list(answer.document) == ["atomic:results"]


@pytest.mark.parametrize("media_type", [MEDIA_TYPE, EXTENDED, "application/json"])
async def test_only_removes(api: Api, media_type: str) -> None:
    await create_household(api)
    answer = await operate(api, remove("person", id="1"), remove("computer", id="4"), media_type=media_type)
    assert (answer.status, answer.body) == (204, b"")
    assert "execute;dur=" in answer.headers["Server-Timing"]
    assert "Content-Type" not in answer.headers
    assert await select(api, "SELECT (SELECT count(*) FROM persons), (SELECT count(*) FROM computers)") == [(0, 3)]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_later_operation_does_not_change_a_result(api: Api, number: int) -> None:
    """The resource is shown as its operation left it."""
    await create_household(api)
    first = {
        1: update("computer", id="3"),
        2: update("computer", id="3", relationships=linked(owner=one("user", "1"))),
        3: update("computer", {"name": "cray"}, id="3"),
    }[number]
    answer = await operate(api, first, update("computer", {"name": "a"}, id="3"), update("computer", id="3"))
    assert [each["attributes"]["name"] for each in results(answer)] == ["cray", "a", "a"]


async def test_a_later_to_many_does_not_change_a_result(api: Api) -> None:
    """The same for links, which have their own statements."""
    await create_household(api)
    unlinked = update("user", id="1", relationships=linked(computers=[]))
    answer = await operate(api, unlinked, update("user", {"age": 5}, id="1"), remove("computer", id="1"))
    assert [each and each["attributes"]["age"] for each in results(answer)] == [36, 5, None]


# local ids


async def test_a_lid_instead_of_any_id(api: Api) -> None:
    """To-one and to-many linkage of an add and an update, the data of an update, the ref of an update and a remove."""
    answer = await operate(
        api,
        add("group", {"name": "g"}, lid="a"),
        add("computer", {"name": "one"}, lid="a"),
        add("computer", {"name": "two"}, lid="b"),
        add("computer", {"name": "three"}, lid="c"),
        add(
            "user",
            ADA,
            lid="a",
            relationships=linked(
                group=by_lid("group", "a"), computers=[by_lid("computer", "b"), by_lid("computer", "a")]
            ),
        ),
        update("user", {"age": 5}, lid="a"),
        {"op": "update", "ref": by_lid("user", "a"), "data": {"type": "user", "attributes": {"email": "a@b.c"}}},
        {
            "op": "update",
            "ref": by_lid("user", "a"),
            "data": {**by_lid("user", "a"), "attributes": {"gender": "other"}},
        },
        update("computer", lid="c", relationships=linked(owner=by_lid("user", "a"))),
        update("user", lid="a", relationships=linked(computers=[by_lid("computer", "c"), by_lid("computer", "b")])),
        remove("computer", lid="a"),
    )
    assert results(answer)[-1] is None
    found = await select(api, "SELECT age, email, gender, group_id FROM users")
    assert found == [(5, "a@b.c", "other", 1)]
    assert await select(api, "SELECT id, name, owner_id FROM computers ORDER BY id") == [(2, "two", 1), (3, "three", 1)]


async def test_many_to_many_by_the_association(api: Api) -> None:
    """Rule 6: the association is added, and its relationships refer to the two sides by `lid`."""
    sides = linked(parent=by_lid("parent", "x"), child=by_lid("child", "x"))
    answer = await operate(
        api,
        add("parent", {"name": "p"}, lid="x"),
        add("child", {"name": "c"}, lid="x"),
        add("parent-to-child-association", {"extra_data": "e"}, relationships=sides),
    )
    assert results(answer)[2] == shown("parent-to-child-association", "1", extra_data="e")
    assert await select(api, "SELECT parent_id, child_id, extra_data FROM parent_child_associations") == [(1, 1, "e")]


async def test_lids_of_a_link_table_and_of_the_own_type(start: Start, corner_url: str) -> None:
    """Ids of text, uuid and int; a tree whose nodes refer to earlier ones."""
    api = await start(corner_url, CATALOG)
    answer = await operate(
        api,
        add("author", {"given-name": "A", "family-name": "B"}, lid="l"),
        add("tag", {"name": "t"}, lid="l"),
        add("tag", {"name": "u"}, lid="m"),
        add(
            "article",
            {"title": "x", "pages": 3},
            lid="l",
            relationships=linked(
                author=by_lid("author", "l"), tags=[by_lid("tag", "m"), by_lid("tag", "l"), by_lid("tag", "m")]
            ),
        ),
        add("node", {"title": "root", "weight": 1}, lid="l"),
        add("node", {"title": "twig", "weight": 2}, lid="m", relationships=linked(parent=by_lid("node", "l"))),
        add("node", {"title": "leaf", "weight": 3}, relationships=linked(parent=by_lid("node", "m"))),
        update("article", lid="l", relationships=linked(tags=[by_lid("tag", "l")])),
    )
    article = results(answer)[3]["id"]
    assert results(answer)[3:4] + results(answer)[7:] == [shown("article", article, title="x", pages=3)] * 2
    assert await select(api, "SELECT article_id, tag_id FROM corner.article_tags") == [(article, 1)]
    found = await select(
        api, 'SELECT n."Mixed Case", p."Mixed Case" FROM corner.nodes n LEFT JOIN corner.nodes p ON p.id = n.parent_id'
    )
    assert set(found) == {("root", None), ("twig", "root"), ("leaf", "twig")}


async def test_a_client_chooses_id_and_lid(api: Api) -> None:
    answer = await operate(
        api,
        add("person", {"name": "own"}, id="70", lid="p"),
        update("person", {"name": "again"}, lid="p"),
        add("person", {"name": "next"}),
    )
    assert results(answer) == [
        shown("person", "70", name="own"),
        shown("person", "70", name="again"),
        shown("person", "1", name="next"),
    ]


async def test_an_id_and_a_lid_are_different_names(api: Api) -> None:
    """Existing resources have an id, resources of this request have a lid."""
    await create_household(api)
    both: list[tuple[Any, str]] = [
        (update("person", {"name": "x"}, id="1", lid="g"), "data/lid"),
        (remove("person", id="1", lid="g"), "ref/lid"),
        (update("user", id="1", relationships=linked(group={**by_lid("group", "g"), "id": "1"})), GROUP_LID),
    ]
    for operation, place in both:
        answer = await extended(api, add("group", {"name": "g"}, lid="g"), operation)
        found = [(one["status"], one["code"], one["source"]["pointer"]) for one in answer.errors]
        assert found == [("422", "invalid_document", f"/atomic:operations/1/{place}")]
    assert await select(api, "SELECT count(*) FROM groups WHERE name = 'g'") == [(0,)]


GROUP_LID = "data/relationships/group/data/lid"


# to-many linkage


@pytest.mark.parametrize("call", [operate, extended])
async def test_to_many_linkage_in_add_and_update(api: Api, call: Any) -> None:
    """The specification does not require it to work, the decisions do: the linkage that is sent replaces the set."""
    await create_household(api)
    answer = await call(
        api,
        add("user", ADA, relationships=linked(computers=of("computer", "1", "4"))),
        update("user", id="2", relationships=linked(computers=of("computer", "2", 3))),
        update("user", {"age": 1}, id="1", relationships=linked(computers=[])),
    )
    assert answer.status == 200, answer.body
    found = await select(api, "SELECT id, owner_id FROM computers ORDER BY id")
    assert found == [(1, 3), (2, 2), (3, 2), (4, 3)]


# order, and how it is sent


class Journal:
    """Counts the calls of a connection, and how many operations each fetchmany sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trips = 0
        self.batches: list[int] = []
        for name in ("execute", "_execute", "_executemany"):
            self._wrap(monkeypatch, name)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        own = getattr(asyncpg.Connection, name)

        async def counted(connection: Any, query: str, *args: Any, **options: Any) -> Any:
            # With arguments `execute` calls `_execute`.
            self.trips += name != "execute" or not args
            if name == "_executemany":
                self.batches.append(len(args[0]))
            return await own(connection, query, *args, **options)

        monkeypatch.setattr(asyncpg.Connection, name, counted)


BATCHES = {
    "adds": lambda count: [add("parent", {"name": f"p {number}"}) for number in range(count)],
    "lids": lambda count: [
        *(add("parent", {"name": f"p {number}"}, lid=str(number)) for number in range(count)),
        *(add("child", {"name": f"c {number}"}, lid=str(number)) for number in range(count)),
        *(
            add(
                "parent-to-child-association",
                relationships=linked(parent=by_lid("parent", str(number)), child=by_lid("child", str(number))),
            )
            for number in range(count)
        ),
    ],
    "updates": lambda count: [update("photo", {"name": f"n {number + 1}"}, id=number + 1) for number in range(count)],
    "removes": lambda count: [remove("photo", id=number + 1) for number in range(count)],
}


@pytest.mark.parametrize(
    ("kind", "expected", "expected_batches"),
    [
        # Three creates are one statement. Of a thousand, 320 rows with one column are one, and of the rest 8.
        ("adds", [1, 3], [[], [3, 5]]),
        ("lids", [4, 10], [[3, 3, 3], [1, 1, 5, 1, 1, 5, 2, 3, 1]]),
        ("updates", [3, 3], [[3], [1000]]),
        ("removes", [3, 3], [[3], [1000]]),
    ],
)
async def test_a_thousand_take_few_round_trips(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[int], expected_batches: list[list[int]]
) -> None:
    await api.sql("INSERT INTO photos (name) SELECT 'n' FROM generate_series(1, 2000)")
    many = 333 if kind == "lids" else 1000
    journal, trips, batches = Journal(monkeypatch), [], []
    for count in (3, many):
        begin = journal.trips
        assert (await operate(api, *BATCHES[kind](count))).status == (204 if kind == "removes" else 200)
        trips.append(journal.trips - begin)
        batches.append(journal.batches)
        journal.batches = []
        await api.sql("INSERT INTO photos (id, name) VALUES (1, 'n'), (2, 'n'), (3, 'n') ON CONFLICT DO NOTHING")
    assert (trips, batches) == (expected, expected_batches)


async def test_ids_follow_the_order_of_operations(api: Api) -> None:
    operations = [add("parent", {"name": f"p {number}"}) for number in range(1000)]
    found = results(await operate(api, *operations))
    assert found == [shown("parent", str(number + 1), name=f"p {number}") for number in range(1000)]
    assert await select(api, "SELECT id, name FROM parents ORDER BY id") == [
        (number + 1, f"p {number}") for number in range(1000)
    ]


async def test_many_resources_of_defaults_alone(start: Start, corner_url: str) -> None:
    """Their rows have no values that could be counted."""
    api = await start(corner_url, CATALOG)
    for count, members in ((9, {}), (20, {"attributes": {}}), (400, {"relationships": {}})):
        sent = [{"op": "add", "data": {"type": "undetailed", **members}} for _ in range(count)]
        assert len(results(await operate(api, *sent))) == count
    assert await select(api, "SELECT count(*), max(line) FROM corner.entries") == [(429, "")]


async def test_operations_of_different_shapes_stay_in_order(api: Api) -> None:
    """Operations of one type that cannot be one statement: different columns, and links."""
    await create_household(api)
    attributes = [{}, {"serial": "s"}, {"serial": None}, {}]
    operations = [add("computer", {"name": f"c {number}", **more}) for number, more in enumerate(attributes)]
    users = [
        add("user", ADA | {"age": 1}),
        add("user", ADA | {"age": 2}, relationships=linked(computers=of("computer", "4"))),
        add("user", ADA | {"age": 3}),
    ]
    found = results(await operate(api, *operations, *users))
    assert [each["id"] for each in found] == ["5", "6", "7", "8", "3", "4", "5"]
    assert [each["attributes"]["name"] for each in found[:4]] == ["c 0", "c 1", "c 2", "c 3"]
    assert [each["attributes"]["age"] for each in found[4:]] == [1, 2, 3]


async def test_removed_and_added_again(api: Api) -> None:
    """A batch ends where the kind changes, so a unique value is free when it is used again."""
    await create_household(api)
    await api.sql("INSERT INTO groups (name) VALUES ('free')")
    answer = await operate(
        api,
        remove("group", id="2"),
        add("group", {"name": "free"}, lid="g"),
        update("group", {"name": "other"}, lid="g"),
        add("group", {"name": "free"}),
        remove("group", lid="g"),
        add("group", {"name": "other"}),
    )
    assert [each and each["attributes"]["name"] for each in results(answer)] == [
        None,
        "free",
        "other",
        "free",
        None,
        "other",
    ]


async def test_ids_that_clients_have_taken_are_skipped(api: Api) -> None:
    """A batch succeeds even if the sequence returns ids that are taken."""
    for id_text in ("2", "3"):
        document = {"data": {"type": "person", "id": id_text, "attributes": {"name": "own"}}}
        assert (await api.post("/persons", document)).status == 201
    # The batch was rolled back, but the sequence has moved past 1 to 3.
    found = results(await operate(api, *(add("person", {"name": name}) for name in "abc")))
    assert found == [shown("person", id_text, name=name) for id_text, name in zip("456", "abc", strict=True)]


# settings


async def test_max_operations(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), max_operations=2)
    operations = [add("parent", {"name": "p"})] * 3
    assert len(results(await operate(api, *operations[:2]))) == 2
    async with unchanged(api):
        answer = await extended(api, *operations)
    assert (answer.status, [error["source"] for error in answer.errors]) == (400, [{"pointer": "/atomic:operations"}])


@pytest.mark.parametrize("path", ["/batch", "/v1/batch", "/users-and-more"])
async def test_the_path_is_a_setting(start: Start, database_url: str, path: str) -> None:
    api = await start(database_url, built_in(), operations_path=path)
    for sent in (path, f"{path}/"):
        assert (await operate(api, add("parent", {"name": "p"}), path=sent)).status == 200
    assert (await operate(api, add("parent", {"name": "p"}))).status == 404
    links = (await api.get("/")).document["links"]
    assert path in links.values()
    assert "/operations" not in links.values()


async def test_no_operations_at_all(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), operations_path="")
    assert (await operate(api, add("parent", {"name": "p"}))).status == 404
    root = await api.get("/")
    assert root.status == 200
    descriptions = {"/-/openapi.json", "/-/docs"}
    assert set(root.document["links"].values()) == {"/", *descriptions, *(resource.path for resource in built_in())}


@pytest.mark.parametrize("path", ["/users", "/users/7", "/user-bio/1/user"])
def test_a_path_below_a_collection_is_refused_at_the_start(database_url: str, path: str) -> None:
    flags = ["--port", "0", "--database-url", database_url, "--operations-path", path]
    command = [sys.executable, "-m", "server", "serve", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    collection = "/" + path.split("/")[1]
    assert ended.returncode == 1
    assert f"operations_path {path} is below the collection {collection}: choose another" in ended.stderr
    assert "Traceback" not in ended.stderr
