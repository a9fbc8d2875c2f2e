"""Sections 1 and 5: what declarations allow and forbid for reads, and custom operators."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pytest

from server.resources.people import GROUP
from tests.http.conftest import Api, Serve
from tests.http.expected import Pairs, error, target
from waterspout import BIGINT, INT, TEXT, Attribute, BadRequest, Catalog, Operator, Resource, Template, ToOne

ODD = 'a/1 "%'


async def test_filters_over_declared_resources(corner_reader: Api) -> None:
    """Ids of every type, columns with other names, names beyond ASCII, link tables, custom operators."""
    node = "00000000-0000-0000-0000-00000000000a"
    cases: list[tuple[str, Pairs, list[str]]] = [
        ("/nodes", [("filter[id]", node)], [node]),
        ("/nodes", [("filter[title]", "Twig"), ("sort", "-title")], ["00000000-0000-0000-0000-00000000000b"]),
        ("/authors", [("filter[given-name]", "Bob")], ["2"]),
        ("/authors", [("filter[größe][gt]", "100")], ["1"]),
        ("/authors", [("sort", "größe")], ["2", "1"]),
        ("/authors", [("filter[full-name]", "Ann A")], ["1"]),
        ("/authors", [("sort", "-full-name")], ["2", "1"]),
        ("/authors", [("filter[profile.motto]", "go")], ["2"]),
        ("/authors", [("filter[desk_id][is_]", "null")], ["1", "2"]),
        ("/articles", [("filter[tags.name]", "xy")], [ODD, "b"]),
        ("/articles", [("filter[tags.id][in_]", "1,2")], [ODD, "b"]),
        ("/articles", [("filter[author_id]", "1"), ("sort", "-id")], ["b", ODD]),
        ("/articles", [("filter[editor_id][is_]", "null")], ["b", "c"]),
        ("/articles", [("filter", '{"name":"tags","op":"any","val":[]}')], [ODD, "b"]),
        ("/articles", [("filter", '{"not":{"name":"tags","op":"any","val":[]}}')], ["c"]),
        ("/tags", [("filter[articles.author.given-name]", "Ann")], ["1", "2"]),
        ("/articles", [("filter[pages][even]", "true")], [ODD, "c"]),
        ("/articles", [("filter", '{"name":"pages","op":"even","val":false}')], ["b"]),
        ("/articles", [("filter", '{"not":{"name":"pages","op":"even","val":false}}')], [ODD, "c"]),
        ("/authors", [("filter", '{"name":"articles.pages","op":"even","val":false}')], ["1"]),
        # with a join: the title is the name of a tag with this beginning
        ("/articles", [("filter", '{"name":"title","op":"named_as_tag","val":"x"}')], [ODD, "b"]),
        ("/articles", [("filter", '{"name":"title","op":"named_as_tag","val":"xy"}')], [ODD]),
        ("/articles", [("filter", '{"not":{"name":"title","op":"named_as_tag","val":"x"}}')], ["c"]),
        ("/office/desks", [], []),
        ("/countries", [], ['ä/"b']),
    ]
    for path, pairs, ids in cases:
        answer = await corner_reader.get(target(path, pairs))
        assert (answer.status, answer.ids) == (200, ids), (path, pairs, answer.body)


@pytest.mark.parametrize(
    ("path", "pairs", "code", "parameter", "detail"),
    [
        (
            "/articles",
            [("filter", '[{"name":"pages","op":"even","val":1}]')],
            "invalid_filter",
            "filter",
            "[0]: the value for “pages” must be true or false, not 1.",
        ),
        (
            "/articles",
            [("filter", '[{"name":"title","op":"even","val":true}]')],
            "invalid_filter",
            "filter",
            "[0]: There is no operator “even”. “title” has: eq, ne, lt, le, gt, ge, between, in_, notin_, is_, isnot, "
            "like, ilike, notlike, notilike, startswith, endswith, match, search, named_as_tag.",
        ),
        (
            "/rules",
            [("filter[unmatchable][match]", "x")],
            "invalid_filter",
            "filter[unmatchable][match]",
            "“unmatchable” is text and has no operator “match”. “unmatchable” has: eq, ne, lt, le, gt, ge, between, "
            "in_, notin_, is_, isnot, like, ilike, notlike, notilike, startswith, endswith.",
        ),
    ],
)
async def test_operators_refused(
    corner_reader: Api, path: str, pairs: Pairs, code: str, parameter: str, detail: str
) -> None:
    answer = await corner_reader.get(target(path, pairs))
    expected = error(400, code, "Invalid Filter", detail, parameter=parameter)
    assert (answer.status, answer.errors) == (400, [expected])


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/rules?filter[unfilterable]=f", "filter[unfilterable]"),
        ("/rules?filter[unreadable]=u", "filter[unreadable]"),
        ("/rules?filter[unreadable][is_]=null", "filter[unreadable]"),
        ("/rules?sort=unsortable", "sort"),
        ("/rules?sort=-unreadable", "sort"),
        ("/rules?fields[rule]=unreadable", "fields[rule]"),
        ("/undetailed?include=node", "include"),
        ("/undetailed?filter[node.title]=x", "filter[node.title]"),
        ("/authors?filter[secret][is_]=null", "filter[secret]"),
        ("/authors?filter[given]=Ann", "filter[given]"),
        ("/authors?sort=author_no", "sort"),
        ("/nodes?sort=Mixed%20Case", "sort"),
    ],
)
async def test_closed_declarations_are_refused(corner_reader: Api, path: str, parameter: str) -> None:
    """A 400 that names the parameter, and nothing about hidden attributes."""
    answer = await corner_reader.get(path)
    assert (answer.status, [found["source"]["parameter"].removesuffix("[is_]") for found in answer.errors]) == (
        400,
        [parameter],
    )


async def test_unreadable_attributes_are_not_shown(corner_reader: Api) -> None:
    answer = await corner_reader.get("/rules/1")
    assert "unreadable" not in answer.document["data"]["attributes"]
    assert answer.document["data"]["attributes"]["unfilterable"] == "f"


@pytest.mark.parametrize(
    "path",
    [
        "/nodes/00000000-0000-0000-0000-00000000000A",
        "/nodes/00000000000000000000000000000a",
        "/nodes/{00000000-0000-0000-0000-00000000000a}",
        "/nodes/1",
        "/authors/01",
        "/authors/2147483648",
        "/articles/A",
        "/articles/%00",
    ],
)
async def test_other_spellings_of_an_id_are_not_found(corner_reader: Api, path: str) -> None:
    answer = await corner_reader.get(path.replace("{", "%7B").replace("}", "%7D"))
    assert (answer.status, answer.errors[0]["code"]) == (404, "resource_not_found")


def _no_thirteen(value: Any) -> Any:
    if value == 13:
        raise BadRequest("Thirteen is not asked for.")
    return value


PERSON = Resource(
    "user",
    "/users",
    "users",
    attributes=(
        Attribute("group_id", TEXT, column="first_name", required=True),
        Attribute(
            "age",
            INT,
            nullable=True,
            operators=(
                Operator(
                    "over",
                    read=_no_thirteen,
                    criterion=lambda attribute, column, bound, name: (Template("{}>{}", column, bound), []),
                ),
            ),
        ),
    ),
    relationships=(ToOne("group", "group"),),
)
BROKEN = Resource(
    "broken",
    "/broken",
    "persons",
    attributes=(
        Attribute(
            "name",
            TEXT,
            required=True,
            operators=(
                Operator(
                    "divided",
                    read=INT.json.from_json,
                    criterion=lambda attribute, column, bound, name: (Template("length({})/{}>0", column, bound), []),
                ),
            ),
        ),
        Attribute("ratio", INT, sql=lambda column: Template("(1/({}-1))", column("id"))),
        Attribute("large", INT, sql=lambda column: Template("({}::int+2147483647)", column("id"))),
        Attribute("root", INT, sql=lambda column: Template("sqrt(-{})::int", column("id"))),
        Attribute("part", TEXT, sql=lambda column: Template("substring({} for -1)", column("name"))),
    ),
    methods=frozenset({"list", "detail"}),
)


@pytest.fixture
def own(serve: Serve, rows_url: str) -> Api:
    group = Resource("group", "/groups", "groups", attributes=GROUP.attributes)
    return serve(rows_url, Catalog([PERSON, group, BROKEN]))


async def test_a_declared_attribute_wins_over_the_shorthand(own: Api) -> None:
    """`group_id` is an attribute here, so it does not stand for the id of the group."""
    assert (await own.get("/users?filter[group_id]=Ada")).ids == ["1"]
    assert (await own.get("/users?filter[group_id]=1")).ids == []
    assert (await own.get("/users?filter[group]=1")).ids == ["1", "2"]
    by_name = await own.sql("SELECT id::text FROM users ORDER BY first_name, id LIMIT 2")
    assert (await own.get("/users?sort=group_id&page[size]=2")).ids == [row["id"] for row in by_name]
    assert (await own.get("/users?sort=-group.id&page[size]=1")).ids == ["4"]


async def test_a_bad_request_of_custom_code(own: Api) -> None:
    assert (await own.filter("/users", [{"name": "age", "op": "over", "val": 70}])).ids == ["3", "4"]
    answer = await own.filter("/users", [{"name": "age", "op": "over", "val": 13}])
    assert (answer.status, answer.errors) == (
        400,
        [
            {
                "status": "400",
                "status_code": 400,
                "code": "bad_request",
                "title": "Bad Request",
                "detail": "Thirteen is not asked for.",
                "source": {"pointer": ""},
            }
        ],
    )


async def test_a_value_that_custom_code_lets_through(own: Api) -> None:
    """A value that does not fit the column is a client error, too, because custom code did not refuse it."""
    answer = await own.filter("/users", [{"name": "age", "op": "over", "val": "x"}])
    assert answer.status == 400
    assert json.loads(answer.body)["errors"][0]["source"] == {"parameter": "filter"}


@pytest.mark.parametrize("name", ["ratio", "large", "root", "part"])
@pytest.mark.parametrize(
    ("path", "pairs"),
    [
        ("/broken/1", []),
        ("/broken", [("sort", "id"), ("page[size]", "1")]),
        ("/broken", [("sort", "id"), ("page[after]", "")]),
        ("/broken", [("filter[id]", "1")]),
        ("/broken", [("filter[id]", "1"), ("page[size]", "0")]),
        ("/broken", [("filter", '[{"name":"name","op":"match","val":"."},{"name":"name","op":"like","val":"%"}]')]),
    ],
)
async def test_an_impossible_value(own: Api, path: str, pairs: Pairs, name: str) -> None:
    """The error blames no value of the request, with or without a filter."""
    assert (await own.get("/broken/2?fields[broken]=ratio")).document["data"]["attributes"] == {"ratio": 1}
    answer = await own.get(target(path, [("fields[broken]", name), *pairs]))
    assert (answer.status, [found["code"] for found in answer.errors]) == (409, ["impossible_value"])


@pytest.mark.parametrize("name", ["ratio", "large", "root"])
async def test_an_impossible_value_in_a_filter(own: Api, name: str) -> None:
    answer = await own.get(target("/broken", [(f"filter[{name}]", "7"), ("fields[broken]", "name")]))
    assert (answer.status, [found["code"] for found in answer.errors]) == (409, ["impossible_value"])


async def test_an_impossible_value_with_a_cursor(own: Api) -> None:
    count = (await own.get("/broken?fields[broken]=name")).document["meta"]["total"]
    first = await own.get(f"/broken?fields[broken]=name&sort=-id&page[size]={count - 1}&page[after]=")
    following = unquote(first.document["links"]["next"])
    assert (await own.get(following)).ids == ["1"]
    answer = await own.get(following.replace("fields[broken]=name", "fields[broken]=ratio"))
    assert (answer.status, [found["code"] for found in answer.errors]) == (409, ["impossible_value"])


async def test_an_error_of_a_custom_operator_blames_the_filter(own: Api) -> None:
    pairs = [("filter", '[{"name":"name","op":"divided","val":0}]'), ("fields[broken]", "name")]
    detail = "[0]: PostgreSQL refuses a value of the filter: a number is divided by zero."
    answer = await own.get(target("/broken", pairs))
    expected = error(400, "value_refused", "Value Refused", detail, parameter="filter")
    assert (answer.status, answer.errors) == (400, [expected])


@pytest.fixture
def read_only(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, read_only=True)


async def test_a_read_only_server(read_only: Api) -> None:
    assert (await read_only.get("/groups/1")).status == 200
    for path in ("/groups", "/groups/1", "/groups/1/users", "/groups/1/relationships/users"):
        answer = await read_only.request("OPTIONS", path)
        assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, QUERY, OPTIONS")
    assert (await read_only.request("OPTIONS", "/operations")).headers["Allow"] == "OPTIONS"
    for method, path in (("POST", "/groups"), ("PATCH", "/groups/1"), ("DELETE", "/groups/1")):
        answer = await read_only.request(method, path)
        expected = error(403, "read_only", "Read-Only Server", "This server only answers reads.")
        assert (answer.status, answer.errors) == (403, [expected])


@pytest.fixture
def devices(serve: Serve, database_url: str) -> Api:
    """Return a resource over the computers, where the key of the owner is both an attribute and a relationship."""
    attributes = (Attribute("name", TEXT, required=True), Attribute("owner_id", BIGINT, nullable=True))
    owner = ToOne("owner", "person", column="owner_id")
    device = Resource("device", "/devices", "computers", attributes=attributes, relationships=(owner,))
    return serve(database_url, Catalog([device, Resource("person", "/people", "users", methods=frozenset({"list"}))]))


async def test_two_fields_over_one_column_are_not_sent_together(devices: Api) -> None:
    """A statement that names a column twice would be a fault of the server."""
    linkage = {"owner": {"data": {"type": "person", "id": "1"}}}
    document: Any = {"data": {"type": "device", "attributes": {"name": "n", "owner_id": None}}}
    assert (await devices.post("/devices", document)).status == 201
    document["data"]["relationships"] = linkage
    answer = await devices.post("/devices", document)
    detail = "/data/attributes/owner_id sets the same column: send only one of the two."
    source = {"pointer": "/data/relationships/owner/data"}
    assert (answer.status, answer.errors[0]["detail"], answer.errors[0]["source"]) == (422, detail, source)
