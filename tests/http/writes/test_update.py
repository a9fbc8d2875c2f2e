"""PATCH on a resource: fields that are not sent stay, fields that are sent are replaced, and a refused request changes
nothing."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Api
from tests.http.people import ADA, create_household, create_user, document, linked, of, one, select
from tests.http.refusals import Refused, attribute, check_refused, error


def patch_user(attributes: Any = None, *, id: Any = "1", **relationships: Any) -> dict[str, Any]:
    members = {"relationships": linked(**relationships)} if relationships else {}
    return document("user", attributes, id=id, **members)


def refused(sent: Any, *errors: Any, path: str = "/users/1", status: int | None = None) -> Refused:
    return Refused("PATCH", path, sent, list(errors), status)


# attributes


async def test_the_answer_equals_that_of_a_get(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1", patch_user({"age": 37}))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/vnd.api+json"
    assert "Location" not in answer.headers
    assert answer.document == (await api.get("/users/1")).document


async def test_fields_that_are_not_sent_stay(api: Api) -> None:
    await create_household(api)
    before = (await api.get("/users/1?include=computers,posts,bio,group")).document
    for sent in (patch_user(), patch_user({}), document("user", id="1", relationships={}), patch_user({"age": 36})):
        assert (await api.patch("/users/1", sent)).status == 200
        assert (await api.get("/users/1?include=computers,posts,bio,group")).document == before


CHANGES: list[dict[str, Any]] = [
    {"first_name": "Augusta"},
    {"age": None},
    {"age": 0, "email": "ada@example.org", "birth_date": "1815-12-10", "gender": "female"},
    {"words": []},
    {"words": ["b", "a", "b"]},
    {"status": "archive", "last_name": "King", "email": None},
]


async def test_attributes_are_changed_one_by_one(api: Api) -> None:
    await create_household(api)
    expected = (await api.get("/users/1")).document["data"]["attributes"]
    for sent in CHANGES:
        expected |= sent
        expected["display_name"] = f"{expected['first_name']} {expected['last_name']}"
        answer = await api.patch("/users/1", patch_user(sent))
        assert answer.status == 200
        assert answer.document["data"]["attributes"] == expected
        assert (await api.get("/users/1")).document["data"]["attributes"] == expected


async def test_an_id_may_be_a_json_number(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1", patch_user({"age": 1}, id=1))
    assert (answer.status, answer.document["data"]["id"]) == (200, "1")


async def test_a_whole_resource_may_be_sent_back(api: Api) -> None:
    """A read resource with changes: with unchanged read-only attributes, links and meta."""
    await create_household(api)
    read = (await api.get("/users/1?include=computers,group,posts,bio")).document
    read["data"]["attributes"]["age"] = 40
    answer = await api.patch("/users/1", read)
    assert answer.status == 200, answer.body
    del read["included"]
    assert answer.document["data"] == read["data"]


async def test_a_read_only_attribute_is_compared_with_the_value_before_the_write(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1", patch_user({"first_name": "Augusta", "display_name": "Ada Byron"}))
    assert answer.status == 200
    assert answer.document["data"]["attributes"]["display_name"] == "Augusta Byron"


async def test_a_read_only_attribute_with_another_value(api: Api) -> None:
    await create_household(api)
    read_only = "“{}” is read-only: leave it out, or send the value it has."
    name = attribute("display_name", read_only.format("display_name"))
    day = attribute("date_create", read_only.format("date_create"))
    date_create = (await api.get("/users/1")).document["data"]["attributes"]["date_create"]
    await check_refused(
        api,
        [
            refused(patch_user({"display_name": "Augusta Byron"}), name),
            refused(patch_user({"display_name": "Augusta Byron", "first_name": "Augusta"}), name),
            refused(patch_user({"display_name": None}), name),
            refused(patch_user({"display_name": 7}), name),
            refused(patch_user({"date_create": "2020-01-01", "display_name": "x"}), day, name),
            refused(patch_user({"date_create": "2020-01-01", "age": 5}, computers=[]), day),
            refused(
                patch_user({"date_create": date_create}, id="99"),
                error("resource_not_found", "There is no user with the id “99”."),
                path="/users/99",
            ),
        ],
    )


async def test_attributes_that_are_refused(api: Api) -> None:
    await create_household(api)
    await check_refused(
        api,
        [
            refused(
                patch_user({"age": 151, "status": None, "colour": 1, "first_name": ""}),
                attribute("age", "“age” must be from 0 to 150, not 151."),
                attribute("status", "“status” must be a value, since it cannot be null."),
                attribute("colour", "user has no attribute “colour”."),
                attribute("first_name", '“first_name” must be from 1 to 255 characters long, not "".'),
            ),
            refused(
                patch_user({"frist_name": "x"}),
                attribute("frist_name", "user has no attribute “frist_name”. Did you mean “first_name”?"),
            ),
            refused(
                patch_user({"group": "1"}),
                attribute("group", "“group” is a relationship: put it under `relationships`."),
            ),
            refused(
                patch_user({"age": "x"}, grop=None, id="2"),
                error("id_conflict", "The document's id “2” is not the id “1” of the path.", "/data/id"),
                attribute("age", '“age” must be a whole number from -2147483648 to 2147483647, not "x".'),
                error(
                    "invalid_relationship",
                    "user has no relationship “grop”. Did you mean “group”?",
                    "/data/relationships/grop",
                ),
                status=400,
            ),
        ],
    )


async def test_a_valid_attribute_is_not_written_if_another_is_invalid(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1", patch_user({"age": 40}, computers=of("computer", "4", "77")))
    assert answer.status == 404
    assert await select(api, "SELECT age FROM users WHERE id = 1") == [(36,)]
    assert await select(api, "SELECT id FROM computers WHERE owner_id = 1 ORDER BY id") == [(1,), (2,)]


# birth_city


async def test_birth_city_is_required_whenever_attributes_are_sent(api: Api) -> None:
    await create_household(api)
    is_required = attribute("birth_city", "The attribute “birth_city” is required.")
    await check_refused(
        api,
        [
            refused(document("user_bio", sent, id="1"), is_required, path="/user-bio/1")
            for sent in ({}, {"favourite_movies": "Alien"}, {"keys_to_ids_list": None})
        ]
        + [
            refused(
                document("user_bio", {"birth_city": None}, id="1"),
                attribute("birth_city", "“birth_city” must be a value, since it cannot be null."),
                path="/user-bio/1",
            )
        ],
    )


async def test_without_attributes_birth_city_stays(api: Api) -> None:
    await create_household(api)
    for sent in (document("user_bio", id="1"), document("user_bio", id="1", relationships=linked(user=one("user", 1)))):
        answer = await api.patch("/user-bio/1", sent)
        assert answer.status == 200
        assert answer.document["data"]["attributes"]["birth_city"] == "London"


async def test_with_birth_city_the_other_attributes_stay(api: Api) -> None:
    await create_household(api)
    first = {"birth_city": "Ockham", "favourite_movies": "Alien", "keys_to_ids_list": {"a": [1, 2]}}
    await api.patch("/user-bio/1", document("user_bio", first, id="1"))
    answer = await api.patch("/user-bio/1", document("user_bio", {"birth_city": "Bath"}, id="1"))
    assert answer.document["data"]["attributes"] == first | {"birth_city": "Bath"}


# relationships


async def test_a_to_one_is_set_and_cleared(api: Api) -> None:
    await create_household(api)
    for linkage, group_id in ((None, None), (one("group", 1), 1), (one("group", "1"), 1)):
        answer = await api.patch("/users/1", patch_user(group=linkage))
        assert answer.status == 200
        shown = answer.document["data"]["relationships"]
        assert shown["group"]["data"] == (linkage and one("group", "1"))
        assert [name for name in shown if "data" in shown[name]] == ["group"]
        assert await select(api, "SELECT group_id FROM users WHERE id = 1") == [(group_id,)]


SETS: list[tuple[list[Any], list[int]]] = [
    (["1"], [1]),
    (["4"], [4]),
    ([], []),
    (["2", "1"], [1, 2]),
    (["2", "1"], [1, 2]),
    (["3", 4, "3"], [3, 4]),
    (["4", "3", "2", "1"], [1, 2, 3, 4]),
]


async def test_a_to_many_replaces_the_set(api: Api) -> None:
    await create_household(api)
    owners: dict[int, int | None] = {1: 1, 2: 1, 3: 2, 4: None}
    for sent, left in SETS:
        answer = await api.patch("/users/1", patch_user(computers=of("computer", *sent)))
        assert answer.status == 200
        assert answer.document["data"]["relationships"]["computers"]["data"] == of("computer", *map(str, left))
        owners = {number: 1 if number in left else None if owner == 1 else owner for number, owner in owners.items()}
        assert dict(await select(api, "SELECT id, owner_id FROM computers")) == owners


async def test_a_to_many_of_required_links_may_grow(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/2", patch_user(id="2", posts=of("post", "2")))
    assert answer.status == 200
    assert await select(api, "SELECT id, user_id FROM posts ORDER BY id") == [(1, 1), (2, 2)]


async def test_a_reverse_to_one_moves_the_other_row(api: Api) -> None:
    await create_household(api)
    await create_user(api)
    answer = await api.patch("/users/3", patch_user(id="3", bio=one("user_bio", "2")))
    assert answer.status == 200
    assert answer.document["data"]["relationships"]["bio"]["data"] == one("user_bio", "2")
    assert await select(api, "SELECT id, user_id FROM user_bios ORDER BY id") == [(1, 1), (2, 3)]
    same = await api.patch("/users/3", patch_user(id="3", bio=one("user_bio", "2")))
    assert same.status == 200
    empty = await api.patch("/users/2", patch_user(id="2", bio=None))
    assert empty.document["data"]["relationships"]["bio"]["data"] is None


async def test_the_owning_side_of_a_one_to_one(api: Api) -> None:
    await create_household(api)
    await create_user(api)
    answer = await api.patch("/user-bio/1", document("user_bio", id="1", relationships=linked(user=one("user", "3"))))
    assert answer.document["data"]["relationships"]["user"]["data"] == one("user", "3")
    assert (await api.get("/users/1?include=bio")).document["data"]["relationships"]["bio"]["data"] is None


async def test_a_link_that_must_not_be_null_is_a_403_and_nothing_changed(api: Api) -> None:
    await create_household(api)
    left = "would be left without a required relationship: delete or move first."
    posts = "/data/relationships/posts/data"
    bio = "/data/relationships/bio/data"
    required = error("required_link", "The relationship “user” must not be empty.", "/data/relationships/user/data")
    await check_refused(
        api,
        [
            refused(patch_user({"age": 1}, posts=[]), error("required_link", f"post 1, 2 {left}", posts)),
            refused(patch_user(posts=of("post", "2")), error("required_link", f"post 1 {left}", posts)),
            refused(patch_user(computers=[], posts=of("post", "1")), error("required_link", f"post 2 {left}", posts)),
            refused(patch_user(bio=None), error("required_link", f"user_bio 1 {left}", bio)),
            refused(patch_user(bio=one("user_bio", "2")), error("required_link", f"user_bio 1 {left}", bio)),
            refused(document("post", id="1", relationships=linked(user=None)), required, path="/posts/1"),
            refused(
                document("post", {"title": "x"}, id="1", relationships=linked(user=None)), required, path="/posts/1"
            ),
            refused(document("user_bio", id="1", relationships=linked(user=None)), required, path="/user-bio/1"),
        ],
    )


async def test_linkage_that_is_refused(api: Api) -> None:
    await create_household(api)
    base = "/data/relationships"
    await check_refused(
        api,
        [
            refused(
                patch_user({"age": 1}, group=one("group", "77")),
                error("related_not_found", "There is no group with the id “77”.", f"{base}/group/data"),
            ),
            refused(
                patch_user(group=one("group", "x")),
                error("related_not_found", "There is no group with the id “x”.", f"{base}/group/data"),
            ),
            refused(
                patch_user(computers=of("computer", "77", "1", "x")),
                error("related_not_found", "There is no computer with the id “x”.", f"{base}/computers/data/2"),
            ),
            refused(
                patch_user(computers=of("computer", "77", "1")),
                error("related_not_found", "There is no computer with the id “77”.", f"{base}/computers/data/0"),
            ),
            refused(
                patch_user(bio=one("user_bio", "77")),
                error("related_not_found", "There is no user_bio with the id “77”.", f"{base}/bio/data"),
            ),
            refused(
                patch_user(computers=[one("user", "1")]),
                error(
                    "linkage_type_conflict",
                    "This relationship is to resources of type “computer”, not “user”.",
                    f"{base}/computers/data/0/type",
                ),
            ),
            refused(
                patch_user(group=[], computers=None),
                error(
                    "invalid_relationship",
                    "The data of “group” must be one resource identifier or null.",
                    f"{base}/group/data",
                ),
                error(
                    "invalid_relationship",
                    "The data of “computers” must be an array of resource identifiers.",
                    f"{base}/computers/data",
                ),
            ),
            refused(
                document("user", id="1", relationships={"group": {"meta": {}}}),
                error("invalid_document", "The relationship has no `data`.", f"{base}/group/data"),
            ),
        ],
    )


async def test_attributes_and_relationships_in_one_request(api: Api) -> None:
    await create_household(api)
    sent = patch_user(
        {"age": 50, "display_name": "Ada Byron"},
        group=None,
        computers=of("computer", "3"),
        posts=of("post", "1", "2"),
        bio=one("user_bio", "1"),
    )
    answer = await api.patch("/users/1?include=computers.owner&fields[user]=age,computers,group", sent)
    assert answer.status == 200, answer.body
    data = answer.document["data"]
    assert data["attributes"] == {"age": 50}
    assert {name: shown["data"] for name, shown in data["relationships"].items()} == {
        "computers": of("computer", "3"),
        "group": None,
    }
    (computer,) = answer.document["included"]
    assert computer["relationships"]["owner"]["data"] == one("user", "1")
    query = "include=computers.owner&fields%5Buser%5D=age%2Ccomputers%2Cgroup"
    assert answer.document["links"]["self"] == f"/users/1?{query}"
    assert computer["links"]["self"] == "/computers/3"


async def test_include_shows_the_state_after_the_write(api: Api) -> None:
    await create_household(api)
    answer = await api.patch("/users/1?include=computers,group", patch_user(computers=of("computer", "4", "1")))
    assert [(item["type"], item["id"]) for item in answer.document["included"]] == [
        ("computer", "1"),
        ("computer", "4"),
        ("group", "1"),
    ]


# type and id


async def test_type_and_id_must_be_those_of_the_path(api: Api) -> None:
    await create_household(api)
    there_is_no = error("resource_not_found", "There is no user with the id “99”.")

    def other_id(shown: str) -> Any:
        return error("id_conflict", f"The document's id “{shown}” is not the id “1” of the path.", "/data/id")

    await check_refused(
        api,
        [
            refused(
                document("post", {"title": "x"}, id="1"),
                error("type_conflict", "This route is for resources of type “user”, not “post”.", "/data/type"),
            ),
            refused(patch_user({"age": 1}, id="2"), other_id("2")),
            refused(patch_user({"age": 1}, id=2), other_id("2")),
            refused(patch_user({"age": 1}, id="01"), other_id("01")),
            refused(patch_user({"age": 1}, id=99), there_is_no, path="/users/99"),
            refused(patch_user({}, id=99), there_is_no, path="/users/99"),
            refused(patch_user(id=99, computers=of("computer", "1")), there_is_no, path="/users/99"),
            refused(patch_user(id=99, group=one("group", "1")), there_is_no, path="/users/99"),
        ],
    )


async def test_type_and_id_must_be_sent(api: Api) -> None:
    await create_household(api)
    await check_refused(
        api,
        [
            refused({"data": {"type": "user"}}, error("invalid_document", "There is no `id`.", "/data/id")),
            refused({"data": {"id": "1"}}, error("invalid_document", "There is no `type`.", "/data/type")),
            refused(
                {"data": {}},
                error("invalid_document", "There is no `type`.", "/data/type"),
                error("invalid_document", "There is no `id`.", "/data/id"),
            ),
        ],
    )


async def test_a_missing_id(api: Api) -> None:
    await create_household(api)
    texts = ("01", "+1", "1.0", "x", "-1", str(2**63), "9" * 40, "null")
    paths = {text: text for text in texts} | {"1%20": "1 ", "%D9%A1": "١"}
    await check_refused(
        api,
        [
            refused(
                patch_user({"age": 1}, id=shown),
                error("resource_not_found", f"There is no user with the id “{shown}”."),
                path=f"/users/{path}",
            )
            for path, shown in paths.items()
        ],
    )


async def test_patch_of_a_collection_is_not_allowed(api: Api) -> None:
    answer = await api.patch("/users", document("user", ADA, id="1"))
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, POST, HEAD, QUERY, OPTIONS")


# what is hidden


async def test_the_password_column_is_in_no_answer(api: Api) -> None:
    await create_household(api)
    await api.sql("UPDATE users SET password_hash = 'hunter2-hash'")
    sent = {"password_hash": "mine"}
    answers = [
        await api.get("/users"),
        await api.get("/users/1?include=computers.owner"),
        await api.get("/computers?include=owner"),
        await api.get("/users?fields[user]=password_hash"),
        await api.get("/users?sort=password_hash"),
        await api.filter("/users", [{"name": "password_hash", "op": "eq", "val": "hunter2-hash"}]),
        await api.filter("/users", [{"name": "paswordhash", "op": "eq", "val": "x"}]),
        await api.get("/users?filter[password_hash]=x"),
        await api.get("/users?include=password_hash"),
        await api.post("/users", document("user", ADA | {"first_name": "Cleo"})),
        await api.post("/users", document("user", ADA | sent)),
        await api.patch("/users/1?include=computers", patch_user({"age": 1}, computers=[])),
        await api.patch("/users/1", patch_user(sent)),
        await api.patch("/users/1", patch_user({"pasword_hash": "x"})),
        await api.post("/users?include=bio", document("user", {})),
        await api.delete("/users/2"),
    ]
    for answer in answers:
        assert b"hunter2" not in answer.body
        assert b"Did you mean \xe2\x80\x9cpassword_hash" not in answer.body
        if answer.status < 400:
            assert b"password" not in answer.body
    assert [answer.status for answer in answers] == [200] * 3 + [400] * 6 + [201, 422, 200, 422, 422, 422, 200]
    assert await select(api, "SELECT DISTINCT password_hash FROM users WHERE id = 1") == [("hunter2-hash",)]
