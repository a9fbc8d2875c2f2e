"""Parses query strings. What comes in: a raw query string, the parameter families that the route accepts, and the
limits. What goes out: a Query whose names are not resolved. There is one function for each parameter family. All errors
are collected.

It must not know: resources. Sources: JSON:API 1.0 "Query Parameters", "Fetching Data".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

import msgspec

from querybuild.declarations.database_types.json_paths import path_fault, split_names
from querybuild.errors import (
    ApiError,
    FieldsError,
    FilterError,
    IncludeError,
    PageError,
    ParameterError,
    SortError,
    nearest,
    quoted,
)
from querybuild.filters import COUNT, FilterReader
from querybuild.parsing.groups import GROUPING, Parameter, parse_groups
from querybuild.parsing.paging import page_keys, parse_page, whole_number
from querybuild.query import (
    FilterNode,
    IncludeChoice,
    Limits,
    Near,
    OnConflict,
    Page,
    Query,
    ReadForm,
    Search,
    SortKey,
)

ON_CONFLICT = "onConflict"
INCLUDE_FILTER, INCLUDE_SORT, INCLUDE_PAGE = CHOICES = ("includeFilter", "includeSort", "includePage")
"""The parameters that choose what is included. The first key of each is an include path."""

SEARCH_TEXT, NEAR_TO = "searchText", "nearTo"

ANSWER_AS = "answerAs"
ANSWERS = ("json", "csv", "ndjson", "html")
"""The parameter that chooses the media type of an answer, and its values."""

FAMILIES = (
    *("filter", SEARCH_TEXT, NEAR_TO, "sort", "page", "include", *CHOICES, "fields", *GROUPING),
    *(ON_CONFLICT, ANSWER_AS),
)
_BY_SMALL_LETTERS = {family.lower(): family for family in FAMILIES}
INCLUDED_PAGE_KEYS, INCLUDED_TOTALS = ("size", "total"), ("exact", "none")

_FREQUENT = tuple((f"%{ord(character):02X}", character) for character in '"{}[]:, ')
"""The characters of JSON as clients encode them. None of them is a hexadecimal digit or `%`, so that nothing new can be
decoded after they have replaced their codes."""

LONG_TEXT, SAMPLE = 4096, 1024
"""From how many characters on, and in how many of them, a text is searched for the codes that are frequent in it."""

_CODE = re.compile("%[2-7][0-9A-Fa-f]")
_PART_OF_CODE = re.compile("[%0-9A-Fa-f]")

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_BRACKETED = re.compile(r"(?P<family>[a-zA-Z]+)(?P<keys>(?:\[[^\[\]]*\])*)")
_COUNTED = re.compile(rf"{COUNT}\((?P<path>[^()]*)\)")
_RESERVED = re.compile(r"[a-z]+")
MAX_SORT_KEYS = 64
"""PostgreSQL sorts by at most 1,664 columns, and a cursor has the values of all of them."""


def split_pairs(query_string: str, errors: list[ApiError]) -> tuple[tuple[str, str], ...]:
    """Return the name-value pairs in their order. `+` is a blank. Text that is not UTF-8 after decoding is an error.

    >>> split_pairs("page%5Bsize%5D=5&sort=name", [])
    (('page[size]', '5'), ('sort', 'name'))
    """
    return tuple(_pairs(query_string, errors))


def _pairs(query_string: str, errors: list[ApiError]) -> Iterator[tuple[str, str]]:
    for part in query_string.split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        try:
            yield decoded(name), decoded(value)
        except UnicodeDecodeError:
            shown = name.encode("ascii", "replace").decode()
            errors.append(ParameterError("The percent-encoded text is not UTF-8.", parameter=shown))


def decoded(text: str) -> str:
    """Return a name or a value without percent-encoding. Raises UnicodeDecodeError."""
    if "%" not in text and "+" not in text and text.isascii():
        return text
    text = text.replace("+", " ")
    # unquote_to_bytes takes 0.15 us for each code, and a filter has dozens.
    for code, character in _FREQUENT if len(text) < LONG_TEXT else _frequent_in(text):
        text = text.replace(code, character)
    if text.isascii() and text.count("%25") == text.count("%"):
        return text.replace("%25", "%")
    # The HTTP layer decodes every request line as Latin-1.
    return unquote_to_bytes(text.encode("latin-1", "replace")).decode()


def _frequent_in(text: str) -> list[tuple[str, str]]:
    """Return the codes in the middle of a long text, and their characters, as `_FREQUENT`. Each replacement reads the
    whole text, so a code that occurs a few times is not worth one."""
    begin = max(len(text) - SAMPLE, 0) // 2
    codes = [(code, chr(int(code[1:], 16))) for code in set(_CODE.findall(text, begin, begin + SAMPLE))]
    return [(code, character) for code, character in codes if not _PART_OF_CODE.match(character)]


def is_ignored(name: str) -> bool:
    """Return whether a parameter is implementation-specific and ignored: its family is unknown, and its name has a
    character outside a-z, as JSON:API requires."""
    family = name.partition("[")[0]
    return family.lower() not in _BY_SMALL_LETTERS and _RESERVED.fullmatch(name) is None


def parse(
    pairs: tuple[tuple[str, str], ...],
    accepts: frozenset[str],
    limits: Limits,
    errors: list[ApiError],
    form: ReadForm = "document",
) -> Query:
    """Parse the query of a route that accepts these families. form: of the answer. Appends to errors.

    These are errors: a known parameter that the route does not accept, any other name of only a-z, and a known
    parameter in another spelling, such as `Sort`. Other names are ignored.
    """
    families: dict[str, list[tuple[str, tuple[str, ...], str]]] = {family: [] for family in FAMILIES}
    if form != "document":
        limits = msgspec.structs.replace(limits, total="none" if form == "rows" else "capped")
    for name, value in pairs:
        if is_ignored(name):
            continue
        bracketed = _BRACKETED.fullmatch(name)
        family = name.partition("[")[0]
        if family not in FAMILIES:
            if family.lower() in _BY_SMALL_LETTERS:
                meant = _BY_SMALL_LETTERS[family.lower()] + name[len(family) :]
                errors.append(ParameterError(_no_such(name, meant), parameter=name))
            else:
                errors.append(_unknown(name, accepts))
        elif family not in accepts:
            errors.append(ParameterError(f"This route does not accept {quoted(family)}.", parameter=name))
        elif bracketed is None:
            errors.append(ParameterError("The brackets of this parameter are malformed.", parameter=name))
        else:
            families[family].append((name, tuple(_BRACKETS.findall(bracketed["keys"])), value))
    # Its value is read with the document (`parse_on_conflict`).
    _single(families[ON_CONFLICT], ParameterError, errors)
    _check_answer(families[ANSWER_AS], errors)
    reader = FilterReader(limits, errors)
    query = Query(
        filter=tuple([node for sent in families["filter"] for node in _filter(sent, reader)]),
        search=_search(_single(families[SEARCH_TEXT], ParameterError, errors), reader),
        near=_near(families[NEAR_TO], reader),
        sort=_sort(_single(families["sort"], SortError, errors), errors),
        page=parse_page(families["page"], limits, errors, "document" if families[NEAR_TO] else form),
        include=_include(_single(families["include"], IncludeError, errors), errors),
        fields=_fields(families["fields"], errors),
        groups=parse_groups(families, reader),
        choices=_choices(families, reader),
        form=form,
    )
    if form == "rows":
        errors.extend(_beside_rows(families))
        if query.groups is not None and not families["page"]:
            page = Page(family="number", size=limits.max_groups, offset=0, total="none", is_all=True)
            query = msgspec.structs.replace(query, page=page)
    if query.near is not None:
        errors.extend(_beside_near(families, query.page))
    if query.groups is not None:
        errors.extend(_beside_groups(families))
        errors.extend(_page_of_groups_faults(query.page, limits))
    return query


def _check_answer(parameters: Parameters, errors: list[ApiError]) -> None:
    """The server has chosen the media type already, by a value that is one of these."""
    value = _single(parameters, ParameterError, errors)
    if value is not None and value not in ANSWERS:
        detail = f"Expected {', '.join(ANSWERS)}, not {quoted(value)}.{nearest(value, ANSWERS)}"
        errors.append(ParameterError(detail, parameter=ANSWER_AS))


def _beside_rows(families: dict[str, Parameters]) -> Iterator[ApiError]:
    """Yield errors for parameters whose answer has more than a line for each resource."""
    for family in ("include", *CHOICES):
        for name, _, _ in families[family]:
            detail = f"Only JSON:API has {quoted(family)}: CSV and NDJSON have one line for each resource."
            yield ParameterError(detail, parameter=name)
    for name, keys, _ in families["page"]:
        if keys == ("total",):
            yield PageError("Only JSON:API has a total: CSV and NDJSON only have rows.", parameter=name)


MAX_NEAREST = 1000
"""How many of the nearest resources are shown at most."""


def _beside_near(families: dict[str, Parameters], page: Page) -> Iterator[ApiError]:
    """Yield errors for parameters that ask for another order, for groups, or for another page than the first."""
    for family in (SEARCH_TEXT, "sort", *GROUPING):
        for name, _, _ in families[family]:
            yield ParameterError(f"{quoted(NEAR_TO)} has the nearest first: leave {quoted(name)} out.", parameter=name)
    for name, keys, value in families["page"]:
        is_first = keys in (("number",), ("offset",)) and page.offset == 0
        if not (is_first or keys in (("size",), ("limit",)) or (keys == ("total",) and value == "none")):
            yield PageError(f"{quoted(NEAR_TO)} has one page, without a total.", parameter=name)
    if not 0 < page.size <= MAX_NEAREST:
        yield PageError(f"{quoted(NEAR_TO)} shows 1 to {MAX_NEAREST} resources.", parameter="page[size]")


def _beside_groups(families: dict[str, Parameters]) -> Iterator[ApiError]:
    """Yield errors for parameters that say how resources are shown, beside those of groups."""
    for family in ("include", *CHOICES, "fields"):
        for name, _, _ in families[family]:
            yield ParameterError(f"Groups show no resources, so they have no {quoted(family)}.", parameter=name)


def _page_of_groups_faults(page: Page, limits: Limits) -> Iterator[ApiError]:
    parameter = "page[limit]" if page.family == "offset" else "page[size]"
    if page.size == 0 or page.size > limits.max_groups:
        yield PageError(f"A page has 1 to {limits.max_groups} groups.", parameter=parameter)


def parse_on_conflict(pairs: tuple[tuple[str, str], ...], errors: list[ApiError]) -> OnConflict | None:
    """Return the fields by which a create finds a row to update instead. Appends to errors.

    >>> parse_on_conflict((("onConflict", "email"),), [])
    OnConflict(names=('email',), parameter='onConflict', pointer=None)
    """
    values = [value for name, value in pairs if name == ON_CONFLICT]
    if not values:
        return None
    names = conflict_names(values[0])
    if names is None:
        detail = f"{quoted(ON_CONFLICT)} names the fields of one unique key, each once, with commas between."
        errors.append(ParameterError(detail, parameter=ON_CONFLICT))
        return None
    return OnConflict(names, parameter=ON_CONFLICT)


def conflict_names(text: str) -> tuple[str, ...] | None:
    """Return the names in a text with commas between them, or None if one is empty or occurs twice."""
    names = tuple(text.split(","))
    return names if all(names) and len(set(names)) == len(names) else None


Parameters = list[Parameter]
"""The parameters of one family."""


def _unknown(name: str, accepts: frozenset[str]) -> ParameterError:
    known = f"This route accepts {', '.join(sorted(accepts))}." if accepts else "This route has no parameters."
    return ParameterError(f"There is no parameter {quoted(name)}.{nearest(name, accepts)} {known}", parameter=name)


def _no_such(name: str, meant: str) -> str:
    return f"There is no parameter {quoted(name)}. Did you mean {quoted(meant)}?"


def _single(parameters: Parameters, error: type[ParameterError], errors: list[ApiError]) -> str | None:
    """Return the value of a parameter that has no brackets and occurs once."""
    for name, keys, _ in parameters:
        if keys:
            errors.append(error(_prefix(error) + _no_such(name, name.partition("[")[0]), parameter=name))
    plain = [(name, value) for name, keys, value in parameters if not keys]
    for name, _ in plain[1:]:
        errors.append(error(_prefix(error) + "It occurs more than once.", parameter=name))
    return plain[0][1] if plain else None


def _prefix(error: type[ParameterError]) -> str:
    return "Include parameter is invalid. " if error is IncludeError else ""


def _filter(parameter: Parameter, reader: FilterReader, form: str = "filter") -> tuple[FilterNode, ...]:
    """Parse a filter. form: what precedes the keys of a simple filter."""
    name, keys, value = parameter
    if "\0" in value:
        reader.errors.append(FilterError("The value contains U+0000, which PostgreSQL cannot store.", parameter=name))
    elif not keys:
        return reader.full(name, value)
    elif not all(keys) or len(keys) > 3 or (len(keys) == 3 and keys[1] != COUNT):
        detail = (
            f"A simple filter is {form}[field], {form}[field][operator] or {form}[relationship][{COUNT}][operator]."
        )
        reader.errors.append(FilterError(detail, parameter=name))
    else:
        is_count = keys[1:2] == (COUNT,)
        ops = keys[2:] if is_count else keys[1:]
        return reader.simple(name, keys[0], ops[0] if ops else "eq", value, is_count=is_count)
    return ()


def _search(text: str | None, reader: FilterReader) -> Search | None:
    return None if text is None else Search(text, reader.next_index())


def _near(parameters: Parameters, reader: FilterReader) -> Near | None:
    for name, keys, _ in parameters:
        if len(keys) != 1 or not keys[0]:
            detail = f"{quoted(NEAR_TO)} names an attribute in brackets: {NEAR_TO}[attribute]=value."
            reader.errors.append(ParameterError(detail, parameter=name))
            return None
    for name, _, _ in parameters[1:]:
        reader.errors.append(ParameterError("Resources are near to one value.", parameter=name))
    if not parameters:
        return None
    name, keys, text = parameters[0]
    return Near(keys[0], text, reader.next_index(), name)


def _choices(families: dict[str, Parameters], reader: FilterReader) -> tuple[IncludeChoice, ...]:
    """Return what is chosen of the rows at the end of each include path."""
    paths: dict[str, dict[str, Parameters]] = {}
    for family in CHOICES:
        for name, keys, value in families[family]:
            if not keys or not all(keys[0].split(".")):
                detail = f"{quoted(family)} names an include path in brackets: {family}[path]."
                reader.errors.append(ParameterError(detail, parameter=name))
            else:
                paths.setdefault(keys[0], {}).setdefault(family, []).append((name, keys[1:], value))
    return tuple([_choice(path, sent, reader) for path, sent in paths.items()])


def _choice(path: str, sent: dict[str, Parameters], reader: FilterReader) -> IncludeChoice:
    errors = reader.errors
    filters, sorts, pages = [sent.get(family, []) for family in CHOICES]
    given = page_keys(pages, INCLUDED_PAGE_KEYS, f"{INCLUDE_PAGE}[{path}]", errors)
    total = given.get("total", ("", "none"))
    if total[1] not in INCLUDED_TOTALS:
        known = ", ".join(INCLUDED_TOTALS)
        detail = f"Expected {known}, not {quoted(total[1])}.{nearest(total[1], INCLUDED_TOTALS)}"
        errors.append(PageError(detail, parameter=total[0]))
    size = None
    if "size" in given:
        name, text = given["size"]
        size, most = whole_number(name, text, 0, 0, errors), reader.limits.max_included_page
        if size > most:
            errors.append(PageError(f"At most {most} related resources of each are included.", parameter=name))
    return IncludeChoice(
        path=tuple(path.split(".")),
        filter=tuple([node for each in filters for node in _filter(each, reader, f"{INCLUDE_FILTER}[{path}]")]),
        sort=_sort(_single(sorts, SortError, errors), errors, sorts[0][0] if sorts else ""),
        size=size,
        is_counted=bool(given),
        has_total=total[1] == "exact",
        parameters=tuple([name for parameters in sent.values() for name, _, _ in parameters]),
    )


def _sort(value: str | None, errors: list[ApiError], parameter: str = "sort") -> tuple[SortKey, ...]:
    if value is None:
        return ()
    keys: list[SortKey] = []
    items = split_names(value, ",")
    if len(items) > MAX_SORT_KEYS:
        errors.append(SortError(f"A sort has at most {MAX_SORT_KEYS} keys.", parameter=parameter))
        return ()
    for item in items:
        path = item.removeprefix("-")
        counted = _COUNTED.fullmatch(path)
        path = path if counted is None else counted["path"]
        if not path:
            errors.append(SortError("A sort key is empty.", parameter=parameter))
        elif why := path_fault(path):
            errors.append(SortError(f"{quoted(path)} {why}.", parameter=parameter))
        else:
            keys.append(SortKey(path, item.startswith("-"), counted is not None))
    return tuple(keys)


def _include(value: str | None, errors: list[ApiError]) -> tuple[tuple[str, ...], ...] | None:
    if not value:
        return None if value is None else ()
    paths = tuple(tuple(path.split(".")) for path in value.split(","))
    if not all(name for path in paths for name in path):
        errors.append(
            IncludeError(
                f"Include parameter is invalid: {quoted(value)} contains an empty relationship name.",
                parameter="include",
            )
        )
        return tuple(path for path in paths if all(path))
    return paths


def _fields(parameters: Parameters, errors: list[ApiError]) -> dict[str, tuple[str, ...]]:
    fields: dict[str, tuple[str, ...]] = {}
    for name, keys, value in parameters:
        if len(keys) != 1:
            errors.append(FieldsError("A sparse fieldset is fields[type]=name,name.", parameter=name))
        elif keys[0] in fields:
            errors.append(FieldsError("It occurs more than once.", parameter=name))
        else:
            fields[keys[0]] = tuple(value.split(",")) if value else ()
    return fields
