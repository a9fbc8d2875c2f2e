"""Section 6, related routes of a to-many: POST creates a linked resource."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api, Serve
from tests.http.people import create_household, document, linked, of, one, select
from tests.http.refusals import Refused, attribute, check_refused, error
from tests.http.writes.test_relationships import ROOT, SEED, TAGS, TWIG, corners, fill
from waterspout import INT, TEXT, Attribute, Catalog, Id, Link, Resource, ToMany, ToOne

__all__ = ["corners"]

DELETED = {"jsonapi": {"version": "1.0"}, "meta": {"message": "Object successfully deleted"}}
COMPUTER = {"name": "eniac"}


def computer(**members: Any) -> dict[str, Any]:
    return document("computer", COMPUTER, **members)


# POST


async def test_the_whole_answer(api: Api) -> None:
    """Location and both `self` links are the path of the resource itself, and its owner is shown."""
    await create_household(api)
    answer = await api.post("/users/2/computers", computer())
    assert (answer.status, answer.headers["Location"]) == (201, "/computers/5")
    assert answer.document == {
        "jsonapi": {"version": "1.0"},
        "data": {
            "type": "computer",
            "id": "5",
            "attributes": {"name": "eniac", "serial": None},
            "relationships": {
                "owner": {
                    "links": {"self": "/computers/5/relationships/owner", "related": "/computers/5/owner"},
                    "data": one("user", "2"),
                }
            },
            "links": {"self": "/computers/5"},
        },
        "links": {"self": "/computers/5"},
    }
    assert await select(api, "SELECT id, owner_id FROM computers ORDER BY id") == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, None),
        (5, 2),
    ]
    assert (await api.get("/users/2/computers")).ids == ["3", "5"]
    assert (await api.get("/computers/5?include=owner&fields[user]=")).document["data"] == answer.document["data"]


async def test_location_with_a_public_url(public: Api) -> None:
    await create_household(public)
    answer = await public.post("/users/2/computers", computer())
    assert answer.headers["Location"] == "https://example.org/api/computers/5"
    assert answer.document["links"] == {"self": "https://example.org/api/computers/5"}


@pytest.fixture
def public(serve: Serve, database_url: str) -> Api:
    return serve(database_url, public_url="https://example.org/api")


async def test_the_document_may_name_the_same_owner(api: Api) -> None:
    await create_household(api)
    for owner in (one("user", "2"), one("user", 2)):
        answer = await api.post("/users/2/computers", computer(relationships=linked(owner=owner)))
        assert (answer.status, answer.document["data"]["relationships"]["owner"]["data"]) == (201, one("user", "2"))
    assert len(await select(api, "SELECT FROM computers WHERE owner_id = 2")) == 3


async def test_a_required_relationship_is_met_by_the_path(api: Api) -> None:
    await create_household(api)
    answer = await api.post("/users/2/posts", document("post", {"title": "t", "body": "b"}))
    assert (answer.status, answer.document["data"]["relationships"]["user"]["data"]) == (201, one("user", "2"))
    joined = document("parent-to-child-association", relationships=linked(child=one("child", "1")))
    await api.create("/parents", "parent", {"name": "sam"})
    answer = await api.post("/parents/2/children", joined)
    assert answer.status == 201
    shown = {name: found["data"] for name, found in answer.document["data"]["relationships"].items()}
    assert shown == {"parent": one("parent", "2"), "child": one("child", "1")}


async def test_include_and_fields_on_the_answer(api: Api) -> None:
    await create_household(api)
    path = (
        "/users/1/computers?include=owner.group&fields[computer]=name,owner&fields[user]=age,group&fields[group]=name"
    )
    answer = await api.post(path, computer())
    assert answer.status == 201
    data = answer.document["data"]
    assert (data["attributes"], list(data["relationships"])) == (COMPUTER, ["owner"])
    assert [(item["type"], item["id"], item["attributes"]) for item in answer.document["included"]] == [
        ("user", "1", {"age": 36}),
        ("group", "1", {"name": "rowers"}),
    ]
    bare = await api.post("/users/1/computers?fields[computer]=name", computer())
    assert "relationships" not in bare.document["data"]


async def test_other_links_of_the_new_resource(api: Api) -> None:
    await create_household(api)
    sent = {"first_name": "Cy", "last_name": "Byron"}
    joined = document("user", sent, relationships=linked(computers=of("computer", "4", "3")))
    answer = await api.post("/groups/1/users", joined)
    assert answer.status == 201
    shown = answer.document["data"]["relationships"]
    assert {name: found["data"] for name, found in shown.items() if "data" in found} == {
        "computers": of("computer", "3", "4"),
        "group": one("group", "1"),
    }
    assert await select(api, "SELECT group_id FROM users WHERE id = 3") == [(1,)]
    assert await select(api, "SELECT id FROM computers WHERE owner_id = 3 ORDER BY id") == [(3,), (4,)]


async def test_a_reference_to_itself(corners: Api) -> None:
    await fill(corners)
    new = "123e4567-e89b-12d3-a456-426614174000"
    answer = await corners.post(f"/nodes/{TWIG}/children", document("node", {"title": "bud"}, id=new))
    assert (answer.status, answer.headers["Location"]) == (201, f"/nodes/{new}")
    assert answer.document["data"]["relationships"]["parent"]["data"] == one("node", TWIG)
    sent = document("node", {"title": "x"}, relationships=linked(children=of("node", SEED)))
    answer = await corners.post(f"/nodes/{new}/children", sent)
    assert answer.status == 201
    rows = await select(corners, "SELECT id::text, parent_id::text FROM corner.nodes WHERE parent_id IS NOT NULL")
    made = answer.document["data"]["id"]
    assert {(new, TWIG), (made, new), (SEED, made)} <= set(rows)


@pytest.mark.parametrize(
    ("path", "sent", "shown", "pair"),
    [
        ("/articles/a/tags", document("tag", {"name": "new"}), ("articles", of("article", "a")), ("a", "5")),
        (
            "/tags/1/articles",
            document("article", {"title": "t"}, id="new", relationships=linked(author=one("author", "1"))),
            ("tags", of("tag", "1")),
            ("new", "1"),
        ),
    ],
)
async def test_a_link_table(corners: Api, path: str, sent: Any, shown: tuple[str, Any], pair: tuple[str, str]) -> None:
    await fill(corners)
    before = await TAGS.pairs(corners)
    answer = await corners.post(path, sent)
    assert (answer.status, answer.headers["Location"]) == (201, answer.document["data"]["links"]["self"])
    assert await TAGS.pairs(corners) == before | {pair}
    assert answer.document["data"]["relationships"][shown[0]].get("data") == shown[1]
    found = (await corners.get(f"{path}?filter[id]={answer.document['data']['id']}&sort=-id&page[size]=1")).document
    assert (len(found["data"]), found["meta"]["total"]) == (1, 1)
    assert (await corners.get(path)).document["meta"]["total"] == 2


async def test_a_link_table_and_more_links_of_it(corners: Api) -> None:
    """A many-to-many can have several owners: the document may name others than that of the path."""
    await fill(corners)
    sent = document("tag", {"name": "new"}, relationships=linked(articles=of("article", "b")))
    answer = await corners.post("/articles/a/tags", sent)
    assert (answer.status, answer.document["data"]["relationships"]["articles"]["data"]) == (
        201,
        of("article", "a", "b"),
    )
    assert {pair for pair in await TAGS.pairs(corners) if pair[1] == "5"} == {("a", "5"), ("b", "5")}


# the key of the owner is not a declared relationship; closed declarations

TAG_TABLE = Link("article_tags", source="article_id", target="tag_id", schema="corner")
READ_ONLY = frozenset({"list", "detail"})
DECLARED = Catalog(
    [
        Resource(
            "writer",
            "/writers",
            "authors",
            id=Id(column="author_no", type=INT),
            attributes=(Attribute("given", TEXT, required=True), Attribute("family", TEXT, required=True)),
            relationships=(
                ToMany("papers", "paper", foreign_key="author_id"),
                ToMany("rooms", "room", foreign_key="author_no"),
                ToMany("kept", "room", foreign_key="author_no", methods=frozenset({"read", "replace", "remove"})),
                ToOne("motto", "motto", foreign_key="author_no"),
                ToOne("room", "room", foreign_key="author_no"),
            ),
        ),
        Resource(
            "paper",
            "/papers",
            "articles",
            schema="corner",
            id=Id(type=TEXT),
            client_ids=True,
            attributes=(Attribute("title", TEXT, required=True),),
            relationships=(
                ToMany("labels", "label", through=TAG_TABLE),
                ToOne("editor", "writer"),
            ),
        ),
        Resource("room", "/rooms", "desks", schema="corner", attributes=(Attribute("room", TEXT, required=True),)),
        Resource(
            "label",
            "/labels",
            "tags",
            id=Id(type=INT),
            methods=READ_ONLY,
            attributes=(Attribute("name", TEXT, required=True),),
        ),
        Resource(
            "motto",
            "/mottos",
            "profiles",
            schema="corner",
            methods=READ_ONLY,
            attributes=(Attribute("motto", TEXT, required=True),),
        ),
    ]
)


@pytest.fixture
def declared(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, DECLARED)


async def test_an_owner_whose_key_is_not_a_declared_relationship(declared: Api) -> None:
    await fill(declared)
    answer = await declared.post("/writers/3/papers", document("paper", {"title": "t"}, id="new"))
    assert (answer.status, answer.headers["Location"]) == (201, "/papers/new")
    assert await select(declared, "SELECT author_id FROM corner.articles WHERE id = 'new'") == [(3,)]
    answer = await declared.post("/writers/3/rooms", document("room", {"room": "roof"}))
    assert answer.status == 201
    assert "relationships" not in answer.document["data"]
    assert await select(declared, "SELECT author_no FROM corner.desks WHERE room = 'roof'") == [(3,)]


async def test_a_conflict_on_a_key_that_is_not_a_declared_relationship(declared: Api) -> None:
    await fill(declared)
    answer = await declared.post("/writers/1/rooms", document("room", {"room": "roof"}))
    assert (answer.status, answer.errors[0]["code"], answer.errors[0]["source"]) == (
        409,
        "conflict",
        {"pointer": "/data"},
    )
    assert "“”" not in answer.errors[0]["detail"]


async def test_disabled_writes(declared: Api) -> None:
    await fill(declared)
    tag, motto = document("label", {"name": "new"}), document("motto", {"motto": "x"}, id="1")
    for method, path, sent, detail in (
        (
            "POST",
            "/papers/a/labels",
            tag,
            "Resources of type “label” cannot be created here; allowed are: list, detail.",
        ),
        (
            "PATCH",
            "/writers/1/motto",
            motto,
            "Resources of type “motto” cannot be updated here; allowed are: list, detail.",
        ),
        (
            "DELETE",
            "/writers/1/motto",
            None,
            "Resources of type “motto” cannot be deleted here; allowed are: list, detail.",
        ),
        (
            "POST",
            "/writers/3/kept",
            document("room", {"room": "x"}),
            "Links of “kept” cannot be added here; allowed are: read, replace, remove.",
        ),
    ):
        answer = await declared.request(method, path, sent)
        shown = (answer.status, answer.errors[0]["code"], answer.errors[0]["detail"])
        assert shown == (403, "write_forbidden", detail), (method, path)
        assert method not in (await declared.request("OPTIONS", path)).headers["Allow"].split(", ")
    assert await select(declared, "SELECT count(*) FROM tags") == [(4,)]
    assert await select(declared, "SELECT id, motto FROM corner.profiles ORDER BY id") == [(1, "go"), (2, "stay")]
    assert await select(declared, "SELECT count(*) FROM corner.desks") == [(3,)]


# refused requests


def refused(path: str, sent: Any, *errors: Any, status: int | None = None) -> Refused:
    return Refused("POST", path, sent, list(errors), status)


def owner_conflict(id_text: str, pointer: str) -> dict[str, Any]:
    return {
        "status": "409",
        "code": "owner_conflict",
        "title": "Owner Conflict",
        "detail": f"The path links it to the user “{id_text}”, but the document to another one.",
        "source": {"pointer": pointer},
    }


async def test_refused(api: Api) -> None:
    await create_household(api)
    owner = "/data/relationships/owner/data"
    pair = document("parent-to-child-association", relationships=linked(child=one("child", "1")))
    cases = [
        refused(
            "/users/1/computers", computer(relationships=linked(owner=one("user", "2"))), owner_conflict("1", owner)
        ),
        refused("/users/1/computers", computer(relationships=linked(owner=None)), owner_conflict("1", owner)),
        refused(
            "/users/2/posts",
            document("post", {"title": "t", "body": "b"}, relationships=linked(user=one("user", "1"))),
            owner_conflict("2", "/data/relationships/user/data"),
        ),
        refused(
            "/users/1/computers",
            document("post", {"name": "x"}),
            error("type_conflict", "This route is for resources of type “computer”, not “post”.", "/data/type"),
        ),
        refused(
            "/users/1/computers",
            computer(id="9"),
            error("client_id_forbidden", "The server chooses ids of type “computer”: leave `id` out.", "/data/id"),
        ),
        refused(
            "/users/1/posts",
            document("post", {"titel": "t", "body": 1}),
            attribute("titel", "post has no attribute “titel”. Did you mean “title”?"),
            attribute("body", "“body” must be a string, not 1."),
            attribute("title", "The attribute “title” is required."),
        ),
        refused(
            "/users/1/posts",
            document("post", {"title": "t"}, relationships=linked(user=one("user", "2"))),
            attribute("body", "The attribute “body” is required."),
            owner_conflict("1", "/data/relationships/user/data"),
            status=400,
        ),
        refused(
            "/users/1/computers",
            {"data": [computer()["data"]]},
            invalid("`data` must be one resource object.", "/data"),
        ),
        refused("/users/1/computers", {}, invalid("The document has no `data`.", "/data")),
        refused(
            "/parents/1/children",
            pair,
            error(
                "conflict", "Another parent-to-child-association has these values already: “parent”, “child”.", "/data"
            ),
        ),
        refused(
            "/users/1/computers?page[size]=1",
            computer(),
            error("invalid_parameter", "This route does not accept “page”.", parameter="page[size]"),
        ),
    ]
    await check_refused(api, cases)


def invalid(detail: str, pointer: str) -> dict[str, Any]:
    return error("invalid_document", detail, pointer)


@pytest.mark.parametrize("id_text", ["77", "01", "x", str(2**63)])
async def test_a_missing_owner(api: Api, id_text: str) -> None:
    await create_household(api)
    missing = error("resource_not_found", f"There is no user with the id “{id_text}”.")
    bio = document("user_bio", {"birth_city": "x"}, id="1")
    await check_refused(
        api,
        [
            refused(f"/users/{id_text}/computers", computer(), missing),
            refused(f"/users/{id_text}/posts", document("post", {"title": "t", "body": "b"}), missing),
            Refused("PATCH", f"/users/{id_text}/bio", bio, [missing]),
            Refused("PATCH", f"/users/{id_text}/group", document("group", id="1"), [missing]),
            Refused("DELETE", f"/users/{id_text}/bio", None, [missing]),
            Refused("DELETE", f"/users/{id_text}/group", None, [missing]),
        ],
    )


async def test_a_missing_owner_of_a_link_table(corners: Api) -> None:
    await fill(corners)
    for path, sent in (
        ("/articles/nope/tags", document("tag", {"name": "n"})),
        (f"/nodes/{ROOT[:-1]}f/children", document("node", {"title": "x"})),
    ):
        answer = await corners.post(path, sent)
        assert (answer.status, answer.errors[0]["code"], "source" in answer.errors[0]) == (
            404,
            "resource_not_found",
            False,
        )
    assert await select(corners, "SELECT count(*) FROM tags") == [(4,)]
    assert await select(corners, "SELECT count(*) FROM corner.nodes") == [(4,)]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PATCH", "/users/1/computers", "GET, POST, HEAD, QUERY, OPTIONS"),
        ("DELETE", "/users/1/computers", "GET, POST, HEAD, QUERY, OPTIONS"),
        ("POST", "/users/1/bio", "GET, PATCH, DELETE, HEAD, QUERY, OPTIONS"),
        ("POST", "/users/1/group", "GET, PATCH, DELETE, HEAD, QUERY, OPTIONS"),
    ],
)
async def test_methods_that_are_not_allowed(api: Api, method: str, path: str, allow: str) -> None:
    await create_household(api)
    answer = await api.request(method, path, computer())
    assert (answer.status, answer.headers["Allow"]) == (405, allow)
    options = await api.request("OPTIONS", path)
    assert (options.status, options.headers["Allow"]) == (204, allow)
