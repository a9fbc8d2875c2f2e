"""Section 6, relationship routes: requests that are refused, with their errors and nothing changed, and relationships
that a declaration closes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import MEDIA_TYPE, Api, Serve
from tests.http.people import create_household, of, one, select
from tests.http.refusals import Refused, check_refused, error
from tests.http.writes.test_relationships import (
    CHILDREN,
    COMPUTERS,
    CREATED,
    EDITED,
    REMOVED,
    TAGGED,
    TAGS,
    Kind,
    corners,
    fill,
    linkage,
)
from waterspout import INT, TEXT, Attribute, Catalog, Id, Link, Resource, ToMany, ToOne

__all__ = ["corners"]


def refused(method: str, path: str, sent: Any, *errors: Any, status: int | None = None) -> Refused:
    return Refused(method, path, linkage(sent), list(errors), status)


def not_found(type_name: str, id_text: str, pointer: str) -> dict[str, Any]:
    return error("related_not_found", f"There is no {type_name} with the id “{id_text}”.", pointer)


async def test_one_unknown_id_refuses_the_write(api: Api) -> None:
    await create_household(api)
    many, single = "/users/1/relationships/computers", "/users/1/relationships/group"
    cases = []
    for method in ("POST", "PATCH"):
        cases += [
            refused(method, many, of("computer", "4", "77"), not_found("computer", "77", "/data/1")),
            refused(method, many, of("computer", "77", "3", "4"), not_found("computer", "77", "/data/0")),
            refused(method, many, of("computer", "4", "4", "x"), not_found("computer", "x", "/data/2")),
            refused(method, many, of("computer", "04"), not_found("computer", "04", "/data/0")),
            refused(method, many, of("computer", str(2**63)), not_found("computer", str(2**63), "/data/0")),
            refused(
                method,
                many,
                of("computer", "4", 77, "3", 78, 77),
                not_found("computer", "77", "/data/1"),
                not_found("computer", "78", "/data/3"),
            ),
            refused(method, "/users/2/relationships/posts", of("post", "1", "77"), not_found("post", "77", "/data/1")),
        ]
    cases += [
        refused("PATCH", single, one("group", "77"), not_found("group", "77", "/data")),
        refused("PATCH", single, one("group", "x"), not_found("group", "x", "/data")),
        refused("PATCH", "/posts/1/relationships/user", one("user", "77"), not_found("user", "77", "/data")),
        refused("PATCH", "/users/1/relationships/bio", one("user_bio", "77"), not_found("user_bio", "77", "/data")),
    ]
    await check_refused(api, cases)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [(EDITED, "nope"), (CHILDREN, "00000000-0000-0000-0000-0000000000ff"), (TAGS, "77"), (TAGGED, "A")],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_one_unknown_id_refuses_the_write_wherever_the_key_is(corners: Api, kind: Kind, missing: str) -> None:
    await fill(corners)
    before = await kind.pairs(corners)
    for method in ("POST", "PATCH"):
        sent = of(kind.target, kind.ids[3], missing, kind.ids[2])
        answer = await corners.request(method, kind.route, linkage(sent))
        assert (answer.status, answer.errors) == (404, [not_found(kind.target, missing, "/data/1")])
        assert await kind.pairs(corners) == before


async def test_a_removal_of_a_missing_link_succeeds(api: Api) -> None:
    await create_household(api)
    ids = ["77", "x", "01", str(2**63), "3", "4", "1"]
    answer = await api.delete("/users/1/relationships/computers", linkage(of("computer", *ids)))
    assert (answer.status, answer.document) == (200, REMOVED)
    assert await COMPUTERS.pairs(api) == {("1", "2"), ("2", "3")}


async def test_a_required_link_cannot_be_removed(api: Api) -> None:
    await create_household(api)
    posts, bio = "/users/1/relationships/posts", "/users/1/relationships/bio"

    def left(what: str) -> dict[str, Any]:
        detail = f"{what} would be left without a required relationship: delete or move first."
        return error("required_link", detail, "/data")

    empty = error("required_link", "The relationship “user” must not be empty.", "/data")
    await check_refused(
        api,
        [
            refused("DELETE", posts, of("post", "1"), left("post 1")),
            refused("DELETE", posts, of("post", "77", "2", "1"), left("post 1, 2")),
            refused("PATCH", posts, [], left("post 1, 2")),
            refused("PATCH", posts, of("post", "2"), left("post 1")),
            refused("PATCH", bio, None, left("user_bio 1")),
            refused("PATCH", bio, one("user_bio", "2"), left("user_bio 1")),
            refused("PATCH", "/posts/1/relationships/user", None, empty),
            refused("PATCH", "/user-bio/1/relationships/user", None, empty),
            refused(
                "DELETE",
                "/parents/1/relationships/children",
                of("parent-to-child-association", "1"),
                left("parent-to-child-association 1"),
            ),
        ],
    )


async def test_a_required_link_whose_holder_is_not_declared(serve_many: Api) -> None:
    """The key may not be null, but the other side declares no relationship that says so."""
    await fill(serve_many)
    for method, sent in (("DELETE", of("paper", "a")), ("PATCH", [])):
        answer = await serve_many.request(method, "/writers/1/relationships/papers", linkage(sent))
        assert (answer.status, answer.errors[0]["code"]) == (403, "required_link"), answer.body
        assert answer.errors[0]["source"] == {"pointer": "/data"}
    rows = await select(serve_many, "SELECT id, author_id FROM corner.articles WHERE author_id = 1 ORDER BY id")
    assert rows == [("a", 1), ("b", 1)]


async def test_linkage_of_the_wrong_form(api: Api) -> None:
    await create_household(api)
    many, single, reverse = (f"/users/1/relationships/{name}" for name in ("computers", "group", "bio"))
    is_many = error("invalid_relationship", "The data of “{}” must be an array of resource identifiers.", "/data")
    is_one = error("invalid_relationship", "The data of “{}” must be one resource identifier or null.", "/data")

    def named(found: dict[str, Any], name: str) -> dict[str, Any]:
        return found | {"detail": found["detail"].format(name)}

    def invalid(detail: str, pointer: str) -> dict[str, Any]:
        return error("invalid_document", detail, pointer)

    def conflict(target: str, sent: str, pointer: str) -> dict[str, Any]:
        detail = f"This relationship is to resources of type “{target}”, not “{sent}”."
        return error("linkage_type_conflict", detail, pointer)

    no_object = "Resource linkage must consist of resource identifier objects, or be null."
    cases = [
        refused("PATCH", single, [], named(is_one, "group")),
        refused("PATCH", single, of("group", "1"), named(is_one, "group")),
        refused("PATCH", reverse, of("user_bio", "1"), named(is_one, "bio")),
        refused("PATCH", single, one("user", "1"), conflict("group", "user", "/data/type")),
        refused("PATCH", reverse, one("bio", "1"), conflict("user_bio", "bio", "/data/type")),
        refused("PATCH", single, "1", invalid(no_object, "/data")),
        refused("PATCH", single, {"type": "group"}, invalid("There is no `id`.", "/data/id")),
        refused("PATCH", single, {"id": "1"}, invalid("There is no `type`.", "/data/type")),
    ]
    for method in ("POST", "PATCH", "DELETE"):
        cases += [
            refused(method, many, None, named(is_many, "computers")),
            refused(method, many, one("computer", "1"), named(is_many, "computers")),
            refused(
                method, many, [one("computer", "1"), one("user", "1")], conflict("computer", "user", "/data/1/type")
            ),
            refused(method, many, [one("computer", "4"), "1"], invalid(no_object, "/data/1")),
            refused(method, many, [{"type": "computer"}], invalid("There is no `id`.", "/data/0/id")),
            refused(
                method,
                many,
                [one("computer", "4") | {"lid": "x"}],
                invalid("A `lid` is only allowed in atomic operations.", "/data/0/lid"),
            ),
            refused(
                method,
                many,
                [one("computer", True), {"type": 1, "id": "4"}],
                invalid("`id` must be a string or a whole number.", "/data/0/id"),
                invalid("`type` must be a string.", "/data/1/type"),
            ),
            refused(
                method,
                many,
                [one("user", "1"), {"type": "computer"}],
                invalid("There is no `id`.", "/data/1/id"),
                conflict("computer", "user", "/data/0/type"),
                status=400,
            ),
            Refused(method, many, {}, [invalid("The document has no `data`.", "/data")]),
            Refused(method, many, [], [invalid("A document is a JSON object.", "")]),
            Refused(
                method,
                many,
                None,
                [error("malformed_json", "The body is not valid JSON: unexpected text at line 1, column 10.", "")],
                body='{"data": ]',
            ),
        ]
    await check_refused(api, cases)


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_a_body_that_is_missing_or_of_another_media_type(api: Api, method: str) -> None:
    await create_household(api)
    path, body = "/users/1/relationships/computers", b'{"data": []}'
    for headers, sent, status, code in (
        ({}, None, 400, "malformed_json"),
        ({"Content-Type": MEDIA_TYPE}, b"", 400, "malformed_json"),
        ({"Content-Type": "text/plain"}, body, 415, "unsupported_media_type"),
        ({"Content-Type": f"{MEDIA_TYPE}; charset=utf-8"}, body, 415, "unsupported_media_type"),
        ({"Content-Type": f'{MEDIA_TYPE}; ext="https://jsonapi.org/ext/atomic"'}, body, 415, "unsupported_media_type"),
        ({}, body, 415, "unsupported_media_type"),
        ({"Content-Type": "application/json"}, body, 200, None),
        ({"Content-Type": f'{MEDIA_TYPE}; profile="https://example.org/p"'}, body, 200, None),
    ):
        if sent is None and method != "DELETE":
            continue  # the client says itself what it sends with these methods
        answer = await api.request(method, path, headers=headers, body=sent)
        codes = [found["code"] for found in answer.document.get("errors", [])]
        assert (answer.status, codes) == (status, [code] if code else []), (headers, sent)


async def test_a_body_that_is_too_large(serve_small: Api) -> None:
    await create_household(serve_small)
    for method in ("POST", "PATCH", "DELETE"):
        many = linkage(of("computer", *range(1, 200)))
        answer = await serve_small.request(method, "/users/1/relationships/computers", many)
        assert (answer.status, answer.errors[0]["code"]) == (413, "body_too_large")


async def test_a_missing_owner(api: Api) -> None:
    await create_household(api)
    cases = []
    for id_text in ("77", "01", "x", str(2**63)):
        missing = error("resource_not_found", f"There is no user with the id “{id_text}”.")
        base = f"/users/{id_text}/relationships"
        cases += [refused(method, f"{base}/computers", [], missing) for method in ("POST", "PATCH", "DELETE")]
        cases += [
            refused("POST", f"{base}/computers", of("computer", "1"), missing),
            refused("PATCH", f"{base}/group", None, missing),
            refused("PATCH", f"{base}/group", one("group", "1"), missing),
            refused("PATCH", f"{base}/bio", None, missing),
        ]
    await check_refused(api, cases)


async def test_parameters(api: Api) -> None:
    await create_household(api)
    many, single = "/users/1/relationships/computers", "/users/1/relationships/group"

    def useless(name: str, parameter: str) -> dict[str, Any]:
        return error("invalid_parameter", f"This route does not accept “{name}”.", parameter=parameter)

    cases = []
    for method in ("POST", "DELETE"):
        for name, parameter in (
            ("include", "include"),
            ("fields", "fields[computer]"),
            ("page", "page[size]"),
            ("sort", "sort"),
            ("filter", "filter"),
        ):
            value = "1" if name == "page" else "computers"
            cases.append(refused(method, f"{many}?{parameter}={value}", [], useless(name, parameter)))
    cases += [
        refused("PATCH", f"{many}?sort=name", [], useless("sort", "sort")),
        refused("PATCH", f"{many}?filter[name]=x", [], useless("filter", "filter[name]")),
        refused("PATCH", f"{single}?page[size]=1", None, useless("page", "page[size]")),
    ]
    await check_refused(api, cases)
    answer = await api.patch(f"{many}?include=owner&unknown=1", linkage(of("computer", "77", "x")))
    assert (answer.status, [found["code"] for found in answer.errors]) == (
        400,
        ["related_not_found", "invalid_parameter", "invalid_include"],
    )


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/users/1/relationships/group", "GET, PATCH, HEAD, QUERY, OPTIONS"),
        ("DELETE", "/users/1/relationships/group", "GET, PATCH, HEAD, QUERY, OPTIONS"),
        ("DELETE", "/users/1/relationships/bio", "GET, PATCH, HEAD, QUERY, OPTIONS"),
        ("PUT", "/users/1/relationships/computers", "GET, POST, PATCH, DELETE, HEAD, QUERY, OPTIONS"),
    ],
)
async def test_methods_that_are_not_allowed(api: Api, method: str, path: str, allow: str) -> None:
    await create_household(api)
    answer = await api.request(method, path, linkage(None))
    assert (answer.status, answer.headers["Allow"]) == (405, allow)
    options = await api.request("OPTIONS", path)
    assert (options.status, options.headers["Allow"]) == (204, allow)


async def test_a_conflict_names_the_relationship(api: Api) -> None:
    await create_household(api)
    taken = error("conflict", "Another user_bio has this value already: “user”.", "/data")
    await check_refused(api, [refused("PATCH", "/user-bio/1/relationships/user", one("user", "2"), taken)])


# what a declaration closes

READ_ONLY, NO_READ = frozenset({"read"}), frozenset({"add", "replace", "remove"})
ARTICLE_TAGS = Link("article_tags", source="article_id", target="tag_id", schema="corner")
CLOSED = Catalog(
    [
        Resource(
            "writer",
            "/writers",
            "authors",
            id=Id(column="author_no", type=INT),
            attributes=(Attribute("given", TEXT, required=True), Attribute("family", TEXT, required=True)),
            relationships=(ToMany("papers", "paper", foreign_key="author_id"),),
        ),
        Resource(
            "paper",
            "/papers",
            "articles",
            schema="corner",
            id=Id(type=TEXT),
            attributes=(Attribute("title", TEXT, required=True),),
            relationships=(
                ToMany("shown", "label", through=ARTICLE_TAGS, methods=READ_ONLY),
                ToMany("growing", "label", through=ARTICLE_TAGS, methods=frozenset({"read", "add"})),
                ToMany("shrinking", "label", through=ARTICLE_TAGS, methods=frozenset({"read", "remove"})),
                ToMany("hidden", "label", through=ARTICLE_TAGS, methods=NO_READ),
                ToOne("editor", "writer", methods=READ_ONLY),
            ),
        ),
        Resource("label", "/labels", "tags", id=Id(type=INT), attributes=(Attribute("name", TEXT, required=True),)),
    ]
)


@pytest.fixture
def serve_many(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, CLOSED)


@pytest.fixture
def serve_small(serve: Serve, database_url: str) -> Api:
    return serve(database_url, max_body_bytes=1024)


async def test_disabled_writes(serve_many: Api) -> None:
    await fill(serve_many)
    done = {"POST": "added", "PATCH": "replaced", "DELETE": "removed"}
    closed = [
        ("shown", ("POST", "PATCH", "DELETE"), "read", "GET, HEAD, QUERY, OPTIONS"),
        ("growing", ("PATCH", "DELETE"), "read, add", "GET, POST, HEAD, QUERY, OPTIONS"),
        ("shrinking", ("POST", "PATCH"), "read, remove", "GET, DELETE, HEAD, QUERY, OPTIONS"),
    ]
    for name, methods, allowed, allow in closed:
        assert (await serve_many.request("OPTIONS", f"/papers/a/relationships/{name}")).headers["Allow"] == allow
        for method in methods:
            answer = await serve_many.request(method, f"/papers/a/relationships/{name}", linkage(of("label", "2")))
            shown = (answer.status, answer.errors[0]["code"], answer.errors[0]["detail"])
            detail = f"Links of “{name}” cannot be {done[method]} here; allowed are: {allowed}."
            assert shown == (403, "write_forbidden", detail), method
    answer = await serve_many.patch("/papers/a/relationships/editor", linkage(None))
    assert (answer.status, answer.errors[0]["code"]) == (403, "write_forbidden")
    assert await TAGS.pairs(serve_many) == {("a", "1"), ("b", "2")}
    for method, name in (("POST", "growing"), ("DELETE", "shrinking")):
        answer = await serve_many.request(method, f"/papers/a/relationships/{name}", linkage(of("label", "2")))
        assert answer.status == 200


async def test_a_link_to_a_disabled_get_is_left_out(serve_many: Api) -> None:
    await fill(serve_many)
    path = "/papers/a/relationships/hidden"
    assert (await serve_many.post(path, linkage(of("label", "3")))).document == CREATED
    assert (await serve_many.delete(path, linkage(of("label", "1")))).document == REMOVED
    answer = await serve_many.patch(path, linkage(of("label", "2", "3")))
    assert (answer.status, answer.document["data"]) == (200, of("label", "2", "3"))
    assert "links" not in answer.document
    get = await serve_many.get(path)
    assert (get.status, get.headers["Allow"]) == (405, "POST, PATCH, DELETE, OPTIONS")
    assert (await serve_many.get("/papers/a/hidden")).status == 405


async def test_a_read_only_server(read_only: Api) -> None:
    for method in ("POST", "PATCH", "DELETE"):
        answer = await read_only.request(method, "/users/1/relationships/computers", linkage([]))
        assert (answer.status, answer.errors[0]["code"]) == (403, "read_only")


@pytest.fixture
def read_only(serve: Serve, database_url: str) -> Api:
    return serve(database_url, read_only=True)
