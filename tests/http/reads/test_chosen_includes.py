"""`includeFilter`, `includeSort` and `includePage`: their errors, the routes that have them, how their rows are found,
and linkage that was read in part. `tests/property/test_include_choices.py` compares them with a model."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.planning.plan import Fetch
from querybuild.planning.rows import nodes
from querybuild.principal import ANONYMOUS
from server.preparing.reads import ReadShape
from server.routes import ON_MANY
from tests.http.conftest import Api, Inspected, Serve
from tests.http.expected import error, many
from waterspout import TEXT, Attribute, Link, Resource, ToMany, ToOne


def include(path: str, *chosen: str, include: str = "computers") -> str:
    return f"{path}?include={include}&" + "&".join(quote(one, safe="=&[],") for one in chosen)


async def linkage(api: Api, path: str, name: str = "computers") -> Any:
    answer = await api.get(path)
    assert answer.status == 200, answer.body
    return answer.document["data"]["relationships"][name]


@pytest.mark.parametrize(
    ("chosen", "code", "detail"),
    [
        ("includeSort=name", "invalid_parameter", "names an include path in brackets"),
        ("includeSort[]=name", "invalid_parameter", "names an include path in brackets"),
        ("includeSort[computers.]=name", "invalid_parameter", "names an include path in brackets"),
        ("includeSort[computers=name", "invalid_parameter", "malformed"),
        ("includesort[computers]=name", "invalid_parameter", "Did you mean “includeSort[computers]”?"),
        ("includeSort[computers][x]=name", "invalid_sort", "There is no parameter"),
        ("includeSort[computers]=", "invalid_sort", "A sort key is empty."),
        ("includeSort[computers]=colour", "invalid_sort", "There is no attribute “colour” in computer"),
        ("includeSort[computers]=owner.computers", "invalid_sort", "“owner.computers”: “computers” is to-many"),
        ("includeSort[computers]=id&includeSort[computers]=-id", "invalid_sort", "more than once"),
        ("includeSort[posts]=id", "invalid_include", "“posts” is not included"),
        ("includeSort[computer]=id", "invalid_include", "Did you mean “computers”?"),
        ("includeSort[group]=id", "invalid_include", "“group” is to-one"),
        ("includeFilter[group.users][id]=1", "invalid_include", "“group.users” is not included"),
        ("includeFilter[computers]=", "invalid_filter", "The filter is not valid JSON"),
        ("includeFilter[computers]=[1]", "invalid_filter", "expected a filter object or a group"),
        ("includeFilter[computers]=\0", "invalid_filter", "U+0000"),
        ("includeFilter[computers][name][like][x]=1", "invalid_filter", "includeFilter[computers][field][operator]"),
        ("includeFilter[computers][id]=x", "invalid_filter", "the value for “id” must be"),
        ("includeFilter[computers][colour]=x", "invalid_filter", "computer has no attribute or relationship “colour”"),
        ("includeFilter[computers][name][match]=(", "value_refused", "a regular expression is not valid"),
        ("includePage[computers]=3", "invalid_page", "includePage[computers][size], includePage[computers][total]"),
        ("includePage[computers][number]=3", "invalid_page", "There is no such page parameter"),
        ("includePage[computers][size]=-1", "invalid_page", "a whole number of at least 0"),
        ("includePage[computers][size]=1001", "invalid_page", "At most 1000 related resources of each"),
        (f"includePage[computers][size]={'9' * 30}", "invalid_page", "At most 1000"),
        ("includePage[computers][size]=1&includePage[computers][size]=1", "invalid_page", "more than once"),
        ("includePage[computers][total]=estimated", "invalid_page", "Expected exact, none"),
    ],
)
@pytest.mark.parametrize("path", ["/users", "/users/1", "/users?page[size]=0&"])
async def test_errors(reader: Api, path: str, chosen: str, code: str, detail: str) -> None:
    """Each has the status 400 and names its parameter, also where the answer would be a stream."""
    url = include(path, chosen, include="computers,group").replace("&?", "&")
    answer = await reader.get(url)
    assert answer.status == 400, answer.body
    [found] = answer.errors
    assert (found["code"], detail in found["detail"]) == (code, True), found
    assert found["source"] == {"parameter": chosen.split("=")[0]}


async def test_all_errors_come_together(reader: Api) -> None:
    chosen = ("includeSort[computers]=colour", "includeFilter[computers][id]=x", "includePage[computers][size]=x")
    answer = await reader.get(include("/users", *chosen, "filter[age]=x"))
    found = [one["source"]["parameter"] for one in answer.errors]
    assert found == [
        "includePage[computers][size]",
        "filter[age]",
        "includeFilter[computers][id]",
        "includeSort[computers]",
    ]


async def test_two_paths_to_one_relationship(reader: Api) -> None:
    """A resource has one linkage."""
    paths = "computers.owner.computers"
    one, other = "includePage[computers][size]=1", "includePage[computers.owner.computers][size]=1"
    for chosen in ((one,), (other,), (one, other.replace("=1", "=2"))):
        answer = await reader.get(include("/users", *chosen, include=paths))
        detail = (
            "“computers” and “computers.owner.computers” both lead to “computers” of user, which has one linkage: "
            "choose the same for both."
        )
        parameter = chosen[-1].split("=")[0]
        expected = error(400, "invalid_include", "BadRequest", detail, parameter=parameter)
        assert answer.errors == [expected]
    assert (await reader.get(include("/users", one, other, include=paths))).status == 200


async def test_the_same_filter_with_other_values_is_compared_again(reader: Api) -> None:
    """The form of a query does not tell whether two filters are the same."""
    for first, second, status in (("1", "1", 200), ("2", "2", 200), ("1", "2", 400), ("3", "3", 200), ("3", "4", 400)):
        filters = (f"includeFilter[computers][id]={first}", f"includeFilter[computers.owner.computers][id]={second}")
        answer = await reader.get(include("/users", *filters, include="computers.owner.computers"))
        assert answer.status == status


async def test_routes_that_do_not_include(api: Api) -> None:
    answer = await api.request("DELETE", "/users/1?includeSort[computers]=id")
    assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "includeSort[computers]"})


async def test_linkage_takes_filter_and_sort(reader: Api) -> None:
    path = "/users/2/relationships/computers"
    answer = await reader.get(f"{path}?sort=-id&page[total]=exact")
    assert (answer.document["data"], "partial" in answer.document["meta"]) == (many("computer", 3, 2), False)
    answer = await reader.get(f"{path}?filter[name]=Ace")
    assert answer.document["data"] == many("computer", 3)
    assert answer.document["meta"] == {"partial": True, "count": 1, "total": 1, "totalPages": 1}


async def test_the_tag_of_linkage_is_that_of_all_of_it(reader: Api) -> None:
    """The version of linkage that a filter has chosen lets a client write all of it."""
    path = "/users/2/relationships/computers"
    whole, chosen = [(await reader.get(path + query)).headers["ETag"] for query in ("", "?filter[name]=Ace")]
    assert whole.rpartition(".")[0] == chosen.rpartition(".")[0] != ""


async def test_paths_on_a_linkage_route(reader: Api) -> None:
    path = "/groups/1/relationships/users"
    answer = await reader.get(include(path, "includeSort[users.computers]=-id", include="users.computers"))
    assert [one["id"] for one in answer.document["included"]] == ["1", "2", "1", "3", "2"]
    for chosen in ("includeSort[users]=id", "includeSort[computers]=id"):
        answer = await reader.get(include(path, chosen, include="users.computers"))
        assert "its own linkage" in answer.errors[0]["detail"] or "whose own linkage" in answer.errors[0]["detail"]


async def test_a_hidden_field_is_unknown(reader: Api) -> None:
    for chosen in ("includeFilter[users][password_hash]=x", "includeSort[users]=password_hash"):
        answer = await reader.get(include("/groups", chosen, include="users"))
        assert answer.status == 400
        assert "password_hash" not in answer.errors[0]["detail"].split("There are")[1]


# answers to writes


async def test_the_answer_to_a_write(api: Api) -> None:
    user = await api.create("/users", "user", {"first_name": "A", "last_name": "B"})
    for name in "abc":
        await api.create("/computers", "computer", {"name": name}, owner={"type": "user", "id": user})
    path = include(f"/users/{user}", "includePage[computers][size]=1", "includeSort[computers]=-name")
    answer = await api.patch(path, {"data": {"type": "user", "id": user, "attributes": {"age": 3}}})
    found = answer.document["data"]["relationships"]["computers"]
    assert (found["meta"], len(found["data"])) == ({"partial": True, "count": 1, "hasMore": True}, 1)
    assert [one["attributes"]["name"] for one in answer.document["included"]] == ["c"]
    assert found == await linkage(api, path)
    onward = await api.get(found["links"]["next"])
    assert [one["id"] for one in onward.document["data"]] == ["2"]


# linkage that was read in part


PART = {"data": [], "meta": {"partial": True}}


@pytest.mark.parametrize("method", ["PATCH", "POST", "DELETE"])
async def test_partial_linkage_on_its_route(api: Api, method: str) -> None:
    user = await api.create("/users", "user", {"first_name": "A", "last_name": "B"})
    answer = await api.request(method, f"/users/{user}/relationships/computers", PART)
    assert answer.status == 422
    assert [(one["code"], one["source"]) for one in answer.errors] == [
        ("partial_linkage", {"pointer": "/meta/partial"})
    ]


async def test_partial_linkage_of_a_resource_as_it_was_read(api: Api) -> None:
    user = await api.create("/users", "user", {"first_name": "A", "last_name": "B"})
    for name in "ab":
        await api.create("/computers", "computer", {"name": name}, owner={"type": "user", "id": user})
    read = (await api.get(include(f"/users/{user}", "includePage[computers][size]=1"))).document
    answer = await api.patch(f"/users/{user}", {"data": read["data"]})
    pointer = "/data/relationships/computers/meta/partial"
    assert [(one["code"], one["source"]) for one in answer.errors] == [("partial_linkage", {"pointer": pointer})]
    whole = await api.get(f"/users/{user}/relationships/computers")
    assert len(whole.document["data"]) == 2
    # Without `data` it is as it was, also if there are no links.
    none = (await api.get(include(f"/users/{user}", "includePage[computers][size]=0"))).document
    for shown in (none["data"]["relationships"]["computers"], {"meta": {"partial": True}}):
        data = {"type": "user", "id": user, "relationships": {"computers": shown}}
        assert (await api.patch(f"/users/{user}", {"data": data})).status == 200
    assert len((await api.get(f"/users/{user}/relationships/computers")).document["data"]) == 2


async def test_partial_linkage_in_operations(api: Api) -> None:
    user = await api.create("/users", "user", {"first_name": "A", "last_name": "B"})
    extended = {"Content-Type": 'application/vnd.api+json; ext="https://jsonapi.org/ext/atomic"'}
    ref = {"type": "user", "id": user}
    linked = {"op": "update", "ref": {**ref, "relationship": "computers"}, **PART}
    updated = {"op": "update", "data": {**ref, "relationships": {"computers": PART}}}
    for operation, pointer in ((linked, "/meta/partial"), (updated, "/data/relationships/computers/meta/partial")):
        answer = await api.request("POST", "/operations", {"atomic:operations": [operation]}, headers=extended)
        assert [(one["code"], one["source"]) for one in answer.errors] == [
            ("partial_linkage", {"pointer": f"/atomic:operations/0{pointer}"})
        ]


# limits


@pytest.fixture
def limited(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, max_included_page=2, max_included=3)


async def test_the_largest_size_is_a_setting(limited: Api) -> None:
    sizes = {size: await limited.get(include("/users/1", f"includePage[computers][size]={size}")) for size in (2, 3)}
    assert [answer.status for answer in sizes.values()] == [200, 400]


async def test_only_shown_resources_count_as_included(limited: Api) -> None:
    path = "/users?page[size]={}&include=computers"
    for size in (0, 6, 150):
        assert (await limited.get(path.format(size))).status == 400
        one = await limited.get(path.format(size) + "&includePage[computers][size]=1")
        assert (one.status, len(one.document["included"])) == (200, 3)


# how the rows are found


def fetches(api: Api, resource: str, query: str) -> list[Fetch]:
    engine = api.app.engine
    shape = ReadShape("collection", engine.catalog.by_type[resource], accepts=ON_MANY)
    plan = engine.reads.prepare(shape, query, engine.context_of(ANONYMOUS)).plan
    return [branch.fetch for _, branch in nodes(plan.node) if branch is not None]


TREE = """
CREATE TABLE trees (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text);
CREATE TABLE leaves (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text, tree_id bigint,
    other_id bigint, part_id bigint);
CREATE INDEX ON leaves (tree_id, name); CREATE INDEX ON leaves (part_id) WHERE id > 2;
CREATE VIEW shown_leaves AS SELECT * FROM leaves;
CREATE TABLE links (tree_id bigint, leaf_id bigint, PRIMARY KEY (tree_id, leaf_id));
INSERT INTO trees SELECT n, 'tree ' || n FROM generate_series(1, 3) n;
INSERT INTO leaves SELECT n, 'leaf ' || n % 4, 1 + n % 3, 1 + n % 3, 1 + n % 3 FROM generate_series(1, 30) n;
INSERT INTO links SELECT tree_id, id FROM leaves
"""
LINK, BACK = Link("links", "tree_id", "leaf_id"), Link("links", "leaf_id", "tree_id")
LEAF = Resource(
    "leaf",
    "/leaves",
    "leaves",
    attributes=(Attribute("name", TEXT, nullable=True),),
    relationships=(ToMany("trees", "tree", through=BACK), ToOne("tree", "tree")),
)
TREES = Catalog(
    [
        Resource(
            "tree",
            "/trees",
            "trees",
            attributes=(Attribute("name", TEXT, nullable=True),),
            relationships=(
                ToMany("leaves", "leaf", foreign_key="tree_id"),
                ToMany("others", "leaf", foreign_key="other_id"),
                ToMany("parts", "leaf", foreign_key="part_id"),
                ToMany("shown", "shown", foreign_key="tree_id"),
                ToMany("linked", "leaf", through=LINK),
            ),
        ),
        LEAF,
        Resource(
            "shown",
            "/shown",
            "shown_leaves",
            methods=frozenset({"list", "detail"}),
            attributes=(Attribute("name", TEXT, nullable=True),),
        ),
    ]
)


async def test_how_the_first_of_each_are_found(inspected: Inspected) -> None:
    """By an index that begins with the key of all rows, if there is one."""
    api = await inspected(TREE, TREES)
    expected: dict[str, Fetch] = {
        **dict.fromkeys(("leaves", "linked"), "union"),
        **dict.fromkeys(("others", "parts", "shown"), "ranked"),
    }
    for name, fetch in expected.items():
        page = f"includePage[{name}][size]=2&includePage[{name}][total]=exact&includeSort[{name}]=-name"
        for size, of_size in ((5, fetch), (1000, "each" if fetch == "union" else fetch)):
            query = f"page[size]={size}&include={name}&{page}"
            assert fetches(api, "tree", query) == [of_size]
            answer = await api.get(f"/trees?{query}")
            shown = [one["relationships"][name] for one in answer.document["data"]]
            assert [one["meta"]["total"] for one in shown] == [10, 10, 10]
            assert [[int(leaf["id"]) for leaf in one["data"]] for one in shown] == [[27, 15], [19, 7], [23, 11]]
    # Those of the other side of a link table have no index.
    assert fetches(api, "leaf", "include=trees&includePage[trees][size]=1") == ["ranked"]


async def test_filters_and_orders_need_no_other_statement(inspected: Inspected) -> None:
    api = await inspected(TREE, TREES)
    assert fetches(api, "tree", "include=leaves&includeSort[leaves]=-name") == ["keys"]
    assert fetches(api, "tree", "include=leaves&includePage[leaves][total]=exact") == ["keys"]
