"""Sections 3 and 4: compound documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from querybuild.planning.planner import MAX_JOINED_ROWS
from tests.http.conftest import Api, Serve
from tests.http.expected import NO_DATA, PATHS, Pairs, error, many, one, resource, target

Key = tuple[str, str]

# What `tests/http/rows.py` holds, as linkage: (type, relationship) -> (target type, id -> ids).
TO_MANY: dict[tuple[str, str], tuple[str, dict[int, list[int]]]] = {
    ("user", "computers"): ("computer", {1: [1], 2: [2, 3], 4: [5]}),
    ("user", "posts"): ("post", {1: [1, 2], 2: [3]}),
    ("group", "users"): ("user", {1: [1, 2], 2: [3, 4]}),
    ("parent", "children"): ("parent-to-child-association", {1: [1], 2: [2, 3]}),
    ("child", "parents"): ("parent-to-child-association", {1: [1, 2], 2: [3]}),
}
TO_ONE: dict[tuple[str, str], tuple[str, dict[int, int]]] = {
    ("user", "bio"): ("user_bio", {1: 1, 2: 2}),
    ("user", "group"): ("group", {1: 1, 2: 1, 3: 2, 4: 2}),
    ("post", "user"): ("user", {1: 1, 2: 1, 3: 2}),
    ("user_bio", "user"): ("user", {1: 1, 2: 2}),
    ("computer", "owner"): ("user", {1: 1, 2: 2, 3: 2, 5: 4}),
    ("parent-to-child-association", "parent"): ("parent", {1: 1, 2: 2, 3: 2}),
    ("parent-to-child-association", "child"): ("child", {1: 1, 2: 1, 3: 2}),
}
TARGETS = {key: found[0] for key, found in (*TO_MANY.items(), *TO_ONE.items())}
RELATIONSHIPS = {type_name: [name for owner, name in TARGETS if owner == type_name] for type_name in PATHS}


def linkage(key: Key, name: str) -> Any:
    """Return the whole linkage of a relationship, by the tables above."""
    type_name, number = key[0], int(key[1])
    if (type_name, name) in TO_MANY:
        target_type, by_id = TO_MANY[type_name, name]
        return many(target_type, *by_id.get(number, []))
    target_type, one_by_id = TO_ONE[type_name, name]
    return one(target_type, str(one_by_id[number])) if number in one_by_id else None


def linked(found: Any) -> list[Key]:
    """Return the resources that linkage identifies."""
    identifiers = found if isinstance(found, list) else [] if found is None else [found]
    return [(identifier["type"], identifier["id"]) for identifier in identifiers]


def paths(type_name: str, depth: int) -> Iterator[list[str]]:
    """Every path of relationships, up to this depth."""
    for name in RELATIONSHIPS[type_name]:
        yield [name]
        if depth > 1:
            for rest in paths(TARGETS[type_name, name], depth - 1):
                yield [name, *rest]


def reached(keys: list[Key], names: list[str]) -> tuple[set[Key], dict[Key, dict[str, Any]]]:
    """Return the resources that a path leads to from the primary resources, and the linkage on the way."""
    found: set[Key] = set()
    shown: dict[Key, dict[str, Any]] = {}
    for name in names:
        onward: list[Key] = []
        for key in keys:
            data = linkage(key, name)
            shown.setdefault(key, {})[name] = data
            onward += linked(data)
        keys = list(dict.fromkeys(onward))
        found.update(keys)
    return found, shown


def key_of(data: dict[str, Any]) -> Key:
    return data["type"], data["id"]


def shown_linkage(data: dict[str, Any]) -> dict[str, Any]:
    return {name: found["data"] for name, found in data.get("relationships", {}).items() if "data" in found}


@pytest.mark.parametrize("type_name", [name for name in PATHS if RELATIONSHIPS[name]])
async def test_every_path(reader: Api, type_name: str) -> None:
    """Each resource once, no primary resource, and exactly the full linkage, for any path."""
    for names in paths(type_name, 3):
        answer = await reader.get(f"{PATHS[type_name]}?include={'.'.join(names)}")
        assert answer.status == 200
        primary, included = answer.document["data"], answer.document["included"]
        keys = [key_of(data) for data in primary]
        found, shown = reached(keys, names)
        there = [key_of(data) for data in included]
        assert len(set(there)) == len(there)
        assert set(there) == found - set(keys)
        for data in (*primary, *included):
            assert shown_linkage(data) == shown.get(key_of(data), {}), (names, key_of(data))


async def test_two_paths_lead_to_the_same_resources(reader: Api) -> None:
    """The users of the group and the owners of the computers are the same resources, with the linkage of both."""
    path = target(
        "/users/1",
        [
            ("include", "group.users.computers,computers.owner.posts"),
            ("fields[user]", "age,computers,posts,group"),
            ("fields[computer]", "owner"),
            ("fields[post]", "title"),
            ("fields[group]", "users"),
        ],
    )
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": resource(
                "user",
                "1",
                {
                    "computers": many("computer", 1),
                    "posts": many("post", 1, 2),
                    "group": one("group", "1"),
                },
                age=36,
            ),
            "included": [
                resource("computer", "1", {"owner": one("user", "1")}),
                resource("post", "1", {}, title="Notes"),
                resource("post", "2", {}, title="Sketch"),
                resource("group", "1", {"users": many("user", 1, 2)}),
                resource(
                    "user",
                    "2",
                    {"computers": many("computer", 2, 3), "posts": NO_DATA, "group": NO_DATA},
                    age=41,
                ),
                resource("computer", "2", {"owner": NO_DATA}),
                resource("computer", "3", {"owner": NO_DATA}),
            ],
            "links": {"self": path},
        },
    )


@pytest.mark.parametrize(
    ("path", "pairs", "included"),
    [
        # in the order of the linkage of the primary resources
        (
            "/users",
            [("include", "group"), ("sort", "-id"), ("fields[group]", "name")],
            [resource("group", "2", {}, name="beta"), resource("group", "1", {}, name="alpha")],
        ),
        (
            "/computers",
            [("include", "owner"), ("sort", "name"), ("fields[user]", "age")],
            [
                resource("user", "2", {}, age=41),
                resource("user", "4", {}, age=71),
                resource("user", "1", {}, age=36),
            ],
        ),
        (
            "/users",
            [("include", "computers"), ("sort", "-id"), ("fields[computer]", "")],
            [resource("computer", str(number), {}) for number in (5, 2, 3, 1)],
        ),
        # named twice, and a path with its own beginning
        (
            "/users/1",
            [("include", "group,group"), ("fields[group]", "")],
            [resource("group", "1", {})],
        ),
        (
            "/computers/1",
            [("include", "owner,owner.group"), ("fields[user]", ""), ("fields[group]", "")],
            [resource("user", "1", {}), resource("group", "1", {})],
        ),
        # the resources of the steps are included too
        (
            "/children/2",
            [("include", "parents.parent"), ("fields[parent-to-child-association]", ""), ("fields[parent]", "name")],
            [resource("parent-to-child-association", "3", {}), resource("parent", "2", {}, name="Byron")],
        ),
        # a loop ends where it began
        ("/user-bio/1", [("include", "user.bio.user"), ("fields[user]", "age")], [resource("user", "1", {}, age=36)]),
        # nothing to show
        ("/users/5", [("include", "computers,posts,bio,group")], []),
        ("/users/5", [("include", "group.users.computers")], []),
        ("/users", [("include", "group"), ("filter[id]", "77")], []),
        ("/users/1", [("include", "")], []),
        ("/users", [("include", ""), ("filter[id]", "1")], []),
        ("/persons/1", [("include", "")], []),
        # on other routes that return data
        ("/computers/4/owner", [("include", "computers")], []),
        ("/computers/1/owner", [("include", "group"), ("fields[group]", "")], [resource("group", "1", {})]),
        ("/users/2/computers", [("include", "owner"), ("fields[user]", "")], [resource("user", "2", {})]),
    ],
)
async def test_included(reader: Api, path: str, pairs: Pairs, included: list[dict[str, Any]]) -> None:
    answer = await reader.get(target(path, pairs))
    assert (answer.status, answer.document["included"]) == (200, included)


@pytest.mark.parametrize("path", ["/users", "/users/1", "/computers/1/owner", "/users/1/computers"])
async def test_no_included_without_include(reader: Api, path: str) -> None:
    answer = await reader.get(path)
    assert answer.status == 200
    assert "included" not in answer.document


async def test_empty_linkage(reader: Api) -> None:
    """To-one null, to-many empty, reverse to-one null."""
    path = "/users/5?include=bio%2Cgroup%2Ccomputers&fields%5Buser%5D=bio%2Cgroup%2Ccomputers"
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (
        200,
        {
            "jsonapi": {"version": "1.0"},
            "data": resource("user", "5", {"computers": [], "bio": None, "group": None}),
            "included": [],
            "links": {"self": path},
        },
    )


async def test_a_page_only_includes_its_own_related_resources(reader: Api) -> None:
    answer = await reader.get("/computers?include=owner&page[size]=1&page[number]=5")
    assert answer.ids == ["5"]
    assert [key_of(data) for data in answer.document["included"]] == [("user", "4")]
    assert answer.document["meta"] == {"count": 1, "total": 5, "totalPages": 5}


def refused(detail: str) -> dict[str, Any]:
    detail = f"Include parameter is invalid{detail}"
    return error(400, "invalid_include", "BadRequest", detail, parameter="include")


@pytest.mark.parametrize(
    ("path", "include", "errors"),
    [
        (
            "/users",
            "nothing",
            [refused(": user has no relationship “nothing”. There are: computers, posts, bio, group.")],
        ),
        (
            "/users/1",
            "computer",
            [
                refused(
                    ": user has no relationship “computer”. Did you mean “computers”? "
                    "There are: computers, posts, bio, group."
                )
            ],
        ),
        (
            "/users",
            "computers.user",
            [refused(": computer has no relationship “user”. There are: owner.")],
        ),
        ("/users", "age", [refused(": user has no relationship “age”. There are: computers, posts, bio, group.")]),
        ("/persons", "name", [refused(": person has no relationship “name”. There are: none.")]),
        ("/users", "group,", [refused(": “group,” contains an empty relationship name.")]),
        ("/users", ".", [refused(": “.” contains an empty relationship name.")]),
        ("/users", "group..users", [refused(": “group..users” contains an empty relationship name.")]),
        (
            "/users",
            "computers.owner.computers.owner",
            [refused(": “computers.owner.computers.owner” goes deeper than 3 relationships.")],
        ),
        # on a relationship route its own name counts
        (
            "/users/1/relationships/computers",
            "computers.owner.group.users",
            [refused(": “computers.owner.group.users” goes deeper than 3 relationships.")],
        ),
        (
            "/users",
            "x,group,y.z",
            [
                refused(": user has no relationship “x”. There are: computers, posts, bio, group."),
                refused(": user has no relationship “y”. There are: computers, posts, bio, group."),
            ],
        ),
    ],
)
async def test_refused(reader: Api, path: str, include: str, errors: list[dict[str, Any]]) -> None:
    answer = await reader.get(target(path, [("include", include)]))
    assert (answer.status, answer.errors) == (400, errors)


async def test_repeated(reader: Api) -> None:
    answer = await reader.get("/users?include=group&include=group")
    assert (answer.status, answer.errors) == (400, [refused(". It occurs more than once.")])


@pytest.fixture
def limited(serve: Serve, rows_url: str, request: pytest.FixtureRequest) -> Api:
    """Return a server with the settings of the parameter."""
    return serve(rows_url, **request.param)


TOO_MANY = "The answer would include too many resources: ask for a smaller page or include less."


@pytest.mark.parametrize("limited", [{"max_included": 4}], indirect=True)
@pytest.mark.parametrize(
    ("path", "included"),
    [
        # four computers have an owner
        ("/users?include=computers", 4),
        # the owners are primary, so nothing is included
        ("/users?include=computers.owner", 4),
        ("/users?include=computers.owner.computers", 4),
        ("/users/2?include=computers,posts,bio", 4),
        ("/users/2?include=computers,posts,bio,group", None),
        ("/users?include=computers,group", None),
        ("/users?include=computers.owner.group", None),
    ],
)
async def test_max_included(limited: Api, path: str, included: int | None) -> None:
    answer = await limited.get(path)
    if included is None:
        expected = error(400, "too_many_included", "Too Many Included Resources", TOO_MANY, parameter="include")
        assert (answer.status, answer.errors) == (400, [expected])
    else:
        assert (answer.status, len(answer.document["included"])) == (200, included)


@pytest.mark.parametrize("limited", [{"max_include_depth": 1}], indirect=True)
async def test_max_depth_is_a_setting(limited: Api) -> None:
    assert (await limited.get("/users?include=computers")).status == 200
    answer = await limited.get("/users?include=computers.owner")
    expected = refused(": “computers.owner” goes deeper than 1 relationships.")
    assert (answer.status, answer.errors) == (400, [expected])


@pytest.mark.parametrize("limited", [{"max_includes": 3}], indirect=True)
@pytest.mark.parametrize(
    "path",
    [
        "/users?include=computers,posts,bio,group",
        "/users/2?include=computers.owner.computers,group",
        "/groups/1/users?include=computers.owner,posts.user",
        "/groups/1/relationships/users?include=users.computers,users.posts,users.bio,users.group",
        "/users?page[size]=0&include=computers,posts,bio,group",
    ],
)
async def test_too_many_includes(limited: Api, path: str) -> None:
    assert (await limited.get("/users?include=computers.owner,posts,computers")).status == 200
    answer = await limited.get(path)
    expected = refused(": it leads over 4 relationships, and at most 3 are allowed: include less.")
    assert (answer.status, answer.errors) == (400, [expected])


async def test_many_to_many(corner_reader: Api) -> None:
    """Linkage through a link table, and ids that need escapes in JSON and in URLs."""
    answer = await corner_reader.get("/articles?include=tags.articles&fields[article]=tags&fields[tag]=articles")
    odd = "/articles/a%2F1%20%22%25"

    def article(id_text: str, path: str, *tags: int) -> dict[str, Any]:
        return {
            "type": "article",
            "id": id_text,
            "relationships": {
                "tags": {
                    "links": {"self": f"{path}/relationships/tags", "related": f"{path}/tags"},
                    "data": many("tag", *tags),
                }
            },
            "links": {"self": path},
        }

    def tag(number: int, *articles: str) -> dict[str, Any]:
        path = f"/tags/{number}"
        return {
            "type": "tag",
            "id": str(number),
            "relationships": {
                "articles": {
                    "links": {"self": f"{path}/relationships/articles", "related": f"{path}/articles"},
                    "data": [one("article", id_text) for id_text in articles],
                }
            },
            "links": {"self": path},
        }

    assert answer.status == 200
    assert answer.document["data"] == [
        article('a/1 "%', odd, 1, 2),
        article("b", "/articles/b", 2),
        article("c", "/articles/c"),
    ]
    assert answer.document["included"] == [tag(1, 'a/1 "%'), tag(2, 'a/1 "%', "b")]
    assert (await corner_reader.get(odd)).document["data"]["id"] == 'a/1 "%'


async def test_two_relationships_to_one_type(corner_reader: Api) -> None:
    answer = await corner_reader.get("/articles?include=author.edited,editor.articles")
    assert answer.status == 200
    assert [key_of(data) for data in answer.document["included"]] == [("author", "1"), ("author", "2")]
    assert [shown_linkage(data) for data in answer.document["data"]] == [
        {"author": one("author", "1"), "editor": one("author", "2")},
        {"author": one("author", "1"), "editor": None},
        {"author": one("author", "2"), "editor": None},
    ]
    assert [shown_linkage(data) for data in answer.document["included"]] == [
        {"edited": []},
        {"edited": [one("article", 'a/1 "%')], "articles": [one("article", "c")]},
    ]


async def test_self_references(corner_reader: Api) -> None:
    """A node that is its own parent is primary, so it is never included."""
    root, twig, own = (f"00000000-0000-0000-0000-00000000000{letter}" for letter in "abc")
    answer = await corner_reader.get(f"/nodes/{own}?include=parent.children.parent")
    assert (answer.status, answer.document["included"]) == (200, [])
    assert shown_linkage(answer.document["data"]) == {"parent": one("node", own), "children": [one("node", own)]}
    answer = await corner_reader.get(f"/nodes/{twig}?include=parent.children")
    assert [key_of(data) for data in answer.document["included"]] == [("node", root)]
    assert shown_linkage(answer.document["included"][0]) == {"children": [one("node", twig)]}


@pytest.mark.parametrize("total", ["none", "exact", "estimated"])
@pytest.mark.parametrize(
    "include", ["owner", "owner.group", "owner.group,owner.computers", "owner.bio,owner.computers"]
)
@pytest.mark.parametrize("place", ["", "&sort=-owner.age,name", "&filter[owner.group.id][gt]=0", "&page[after]="])
async def test_joined_or_not(reader: Api, place: str, include: str, total: str) -> None:
    """A short page reads its to-one includes with a join, a longer one with separate statements."""
    pages = [
        await reader.get(f"/computers?include={include}&page[size]={size}&page[total]={total}{place}")
        for size in (MAX_JOINED_ROWS, MAX_JOINED_ROWS + 1)
    ]
    short, long = [{member: page.document[member] for member in ("data", "included")} for page in pages]
    assert len(short["included"]) > 1
    assert short == long


@pytest.mark.parametrize("total", ["none", "exact", "estimated"])
@pytest.mark.parametrize("include", ["computers", "posts,group", "bio", "computers,bio", "computers.owner"])
@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("/users", ""),
        ("/users", "&sort=-age"),
        ("/users", "&sort=group.name,-age"),
        ("/users", "&sort=-first_name&page[after]="),
        ("/groups/1/users", "&sort=-last_name"),
        ("/groups/1/relationships/users", ""),
    ],
)
async def test_united_or_not(reader: Api, path: str, order: str, include: str, total: str) -> None:
    """A short page reads one to-many include in its statement, a longer one in a separate one. The additional row for
    the next page includes nothing."""
    if path.endswith("relationships/users"):
        include = ",".join(f"users.{name}" for name in include.split(","))
    query = f"{path}?include={include}&page[total]={total}{order}"
    long, short = [
        (await reader.get(f"{query}&page[size]={size}")).document for size in (MAX_JOINED_ROWS + 1, MAX_JOINED_ROWS)
    ]
    assert {name: long[name] for name in ("data", "included")} == {name: short[name] for name in ("data", "included")}
    assert len(long["included"]) > 1
    first = (await reader.get(f"{query}&page[size]=1")).document
    assert first["data"] == long["data"][:1]
    assert {key_of(data) for data in first["included"]} <= {key_of(data) for data in long["included"]}
    shown = (*first["data"], *first["included"])
    named = {key for data in shown for found in shown_linkage(data).values() for key in linked(found)}
    named |= {key_of(data) for data in first["data"]}
    assert {key_of(data) for data in first["included"]} <= named
    assert (first["links"]["next"] is None) == (len(long["data"]) == 1)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("/articles", "tags"),
        ("/tags", "articles"),
        ("/nodes", "children"),
        ("/authors", "profile"),
        ("/authors", "edited"),
    ],
)
async def test_united_of_other_kinds(corner_reader: Api, path: str, include: str) -> None:
    """Link tables, ids of text and of int, rows of one table on both sides, and a reverse to-one."""
    answers = [
        await corner_reader.get(f"{path}?include={include}&page[size]={size}&sort=-id")
        for size in (MAX_JOINED_ROWS + 1, MAX_JOINED_ROWS)
    ]
    long, short = [{name: answer.document[name] for name in ("data", "included")} for answer in answers]
    assert long == short
    assert any(shown_linkage(data)[include] for data in long["data"])
    single = f"{path}/{quote(long['data'][-1]['id'], safe='')}?include={include}"
    assert (await corner_reader.get(single)).document["data"] == long["data"][-1]


async def test_united_with_nothing(reader: Api) -> None:
    """No related rows, an empty page, and a missing parent."""
    none = await reader.get("/users?include=computers&filter[id]=3")
    assert none.document["included"] == []
    assert none.document["data"]
    assert (await reader.get("/users?include=computers&page[number]=999")).document["included"] == []
    assert (await reader.get("/groups/999/users?include=computers")).status == 404
    assert (await reader.get("/users/999?include=computers")).status == 404


async def test_joined_to_nothing(reader: Api) -> None:
    """Rows without a key, and a page without rows."""
    free = await reader.get("/computers?include=owner.group&filter[owner][is_]=null")
    assert free.document["included"] == []
    assert {one["relationships"]["owner"]["data"] for one in free.document["data"]} == {None}
    assert (await reader.get("/computers?include=owner.group&page[number]=999")).document["included"] == []
