"""Section 4: pages in both families of parameters, with their totals and links. There are 65 persons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Api, Serve
from tests.http.expected import Pairs, bare, error, target

BARE = ("fields[person]", "")
NOWHERE = ("filter[name]", "nobody")


def page(ids: range | list[int], pairs: Pairs, links: dict[str, str], own_key: str, **meta: Any) -> dict[str, Any]:
    """Return the document of a page. links: the value of own_key in each, which is the last parameter."""
    others = [pair for pair in pairs if pair[0] != own_key]
    return {
        "jsonapi": {"version": "1.0"},
        "data": [bare("person", str(number)) for number in ids],
        "links": {"self": target("/persons", pairs)}
        | {name: target("/persons", [*others, (own_key, place)]) for name, place in links.items()},
        "meta": {"count": len(ids), **meta},
    }


async def is_page(api: Api, pairs: Pairs, document: dict[str, Any]) -> None:
    answer = await api.get(target("/persons", pairs))
    assert (answer.status, answer.document) == (200, document)


@pytest.mark.parametrize(
    ("asked", "ids", "links", "total_pages"),
    [
        # 30 is the default size
        ([], range(1, 31), {"first": "1", "last": "3", "next": "2"}, 3),
        ([("page[number]", "1")], range(1, 31), {"first": "1", "last": "3", "next": "2"}, 3),
        ([("page[number]", "2")], range(31, 61), {"first": "1", "last": "3", "prev": "1", "next": "3"}, 3),
        ([("page[number]", "3")], range(61, 66), {"first": "1", "last": "3", "prev": "2"}, 3),
        ([("page[size]", "13")], range(1, 14), {"first": "1", "last": "5", "next": "2"}, 5),
        ([("page[size]", "13"), ("page[number]", "5")], range(53, 66), {"first": "1", "last": "5", "prev": "4"}, 5),
        ([("page[number]", "4"), ("page[size]", "20")], range(61, 66), {"first": "1", "last": "4", "prev": "3"}, 4),
        ([("page[size]", "1"), ("page[number]", "65")], [65], {"first": "1", "last": "65", "prev": "64"}, 65),
        ([("page[size]", "64")], range(1, 65), {"first": "1", "last": "2", "next": "2"}, 2),
        ([("page[size]", "65")], range(1, 66), {"first": "1", "last": "1"}, 1),
        ([("page[size]", "66")], range(1, 66), {"first": "1", "last": "1"}, 1),
        ([("page[size]", "10000")], range(1, 66), {"first": "1", "last": "1"}, 1),
        ([("page[size]", "0010")], range(1, 11), {"first": "1", "last": "7", "next": "2"}, 7),
        # past the last page prev is the last
        ([("page[number]", "4")], [], {"first": "1", "last": "3", "prev": "3"}, 3),
        ([("page[number]", "1000")], [], {"first": "1", "last": "3", "prev": "3"}, 3),
        ([("page[size]", "65"), ("page[number]", "2")], [], {"first": "1", "last": "1", "prev": "1"}, 1),
        # an offset beyond bigint
        ([("page[number]", str(2**63))], [], {"first": "1", "last": "3", "prev": "3"}, 3),
        ([("page[number]", "9" * 400)], [], {"first": "1", "last": "3", "prev": "3"}, 3),
        ([("page[size]", "10000"), ("page[number]", str(2**62))], [], {"first": "1", "last": "1", "prev": "1"}, 1),
    ],
)
async def test_numbers(
    reader: Api, asked: Pairs, ids: range | list[int], links: dict[str, str], total_pages: int
) -> None:
    pairs = [BARE, *asked]
    await is_page(reader, pairs, page(ids, pairs, links, "page[number]", total=65, totalPages=total_pages))


@pytest.mark.parametrize(
    ("asked", "ids", "links", "total_pages"),
    [
        ([("page[limit]", "30")], range(1, 31), {"first": "0", "last": "60", "next": "30"}, 3),
        ([("page[offset]", "0")], range(1, 31), {"first": "0", "last": "60", "next": "30"}, 3),
        ([("page[offset]", "30")], range(31, 61), {"first": "0", "last": "60", "prev": "0", "next": "60"}, 3),
        ([("page[offset]", "60")], range(61, 66), {"first": "0", "last": "60", "prev": "30"}, 3),
        ([("page[limit]", "65")], range(1, 66), {"first": "0", "last": "0"}, 1),
        # an offset that is no multiple of the limit
        (
            [("page[limit]", "2"), ("page[offset]", "3")],
            [4, 5],
            {"first": "0", "last": "63", "prev": "1", "next": "5"},
            33,
        ),
        (
            [("page[limit]", "10"), ("page[offset]", "4")],
            range(5, 15),
            {"first": "0", "last": "64", "prev": "0", "next": "14"},
            7,
        ),
        # past the last page prev is the last
        ([("page[offset]", "90")], [], {"first": "0", "last": "60", "prev": "60"}, 3),
        ([("page[limit]", "2"), ("page[offset]", "65")], [], {"first": "0", "last": "63", "prev": "63"}, 33),
        ([("page[limit]", "2"), ("page[offset]", "66")], [], {"first": "0", "last": "64", "prev": "64"}, 33),
        ([("page[offset]", str(2**63 - 1))], [], {"first": "0", "last": "37", "prev": "37"}, 3),
        ([("page[offset]", str(2**63))], [], {"first": "0", "last": "38", "prev": "38"}, 3),
        ([("page[offset]", "9" * 400)], [], {"first": "0", "last": "40", "prev": "40"}, 3),
    ],
)
async def test_offsets(
    reader: Api, asked: Pairs, ids: range | list[int], links: dict[str, str], total_pages: int
) -> None:
    pairs = [BARE, *asked]
    await is_page(reader, pairs, page(ids, pairs, links, "page[offset]", total=65, totalPages=total_pages))


@pytest.mark.parametrize(
    "asked",
    [
        [("page[size]", "0")],
        [("page[limit]", "0")],
        [("page[size]", "0"), ("page[number]", "1")],
        [("page[limit]", "0"), ("page[offset]", "0")],
        [("page[size]", "000")],
        [("page[size]", "0"), ("page[total]", "exact")],
    ],
)
async def test_all_rows(reader: Api, asked: Pairs) -> None:
    pairs = [BARE, *asked]
    await is_page(reader, pairs, page(range(1, 66), pairs, {}, "", total=65, totalPages=1))


async def test_all_rows_without_total(reader: Api) -> None:
    pairs = [BARE, ("page[size]", "0"), ("page[total]", "none")]
    await is_page(reader, pairs, page(range(1, 66), pairs, {}, ""))


@pytest.mark.parametrize(
    ("asked", "own_key", "first"),
    [
        ([], "page[number]", "1"),
        ([("page[number]", "7")], "page[number]", "1"),
        ([("page[size]", "5")], "page[number]", "1"),
        ([("page[offset]", "7")], "page[offset]", "0"),
        ([("page[limit]", "7")], "page[offset]", "0"),
    ],
)
async def test_no_rows_at_all(reader: Api, asked: Pairs, own_key: str, first: str) -> None:
    pairs = [NOWHERE, *asked]
    await is_page(reader, pairs, page([], pairs, {"first": first}, own_key, total=0, totalPages=0))


async def test_all_rows_of_an_empty_list(reader: Api) -> None:
    pairs = [NOWHERE, ("page[size]", "0")]
    await is_page(reader, pairs, page([], pairs, {}, "", total=0, totalPages=0))


@pytest.mark.parametrize(
    ("asked", "ids", "own_key", "links"),
    [
        ([], range(1, 31), "page[number]", {"first": "1", "next": "2"}),
        ([("page[number]", "2")], range(31, 61), "page[number]", {"first": "1", "prev": "1", "next": "3"}),
        ([("page[number]", "3")], range(61, 66), "page[number]", {"first": "1", "prev": "2"}),
        # one row more is read, to know whether there is a next page
        ([("page[size]", "65")], range(1, 66), "page[number]", {"first": "1"}),
        ([("page[size]", "64")], range(1, 65), "page[number]", {"first": "1", "next": "2"}),
        ([("page[size]", "10000")], range(1, 66), "page[number]", {"first": "1"}),
        ([("page[number]", "9")], [], "page[number]", {"first": "1", "prev": "8"}),
        ([("page[offset]", "35")], range(36, 66), "page[offset]", {"first": "0", "prev": "5"}),
        ([("page[offset]", "34")], range(35, 65), "page[offset]", {"first": "0", "prev": "4", "next": "64"}),
        ([NOWHERE], [], "page[number]", {"first": "1"}),
    ],
)
async def test_no_total(reader: Api, asked: Pairs, ids: range | list[int], own_key: str, links: dict[str, str]) -> None:
    pairs = [BARE, ("page[total]", "none"), *asked]
    await is_page(reader, pairs, page(ids, pairs, links, own_key))


@pytest.mark.parametrize(
    ("asked", "ids", "links", "total", "total_pages"),
    [
        # the table was analyzed, so the planner knows its size
        ([], range(1, 31), {"first": "1", "next": "2"}, 65, 3),
        ([("page[number]", "2")], range(31, 61), {"first": "1", "prev": "1", "next": "3"}, 65, 3),
        ([("page[number]", "3")], range(61, 66), {"first": "1", "prev": "2"}, 65, 3),
        ([("page[number]", "9")], [], {"first": "1", "prev": "8"}, 65, 3),
        ([("page[size]", "65")], range(1, 66), {"first": "1"}, 65, 1),
        ([NOWHERE], [], {"first": "1"}, 0, 0),
    ],
)
async def test_estimated_total(
    reader: Api, asked: Pairs, ids: range | list[int], links: dict[str, str], total: int, total_pages: int
) -> None:
    pairs = [BARE, ("page[total]", "estimated"), *asked]
    await is_page(
        reader,
        pairs,
        page(ids, pairs, links, "page[number]", total=total, totalPages=total_pages, totalEstimated=True),
    )


async def test_an_estimate_is_never_below_the_rows_of_the_page(reader: Api) -> None:
    """The planner assumes that the two conditions are independent, and so expects one row instead of three."""
    pairs = [
        ("fields[person]", ""),
        ("filter[id][le]", "3"),
        ("filter[name][le]", "person 3"),
        ("filter[name][startswith]", "person"),
        ("filter[id][in_]", "1,2,3"),
        ("page[size]", "2"),
        ("page[total]", "estimated"),
    ]
    answer = await reader.get(target("/persons", pairs))
    assert answer.status == 200
    assert answer.ids == ["1", "2"]
    assert answer.document["meta"] == {"count": 2, "total": 3, "totalPages": 2, "totalEstimated": True}


def refused(parameter: str, detail: str) -> dict[str, Any]:
    return error(400, "invalid_page", "Invalid Page", detail, parameter=parameter)


MIXED = "page[size] and page[number] cannot be combined with page[limit] and page[offset]."
UNKNOWN = (
    "There is no such page parameter; there are page[size], page[number], page[limit], page[offset], page[after],"
    " page[before], page[total]."
)


@pytest.mark.parametrize(
    ("pairs", "errors"),
    [
        ([("page[size]", "10001")], [refused("page[size]", "A page has at most 10000 resources.")]),
        ([("page[limit]", "9" * 400)], [refused("page[limit]", "A page has at most 10000 resources.")]),
        ([("page[size]", "-1")], [refused("page[size]", "Expected a whole number of at least 0, not “-1”.")]),
        ([("page[size]", "x")], [refused("page[size]", "Expected a whole number of at least 0, not “x”.")]),
        ([("page[size]", "")], [refused("page[size]", "Expected a whole number of at least 0, not “”.")]),
        ([("page[size]", "+5")], [refused("page[size]", "Expected a whole number of at least 0, not “+5”.")]),
        ([("page[size]", " 5")], [refused("page[size]", "Expected a whole number of at least 0, not “ 5”.")]),
        ([("page[size]", "5.0")], [refused("page[size]", "Expected a whole number of at least 0, not “5.0”.")]),
        ([("page[size]", "1e3")], [refused("page[size]", "Expected a whole number of at least 0, not “1e3”.")]),
        ([("page[size]", "1_0")], [refused("page[size]", "Expected a whole number of at least 0, not “1_0”.")]),
        ([("page[size]", "٣")], [refused("page[size]", "Expected a whole number of at least 0, not “٣”.")]),
        ([("page[size]", "²")], [refused("page[size]", "Expected a whole number of at least 0, not “²”.")]),
        ([("page[number]", "0")], [refused("page[number]", "Expected a whole number of at least 1, not “0”.")]),
        ([("page[number]", "-2")], [refused("page[number]", "Expected a whole number of at least 1, not “-2”.")]),
        ([("page[offset]", "-1")], [refused("page[offset]", "Expected a whole number of at least 0, not “-1”.")]),
        ([("page[limit]", "-1")], [refused("page[limit]", "Expected a whole number of at least 0, not “-1”.")]),
        ([("page[size]", "5"), ("page[offset]", "5")], [refused("page[offset]", MIXED)]),
        ([("page[number]", "5"), ("page[limit]", "5")], [refused("page[limit]", MIXED)]),
        ([("page[size]", "5"), ("page[limit]", "5")], [refused("page[limit]", MIXED)]),
        (
            [("page[size]", "5"), ("page[size]", "5")],
            [refused("page[size]", "It occurs more than once.")],
        ),
        (
            [("page[total]", "none"), ("page[total]", "none")],
            [refused("page[total]", "It occurs more than once.")],
        ),
        ([("page[foo]", "5")], [refused("page[foo]", UNKNOWN)]),
        ([("page[SIZE]", "5")], [refused("page[SIZE]", UNKNOWN)]),
        ([("page[]", "5")], [refused("page[]", UNKNOWN)]),
        ([("page[size][x]", "5")], [refused("page[size][x]", UNKNOWN)]),
        ([("page", "5")], [refused("page", UNKNOWN)]),
        (
            [("page[total]", "exat")],
            [refused("page[total]", "Expected exact, estimated, capped, none, not “exat”. Did you mean “exact”?")],
        ),
        ([("page[total]", "")], [refused("page[total]", "Expected exact, estimated, capped, none, not “”.")]),
        (
            [("page[size]", "0"), ("page[number]", "2")],
            [refused("page[number]", "page[size]=0 requests all rows: it cannot be combined with page[number].")],
        ),
        (
            [("page[limit]", "0"), ("page[offset]", "2")],
            [refused("page[offset]", "page[limit]=0 requests all rows: it cannot be combined with page[offset].")],
        ),
        # all errors are reported
        (
            [("page[size]", "-5"), ("page[number]", "0"), ("page[foo]", "1"), ("page[total]", "x")],
            [
                refused("page[foo]", UNKNOWN),
                refused("page[size]", "Expected a whole number of at least 0, not “-5”."),
                refused("page[number]", "Expected a whole number of at least 1, not “0”."),
                refused("page[total]", "Expected exact, estimated, capped, none, not “x”."),
            ],
        ),
    ],
)
async def test_refused(reader: Api, pairs: Pairs, errors: list[dict[str, Any]]) -> None:
    answer = await reader.get(target("/persons", pairs))
    assert (answer.status, answer.errors) == (400, errors)


async def test_broken_brackets(reader: Api) -> None:
    for name in ("page[size", "page[[size]]", "page[size]x"):
        answer = await reader.get(target("/persons", [(name, "5")]))
        expected = error(
            400,
            "invalid_parameter",
            "Invalid Parameter",
            "The brackets of this parameter are malformed.",
            parameter=name,
        )
        assert (answer.status, answer.errors) == (400, [expected]), name


@pytest.mark.parametrize("total", ["exact", "none", "estimated"])
async def test_following_next(reader: Api, total: str) -> None:
    """The links lead through all pages, forward and back."""
    seen, path = [], f"/persons?page[size]=9&sort=-name&page[total]={total}"
    answer = await reader.get(path)
    seen += answer.ids
    while "next" in answer.document["links"]:
        answer = await reader.get(answer.document["links"]["next"])
        seen += answer.ids
    assert sorted(map(int, seen)) == list(range(1, 66))
    back = list(reversed(answer.ids))
    while "prev" in answer.document["links"]:
        answer = await reader.get(answer.document["links"]["prev"])
        back += reversed(answer.ids)
    assert back == list(reversed(seen))


@pytest.fixture
def limited(serve: Serve, rows_url: str, request: pytest.FixtureRequest) -> Api:
    """Return a server with the settings of the parameter."""
    return serve(rows_url, **request.param)


@pytest.mark.parametrize(
    ("limited", "asked", "ids", "links", "meta"),
    [
        ({"page_size": 7}, [], range(1, 8), {"first": "1", "last": "10", "next": "2"}, {"total": 65, "totalPages": 10}),
        ({"page_size": 65, "total": "none"}, [], range(1, 66), {"first": "1"}, {}),
        ({"total": "none"}, [("page[size]", "0")], range(1, 66), {}, {}),
        (
            {"total": "none"},
            [("page[total]", "exact")],
            range(1, 31),
            {"first": "1", "last": "3", "next": "2"},
            {"total": 65, "totalPages": 3},
        ),
        (
            {"total": "estimated"},
            [],
            range(1, 31),
            {"first": "1", "next": "2"},
            {"total": 65, "totalPages": 3, "totalEstimated": True},
        ),
        ({"unpaginated": 65}, [("page[size]", "0")], range(1, 66), {}, {"total": 65, "totalPages": 1}),
        (
            {"max_page_size": 10, "page_size": 10},
            [("page[size]", "0")],
            range(1, 66),
            {},
            {"total": 65, "totalPages": 1},
        ),
    ],
    indirect=["limited"],
)
async def test_settings(limited: Api, asked: Pairs, ids: range, links: dict[str, str], meta: dict[str, Any]) -> None:
    pairs = [BARE, *asked]
    await is_page(limited, pairs, page(ids, pairs, links, "page[number]", **meta))


@pytest.mark.parametrize(
    ("limited", "asked", "expected"),
    [
        (
            {"max_page_size": 10, "page_size": 10},
            [("page[size]", "11")],
            refused("page[size]", "A page has at most 10 resources."),
        ),
        (
            {"unpaginated": "off"},
            [("page[size]", "0")],
            refused("page[size]", "This server only answers with pages: request a size of at least 1."),
        ),
        (
            {"unpaginated": "off"},
            [("page[limit]", "0")],
            refused("page[limit]", "This server only answers with pages: request a size of at least 1."),
        ),
        (
            {"unpaginated": 64},
            [("page[size]", "0")],
            error(
                400,
                "too_many_rows",
                "Too Many Rows",
                "There are more than 64 resources: ask for pages.",
                parameter="page[size]",
            ),
        ),
        (
            {"unpaginated": 64},
            [("page[limit]", "0")],
            error(
                400,
                "too_many_rows",
                "Too Many Rows",
                "There are more than 64 resources: ask for pages.",
                parameter="page[limit]",
            ),
        ),
    ],
    indirect=["limited"],
)
async def test_refused_by_settings(limited: Api, asked: Pairs, expected: dict[str, Any]) -> None:
    answer = await limited.get(target("/persons", asked))
    assert (answer.status, answer.errors) == (400, [expected])


@pytest.mark.parametrize("limited", [{"unpaginated": 3}], indirect=True)
async def test_a_list_without_pages_below_its_limit_is_complete(limited: Api) -> None:
    answer = await limited.get("/groups?page[size]=0")
    assert (answer.status, answer.ids) == (200, ["1", "2", "3"])
