"""self, related and page links. What comes in: resources, ids, the pairs of a query. What goes out: URLs,
percent-encoded, absolute where the server's public URL is known.

Sources: JSON:API 1.0 "Links", "Pagination"; RFC 3986.
"""

from __future__ import annotations

from urllib.parse import quote

from querybuild.query import Page

Pairs = tuple[tuple[str, str], ...]


def quote_segment(text: str) -> str:
    """A text as one path segment, or as a name or value in a query.

    >>> quote_segment("page[size]")
    'page%5Bsize%5D'
    """
    return quote(text, safe="-._~")


def with_query(path: str, pairs: Pairs) -> str:
    """A path and its query, each pair encoded the same way however it came."""
    if not pairs:
        return path
    return path + "?" + "&".join(f"{quote_segment(name)}={quote_segment(value)}" for name, value in pairs)


def page_links(path: str, pairs: Pairs, page: Page, *, total: int | None, has_next: bool) -> dict[str, str]:
    """self, first, last, prev and next of a page; a link that has no page is left out.

    total: all that match, None when it is not known exactly. Both page families
    are spoken in their own words.
    """
    links = {"self": with_query(path, pairs)}
    if page.size == 0:
        return links
    own_key = "page[number]" if page.family == "number" else "page[offset]"
    others = tuple(pair for pair in pairs if pair[0] != own_key)

    def at(offset: int) -> str:
        place = offset // page.size + 1 if page.family == "number" else offset
        return with_query(path, (*others, (own_key, str(place))))

    links["first"] = at(0)
    if total == 0:
        return links
    last = None if total is None else (total - 1) // page.size * page.size
    if last is not None:
        links["last"] = at(last)
    if page.offset > 0:
        is_past_the_end = total is not None and page.offset >= total
        links["prev"] = at(last if is_past_the_end and last is not None else max(page.offset - page.size, 0))
    if has_next:
        links["next"] = at(page.offset + page.size)
    return links


def page_count(total: int, size: int) -> int:
    """Pages of a collection; size 0 is one page for all."""
    return -(-total // size) if size else int(total > 0)
