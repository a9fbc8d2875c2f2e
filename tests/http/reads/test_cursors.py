"""Pages by cursor: following the links returns every row once, in the order of the list, for any sort."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from querybuild.cursors import encode_cursor, mark_of
from querybuild.planning.reads.list_names import list_name
from server.resources import built_in
from tests import catalog
from tests.http.conftest import Api, Serve
from tests.http.declarations.test_types import fill
from tests.http.expected import error, target
from tests.planning import parsed

Pairs = dict[str, str]


def path_of(link: str) -> str:
    """Return the path and query of a link, absolute or not."""
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


async def ids_of_all(api: Api, path: str, pairs: Pairs) -> list[str]:
    document = (await api.get(target(path, list({**pairs, "page[size]": "0"}.items())))).document
    return [each["id"] for each in document["data"]]


async def walk(api: Api, path: str, way: str) -> tuple[list[list[str]], Any]:
    """Return the ids of each page from this path on, and the document of the last page."""
    pages = []
    while True:
        answer = await api.get(path)
        assert answer.status == 200, answer.body
        document = answer.document
        pages.append([each["id"] for each in document["data"]])
        assert document["meta"] == {"count": len(pages[-1])}
        if way not in document["links"]:
            return pages, document
        path = path_of(document["links"][way])


SORTS = [
    {},
    {"sort": "-id"},
    {"sort": "last_name"},
    {"sort": "-last_name,first_name"},
    {"sort": "age"},
    {"sort": "-age"},
    {"sort": "status,-age,birth_date"},
    {"sort": "-date_create,words"},
    {"sort": "group.name"},
    {"sort": "-group.name,-age"},
    {"sort": "group_id"},
    {"sort": "display_name"},
    {"sort": "-age", "filter[status]": "active"},
]


@pytest.mark.parametrize("size", ["1", "2", "7", "100"])
@pytest.mark.parametrize("pairs", SORTS, ids=str)
async def test_a_walk_forward_and_back(reader: Api, pairs: Pairs, size: str) -> None:
    expected = await ids_of_all(reader, "/users", pairs)
    forward, last = await walk(
        reader, target("/users", list({**pairs, "page[after]": "", "page[size]": size}.items())), "next"
    )
    assert [one for page in forward for one in page] == expected
    assert {len(page) for page in forward[:-1]} <= {int(size)}
    if "prev" not in last["links"]:
        assert len(forward) == 1
        return
    backward, first = await walk(reader, path_of(last["links"]["prev"]), "prev")
    assert [one for page in reversed(backward) for one in page] == [one for page in forward[:-1] for one in page]
    assert "next" in first["links"]


@pytest.fixture
def samples(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, catalog.CATALOG)


async def test_a_sort_by_every_type(samples: Api) -> None:
    """Row 2 has null everywhere. Values that Python cannot hold have a position, too."""
    await fill(samples)
    await samples.sql("INSERT INTO corner.samples (double, day) VALUES ('NaN', '-infinity'), ('Infinity', 'infinity')")
    unfit = ("json", "jsonb", "jsonb[]", "enum[]")
    unordered = ("place", "spot", "origin", "origins")
    sortable = [
        one.name for one in catalog.SAMPLE_TYPE.attributes if one.type.name not in unfit and one.name not in unordered
    ]
    assert len(sortable) > 30
    for name in sortable:
        for sort in (name, f"-{name}"):
            expected = await ids_of_all(samples, "/samples", {"sort": sort})
            first = target("/samples", [("sort", sort), ("page[after]", ""), ("page[size]", "1")])
            pages, last = await walk(samples, first, "next")
            assert [one for page in pages for one in page] == expected, sort
            back, _ = await walk(samples, path_of(last["links"]["prev"]), "prev")
            assert [one for page in reversed(back) for one in page] == expected[:-1], sort


async def test_inserted_and_deleted_rows_do_not_shift_pages(api: Api) -> None:
    for name in ("b", "d", "f", "h"):
        await api.create("/persons", "person", {"name": name})
    links = (await api.get("/persons?sort=name&page[after]=&page[size]=2")).document["links"]
    assert "prev" not in links
    await api.sql("DELETE FROM persons WHERE name IN ('b', 'd')")
    await api.sql("INSERT INTO persons (name) VALUES ('a'), ('c'), ('e')")
    found = (await api.get(path_of(links["next"]))).document
    assert [one["attributes"]["name"] for one in found["data"]] == ["e", "f"]
    before = (await api.get(path_of(found["links"]["prev"]))).document
    assert [one["attributes"]["name"] for one in before["data"]] == ["a", "c"]


async def test_links_and_totals(reader: Api) -> None:
    path = "/users?sort=id&fields[user]=&page[size]=2&page[total]=exact"
    total = (await reader.get("/users")).document["meta"]["total"]
    first = (await reader.get(f"{path}&page[after]=")).document
    pages = -(-total // 2)
    assert first["meta"] == {"count": 2, "total": total, "totalPages": pages}
    assert set(first["links"]) == {"self", "first", "next"}
    assert first["links"]["self"] == first["links"]["first"]
    second = (await reader.get(path_of(first["links"]["next"]))).document
    assert second["meta"] == first["meta"]
    assert set(second["links"]) == {"self", "first", "prev", "next"}
    end = await reader.get("/persons?page[after]=&page[total]=exact&filter[name]=nobody")
    assert (end.document["data"], end.document["meta"]) == ([], {"count": 0, "total": 0, "totalPages": 0})


async def test_related_resources_and_linkage(reader: Api) -> None:
    for path in ("/groups/1/users", "/groups/1/relationships/users"):
        expected = await ids_of_all(reader, path, {})
        assert len(expected) > 1
        pages, last = await walk(reader, f"{path}?page[after]=&page[size]=1", "next")
        assert [one for page in pages for one in page] == expected
        assert last["links"]["related"] == "/groups/1/users" if "relationships" in path else True
    included = (await reader.get("/users?include=computers&page[after]=&page[size]=3")).document
    paged = (await reader.get("/users?include=computers&page[size]=3")).document
    assert (included["data"], included["included"]) == (paged["data"], paged["included"])


@pytest.mark.parametrize(
    ("made_at", "used_at"),
    [
        ("/users", "/groups/1/users"),
        ("/groups/1/users", "/users"),
        ("/groups/1/users", "/groups/2/users"),
        ("/groups/1/relationships/users", "/groups/2/relationships/users"),
    ],
)
async def test_a_cursor_of_another_list_is_refused(reader: Api, made_at: str, used_at: str) -> None:
    links = (await reader.get(f"{made_at}?page[after]=&page[size]=1")).document["links"]
    cursor = unquote(links["next"]).partition("page[after]=")[2].partition("&")[0]
    answer = await reader.get(target(used_at, [("page[size]", "1"), ("page[after]", cursor)]))
    detail = f"Expected a cursor of this list, with the same sort and filter, not “{cursor}”."
    assert answer.errors == [error(400, "invalid_page", "Invalid Page", detail, parameter="page[after]")]


async def test_refused(reader: Api) -> None:
    links = (await reader.get("/users?sort=age&page[after]=&page[size]=2")).document["links"]
    cursor = unquote(links["next"]).partition("page[after]=")[2].partition("&")[0]
    other = f"Expected a cursor of this list, with the same sort and filter, not “{cursor}”."
    formless = "Expected a cursor from links.next or links.prev, not “{}”."
    alone = "page[after] can only be combined with page[size] and page[total]."
    forged = encode_cursor(mark_of(list_name(parsed("sort=age"), built_in().by_type["user"]), []), ["x", "1"])
    cases = [
        ({"page[after]": cursor}, "page[after]", other),
        ({"page[after]": cursor, "sort": "-age"}, "page[after]", other),
        ({"page[before]": cursor, "sort": "age", "filter[age]": "3"}, "page[before]", other),
        ({"page[after]": "x"}, "page[after]", formless.format("x")),
        ({"page[after]": "ß"}, "page[after]", formless.format("ß")),
        ({"page[after]": "W10"}, "page[after]", formless.format("W10")),
        ({"page[before]": ""}, "page[before]", "page[before] needs a cursor; page[after]= is the first page."),
        ({"page[after]": "", "page[before]": "x"}, "page[before]", alone),
        ({"page[after]": "", "page[number]": "2"}, "page[number]", alone),
        ({"page[after]": "", "page[limit]": "2"}, "page[limit]", alone),
        ({"page[after]": "", "page[size]": "0"}, "page[size]", "Expected a whole number of at least 1, not “0”."),
    ]
    for pairs, parameter, detail in cases:
        answer = await reader.get(target("/users", list(pairs.items())))
        assert answer.errors == [error(400, "invalid_page", "Invalid Page", detail, parameter=parameter)], pairs
    answer = await reader.get(target("/users", [("sort", "age"), ("page[after]", forged)]))
    assert (answer.status, answer.errors[0]["code"], answer.errors[0]["source"]) == (
        400,
        "value_refused",
        {"parameter": "page[after]"},
    )


async def test_a_list_without_cursors(samples: Api) -> None:
    answer = await samples.get("/samples?sort=moods&page[after]=")
    detail = "A list that is sorted by “moods” has no cursors: use page[number]."
    assert answer.errors == [error(400, "invalid_page", "Invalid Page", detail, parameter="page[after]")]


async def test_a_sort_there_and_back_over_a_reverse_to_one_loses_no_row(api: Api) -> None:
    await api.sql("INSERT INTO users (id, first_name, last_name, age) VALUES (7, 'A', 'B', 30)")
    await api.sql("INSERT INTO posts (id, title, body, user_id) SELECT id, 't', 'b', 7 FROM generate_series(1, 4) id")
    found, path = [], "/posts?sort=user_id,user.bio.user.age&page[size]=1&page[after]="
    while path:
        body = (await api.get(path)).document
        found += [post["id"] for post in body["data"]]
        path = body["links"].get("next", "")
    assert found == ["1", "2", "3", "4"]
