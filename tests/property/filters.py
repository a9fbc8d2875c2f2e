"""Strategies for filters and sorts over the built-in resources. What comes in: rows, so that drawn values are similar
to existing ones. What goes out: filters as JSON trees, and simple filters as pairs of a query string."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.property.model import FAR_KEY, LINKED, OWN_KEY, Rows, inside
from tests.property.rows import ALPHABET, DATES, GENDERS, STATUSES

KINDS: dict[str, dict[str, str]] = {
    "user": {
        "id": "id",
        "first_name": "text",
        "last_name": "text",
        "display_name": "text",
        "age": "int",
        "email": "text",
        "status": "status",
        "birth_date": "date",
        "gender": "gender",
        "words": "array",
        "date_create": "date",
        "group_id": "id",
        "group": "id",
    },
    "group": {"id": "id", "name": "text"},
    "computer": {"id": "id", "name": "text", "serial": "text", "owner_id": "id"},
    "post": {"id": "id", "title": "text", "body": "text", "user_id": "id"},
    "user_bio": {
        "id": "id",
        "birth_city": "text",
        "favourite_movies": "text",
        "keys_to_ids_list": "json",
        "user": "id",
    },
    "photo": {"id": "id", "name": "text", "words": "json"},
    "author": {
        "id": "id",
        "given-name": "text",
        "family-name": "text",
        "full-name": "text",
        "born": "int",
        "größe": "int",
    },
    "article": {"id": "key", "title": "text", "pages": "int", "author_id": "id", "editor": "id"},
    "tag": {"id": "id", "name": "text"},
    "profile": {"id": "id", "motto": "text", "author": "id"},
    "desk": {"id": "id", "room": "text", "author_id": "id"},
    "node": {"id": "uuid", "title": "text", "weight": "int", "parent_id": "uuid"},
}
FAMILIES = {"id": "number", "int": "number", "text": "text", "status": "text", "gender": "text", "key": "text"}
CHOICES = {"status": STATUSES, "gender": GENDERS}
PATHS = {"user": "/users", "group": "/groups", "computer": "/computers", "post": "/posts"}
PATHS |= {"user_bio": "/user-bio", "photo": "/photos"}
TYPES = tuple(PATHS)
CORNER_PATHS = {"author": "/authors", "article": "/articles", "tag": "/tags", "profile": "/profiles"}
CORNER_PATHS |= {"desk": "/office/desks", "node": "/nodes"}
CORNER_TYPES = tuple(CORNER_PATHS)
PATHS |= CORNER_PATHS
TO_MANY = {"computers", "posts", "users", "articles", "edited", "tags", "children"}

EQUALITY = ("eq", "ne", "is_", "isnot")
ORDER = ("lt", "le", "gt", "ge")
LISTS = ("in_", "in", "notin_")
NULLS = ("is_", "isnot")
LIKES = ("like", "ilike", "notlike", "notilike")
ENDS = ("startswith", "endswith")
PLAIN = (*EQUALITY, *ORDER, "between", *LISTS)
OPERATORS = {
    "id": PLAIN,
    "int": PLAIN,
    "date": PLAIN,
    "key": PLAIN,
    "uuid": PLAIN,
    "text": (*PLAIN, *LIKES, *ENDS, "match"),
    "status": (*PLAIN, *LIKES, *ENDS),
    "gender": (*PLAIN, *LIKES, *ENDS),
    "array": (*EQUALITY, *LISTS),
    "json": (*NULLS, "jsonb_contains"),
    "inner": (*PLAIN, *LIKES, *ENDS, "match"),
}

COUNTS = ("eq", "ne", "lt", "le", "gt", "ge", "between", "in_", "notin_")
"""The operators of counts."""

Filter = dict[str, Any]
_short = st.text(ALPHABET, max_size=3)


def one_of(items: Any) -> SearchStrategy[Any]:
    return st.sampled_from(list(items))


# paths


def relationships_of(type_name: str) -> dict[str, str]:
    """Return the relationships of a type, each with its target."""
    return {name: found[0] for part in (OWN_KEY, FAR_KEY, LINKED) for name, found in part.get(type_name, {}).items()}


@st.composite
def paths(draw: DrawFn, type_name: str, most: int = 3) -> tuple[list[str], str]:
    """Draw a path of relationships. Return it with the type at its end."""
    names: list[str] = []
    for _ in range(draw(one_of(range(-1, most + 1)))):
        known = relationships_of(type_name)
        if not known:
            break
        name = draw(one_of(known))
        names.append(name)
        type_name = known[name]
    return names, type_name


@st.composite
def fields(draw: DrawFn, type_name: str, family: str = "") -> tuple[str, str, str, str]:
    """Draw a dotted name. Return it with the type at its end, the name of the attribute there, and its kind."""
    names, target = draw(paths(type_name))
    kinds = {name: kind for name, kind in KINDS[target].items() if not family or FAMILIES.get(kind, kind) == family}
    if not kinds:
        names, target, kinds = [], type_name, {"id": "id"}
    name = draw(one_of(kinds))
    return ".".join((*names, name)), target, name, kinds[name]


class InnerName(str):
    """The name of a value inside JSON."""


INNER_NAMES = ("a", "b", "é", "a.b", '"', "\\", "0", "1", "c,d")


@st.composite
def inner_paths(draw: DrawFn, name: str, pool: list[Any]) -> tuple[InnerName, list[Any]]:
    """Draw the name of a value inside of a JSON attribute. Return it with such values that are no containers."""
    names: list[str] = []
    value = draw(one_of(pool or [None]))
    for _ in range(draw(one_of((1, 1, 2, 3)))):
        known = [name for name in value if name] if isinstance(value, dict) else INNER_NAMES
        names.append(draw(one_of(known or INNER_NAMES)))
        value = inside(value, names[-1:]).value
    found = [inside(value, names).value for value in pool]
    scalars = [value for value in found if value is not None and not isinstance(value, dict | list)]
    return InnerName(".".join((name, *[re.sub(r"([\\.,])", r"\\\1", one) for one in names]))), scalars or ["a"]


# values


@st.composite
def texts(draw: DrawFn, pool: list[str]) -> str:
    """Draw an existing text, a part of one, or any other text."""
    text: str = draw(st.one_of(one_of(pool or ["a"]), _short))
    start = draw(one_of((0, 0, 1)))
    return text[start : start + draw(one_of((2, 9)))]


@st.composite
def patterns(draw: DrawFn, pool: list[str]) -> str:
    """Draw a LIKE pattern. A pattern with % does not end in an escape, because PostgreSQL refuses that for some
    rows."""
    pieces = draw(st.lists(st.one_of(texts(pool), one_of(("%", "_", "\\%", "\\_", "\\\\"))), max_size=3))
    pattern = "".join(pieces)
    trailing = len(pattern) - len(pattern.rstrip("\\"))
    return pattern + "\\" if "%" in pattern and trailing % 2 else pattern


_atoms = one_of(("a", "A", "b", "é", "日", "_", "%", " ", ".", "[ab]", "[^a]", "(a|b)", "(ab)", "(aé|)"))
_pieces = st.tuples(_atoms, one_of(("", "", "*", "+", "?", "{1,2}"))).map("".join)
_branches = st.tuples(one_of(("", "^")), st.lists(_pieces, max_size=3).map("".join), one_of(("", "$"))).map("".join)
expressions = st.lists(_branches, min_size=1, max_size=2).map("|".join)
"""Regular expressions that mean the same in Python and in PostgreSQL."""

json_scalars = st.one_of(one_of((None, True, False, 0, 1, 1.0, 100, 1.5, 10**20, "a", "", "é")), _short)
json_values = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(one_of(("a", "b", "", "é", "a.b")), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def parts_of(draw: DrawFn, value: Any) -> Any:
    """Draw a JSON value that the given one contains in most cases."""
    if isinstance(value, dict):
        kept = draw(st.lists(one_of(value), unique=True, max_size=2)) if value else []
        return {name: draw(parts_of(value[name])) for name in kept}
    if isinstance(value, list):
        return [draw(parts_of(item)) for item in draw(st.lists(one_of(value), max_size=2))] if value else []
    return draw(st.one_of(st.just(value), st.just(value), json_scalars))


def values(kind: str, pool: list[Any]) -> SearchStrategy[Any]:
    """Return a strategy for one JSON value."""
    match kind:
        case "id" | "int":
            return st.one_of(one_of(pool), one_of(pool), one_of((*range(-4, 26), 150, 2**31 - 1, -(2**31))))
        case "key" | "uuid":
            return one_of(pool)
        case "date":
            return one_of((*DATES, "2000-03-01"))
        case "status" | "gender":
            return one_of(CHOICES[kind])
        case "inner":
            known = one_of(pool)
            return st.one_of(known, known, json_scalars.filter(lambda one: one is not None))
        case "array":
            words = [word for words in pool for word in words]
            return st.one_of(one_of(pool), st.lists(texts(words), max_size=3))
        case _:
            return texts(pool)


def awkward(pool: list[Any]) -> list[str]:
    """Return the texts that must be escaped in the list of a simple filter."""
    return [text for text in pool if isinstance(text, str) and ("," in text or "\\" in text)]


@st.composite
def val(draw: DrawFn, kind: str, op: str, pool: list[Any]) -> Any:
    """Draw a val that is valid for the operator."""
    if op in NULLS and (kind == "json" or draw(st.booleans())):
        return None
    if op == "jsonb_contains":
        tree = draw(st.one_of(*(parts_of(value) for value in pool[:8]), json_values))
        return tree if isinstance(tree, dict | list) else {"a": tree}
    if op == "between":
        return [draw(values(kind, pool)), draw(values(kind, pool))]
    if op == "match":
        return draw(expressions)
    if op in ENDS and kind == "inner":
        return draw(texts([text for text in pool if isinstance(text, str)]))
    if op in LIKES:
        return draw(patterns([text for text in pool if isinstance(text, str)]))
    if op in ENDS:
        return draw(texts(pool))
    if op in LISTS and kind == "array":
        words = [word for words in pool for word in words]
        return draw(st.one_of(texts(words), st.lists(texts(words), max_size=3)))
    if op in LISTS:
        return draw(st.lists(st.one_of(values(kind, pool), one_of(awkward(pool) or pool)), max_size=4))
    return draw(values(kind, pool))


# filters


def pool_of(rows: Rows, type_name: str, name: str) -> list[Any]:
    key = OWN_KEY[type_name][name][1] if name in OWN_KEY[type_name] else name
    return [row[key] for row in rows[type_name] if row[key] is not None]


@st.composite
def value_tests(draw: DrawFn, type_name: str, rows: Rows) -> Filter:
    path, target, name, kind = draw(fields(type_name))
    pool = pool_of(rows, target, name)
    if kind == "json" and draw(st.booleans()):
        path, pool = draw(inner_paths(path, pool))
        kind = "inner"
    op = draw(one_of(OPERATORS[kind]))
    return {"name": path, "op": op, "val": draw(val(kind, op, pool))}


FIELD_OPERATORS = {
    "number": (*EQUALITY, *ORDER),
    "date": (*EQUALITY, *ORDER),
    "uuid": (*EQUALITY, *ORDER),
    "text": (*EQUALITY, *ORDER, *LIKES, *ENDS),
    "array": (*EQUALITY, "in_", "in"),
    "inner": (*EQUALITY, *ORDER, *LIKES, *ENDS),
}


@st.composite
def field_tests(draw: DrawFn, type_name: str) -> Filter:
    path, _, _, kind = draw(fields(type_name))
    if kind == "json":
        pair = [draw(inner_paths(path, []))[0] for _ in range(2)]
        return {"name": pair[0], "op": draw(one_of(FIELD_OPERATORS["inner"])), "field": pair[1]}
    family = FAMILIES.get(kind, kind)
    other, _, name, _ = draw(fields(type_name, family))
    if name == "id" and family != "number":
        other = path
    return {"name": path, "op": draw(one_of(FIELD_OPERATORS[family])), "field": other}


@st.composite
def operator_on_value(draw: DrawFn, op: str, rows: Rows) -> tuple[str, Filter]:
    """Draw a type, and a filter that uses the operator on one of its own attributes."""
    types = [type_name for type_name in KINDS if type_name in rows]
    kinds = {kind for type_name in types for kind in KINDS[type_name].values()}
    kind = draw(one_of(kind for kind in OPERATORS if kind in kinds and op in OPERATORS[kind]))
    known = [(type_name, name) for type_name in types for name in KINDS[type_name] if KINDS[type_name][name] == kind]
    type_name, name = draw(one_of(known))
    return type_name, {"name": name, "op": op, "val": draw(val(kind, op, pool_of(rows, type_name, name)))}


BOTH_NULL = (("age", "group_id"), ("email", "gender"), ("birth_date", "birth_date"))
"""Attributes of a user that are null together in some rows."""


@st.composite
def operator_on_field(draw: DrawFn, op: str) -> tuple[str, Filter]:
    """Draw a type, and a filter that compares two attributes of one family. The second one may be in a related
    resource."""
    known = [
        (type_name, name)
        for type_name in TYPES
        for name, kind in KINDS[type_name].items()
        if op in FIELD_OPERATORS.get(FAMILIES.get(kind, kind), ())
    ]
    if op in NULLS and draw(st.booleans()):
        pair = draw(st.permutations(draw(one_of(BOTH_NULL))))
        return "user", {"name": pair[0], "op": op, "field": pair[1]}
    type_name, name = draw(one_of(known))
    family = FAMILIES.get(KINDS[type_name][name], KINDS[type_name][name])
    near = one_of(_of_family(type_name, family))
    other = draw(
        st.one_of(near, fields(type_name, family).filter(lambda found: found[2] != "id").map(lambda found: found[0]))
    )
    return type_name, {"name": name, "op": op, "field": other}


def _of_family(type_name: str, family: str) -> list[str]:
    return [name for name, kind in KINDS[type_name].items() if FAMILIES.get(kind, kind) == family]


@st.composite
def relation_tests(draw: DrawFn, type_name: str, rows: Rows, depth: int) -> Filter:
    names, target = draw(paths(type_name).filter(lambda found: bool(found[0])))
    inner = st.lists(filters(target, rows, depth - 1), max_size=2)
    content = draw(st.one_of(inner, filters(target, rows, depth - 1)))
    return {"name": ".".join(names), "op": "any" if names[-1] in TO_MANY else "has", "val": content}


@st.composite
def count_tests(draw: DrawFn, type_name: str, rows: Rows, depth: int) -> Filter:
    """Draw a filter on the number of related rows, with or without a filter on these."""
    names, target = draw(paths(type_name).filter(lambda found: bool(found[0]) and found[0][-1] in TO_MANY))
    number = st.integers(0, 4)
    op = draw(one_of(COUNTS))
    val = draw(
        st.tuples(number, number).map(sorted) if op == "between" else st.lists(number) if op in LISTS else number
    )
    of = {"of": draw(st.lists(filters(target, rows, depth - 1), max_size=2))} if draw(st.booleans()) else {}
    return {"name": ".".join(names), "op": "count", "val": {"op": op, "val": val}, **of}


@st.composite
def groups(draw: DrawFn, type_name: str, rows: Rows, depth: int) -> Filter:
    op = draw(one_of(("and", "or", "not")))
    inner = filters(type_name, rows, depth - 1)
    return {op: draw(inner if op == "not" else st.lists(inner, max_size=3))}


def filters(type_name: str, rows: Rows, depth: int = 3) -> SearchStrategy[Filter]:
    """Return a strategy for filter objects and groups. depth: of their nesting."""
    leaves = [value_tests(type_name, rows), value_tests(type_name, rows), field_tests(type_name)]
    if depth > 1:
        leaves += [st.deferred(lambda: groups(type_name, rows, depth))] * 2
        if relationships_of(type_name):
            leaves.append(st.deferred(lambda: relation_tests(type_name, rows, depth)))
        if set(relationships_of(type_name)) & TO_MANY:
            leaves.append(st.deferred(lambda: count_tests(type_name, rows, depth)))
    return st.one_of(*leaves)


# simple filters


def simple(test: Filter) -> tuple[str, str] | None:
    """Return a filter object as a pair of the query string, or None if it cannot be written as text."""
    value, op = test["val"], test["op"]
    if isinstance(test["name"], InnerName) and value is not None and op not in (*LIKES, *ENDS, "match"):
        value = [_inner_text(item) for item in value] if isinstance(value, list) else _inner_text(value)
    if op == "count":
        found = None if "of" in test else simple(value | {"name": f"{test['name']}][count"})
        return None if found is None else (found[0], found[1])
    text = _text(value, op)
    if text is None or (value is not None and text == "null" and op in NULLS):
        return None
    return (f"filter[{test['name']}]" if op == "eq" else f"filter[{test['name']}][{op}]"), text


def _inner_text(value: Any) -> str:
    """Return a value inside JSON as a simple filter has it. A text is in quotation marks if it would be something
    else."""
    is_plain = isinstance(value, str) and re.fullmatch(r'-?[0-9.]+(e.*)?|true|false|".*"', value, re.DOTALL) is None
    return value if is_plain else json.dumps(value)


def _text(value: Any, op: str) -> str | None:
    if op == "jsonb_contains":
        return json.dumps(value)
    if isinstance(value, list):
        return None if value == [""] else ",".join(_item(str(item)) for item in value)
    if value is None:
        return "null"
    if op in LISTS:
        return _item(str(value)) or None
    return str(value)


def _item(text: str) -> str:
    return text.replace("\\", "\\\\").replace(",", "\\,")


# sorts


@st.composite
def sort_keys(draw: DrawFn, type_name: str) -> str:
    names, target = draw(paths(type_name).filter(lambda found: not TO_MANY & set(found[0])))
    if counted := TO_MANY & set(relationships_of(target)) if draw(one_of((True, False, False))) else set():
        return draw(one_of(("", "-"))) + f"count({'.'.join((*names, draw(one_of(sorted(counted)))))})"
    name = draw(one_of(name for name in KINDS[target] if name not in OWN_KEY[target]))
    sign: str = draw(one_of(("", "-")))
    path = ".".join((*names, name))
    return sign + (draw(inner_paths(path, []))[0] if KINDS[target][name] == "json" else path)


def sorts(type_name: str) -> SearchStrategy[str]:
    return st.lists(sort_keys(type_name), min_size=1, max_size=3).map(",".join)
