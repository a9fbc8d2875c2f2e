"""Strategies for requests with errors: nearly valid ones, and very different ones. What comes in: a Catalog. What goes
out: query strings, targets, headers and bodies as bytes."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote, quote_from_bytes

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.operators import operator_names
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, inner_attribute
from querybuild.declarations.types import JSONB
from querybuild.parse import CHOICES, NEAR_TO, SEARCH_TEXT
from querybuild.parsing.groups import GROUPING
from tests.property.served import MEDIA_TYPE, Headers
from tests.property.values import Pairs, dump, near, numbers, texts, trees

Item = TypeVar("Item")


class Request(msgspec.Struct, frozen=True):
    method: str
    target: bytes
    headers: Headers = ()
    body: bytes | None = None


def one_of(*items: Item) -> SearchStrategy[Item]:
    return st.sampled_from(items)


# names

OPERATORS = (
    *("eq", "ne", "lt", "le", "gt", "ge", "between", "in_", "in", "notin_", "is_", "isnot", "like", "ilike", "notlike"),
    *("notilike", "startswith", "endswith", "match", "jsonb_contains", "even", "named_as_tag"),
)
WORDS = ("filter", "sort", "page", "include", "fields", "name", "op", "val", "field", "and", "or", "not", "any", "has")
WORDS += ("count", "of", SEARCH_TEXT, NEAR_TO, *GROUPING, *CHOICES)
KEYS = (
    "size",
    "number",
    "limit",
    "offset",
    "total",
    "after",
    "before",
    "",
    "id",
    "exact",
    "estimated",
    "capped",
    "none",
)


INSIDE = ("a", "0", "-1", "a\\.b", "c\\,d", "\\\\", "\\", "", "tags", "{}", "}", '"', "'", "$1", "99999999999")
"""Names inside JSON."""


def field_names(resource: Resource) -> SearchStrategy[str]:
    names = ["id", *(field.name for field in (*resource.attributes, *resource.relationships))]
    return st.sampled_from([*names, *(f"{relation.name}_id" for relation in resource.relationships)])


@st.composite
def dotted(draw: DrawFn, catalog: Catalog, resource: Resource) -> tuple[str, Attribute | None]:
    """Draw a path that is valid or nearly valid. Return it with the attribute at its end."""
    steps: list[str] = []
    while resource.relationships and len(steps) < 4 and draw(st.booleans()):
        relationship: Relationship = draw(st.sampled_from(resource.relationships))
        steps.append(relationship.name)
        resource = catalog.target(relationship)
    if resource.attributes and draw(st.integers(0, 9)) > 0:
        attribute: Attribute = draw(st.sampled_from(resource.attributes))
        path = ".".join((*steps, attribute.name))
        if attribute.type is JSONB and draw(st.booleans()):
            names = tuple(draw(st.lists(st.one_of(st.sampled_from(INSIDE), texts), min_size=1, max_size=3)))
            return ".".join((path, *names)), inner_attribute(attribute, names)[0]
        return path, attribute
    return ".".join((*steps, draw(st.one_of(field_names(resource), texts)))), None


# query strings


@st.composite
def filter_trees(draw: DrawFn, catalog: Catalog, resource: Resource, depth: int = 3) -> Any:
    kind = draw(st.integers(0, 9 if depth else 5))
    if kind <= 4:
        return draw(filter_objects(catalog, resource))
    if kind == 5:
        return draw(trees)
    inner = filter_trees(catalog, resource, depth - 1)
    if kind == 6 and resource.relationships:
        relationship = draw(st.sampled_from(resource.relationships))
        content = draw(st.lists(filter_trees(catalog, catalog.target(relationship), depth - 1), max_size=2))
        if draw(st.booleans()):
            test = {"op": draw(st.sampled_from(OPERATORS)), "val": draw(st.one_of(st.integers(-1, 3), trees))}
            return {"name": relationship.name, "op": "count", "of": content, "val": test}
        return {"name": relationship.name, "op": draw(one_of("any", "has")), "val": content}
    if kind == 7:
        return {"not": draw(inner)}
    if kind == 8:
        return {draw(one_of("and", "or", "not")): draw(st.lists(inner, max_size=3))}
    members = draw(st.lists(st.tuples(st.sampled_from(WORDS), st.one_of(inner, trees)), max_size=4))
    return Pairs(tuple(members))


@st.composite
def filter_objects(draw: DrawFn, catalog: Catalog, resource: Resource) -> Any:
    name, attribute = draw(dotted(catalog, resource))
    op = draw(st.sampled_from(OPERATORS))
    if draw(st.integers(0, 4)) == 0:
        return {"name": name, "op": op, "field": draw(st.one_of(st.just(name), dotted(catalog, resource).map(_first)))}
    close = trees if attribute is None else near(attribute)
    value = draw(st.one_of(close, close, trees))
    if op == "between" or (op in ("in_", "in", "notin_") and draw(st.booleans())):
        value = [value, draw(close)]
    return {"name": name, "op": op, "val": value}


@st.composite
def near_filters(draw: DrawFn, catalog: Catalog, resource: Resource) -> tuple[str, str]:
    """Draw a filter parameter that only has an invalid value, which perhaps only PostgreSQL refuses."""
    path, attribute = draw(dotted(catalog, resource).filter(lambda found: found[1] is not None))
    assert attribute is not None
    op = draw(st.sampled_from(operator_names(attribute)))
    value = draw(near(attribute))
    if op == "between" or (op in ("in_", "notin_") and not isinstance(value, list)):
        value = [value, draw(near(attribute))]
    if op in ("like", "ilike", "match"):
        value = draw(texts)
    if op == "jsonb_contains":
        value = {"a": value}
    if isinstance(value, str) and draw(st.booleans()):
        return f"filter[{path}][{op}]", value
    return "filter", dump([{"name": path, "op": op, "val": value}])


def _first(found: tuple[str, Attribute | None]) -> str:
    return found[0]


@st.composite
def pairs(draw: DrawFn, catalog: Catalog, resource: Resource) -> tuple[str, str]:
    """Draw one parameter, decoded."""
    path, attribute = draw(dotted(catalog, resource))
    other = draw(dotted(catalog, resource).map(_first))
    lists = st.lists(st.one_of(st.just(path), st.just(other), texts), max_size=3).map(",".join)
    value = draw(st.one_of(texts, lists, numbers.map(str), trees.map(dump)))
    match draw(st.integers(0, 9)):
        case 9:
            close = value if attribute is None else draw(near(attribute))
            return f"nearTo[{path}]", close if isinstance(close, str) else dump(close)
        case 8:
            return "searchText", draw(st.one_of(texts, st.lists(texts, max_size=3).map(" or ".join), st.just(value)))
        case 0 | 1:
            tree = draw(st.lists(filter_trees(catalog, resource), max_size=2))
            return "filter", draw(st.one_of(st.just(dump(tree)), mutated_texts(dump(tree))))
        case 2:
            close = None if attribute is None else draw(near(attribute))
            value = close if isinstance(close, str) else value
            return draw(one_of(f"filter[{path}]", f"filter[{path}][{draw(st.sampled_from(OPERATORS))}]")), value
        case 3:
            counted = f"count({path.rpartition('.')[0]})"
            return "sort", draw(one_of("", "-")) + draw(one_of(path, other, f"{path},-{other}", counted, value))
        case 4:
            return "include", draw(one_of(path.rpartition(".")[0], path, f"{path},{other}", value))
        case 5:
            return f"page[{draw(st.sampled_from(KEYS))}]", draw(
                st.one_of(st.just(value), one_of("0", "1", "2", "exact", "none"))
            )
        case 6:
            return f"fields[{draw(st.sampled_from([known.type for known in catalog]))}]", value
        case _:
            brackets = "".join(draw(st.lists(one_of("[", "]", "[]", "[a]", "[size]", "[[", f"[{path}]"), max_size=3)))
            return draw(st.one_of(st.sampled_from(WORDS), texts)) + brackets, value


@st.composite
def chosen_pairs(draw: DrawFn, catalog: Catalog, resource: Resource) -> list[tuple[str, str]]:
    """Draw an include, and what is chosen of it."""
    names, at = list[str](), resource
    while at.relationships and len(names) < 3:
        relationship: Relationship = draw(st.sampled_from(at.relationships))
        names.append(relationship.name)
        at = catalog.target(relationship)
        if draw(st.booleans()):
            break
    path = ".".join(names)
    found = [("include", draw(one_of(path, path, f"{path},{resource.type}")))]
    for _ in range(draw(st.integers(1, 3))):
        inner, value = draw(pairs(catalog, at))
        family, _, keys = inner.partition("[")
        name = {"filter": "includeFilter", "sort": "includeSort", "page": "includePage"}.get(family, "includeSort")
        found.append((f"{name}[{path}]" + (f"[{keys}" if keys else ""), value))
    return found


CALLS = (
    "count()",
    "count({})",
    "count(distinct {})",
    "sum({})",
    "avg({})",
    "min({})",
    "max({})",
    "{}",
    "sum()",
    "x({})",
)
PERIODS = ("{}", "{}", "year({})", "month({})", "day({})", "hour({})", "week({})")
ZONES = ("Europe/Paris", "UTC", "x", "", "Asia/Kolkata", "+02")


@st.composite
def group_pairs(draw: DrawFn, catalog: Catalog, resource: Resource) -> list[tuple[str, str]]:
    """Draw the parameters of groups."""
    path = dotted(catalog, resource).map(_first)
    by = draw(st.lists(st.tuples(st.sampled_from(PERIODS), path), max_size=2))
    found = [("groupBy", ",".join([call.format(one) for call, one in by]))] if by else []
    for _ in range(draw(st.integers(0, 2))):
        call, one = draw(st.sampled_from(CALLS)), draw(path)
        found.append((f"aggregateAs[{draw(one_of('n', 'm', 'by', 'é', '-'))}]", call.format(one)))
    if draw(st.booleans()):
        node = {"name": draw(one_of("n", "m", "x")), "op": draw(st.sampled_from(OPERATORS)), "val": draw(trees)}
        found.append(("groupFilter", dump([node])))
    if draw(st.integers(0, 3)) == 0:
        found.append(("timeZone", draw(st.sampled_from(ZONES))))
    if draw(st.integers(0, 3)) == 0:
        found.append(("sort", draw(one_of("n", "-m", "x"))))
    return found


@st.composite
def mutated_texts(draw: DrawFn, text: str) -> str:
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(texts) + text[start + draw(st.integers(0, 2)) :]
    return text


raw_bytes = st.one_of(
    st.binary(max_size=4),
    one_of(
        b"%", b"%zz", b"%ff", b"%c3", b"%00", b"%ed%a0%80", b"%25", b"+", b"&", b"=", b"[", b"]", b"%5b", b"\xc3", b"?"
    ),
    one_of(b"%0d%0a", b"#", b"/", b"..", b"%2f", b";", b"\xf0\x9f\x99\x82", b"%F0%9F%99%82"),
)


def _as_target(text: bytes) -> bytes:
    """Remove the characters that would end a request line, because these tests only send valid HTTP."""
    return bytes(byte for byte in text if byte > 0x20 and byte != 0x7F)


def _encoded(text: str) -> bytes:
    return quote_from_bytes(text.encode("utf-8", "surrogatepass"), safe="[]{},:.-").encode()


@st.composite
def queries(draw: DrawFn, catalog: Catalog, resource: Resource) -> bytes:
    """Draw a whole query string, without its question mark."""
    found = draw(st.lists(pairs(catalog, resource), min_size=1, max_size=3))
    others = draw(st.integers(0, 4))
    if others == 0:
        found = draw(chosen_pairs(catalog, resource)) + found[1:]
    elif others == 1:
        found = draw(group_pairs(catalog, resource)) + found[2:]
    query = b"&".join(_encoded(name) + b"=" + _encoded(value) for name, value in found)
    if draw(st.integers(0, 4)) == 0:
        query = _spliced(query, draw(st.integers(0, len(query))), draw(raw_bytes), draw(st.integers(0, 3)))
    return _as_target(query)


def _spliced(text: bytes, start: int, added: bytes, removed: int) -> bytes:
    return text[:start] + added + text[start + removed :]


# targets and headers

IDS = (
    *(
        "1",
        "2",
        "0",
        "-1",
        "07",
        "+7",
        "%20",
        "9223372036854775807",
        "9223372036854775808",
        "9" * 300,
        "a",
        "1.0",
        "1;a=b",
    ),
    *("%00", "%ff", "%C3%A9", "..", ".", "%2e%2e", "%2f", "null", "123e4567-e89b-12d3-a456-426614174000", "~"),
)
FIXED = (
    "/",
    "/-/live",
    "/-/ready",
    "/-/metrics",
    "/-",
    "/operations",
    "//",
    "/nothing",
    "/users%2f1",
    "/USERS",
    "*",
    "http://a/users",
)


@st.composite
def targets(draw: DrawFn, catalog: Catalog) -> bytes:
    resource = draw(st.sampled_from(catalog.resources))
    relationships = [relationship.name for relationship in resource.relationships] or ["nothing"]
    parts = [resource.path, draw(st.one_of(one_of("1", "2", "7"), st.sampled_from(IDS), texts.map(quote_all)))]
    parts += [draw(one_of("relationships", "")), draw(st.sampled_from([*relationships * 3, "nothing", "%ff"]))]
    path = "/".join(part for part in parts[: draw(st.integers(1, 4))] if part)
    path = draw(st.one_of(*[st.just(path)] * 5, st.sampled_from(FIXED))) + draw(one_of("", "", "", "", "/", "//"))
    raw = path.encode()
    if draw(st.integers(0, 9)) == 0:
        raw = b"/" + _spliced(raw, draw(st.integers(1, len(raw))), draw(raw_bytes), draw(st.integers(0, 2)))[1:]
    if draw(st.booleans()):
        raw += b"?" + draw(st.one_of(queries(catalog, resource), raw_bytes))
    return _as_target(raw)


def quote_all(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


MEDIA_TYPES = (
    *(
        MEDIA_TYPE,
        "application/json",
        "text/html",
        "*/*",
        "",
        ";",
        "a",
        f'{MEDIA_TYPE}; ext="https://jsonapi.org/ext/atomic"',
    ),
    *(
        f"{MEDIA_TYPE}; charset=utf-8",
        f'{MEDIA_TYPE}; profile="a b"',
        f"{MEDIA_TYPE};q=0",
        f'{MEDIA_TYPE}; ext="',
        "application/json; a=",
    ),
)
_printable = st.text([chr(code) for code in range(0x21, 0x7F)], max_size=12)
headers = st.lists(
    st.one_of(
        st.tuples(one_of("Accept", "Content-Type"), st.one_of(st.sampled_from(MEDIA_TYPES), _printable)),
        st.tuples(
            one_of("X-Request-Id", "If-Match", "If-None-Match", "Accept-Encoding", "Origin", "Prefer"), _printable
        ),
    ),
    max_size=3,
).map(tuple)
METHODS = (
    "GET",
    "GET",
    "POST",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "POST",
    "PATCH",
    "DELETE",
    "PUT",
    "TRACE",
    "FOO",
    "get",
)


@st.composite
def requests(draw: DrawFn, catalog: Catalog) -> Request:
    """Draw a request to any route. CONNECT is left out, because its target is no path."""
    resource = draw(st.sampled_from(catalog.resources))
    body = draw(st.one_of(st.none(), bodies(catalog, resource, "1")))
    return Request(draw(st.sampled_from(METHODS)), draw(targets(catalog)), draw(headers), body)


# bodies


@st.composite
def documents(draw: DrawFn, catalog: Catalog, resource: Resource, id_text: str | None) -> Any:
    """Draw the document of a resource with the id `id_text`, which may have errors. Half of the documents have few
    values, and all of them are similar to valid ones."""
    attributes = {}
    is_tame = draw(st.booleans())
    for attribute in resource.attributes:
        if attribute.required or draw(st.integers(0, 9 if is_tame else 3)) == 0:
            attributes[attribute.name] = draw(near(attribute) if is_tame else st.one_of(near(attribute), trees))
    data: dict[str, Any] = {"type": resource.type, "attributes": attributes}
    if id_text is not None:
        data["id"] = id_text
    relationships = {}
    for relationship in resource.relationships:
        is_required = isinstance(relationship, ToOne) and relationship.is_required
        if draw(st.integers(0, 2)) == 0 or (is_tame and is_required):
            ids = st.integers(1, 12).map(str)
            if not is_tame:
                ids = st.one_of(st.sampled_from(IDS), st.integers(-3, 25), trees)
            linkage = st.fixed_dictionaries({"type": st.just(relationship.target), "id": ids})
            shapes: list[SearchStrategy[Any]] = (
                [st.lists(linkage, max_size=3)] if relationship.is_to_many else [linkage]
            )
            shapes += [] if is_tame else [linkage, st.none()]
            relationships[relationship.name] = {"data": draw(st.one_of(*shapes))}
    if relationships:
        data["relationships"] = relationships
    return {"data": data}


@st.composite
def mutated(draw: DrawFn, tree: Any) -> Any:
    """Return the tree with one change: a value of another type, a member less, a duplicate, or a member more."""
    if isinstance(tree, dict) and tree and draw(st.integers(0, 3)):
        name = draw(st.sampled_from(list(tree)))
        return {**tree, name: draw(mutated(tree[name]))}
    if isinstance(tree, list) and tree and draw(st.booleans()):
        index = draw(st.integers(0, len(tree) - 1))
        return [*tree[:index], draw(mutated(tree[index])), *tree[index + 1 :]]
    if isinstance(tree, dict) and tree:
        members = tuple(tree.items())
        index = draw(st.integers(0, len(members) - 1))
        return draw(
            one_of(
                Pairs(members[:index] + members[index + 1 :]),
                Pairs((*members, members[index])),
                Pairs((*members, (draw(st.one_of(texts, one_of("lid", "id", "type", "links", "meta"))), draw(trees)))),
                [tree],
            )
        )
    return draw(trees)


@st.composite
def bodies(draw: DrawFn, catalog: Catalog, resource: Resource, id_text: str | None) -> bytes:
    tree = draw(st.one_of(*[documents(catalog, resource, id_text)] * 4, trees))
    for _ in range(draw(one_of(0, 0, 0, 1, 1, 2))):
        tree = draw(mutated(tree))
    text = dump(tree)
    if draw(st.integers(0, 7)) == 0:
        text = draw(mutated_texts(text))
    body = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        body = _spliced(body, draw(st.integers(0, len(body))), draw(st.binary(max_size=4)), draw(st.integers(0, 4)))
    return body
