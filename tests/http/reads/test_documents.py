"""Section 3: whole documents of reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api, Serve
from tests.http.expected import ADA, NO_DATA, PATHS, error, many, one, resource, target
from tests.http.wire import connected

JSONAPI = {"version": "1.0"}

EMMY = resource(
    "user",
    "5",
    {"computers": NO_DATA, "posts": NO_DATA, "bio": NO_DATA, "group": NO_DATA},
    first_name="Emmy",
    last_name="Noether",
    display_name="Emmy Noether",
    age=None,
    email=None,
    status="active",
    birth_date=None,
    gender=None,
    words=["math", "a,b"],
    date_create="2024-01-04",
)


@pytest.mark.parametrize(
    "data",
    [
        ADA,
        EMMY,
        resource("group", "1", {"users": NO_DATA}, name="alpha"),
        resource("post", "1", {"user": NO_DATA}, title="Notes", body="On the engine"),
        resource(
            "user_bio",
            "1",
            {"user": NO_DATA},
            birth_city="London",
            favourite_movies=None,
            keys_to_ids_list={"posts": [1, 2]},
        ),
        resource(
            "user_bio",
            "2",
            {"user": NO_DATA},
            birth_city="Maida Vale",
            favourite_movies="Snow White",
            keys_to_ids_list=None,
        ),
        resource("parent", "1", {"children": NO_DATA}, name="Anne"),
        resource("child", "2", {"parents": NO_DATA}, name="Ralph"),
        resource("parent-to-child-association", "1", {"parent": NO_DATA, "child": NO_DATA}, extra_data="mother"),
        resource("parent-to-child-association", "2", {"parent": NO_DATA, "child": NO_DATA}, extra_data=None),
        resource("computer", "2", {"owner": NO_DATA}, name="Bombe", serial=None),
        resource("person", "65", {}, name="person 65"),
        resource("photo", "1", {}, name="sea", words={"a": 1, "tags": ["x", "y"]}),
        resource("photo", "3", {}, name="none", words=None),
        resource("photo", "4", {}, name="blank", words={}),
    ],
    ids=lambda data: f"{data['type']}-{data['id']}",
)
async def test_detail(reader: Api, data: dict[str, Any]) -> None:
    path = f"{PATHS[data['type']]}/{data['id']}"
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (200, {"jsonapi": JSONAPI, "data": data, "links": {"self": path}})


async def test_list(reader: Api) -> None:
    answer = await reader.get("/computers")
    first = "/computers?page%5Bnumber%5D=1"
    rows = [("Engine", "A-1"), ("Bombe", None), ("Ace", "A-3"), ("Spare", None), ("Arithmometer", "A-5")]
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": JSONAPI,
            "data": [
                resource("computer", str(number), {"owner": NO_DATA}, name=name, serial=serial)
                for number, (name, serial) in enumerate(rows, 1)
            ],
            "links": {"self": "/computers", "first": first, "last": first},
            "meta": {"count": 5, "total": 5, "totalPages": 1},
        },
    )


async def test_a_list_shows_resources_as_their_own_routes_do(reader: Api) -> None:
    for path in PATHS.values():
        listed = await reader.get(path)
        for data in listed.document["data"][:3]:
            assert (await reader.get(data["links"]["self"])).document["data"] == data


async def test_the_password_is_never_shown(reader: Api) -> None:
    for query in ("", "?include=computers.owner", "?include=group.users&fields[group]=users"):
        answer = await reader.get(f"/users{query}")
        assert answer.status == 200
        assert b"secret" not in answer.body
        assert b"password" not in answer.body


async def test_members_are_in_the_order_of_the_specification(reader: Api) -> None:
    document = (await reader.get("/computers?include=owner&filter[id]=1")).document
    assert list(document) == ["jsonapi", "data", "included", "links", "meta"]
    assert list(document["data"][0]) == ["type", "id", "attributes", "relationships", "links"]


async def test_bytes_beyond_ascii_are_utf8(reader: Api) -> None:
    answer = await reader.get("/users/4?fields[user]=last_name")
    assert (
        answer.body
        == (
            '{"jsonapi":{"version":"1.0"},"data":{"type":"user","id":"4","attributes":{"last_name":"Gödel"},'
            '"links":{"self":"/users/4"}},"links":{"self":"/users/4?fields%5Buser%5D=last_name"}}'
        ).encode()
    )


@pytest.mark.parametrize(
    ("sent", "self_link"),
    [
        ("/groups?page[size]=2&sort=-name", "/groups?page%5Bsize%5D=2&sort=-name"),
        ("/groups?page%5Bsize%5D=2", "/groups?page%5Bsize%5D=2"),
        ("/groups?page%5bsize%5d=2", "/groups?page%5Bsize%5D=2"),
        ("/groups/?sort=name", "/groups?sort=name"),
        ("/groups/1?include=users", "/groups/1?include=users"),
        ("/groups/1/?include=users", "/groups/1?include=users"),
        ("/groups/1?my-own=1&X=%22", "/groups/1?my-own=1&X=%22"),
        ("/groups?filter[name]=a+b%20c&a.b=%2B", "/groups?filter%5Bname%5D=a%20b%20c&a.b=%2B"),
        ("/groups?filter[name]=%C3%A9%26%3D%23", "/groups?filter%5Bname%5D=%C3%A9%26%3D%23"),
        ("/groups?&&sort=name&", "/groups?sort=name"),
        ("/groups?", "/groups"),
    ],
)
async def test_self_keeps_the_query(reader: Api, sent: str, self_link: str) -> None:
    answer = await reader.get(sent)
    assert (answer.status, answer.document["links"]["self"]) == (200, self_link)


async def test_page_links_keep_the_query(reader: Api) -> None:
    answer = await reader.get("/persons?page[number]=2&filter[name][like]=%25+%25&page[size]=10&my-own=%C3%A9")
    kept = "filter%5Bname%5D%5Blike%5D=%25%20%25&page%5Bsize%5D=10&my-own=%C3%A9"
    assert answer.document["links"] == {
        "self": f"/persons?page%5Bnumber%5D=2&{kept}",
        "first": f"/persons?{kept}&page%5Bnumber%5D=1",
        "last": f"/persons?{kept}&page%5Bnumber%5D=7",
        "prev": f"/persons?{kept}&page%5Bnumber%5D=1",
        "next": f"/persons?{kept}&page%5Bnumber%5D=3",
    }


@pytest.mark.parametrize(
    ("path", "type_name", "id_text"),
    [
        ("/users/7", "user", "7"),
        ("/users/0", "user", "0"),
        ("/users/-1", "user", "-1"),
        ("/users/01", "user", "01"),
        ("/users/+1", "user", "+1"),
        ("/users/%201", "user", " 1"),
        ("/users/1%20", "user", "1 "),
        ("/users/1.0", "user", "1.0"),
        ("/users/x", "user", "x"),
        ("/users/%D9%A1", "user", "١"),
        ("/users/9223372036854775807", "user", "9223372036854775807"),
        ("/users/9223372036854775808", "user", "9223372036854775808"),
        ("/user-bio/99", "user_bio", "99"),
        ("/users/99?include=group", "user", "99"),
        ("/users/99?fields[user]=", "user", "99"),
    ],
)
async def test_no_such_resource(reader: Api, path: str, type_name: str, id_text: str) -> None:
    """An id has one canonical text. Any other text is an id that does not exist."""
    answer = await reader.get(path)
    detail = f"There is no {type_name} with the id “{id_text}”."
    assert (answer.status, answer.errors) == (
        404,
        [error(404, "resource_not_found", "Resource Not Found", detail)],
    )


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (
            "/computers/1/owner",
            {"jsonapi": JSONAPI, "data": ADA, "links": {"self": "/computers/1/owner"}},
        ),
        ("/computers/4/owner", {"jsonapi": JSONAPI, "data": None, "links": {"self": "/computers/4/owner"}}),
        (
            "/users/2/computers?fields[computer]=name&sort=name",
            {
                "jsonapi": JSONAPI,
                "data": [resource("computer", "3", {}, name="Ace"), resource("computer", "2", {}, name="Bombe")],
                "links": {
                    "self": "/users/2/computers?fields%5Bcomputer%5D=name&sort=name",
                    "first": "/users/2/computers?fields%5Bcomputer%5D=name&sort=name&page%5Bnumber%5D=1",
                    "last": "/users/2/computers?fields%5Bcomputer%5D=name&sort=name&page%5Bnumber%5D=1",
                },
                "meta": {"count": 2, "total": 2, "totalPages": 1},
            },
        ),
        (
            "/users/2/relationships/computers",
            {
                "jsonapi": JSONAPI,
                "data": many("computer", 2, 3),
                "links": {
                    "self": "/users/2/relationships/computers",
                    "related": "/users/2/computers",
                    "first": "/users/2/relationships/computers?page%5Bnumber%5D=1",
                    "last": "/users/2/relationships/computers?page%5Bnumber%5D=1",
                },
                "meta": {"count": 2, "total": 2, "totalPages": 1},
            },
        ),
        (
            "/computers/1/relationships/owner",
            {
                "jsonapi": JSONAPI,
                "data": one("user", "1"),
                "links": {"self": "/computers/1/relationships/owner", "related": "/computers/1/owner"},
            },
        ),
        (
            "/users/5/relationships/bio",
            {
                "jsonapi": JSONAPI,
                "data": None,
                "links": {"self": "/users/5/relationships/bio", "related": "/users/5/bio"},
            },
        ),
    ],
)
async def test_links_of_a_relationship_lead_to_its_documents(reader: Api, path: str, document: dict[str, Any]) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (200, document)


@pytest.fixture
def public(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, public_url="https://api.example.org/v1")


async def test_links_are_absolute_with_a_public_url(public: Api) -> None:
    base = "https://api.example.org/v1"
    answer = await public.get("/computers?page[size]=2&page[number]=2&include=owner&fields[user]=bio")

    def link(path: str) -> str:
        return f"{base}{path}"

    def computer(number: int, linkage: Any, **attributes: Any) -> dict[str, Any]:
        path = link(f"/computers/{number}")
        links = {"self": f"{path}/relationships/owner", "related": f"{path}/owner"}
        return {
            "type": "computer",
            "id": str(number),
            "attributes": attributes,
            "relationships": {"owner": {"links": links, "data": linkage}},
            "links": {"self": path},
        }

    def at(number: int) -> str:
        others = [("page[size]", "2"), ("include", "owner"), ("fields[user]", "bio")]
        return link(target("/computers", [*others, ("page[number]", str(number))]))

    bio = {"self": link("/users/2/relationships/bio"), "related": link("/users/2/bio")}
    asked = [("page[size]", "2"), ("page[number]", "2"), ("include", "owner"), ("fields[user]", "bio")]
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": JSONAPI,
            "data": [
                computer(3, one("user", "2"), name="Ace", serial="A-3"),
                computer(4, None, name="Spare", serial=None),
            ],
            "included": [
                {
                    "type": "user",
                    "id": "2",
                    "relationships": {"bio": {"links": bio}},
                    "links": {"self": link("/users/2")},
                }
            ],
            "links": {
                "self": link(target("/computers", asked)),
                "first": at(1),
                "last": at(3),
                "prev": at(1),
                "next": at(3),
            },
            "meta": {"count": 2, "total": 5, "totalPages": 3},
        },
    )
    detail = await public.get("/groups/1?fields[group]=name")
    assert detail.document == {
        "jsonapi": JSONAPI,
        "data": {"type": "group", "id": "1", "attributes": {"name": "alpha"}, "links": {"self": link("/groups/1")}},
        "links": {"self": link("/groups/1?fields%5Bgroup%5D=name")},
    }


async def test_the_root_is_absolute_with_a_public_url(public: Api) -> None:
    links = (await public.get("/")).document["links"]
    assert links["self"] == "https://api.example.org/v1/"
    assert {f"https://api.example.org/v1{path}" for path in PATHS.values()} <= set(links.values())


async def test_location_is_absolute_with_a_public_url(public_api: Api) -> None:
    answer = await public_api.post("/groups", {"data": {"type": "group", "attributes": {"name": "new"}}})
    created = answer.document["data"]
    path = f"https://example.org/groups/{created['id']}"
    assert (answer.status, answer.headers["Location"]) == (201, path)
    assert created["links"] == {"self": path}
    assert answer.document["links"] == {"self": path}


@pytest.fixture
def public_api(serve: Serve, database_url: str) -> Api:
    return serve(database_url, public_url="https://example.org")


@pytest.mark.parametrize("path", ["%C3%A4%2F%22b", "%c3%a4%2f%22b", "%C3%A4%2F%22%62", "ä%2F%22b", '%C3%A4%2F"b'])
async def test_self_is_percent_encoded_in_one_way(corner_reader: Api, path: str) -> None:
    async with connected(corner_reader.port) as wire:
        await wire.send_bytes(f"GET /countries/{path}?my-own=ä HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = await wire.answer()
    own = "/countries/%C3%A4%2F%22b"
    data = {"type": "country", "id": 'ä/"b', "attributes": {"name": "x"}, "links": {"self": own}}
    assert (answer.status, answer.document) == (
        200,
        {"jsonapi": JSONAPI, "data": data, "links": {"self": f"{own}?my-own=%C3%A4"}},
    )
