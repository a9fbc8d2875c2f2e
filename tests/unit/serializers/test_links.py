"""Links to resources, related resources and pages."""

from __future__ import annotations

import pytest

from querybuild.query import Page
from serializers.links import page_count, page_links, page_queries, query_form, quote_segment, with_query


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("7", "7"),
        ("a-b._~", "a-b._~"),
        ("a b/c?d#e%", "a%20b%2Fc%3Fd%23e%25"),
        ("page[size]", "page%5Bsize%5D"),
        ("größe", "gr%C3%B6%C3%9Fe"),
        ("a+b,c&d=e", "a%2Bb%2Cc%26d%3De"),
        ("", ""),
    ],
)
def test_quote_segment(text: str, quoted: str) -> None:
    assert quote_segment(text) == quoted


def test_with_query() -> None:
    assert with_query("/a", page_queries(query_form((), page("number", 5, 0))).own) == "/a"
    pairs = (("page[size]", "5"), ("x", ""), ("x", "ß"), ("größe", 'a "b"~{&}'))
    query = page_queries(query_form(pairs, page("number", 5, 0))).own
    assert with_query("/a", query) == "/a?page%5Bsize%5D=5&x=&x=%C3%9F&gr%C3%B6%C3%9Fe=a%20%22b%22~%7B%26%7D"


def page(family: str, size: int, offset: int) -> Page:
    return Page(family=family, size=size, offset=offset, total="exact")  # type: ignore[arg-type]


def positions(page: Page, total: int | None, has_next: bool = False) -> dict[str, str]:
    """Return the positions in the links: the values of page[number] or page[offset]."""
    links = page_links("/a", page_queries(query_form((), page)), page, total=total, has_next=has_next)
    assert links.pop("self") == "/a"
    return {name: link.rpartition("=")[2] for name, link in links.items()}


@pytest.mark.parametrize(
    ("family", "size", "offset", "total", "has_next", "found"),
    [
        ("number", 5, 0, 0, False, {"first": "1"}),
        ("number", 5, 0, 3, False, {"first": "1", "last": "1"}),
        ("number", 5, 0, 5, False, {"first": "1", "last": "1"}),
        ("number", 5, 0, 6, True, {"first": "1", "last": "2", "next": "2"}),
        ("number", 5, 5, 11, True, {"first": "1", "last": "3", "prev": "1", "next": "3"}),
        ("number", 5, 10, 11, False, {"first": "1", "last": "3", "prev": "2"}),
        # past the last page
        ("number", 5, 500, 11, False, {"first": "1", "last": "3", "prev": "3"}),
        ("number", 5, 15, 11, False, {"first": "1", "last": "3", "prev": "3"}),
        ("number", 5, 5, 0, False, {"first": "1"}),
        # the total is not known
        ("number", 5, 5, None, True, {"first": "1", "prev": "1", "next": "3"}),
        ("number", 5, 0, None, False, {"first": "1"}),
        # all rows
        ("number", 0, 0, 11, False, {}),
        ("offset", 0, 0, 11, False, {}),
        # offsets that are not multiples of the size: all pages are shifted
        ("offset", 5, 7, 20, True, {"first": "0", "last": "17", "prev": "2", "next": "12"}),
        ("offset", 5, 7, 22, True, {"first": "0", "last": "17", "prev": "2", "next": "12"}),
        ("offset", 5, 22, 20, False, {"first": "0", "last": "17", "prev": "17"}),
        ("offset", 5, 7, 1, False, {"first": "0", "last": "0", "prev": "0"}),
        ("offset", 5, 2, 3, False, {"first": "0", "last": "2", "prev": "0"}),
        ("offset", 5, 0, 11, True, {"first": "0", "last": "10", "next": "5"}),
        ("offset", 5, 3, 11, True, {"first": "0", "last": "8", "prev": "0", "next": "8"}),
        ("offset", 5, 8, 11, False, {"first": "0", "last": "8", "prev": "3"}),
        ("offset", 5, 10**20, 11, False, {"first": "0", "last": "10", "prev": "10"}),
    ],
)
def test_page_links(
    family: str, size: int, offset: int, total: int | None, has_next: bool, found: dict[str, str]
) -> None:
    assert positions(page(family, size, offset), total, has_next) == found


def test_links_keep_the_query() -> None:
    pairs = (("filter[a]", "x y"), ("page[number]", "2"), ("page[size]", "5"), ("include", "b,c"))
    second = page("number", 5, 5)
    links = page_links("/a", page_queries(query_form(pairs, second)), second, total=11, has_next=True)
    others = "filter%5Ba%5D=x%20y&page%5Bsize%5D=5&include=b%2Cc"
    assert links == {
        "self": "/a?filter%5Ba%5D=x%20y&page%5Bnumber%5D=2&page%5Bsize%5D=5&include=b%2Cc",
        "first": f"/a?{others}&page%5Bnumber%5D=1",
        "last": f"/a?{others}&page%5Bnumber%5D=3",
        "prev": f"/a?{others}&page%5Bnumber%5D=1",
        "next": f"/a?{others}&page%5Bnumber%5D=3",
    }


@pytest.mark.parametrize(("total", "size", "pages"), [(0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2), (0, 0, 0), (7, 0, 1)])
def test_page_count(total: int, size: int, pages: int) -> None:
    assert page_count(total, size) == pages
