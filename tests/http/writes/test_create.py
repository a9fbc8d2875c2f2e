"""POST on a collection: the created resource, its links, and linkage that is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.http.conftest import Api, Serve
from tests.http.people import ADA, create_household, document, linked, of, one, select, user
from tests.http.refusals import Refused, check_refused, error


def relationship_links(path: str, *names: str) -> dict[str, Any]:
    """Relationship objects that only show links."""
    return {name: {"links": {"self": f"{path}/relationships/{name}", "related": f"{path}/{name}"}} for name in names}


# what is created


async def test_the_whole_answer_with_defaults(api: Api) -> None:
    before = datetime.now(UTC).date()
    answer = await api.post("/users", document("user", ADA))
    today = answer.document["data"]["attributes"]["date_create"]
    assert answer.status == 201
    assert answer.headers["Location"] == "/users/1"
    assert answer.headers["Content-Type"] == "application/vnd.api+json"
    assert answer.document == {
        "jsonapi": {"version": "1.0"},
        "data": {
            "type": "user",
            "id": "1",
            "attributes": {
                "first_name": "Ada",
                "last_name": "Byron",
                "display_name": "Ada Byron",
                "age": None,
                "email": None,
                "status": "active",
                "birth_date": None,
                "gender": None,
                "words": [],
                "date_create": today,
            },
            "relationships": relationship_links("/users/1", "computers", "posts", "bio", "group"),
            "links": {"self": "/users/1"},
        },
        "links": {"self": "/users/1"},
    }
    assert before.isoformat() <= today <= datetime.now(UTC).date().isoformat()


FULL: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "/users",
        "user",
        {
            "first_name": "Zoë",
            "last_name": "O'Brien \U0001f6a3",
            "age": 7,
            "email": "zoe@example.org",
            "status": "block",
            "birth_date": "2019-02-28",
            "gender": "other",
            "words": ["", "a,b", '"', "NULL", "\\"],
        },
        {},
    ),
    ("/groups", "group", {"name": "swimmers"}, {}),
    ("/posts", "post", {"title": "t", "body": ""}, {"user": one("user", "1")}),
    (
        "/user-bio",
        "user_bio",
        {"birth_city": "", "favourite_movies": "Alien", "keys_to_ids_list": {"a": [1, -2, 10**30], "": []}},
        {"user": one("user", "3")},
    ),
    ("/parents", "parent", {"name": ""}, {}),
    ("/children", "child", {"name": "k\tim\n"}, {}),
    (
        "/parent-to-child-association",
        "parent-to-child-association",
        {"extra_data": "x"},
        {"parent": one("parent", "1"), "child": one("child", "2")},
    ),
    ("/computers", "computer", {"name": "c", "serial": "s-1"}, {"owner": one("user", "2")}),
    ("/persons", "person", {"name": "Noor"}, {}),
    ("/photos", "photo", {"name": "n", "words": {"a": [1, 1.5, None, True, {"b": "c"}]}}, {}),
]


async def test_every_resource_with_every_attribute(api: Api) -> None:
    await create_household(api)
    for path, type_name, attributes, relationships in FULL:
        answer = await api.post(path, document(type_name, attributes, relationships=linked(**relationships)))
        assert answer.status == 201, answer.body
        shown = answer.document["data"]
        assert shown["type"] == type_name
        assert attributes.items() <= shown["attributes"].items()
        assert {name: shown["relationships"][name]["data"] for name in relationships} == relationships
        read = await api.get(answer.headers["Location"])
        assert read.document["data"]["attributes"] == shown["attributes"]


async def test_nullable_attributes_may_be_sent_as_null(api: Api) -> None:
    nulls = dict.fromkeys(("age", "email", "birth_date", "gender"))
    answer = await api.post("/users", user(nulls))
    assert answer.status == 201
    assert nulls.items() <= answer.document["data"]["attributes"].items()


ACCEPTED: list[dict[str, Any]] = [
    {"first_name": "x", "last_name": "y"},
    {"first_name": "é" * 255, "last_name": "\U0001f600" * 255},
    {"age": 0},
    {"age": 150},
    {"age": 30.0},
    {"email": "a@b"},
    {"email": "x" * 320},
    {"status": "active"},
    {"status": "block"},
    {"status": "archive"},
    {"birth_date": "0001-01-02"},
    {"birth_date": "9999-12-30"},
    {"birth_date": "2024-02-29"},
    {"gender": "female"},
    {"gender": "male"},
    {"gender": "other"},
]


async def test_values_at_their_bounds(api: Api) -> None:
    for attributes in ACCEPTED:
        answer = await api.post("/users", user(attributes))
        assert answer.status == 201, (attributes, answer.body)
        assert attributes.items() <= answer.document["data"]["attributes"].items()


async def test_include_and_fields_on_the_answer(api: Api) -> None:
    await create_household(api)
    relationships: dict[str, Any] = {"group": one("group", "1"), "computers": of("computer", "4", "3")}
    answer = await api.post(
        "/users?include=group,computers&fields[user]=age,group,computers&fields[computer]=name", user(**relationships)
    )
    found = answer.document
    assert answer.status == 201
    assert answer.headers["Location"] == found["links"]["self"] == found["data"]["links"]["self"] == "/users/3"
    links = relationship_links("/users/3", "computers", "group")
    assert found["data"]["attributes"] == {"age": None}
    assert found["data"]["relationships"] == {
        "computers": links["computers"] | {"data": of("computer", "3", "4")},
        "group": links["group"] | {"data": one("group", "1")},
    }
    assert [(item["type"], item["id"], item["attributes"]) for item in found["included"]] == [
        ("computer", "3", {"name": "cray"}),
        ("computer", "4", {"name": "deck"}),
        ("group", "1", {"name": "rowers"}),
    ]


async def test_a_fieldset_leaves_a_written_relationship_out(api: Api) -> None:
    await create_household(api)
    answer = await api.post("/users?fields[user]=age", user(group=one("group", "1")))
    assert answer.document["data"] == {
        "type": "user",
        "id": "3",
        "attributes": {"age": None},
        "links": {"self": "/users/3"},
    }
    assert await select(api, "SELECT group_id FROM users WHERE id = 3") == [(1,)]


@pytest.fixture
def public_api(serve: Serve, database_url: str) -> Api:
    return serve(database_url, public_url="https://example.org/api")


async def test_location_with_a_public_url(public_api: Api) -> None:
    answer = await public_api.post("/groups", document("group", {"name": "g"}))
    location = answer.headers["Location"]
    assert location == "https://example.org/api/groups/1"
    assert location == answer.document["links"]["self"] == answer.document["data"]["links"]["self"]


async def test_a_trailing_slash_is_the_same_route(api: Api) -> None:
    answer = await api.post("/groups/", document("group", {"name": "g"}))
    assert (answer.status, answer.headers["Location"]) == (201, "/groups/1")


async def test_members_that_json_api_does_not_define_are_ignored(api: Api) -> None:
    await create_household(api)
    data = {
        **document("computer", {"name": "c"})["data"],
        "colour": "red",
        "links": {"self": "/elsewhere"},
        "meta": {"by": "hand"},
        "relationships": {
            "owner": {"data": {**one("user", "1"), "meta": {"since": 1}, "name": "Ada"}, "links": {}, "hue": 1}
        },
    }
    answer = await api.post("/computers", {"data": data, "jsonapi": {"version": "9"}, "included": [7], "extra": None})
    assert answer.status == 201, answer.body
    assert answer.document["data"]["attributes"] == {"name": "c", "serial": None}
    assert answer.document["data"]["relationships"]["owner"]["data"] == one("user", "1")


# linkage


async def test_to_one_to_many_and_reverse_to_one(api: Api) -> None:
    await create_household(api)
    relationships: dict[str, Any] = {
        "group": one("group", 1),
        "computers": of("computer", 4, "1", 4),
        "posts": of("post", "2"),
        "bio": one("user_bio", "2"),
    }
    answer = await api.post("/users", user(**relationships))
    assert answer.status == 201, answer.body
    assert {name: shown["data"] for name, shown in answer.document["data"]["relationships"].items()} == {
        "group": one("group", "1"),
        "computers": of("computer", "1", "4"),
        "posts": of("post", "2"),
        "bio": one("user_bio", "2"),
    }
    assert await select(api, "SELECT id, owner_id FROM computers ORDER BY id") == [(1, 3), (2, 1), (3, 2), (4, 3)]
    assert await select(api, "SELECT id, user_id FROM posts ORDER BY id") == [(1, 1), (2, 3)]
    assert await select(api, "SELECT id, user_id FROM user_bios ORDER BY id") == [(1, 1), (2, 3)]
    assert await select(api, "SELECT id, group_id FROM users ORDER BY id") == [(1, 1), (2, None), (3, 1)]


async def test_empty_linkage(api: Api) -> None:
    answer = await api.post("/users", user(group=None, bio=None, computers=[], posts=[]))
    assert answer.status == 201
    shown = answer.document["data"]["relationships"]
    assert {name: shown[name]["data"] for name in shown} == {"group": None, "bio": None, "computers": [], "posts": []}


async def test_linkage_that_is_refused(api: Api) -> None:
    await create_household(api)
    base = "/data/relationships"
    is_not_there = "There is no computer with the id “77”."

    def refused(errors: list[Any], status: int | None = None, **relationships: Any) -> Refused:
        return Refused("POST", "/users", user(**relationships), errors, status)

    def type_conflict(target: str, sent: str, pointer: str) -> Any:
        detail = f"This relationship is to resources of type “{target}”, not “{sent}”."
        return error("linkage_type_conflict", detail, pointer)

    to_many = "The data of “computers” must be an array of resource identifiers."
    to_one = "The data of “{}” must be one resource identifier or null."
    await check_refused(
        api,
        [
            refused(
                [error("related_not_found", "There is no group with the id “77”.", f"{base}/group/data")],
                group=one("group", "77"),
            ),
            refused(
                [error("related_not_found", "There is no group with the id “x”.", f"{base}/group/data")],
                group=one("group", "x"),
            ),
            refused(
                [error("related_not_found", "There is no group with the id “01”.", f"{base}/group/data")],
                group=one("group", "01"),
            ),
            refused(
                [error("related_not_found", f"There is no group with the id “{2**63}”.", f"{base}/group/data")],
                group=one("group", 2**63),
            ),
            refused(
                [error("related_not_found", "There is no user_bio with the id “77”.", f"{base}/bio/data")],
                bio=one("user_bio", "77"),
            ),
            refused(
                [
                    error("related_not_found", is_not_there, f"{base}/computers/data/1"),
                    error("related_not_found", is_not_there.replace("77", "78"), f"{base}/computers/data/3"),
                ],
                computers=of("computer", "1", "77", "2", "78"),
            ),
            refused([type_conflict("group", "user", f"{base}/group/data/type")], group=one("user", "1")),
            refused(
                [type_conflict("computer", "post", f"{base}/computers/data/1/type")],
                computers=[one("computer", "1"), one("post", "1")],
            ),
            refused([error("invalid_relationship", to_one.format("group"), f"{base}/group/data")], group=[]),
            refused([error("invalid_relationship", to_one.format("bio"), f"{base}/bio/data")], bio=of("user_bio", "1")),
            refused([error("invalid_relationship", to_many, f"{base}/computers/data")], computers=None),
            refused([error("invalid_relationship", to_many, f"{base}/computers/data")], computers=one("computer", "1")),
        ],
    )


async def test_malformed_linkage(api: Api) -> None:
    await create_household(api)
    base = "/data/relationships"
    made_of = "Resource linkage must consist of resource identifier objects, or be null."

    def refused(relationships: Any, *errors: Any) -> Refused:
        return Refused("POST", "/users", document("user", ADA, relationships=relationships), list(errors))

    await check_refused(
        api,
        [
            refused([], error("invalid_document", "`relationships` must be an object.", base)),
            refused(None, error("invalid_document", "`relationships` must be an object.", base)),
            refused(
                {"group": None},
                error("invalid_document", "A relationship must be an object with `data`.", f"{base}/group"),
            ),
            refused(
                {"group": {"links": {}}},
                error("invalid_document", "The relationship has no `data`.", f"{base}/group/data"),
            ),
            refused({"group": {"data": "1"}}, error("invalid_document", made_of, f"{base}/group/data")),
            refused({"computers": {"data": [1]}}, error("invalid_document", made_of, f"{base}/computers/data/0")),
            refused(
                {"group": {"data": {}}},
                error("invalid_document", "There is no `type`.", f"{base}/group/data/type"),
                error("invalid_document", "There is no `id`.", f"{base}/group/data/id"),
            ),
            refused(
                {"group": {"data": {"type": 7, "id": True}}},
                error("invalid_document", "`type` must be a string.", f"{base}/group/data/type"),
                error("invalid_document", "`id` must be a string or a whole number.", f"{base}/group/data/id"),
            ),
        ],
    )


async def test_a_required_relationship(api: Api) -> None:
    await create_household(api)
    pointer = "/data/relationships/user"
    text = {"title": "t", "body": "b"}
    is_required = "The relationship “user” is required."
    await check_refused(
        api,
        [
            Refused("POST", "/posts", document("post", text), [error("invalid_relationship", is_required, pointer)]),
            Refused(
                "POST",
                "/posts",
                document("post", text, relationships=linked(user=None)),
                [error("invalid_relationship", is_required, f"{pointer}/data")],
            ),
            Refused(
                "POST",
                "/parent-to-child-association",
                document("parent-to-child-association"),
                [
                    error("invalid_relationship", is_required.replace("user", name), f"/data/relationships/{name}")
                    for name in ("parent", "child")
                ],
            ),
        ],
    )


async def test_a_refused_relationship_is_not_reported_as_missing(api: Api) -> None:
    pointer = "/data/relationships/user/data"
    text = {"title": "t", "body": "b"}
    await check_refused(
        api,
        [
            Refused(
                "POST",
                "/posts",
                document("post", text, relationships={"user": {}}),
                [error("invalid_document", "The relationship has no `data`.", pointer)],
            ),
            Refused(
                "POST",
                "/posts",
                document("post", text, relationships=linked(user={"type": "user"})),
                [error("invalid_document", "There is no `id`.", f"{pointer}/id")],
            ),
        ],
    )
