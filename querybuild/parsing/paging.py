"""Parses the parameters of pages: `page[size]`, `page[number]` and the others. What comes in: their texts. What goes
out: a Page.

It must not know: resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from querybuild.errors import ApiError, PageError, nearest, quoted
from querybuild.parsing.groups import Parameter
from querybuild.query import Limits, Page, ReadForm, Total

PAGE_KEYS = ("size", "number", "limit", "offset", "after", "before", "total")
TOTALS: tuple[Total, ...] = ("exact", "estimated", "capped", "none")

_BEYOND_BIGINT = 10**20


def parse_page(parameters: Sequence[Parameter], limits: Limits, errors: list[ApiError], form: ReadForm) -> Page:
    """Parse the page. form: with lines, all resources are meant if no page is sent; a page for people is one by cursor,
    and has no more resources than a browser shows well."""
    if form == "rows" and not parameters:
        if limits.unpaginated == "off":
            errors.append(PageError("This server only answers with pages: send page[size].", parameter="page[size]"))
        return Page(family="number", size=0, offset=0, total="none")
    given = {key: value for key, (_, value) in page_keys(parameters, PAGE_KEYS, "page", errors).items()}
    if form == "page":
        given = _browsed(given, limits)
    by_cursor = [key for key in ("after", "before") if key in given]
    by_number = [key for key in ("number", "size") if key in given and not (by_cursor and key == "size")]
    by_offset = [key for key in ("limit", "offset") if key in given]
    if by_cursor:
        for key in (*by_cursor[1:], *by_number, *by_offset):
            detail = f"page[{by_cursor[0]}] can only be combined with page[size] and page[total]."
            errors.append(PageError(detail, parameter=f"page[{key}]"))
        return _cursor_page(given, by_cursor[0], limits, errors)
    if by_number and by_offset:
        detail = "page[size] and page[number] cannot be combined with page[limit] and page[offset]."
        errors.append(PageError(detail, parameter=f"page[{by_offset[0]}]"))
        by_offset = []
    return _page_of(given, "offset" if by_offset else "number", limits, errors)


MAX_BROWSED = 1000
"""How many resources a page for people shows of a list without pages."""


def _browsed(given: dict[str, str], limits: Limits) -> dict[str, str]:
    """Return the keys of a page for people."""
    most = str(min(MAX_BROWSED, limits.max_page_size))
    if limits.unpaginated != "off" and "0" in (given.get("size"), given.get("limit")):
        given = {key: value for key, value in given.items() if key != "limit"} | {"size": most}
    has_position = any(key in given for key in ("number", "limit", "offset", "after", "before"))
    given = given if has_position else given | {"after": ""}
    return given if "total" in given else given | {"total": limits.total}


def page_keys(
    parameters: Sequence[Parameter], known: tuple[str, ...], form: str, errors: list[ApiError]
) -> dict[str, tuple[str, str]]:
    """Return the parameters of a page by their key, each with its name as sent. form: what precedes the key."""
    given: dict[str, tuple[str, str]] = {}
    for name, keys, value in parameters:
        key = keys[0] if len(keys) == 1 else ""
        if key not in known:
            listed = ", ".join(f"{form}[{member}]" for member in known)
            errors.append(PageError(f"There is no such page parameter; there are {listed}.", parameter=name))
        elif key in given:
            errors.append(PageError("It occurs more than once.", parameter=name))
        else:
            given[key] = name, value
    return given


def _cursor_page(given: dict[str, str], key: str, limits: Limits, errors: list[ApiError]) -> Page:
    """Return a page by `page[after]` or `page[before]`. Its total is only counted if it is requested."""
    if key == "before" and not given[key]:
        errors.append(
            PageError("page[before] needs a cursor; page[after]= is the first page.", parameter="page[before]")
        )
    size = _whole_number(given, "size", limits.page_size, 1, errors)
    errors.extend(_size_faults("page[size]", size, limits))
    total = _total(given, limits, errors) if "total" in given else "none"
    return Page(family="cursor", size=size, offset=0, total=total, cursor=given[key], is_before=key == "before")


def _page_of(
    given: dict[str, str], family: Literal["number", "offset"], limits: Limits, errors: list[ApiError]
) -> Page:
    size_key, position_key = ("size", "number") if family == "number" else ("limit", "offset")
    minimum = 1 if family == "number" else 0
    size = _whole_number(given, size_key, limits.page_size, 0, errors)
    position = _whole_number(given, position_key, minimum, minimum, errors)
    offset = (position - 1) * size if family == "number" else position
    errors.extend(_size_faults(f"page[{size_key}]", size, limits))
    if size == 0 and position > minimum:
        detail = f"page[{size_key}]=0 requests all rows: it cannot be combined with page[{position_key}]."
        errors.append(PageError(detail, parameter=f"page[{position_key}]"))
    return Page(family=family, size=size, offset=offset, total=_total(given, limits, errors))


def _whole_number(given: dict[str, str], key: str, default: int, minimum: int, errors: list[ApiError]) -> int:
    text = given.get(key)
    return default if text is None else whole_number(f"page[{key}]", text, default, minimum, errors)


def whole_number(parameter: str, text: str, default: int, minimum: int, errors: list[ApiError]) -> int:
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) <= 20 else _BEYOND_BIGINT
        if number >= minimum:
            return number
    detail = f"Expected a whole number of at least {minimum}, not {quoted(text)}."
    errors.append(PageError(detail, parameter=parameter))
    return default


def _size_faults(parameter: str, size: int, limits: Limits) -> Iterator[PageError]:
    if size > limits.max_page_size:
        yield PageError(f"A page has at most {limits.max_page_size} resources.", parameter=parameter)
    if size == 0 and limits.unpaginated == "off":
        yield PageError("This server only answers with pages: request a size of at least 1.", parameter=parameter)


def _total(given: dict[str, str], limits: Limits, errors: list[ApiError]) -> Total:
    text = given.get("total")
    if text is None:
        return limits.total
    for total in TOTALS:
        if text == total:
            return total
    detail = f"Expected {', '.join(TOTALS)}, not {quoted(text)}.{nearest(text, TOTALS)}"
    errors.append(PageError(detail, parameter="page[total]"))
    return limits.total
