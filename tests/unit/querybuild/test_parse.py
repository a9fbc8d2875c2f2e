"""The parsing of query strings."""

from __future__ import annotations

from itertools import product
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from querybuild.errors import (
    ApiError,
    FieldsError,
    FilterError,
    IncludeError,
    PageError,
    ParameterError,
    SortError,
    raise_all,
)
from querybuild.parse import FAMILIES, LONG_TEXT, parse, split_pairs
from querybuild.query import FieldFilter, Page, SortKey, Source
from tests.planning import LIMITS, limits, parsed, refused

KNOWN = ", ".join(sorted(FAMILIES))
SIMPLE = "A simple filter is filter[field], filter[field][operator] or filter[relationship][count][operator]."


@pytest.mark.parametrize(
    ("query_string", "pairs"),
    [
        ("", ()),
        ("&&", ()),
        ("a", (("a", ""),)),
        ("a=", (("a", ""),)),
        ("=b", (("", "b"),)),
        ("a=b=c", (("a", "b=c"),)),
        ("page%5Bsize%5D=5&page[number]=2", (("page[size]", "5"), ("page[number]", "2"))),
        ("sort=a+b%20c%2Bd", (("sort", "a b c+d"),)),
        ("filter[gr%C3%B6%C3%9Fe]=%F0%9F%A7%80", (("filter[größe]", "🧀"),)),
        # raw bytes, which tornado decodes as Latin-1
        ("filter[größe]=1".encode().decode("latin-1"), (("filter[größe]", "1"),)),
        ("a=%5B%7B%22b%22%3A+%2Fc%2C%20%C3%A9%7D%5D", (("a", '[{"b": /c, é}]'),)),
        ("a=%5b%2C%2522%%22%25%32%32", (("a", '[,%22%"%22'),)),
        ("a=%", (("a", "%"),)),
        ("a=%zz", (("a", "%zz"),)),
        ("a=1&a=2", (("a", "1"), ("a", "2"))),
    ],
)
def test_pairs(query_string: str, pairs: tuple[tuple[str, str], ...]) -> None:
    errors: list[ApiError] = []
    assert split_pairs(query_string, errors) == pairs
    assert errors == []


@pytest.mark.parametrize("long_text", [LONG_TEXT, 1])
def test_each_code_is_decoded_once(long_text: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which codes are decoded: texts of pieces that could join to another code."""
    monkeypatch.setattr("querybuild.parse.LONG_TEXT", long_text)
    monkeypatch.setattr("querybuild.parse.SAMPLE", 100)
    for pieces in product(("%", "%25", "%22", "%2C", "%2", "2", "%2B", "+", "%35", "%C3%B6"), repeat=4):
        text = "".join(pieces)
        assert split_pairs(f"a={text}", []) == (("a", unquote_to_bytes(text.replace("+", " ")).decode()),)


@pytest.mark.parametrize(
    ("query_string", "parameter"),
    [("sort=%FF", "sort"), ("%FF=1", "%FF"), ("sort=%ED%A0%80", "sort"), ("x=%C0%80", "x"), ("\xff=1", "?")],
)
def test_text_that_is_not_utf8(query_string: str, parameter: str) -> None:
    with refused() as told:
        parsed(query_string)
    assert told == [(ParameterError, parameter, "The percent-encoded text is not UTF-8.")]


def by_number(size: int = 30, offset: int = 0, total: Any = "exact") -> Page:
    return Page(family="number", size=size, offset=offset, total=total)


def by_offset(size: int = 30, offset: int = 0) -> Page:
    return Page(family="offset", size=size, offset=offset, total="exact")


@pytest.mark.parametrize(
    ("query_string", "page"),
    [
        ("", by_number()),
        ("page[size]=5", by_number(5)),
        ("page[number]=3", by_number(30, 60)),
        ("page[size]=5&page[number]=3", by_number(5, 10)),
        ("page[size]=10000", by_number(10_000)),
        ("page[size]=0", by_number(0)),
        ("page[size]=0&page[number]=1", by_number(0)),
        ("page[limit]=5&page[offset]=3", by_offset(5, 3)),
        ("page[offset]=3", by_offset(30, 3)),
        ("page[limit]=0&page[offset]=0", by_offset(0)),
        ("page[total]=none", by_number(total="none")),
        ("page[total]=estimated&page[size]=1", by_number(1, total="estimated")),
        ("page[number]=9223372036854775808", by_number(30, (2**63 - 1) * 30)),
        ("page[offset]=" + "9" * 50, by_offset(30, 10**20)),
    ],
)
def test_page(query_string: str, page: Page) -> None:
    assert parsed(query_string).page == page


@pytest.mark.parametrize(
    ("query_string", "parameter", "detail"),
    [
        ("page[size]=-1", "page[size]", "Expected a whole number of at least 0, not “-1”."),
        ("page[size]=", "page[size]", "Expected a whole number of at least 0, not “”."),
        ("page[size]=1.0", "page[size]", "Expected a whole number of at least 0, not “1.0”."),
        ("page[size]=+1", "page[size]", "Expected a whole number of at least 0, not “ 1”."),
        ("page[size]=%D9%A1", "page[size]", "Expected a whole number of at least 0, not “١”."),
        ("page[size]=null", "page[size]", "Expected a whole number of at least 0, not “null”."),
        ("page[number]=0", "page[number]", "Expected a whole number of at least 1, not “0”."),
        ("page[offset]=-1", "page[offset]", "Expected a whole number of at least 0, not “-1”."),
        ("page[size]=10001", "page[size]", "A page has at most 10000 resources."),
        ("page[limit]=" + "9" * 50, "page[limit]", "A page has at most 10000 resources."),
        ("page[size]=1&page[size]=1", "page[size]", "It occurs more than once."),
        (
            "page[sizes]=1",
            "page[sizes]",
            "There is no such page parameter; there are page[size], page[number], page[limit], page[offset],"
            " page[after], page[before], page[total].",
        ),
        (
            "page=1",
            "page",
            "There is no such page parameter; there are page[size], page[number], page[limit], page[offset],"
            " page[after], page[before], page[total].",
        ),
        (
            "page[size][x]=1",
            "page[size][x]",
            "There is no such page parameter; there are page[size], page[number], page[limit], page[offset],"
            " page[after], page[before], page[total].",
        ),
        ("page[size=1", "page[size", "The brackets of this parameter are malformed."),
        (
            "page[size]=1&page[offset]=1",
            "page[offset]",
            "page[size] and page[number] cannot be combined with page[limit] and page[offset].",
        ),
        (
            "page[size]=0&page[number]=2",
            "page[number]",
            "page[size]=0 requests all rows: it cannot be combined with page[number].",
        ),
        (
            "page[limit]=0&page[offset]=2",
            "page[offset]",
            "page[limit]=0 requests all rows: it cannot be combined with page[offset].",
        ),
        ("page[total]=nothing", "page[total]", "Expected exact, estimated, capped, none, not “nothing”."),
        (
            "page[total]=exac",
            "page[total]",
            "Expected exact, estimated, capped, none, not “exac”. Did you mean “exact”?",
        ),
    ],
)
def test_page_refused(query_string: str, parameter: str, detail: str) -> None:
    with refused() as told:
        parsed(query_string)
    error = ParameterError if detail.startswith("The brackets") else PageError
    assert told == [(error, parameter, detail)]


def test_page_size_by_settings() -> None:
    assert parsed("", limits(page_size=5, total="none")).page == by_number(5, total="none")
    with refused() as told:
        parsed("page[size]=0", limits(unpaginated="off"))
    assert told == [
        (PageError, "page[size]", "This server only answers with pages: request a size of at least 1."),
    ]
    assert parsed("page[size]=0", limits(unpaginated=100)).page == by_number(0)


@pytest.mark.parametrize(
    ("query_string", "sort"),
    [
        ("", ()),
        ("sort=name", (SortKey("name", False),)),
        ("sort=-name,id", (SortKey("name", True), SortKey("id", False))),
        ("sort=author.name", (SortKey("author.name", False),)),
        ("sort=--name", (SortKey("-name", True),)),
    ],
)
def test_sort(query_string: str, sort: tuple[SortKey, ...]) -> None:
    assert parsed(query_string).sort == sort


@pytest.mark.parametrize(
    ("query_string", "include"),
    [
        ("", None),
        ("include=", ()),
        ("include=a", (("a",),)),
        ("include=a.b,c", (("a", "b"), ("c",))),
    ],
)
def test_include(query_string: str, include: Any) -> None:
    assert parsed(query_string).include == include


@pytest.mark.parametrize(
    ("query_string", "fields"),
    [
        ("", {}),
        ("fields[a]=", {"a": ()}),
        ("fields[a]=x&fields[b]=y,z", {"a": ("x",), "b": ("y", "z")}),
        ("fields[parent-to-child]=x", {"parent-to-child": ("x",)}),
    ],
)
def test_fields(query_string: str, fields: dict[str, tuple[str, ...]]) -> None:
    assert parsed(query_string).fields == fields


def simple(name: str, op: str, val: str, parameter: str, index: int = 0) -> FieldFilter:
    return FieldFilter(name, op, val, None, True, Source(parameter), index)


@pytest.mark.parametrize(
    ("query_string", "nodes"),
    [
        ("filter[name]=x", (simple("name", "eq", "x", "filter[name]"),)),
        ("filter[group.name]=", (simple("group.name", "eq", "", "filter[group.name]"),)),
        ("filter[age][gt]=5", (simple("age", "gt", "5", "filter[age][gt]"),)),
        (
            'filter=[]&filter[a]=1&filter={"name":"b","op":"eq","val":2}',
            (
                simple("a", "eq", "1", "filter[a]"),
                FieldFilter("b", "eq", 2, None, False, Source("filter", ""), 1),
            ),
        ),
        ("filter[a]=1&filter[a]=2", (simple("a", "eq", "1", "filter[a]"), simple("a", "eq", "2", "filter[a]", 1))),
    ],
)
def test_filters(query_string: str, nodes: tuple[FieldFilter, ...]) -> None:
    assert parsed(query_string).filter == nodes


@pytest.mark.parametrize(
    ("query_string", "error", "parameter", "detail"),
    [
        ("sort=a&sort=b", SortError, "sort", "It occurs more than once."),
        ("sort=", SortError, "sort", "A sort key is empty."),
        ("sort=a,-", SortError, "sort", "A sort key is empty."),
        ("include=a&include=b", IncludeError, "include", "Include parameter is invalid. It occurs more than once."),
        (
            "include=a..b",
            IncludeError,
            "include",
            "Include parameter is invalid: “a..b” contains an empty relationship name.",
        ),
        (
            "include=,",
            IncludeError,
            "include",
            "Include parameter is invalid: “,” contains an empty relationship name.",
        ),
        ("fields=a", FieldsError, "fields", "A sparse fieldset is fields[type]=name,name."),
        ("fields[a][b]=c", FieldsError, "fields[a][b]", "A sparse fieldset is fields[type]=name,name."),
        ("fields[a]=x&fields[a]=y", FieldsError, "fields[a]", "It occurs more than once."),
        ("filter[]=a", FilterError, "filter[]", SIMPLE),
        (
            "filter[a][b][c]=a",
            FilterError,
            "filter[a][b][c]",
            SIMPLE,
        ),
        ("filter[a]=%00", FilterError, "filter[a]", "The value contains U+0000, which PostgreSQL cannot store."),
        ("filter[[a]]=1", ParameterError, "filter[[a]]", "The brackets of this parameter are malformed."),
        ("filter[a]x=1", ParameterError, "filter[a]x", "The brackets of this parameter are malformed."),
        ("Sort=a", ParameterError, "Sort", "There is no parameter “Sort”. Did you mean “sort”?"),
        (
            "FIELDS[user]=a",
            ParameterError,
            "FIELDS[user]",
            "There is no parameter “FIELDS[user]”. Did you mean “fields[user]”?",
        ),
        ("Page[size", ParameterError, "Page[size", "There is no parameter “Page[size”. Did you mean “page[size”?"),
        (
            "include[]=a",
            IncludeError,
            "include[]",
            "Include parameter is invalid. There is no parameter “include[]”. Did you mean “include”?",
        ),
        ("sort[]=a", SortError, "sort[]", "There is no parameter “sort[]”. Did you mean “sort”?"),
        (
            "sorted=a",
            ParameterError,
            "sorted",
            f"There is no parameter “sorted”. Did you mean “sort”? This route accepts {KNOWN}.",
        ),
        (
            "x=a",
            ParameterError,
            "x",
            f"There is no parameter “x”. This route accepts {KNOWN}.",
        ),
    ],
)
def test_refused(query_string: str, error: type[ApiError], parameter: str, detail: str) -> None:
    with refused() as told:
        parsed(query_string)
    assert told == [(error, parameter, detail)]


@pytest.mark.parametrize(
    "name", ["camelCase", "a-b", "a_b", "a1", "größe", "X", "a.b", "[a]", "x[y]", "sort_by", "Sorted"]
)
def test_implementation_specific_parameters_are_ignored(name: str) -> None:
    assert parsed(f"{name}=1".encode().decode("latin-1")) == parsed("")


def test_faults_are_reported_together() -> None:
    with refused() as told:
        parsed("sort=&include=.&page[size]=x&fields=a&y=1&filter=[")
    assert [(error, source) for error, source, _ in told] == [
        (ParameterError, "y"),
        (FilterError, "filter"),
        (SortError, "sort"),
        (PageError, "page[size]"),
        (IncludeError, "include"),
        (FieldsError, "fields"),
    ]


def test_a_parameter_that_the_route_does_not_accept() -> None:
    errors: list[ApiError] = []
    query = parse((("sort", "a"), ("include", "b"), ("filter[x", "")), frozenset({"include"}), LIMITS, errors)
    assert query.include == (("b",),)
    assert [(type(error), error.parameter, error.detail) for error in errors] == [
        (ParameterError, "sort", "This route does not accept “sort”."),
        (ParameterError, "filter[x", "This route does not accept “filter”."),
    ]
    errors = []
    parse((("y", "1"),), frozenset(), LIMITS, errors)
    with refused() as told:
        raise_all(errors)
    assert told == [(ParameterError, "y", "There is no parameter “y”. This route has no parameters.")]
