"""The contract's filters and sorts in plain Python, over rows that are dicts. What comes in: a filter as a JSON tree, a
type, a row, all rows. What goes out: True, False, or None for SQL's unknown.

It is written from the contract and shares no code with the query builder, so that errors of either show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cmp_to_key, partial
from typing import Any

Row = dict[str, Any]
"""`id`, the attributes, and the keys of relationships, such as `group_id`."""
Rows = dict[str, list[Row]]
Truth = bool | None

OWN_KEY: dict[str, dict[str, tuple[str, str]]] = {
    "user": {"group": ("group", "group_id")},
    "group": {},
    "computer": {"owner": ("user", "owner_id")},
    "post": {"user": ("user", "user_id")},
    "user_bio": {"user": ("user", "user_id")},
    "photo": {},
    "author": {},
    "article": {"author": ("author", "author_id"), "editor": ("author", "editor_id")},
    "tag": {},
    "profile": {"author": ("author", "author_id")},
    "desk": {"author": ("author", "author_id")},
    "node": {"parent": ("node", "parent_id")},
}
"""type -> relationship -> (target, the key in the own row)."""
FAR_KEY: dict[str, dict[str, tuple[str, str]]] = {
    "user": {"computers": ("computer", "owner_id"), "posts": ("post", "user_id"), "bio": ("user_bio", "user_id")},
    "group": {"users": ("user", "group_id")},
    "computer": {},
    "post": {},
    "user_bio": {},
    "photo": {},
    "author": {
        "articles": ("article", "author_id"),
        "edited": ("article", "editor_id"),
        "profile": ("profile", "author_id"),
        "desk": ("desk", "author_id"),
    },
    "article": {},
    "tag": {},
    "profile": {},
    "desk": {},
    "node": {"children": ("node", "parent_id")},
}
"""type -> relationship -> (target, the key in the target's row)."""
REVERSE_TO_ONE = ("bio", "profile", "desk")
"""The relationships of FAR_KEY that are to-one."""
LINKED: dict[str, dict[str, tuple[str, str, str]]] = {
    "article": {"tags": ("tag", "article_id", "tag_id")},
    "tag": {"articles": ("article", "tag_id", "article_id")},
}
"""type -> relationship -> (target, this one's key and the target's key in `article_tags`)."""


# three-valued logic


def all_of(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return False if False in found else None if None in found else True


def any_of(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return True if True in found else None if None in found else False


def negation(truth: Truth) -> Truth:
    return None if truth is None else not truth


# values inside JSON


class Inner:
    """A value inside JSON, which has a type of its own. None is null, or missing."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Inner) and json_order(self.value, other.value) == 0

    def __gt__(self, other: Inner) -> bool:
        return json_order(self.value, other.value) > 0

    def __lt__(self, other: Inner) -> bool:
        return json_order(self.value, other.value) < 0


JSON_RANKS = ("null", "text", "number", "bool", "list", "dict")


def json_type(value: Any) -> str:
    kinds = {type(None): "null", str: "text", bool: "bool", list: "list", dict: "dict"}
    return kinds.get(type(value), "number")


def json_order(one: Any, other: Any) -> int:
    """Return -1, 0 or 1: texts are before numbers, booleans, arrays and objects. The longer of two containers is
    after the other."""
    kinds = [JSON_RANKS.index(json_type(value)) for value in (one, other)]
    if kinds[0] != kinds[1]:
        return 1 if kinds[0] > kinds[1] else -1
    if isinstance(one, list | dict):
        if len(one) != len(other):
            return 1 if len(one) > len(other) else -1
        pairs = zip(_items(one), _items(other), strict=True)
        return next((order for left, right in pairs if (order := json_order(left, right))), 0)
    return 0 if one is None else int(one > other) - int(one < other)


def _items(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    # PostgreSQL stores the shorter names first.
    names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
    return [part for name in names for part in (name, value[name])]


def split_path(path: str) -> list[str]:
    r"""Split a dotted name. `\.` in it is a dot of a name."""
    names, rest = [""], iter(path)
    for letter in rest:
        if letter == ".":
            names.append("")
        elif letter == "\\":
            names[-1] += next(rest)
        else:
            names[-1] += letter
    return names


def inside(value: Any, path: list[str]) -> Inner:
    for name in path:
        if isinstance(value, list) and name.isdigit():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return Inner(value)


def inner_tested(op: str, value: Any, val: Any) -> Truth:
    """Evaluate an operator on a value inside JSON: false for values of another type, except for `ne` and `notin_`."""
    if op == "is_" or op == "isnot":
        is_same = json_type(value) == json_type(val) and value == val
        return is_same == (op == "is_")
    if value is None:
        return None
    if op in ("in_", "in", "notin_"):
        is_listed = any(json_type(value) == json_type(item) and value == item for item in val)
        return is_listed == (op != "notin_")
    kinds = {json_type(item) for item in val} if op == "between" else {json_type(val)}
    if kinds != {json_type(value)}:
        return op == "ne"
    return VALUE_OPERATORS[op](value, val)


def inner_fields(op: str, left: Any, right: Any) -> Truth:
    """Evaluate an operator on two values inside JSON."""
    if op in ("is_", "isnot"):
        return (json_order(left, right) == 0) == (op == "is_")
    if left is None or right is None:
        return None
    if op == "ne":
        return json_order(left, right) != 0
    if json_type(left) != json_type(right) or isinstance(left, list | dict):
        return False
    return FIELD_OPERATORS[op](left, right) if op in COMPARED or isinstance(left, str) else False


COMPARED = ("eq", "lt", "le", "gt", "ge")


# filters


class Model:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def matching(self, type_name: str, filters: Any) -> list[Row]:
        """Return the rows for which the filter is true, by id."""
        found = [row for row in self.rows[type_name] if self.holds(filters, type_name, row) is True]
        return sorted(found, key=lambda row: row["id"])

    def holds(self, node: Any, type_name: str, row: Row) -> Truth:
        """Evaluate a filter object, a group or a list. A list is a conjunction."""
        if isinstance(node, list):
            return all_of(self.holds(item, type_name, row) for item in node)
        if "and" in node:
            return self.holds(node["and"], type_name, row)
        if "or" in node:
            return any_of(self.holds(item, type_name, row) for item in node["or"])
        if "not" in node:
            return negation(self.holds(node["not"], type_name, row))
        if node["op"] == "count":
            return self.counted(node["name"].split("."), node, type_name, row)
        if node["op"] in ("any", "has"):
            return self.exists(node["name"].split("."), node["val"], type_name, row)
        return self.tested(node, type_name, row)

    def exists(self, path: list[str], inner: Any, type_name: str, row: Row) -> bool:
        target, related = self.related(path[0], type_name, row)
        if len(path) > 1:
            return any(self.exists(path[1:], inner, target, other) for other in related)
        return any(self.holds(inner, target, other) is True for other in related)

    def counted(self, path: list[str], node: Any, type_name: str, row: Row) -> Truth:
        """Evaluate `count`: with a path, for one of the rows before its last relationship."""
        target, related = self.related(path[0], type_name, row)
        if len(path) > 1:
            return any(self.counted(path[1:], node, target, other) is True for other in related)
        number = sum(self.holds(node.get("of", []), target, other) is True for other in related)
        return tested_value(node["val"]["op"], number, node["val"]["val"])

    def tested(self, node: Any, type_name: str, row: Row) -> Truth:
        """Evaluate one operator. With a relationship on either side, it is true if it is true for one related row. Two
        fields of one to-many are compared within one row."""
        if "field" in node and (shared := self.shared_step(node, type_name)):
            target, related = self.related(shared, type_name, row)
            below = {name: node[name].partition(".")[2] for name in ("name", "field")}
            return any(self.tested(node | below, target, other) is True for other in related)
        lefts, is_far = self.values(split_path(node["name"]), type_name, row)
        if "field" in node:
            rights, is_right_far = self.values(split_path(node["field"]), type_name, row)
            test = partial(fields_tested, node["op"])
            truths = [test(left, right) for left in lefts for right in rights]
            is_far = is_far or is_right_far
        else:
            truths = [tested_value(node["op"], left, node["val"]) for left in lefts]
        return any(truth is True for truth in truths) if is_far else truths[0]

    def shared_step(self, node: Any, type_name: str) -> str | None:
        """Return the relationship that both paths begin with, if their common part has a to-many."""
        steps = [node[name].split(".")[:-1] for name in ("name", "field")]
        for name, other in zip(*steps, strict=False):
            if name != other or name not in self.relationships(type_name):
                return None
            if name not in OWN_KEY[type_name] and name not in REVERSE_TO_ONE:
                return str(steps[0][0])
            type_name = (OWN_KEY[type_name] | FAR_KEY[type_name])[name][0]
        return None

    def relationships(self, type_name: str) -> set[str]:
        return {name for kind in (OWN_KEY, FAR_KEY, LINKED) for name in kind.get(type_name, {})}

    def values(self, path: list[str], type_name: str, row: Row) -> tuple[list[Any], bool]:
        """Return the values at the end of a path, and whether the path follows a relationship. The id of a to-one is
        the key in the row itself. If the related row has the key, it is null without a related row."""
        name, rest = path[0], path[1:]
        if name in row and (not rest or row[name] is None or isinstance(row[name], dict)):
            return [inside(row[name], rest) if rest else row[name]], False
        if name in OWN_KEY[type_name] and rest in ([], ["id"]):
            return [row[OWN_KEY[type_name][name][1]]], False
        target, related = self.related(name, type_name, row)
        if name in REVERSE_TO_ONE and rest in ([], ["id"]):
            return [related[0]["id"] if related else None], False
        found = [self.values(rest or ["id"], target, other)[0] for other in related]
        return [value for values in found for value in values], True

    def related(self, name: str, type_name: str, row: Row) -> tuple[str, list[Row]]:
        if name in OWN_KEY[type_name]:
            target, key = OWN_KEY[type_name][name]
            return target, [other for other in self.rows[target] if other["id"] == row[key]]
        if name in LINKED.get(type_name, {}):
            target, own, far = LINKED[type_name][name]
            ids = [link[far] for link in self.rows["article_tags"] if link[own] == row["id"]]
            return target, [other for other in self.rows[target] if other["id"] in ids]
        target, key = FAR_KEY[type_name][name]
        return target, [other for other in self.rows[target] if other[key] == row["id"]]

    # sort

    def sorted_rows(self, type_name: str, rows: list[Row], sort: str) -> list[Row]:
        """Sort rows: nulls are last in both directions, and the id decides last, in the direction of the last key."""
        keys = [(split_path(key.removeprefix("-")), key.startswith("-")) for key in _listed_keys(sort) if key]
        keys.append((["id"], bool(keys) and keys[-1][1]))

        def compare(one: Row, other: Row) -> int:
            for path, is_descending in keys:
                order = _order(self.one_value(path, type_name, one), self.one_value(path, type_name, other))
                if order:
                    return order if abs(order) == 2 or not is_descending else -order
            return 0

        return sorted(rows, key=cmp_to_key(compare))

    def one_value(self, path: list[str], type_name: str, row: Row) -> Any:
        if path[0].startswith("count("):
            return self.number_of(".".join(path).removeprefix("count(").removesuffix(")").split("."), type_name, row)
        values, _ = self.values(path, type_name, row)
        found = values[0] if values else None
        return None if isinstance(found, Inner) and found.value is None else found

    def number_of(self, path: list[str], type_name: str, row: Row) -> int:
        """Return how many rows there are at the end of a path of to-one relationships and a to-many."""
        target, related = self.related(path[0], type_name, row)
        return len(related) if len(path) == 1 else sum(self.number_of(path[1:], target, other) for other in related)


def _listed_keys(sort: str) -> list[str]:
    r"""Split a sort at its commas. `\,` is one of a name."""
    return re.findall(r"(?:[^\\,]|\\.)+", sort, re.DOTALL)


def _order(one: Any, other: Any) -> int:
    """Return -1, 0 or 1. Return -2 or 2 if one value is null: then the direction makes no difference."""
    if one is None or other is None:
        return 2 * ((one is None) - (other is None))
    return int(one > other) - int(one < other)


# operators


def lower(text: str) -> str:
    """Convert to lower case character by character, as PostgreSQL does: a final sigma becomes a plain sigma."""
    return "".join(letter.lower() for letter in text)


def like(text: str, pattern: str) -> bool:
    """Match a LIKE pattern: % is any text, _ is any character, and a backslash makes the next character literal."""
    expression, letters = "", iter(pattern)
    for letter in letters:
        if letter == "%":
            expression += ".*"
        elif letter == "_":
            expression += "."
        else:
            expression += re.escape(next(letters) if letter == "\\" else letter)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def is_like(text: str, val: str) -> bool:
    return like(text, val) if "%" in val else val in text


def matches(text: str, expression: str) -> bool:
    """Match a regular expression that means the same in Python and in PostgreSQL. `$` only matches at the end."""
    return re.search(expression.replace("$", r"\Z"), text, re.DOTALL) is not None


def contains(left: Any, right: Any) -> bool:
    """Evaluate jsonb's @>."""
    if isinstance(left, dict) and isinstance(right, dict):
        return all(name in left and contains(left[name], value) for name, value in right.items())
    if isinstance(left, list) and isinstance(right, list):
        return all(any(contains(mine, theirs) for mine in left) for theirs in right)
    kinds = [kind for kind in (dict, list, str, bool, type(None)) if isinstance(left, kind) or isinstance(right, kind)]
    return all(isinstance(left, kind) and isinstance(right, kind) for kind in kinds) and bool(left == right)


def _listed(value: Any, val: Any) -> Truth:
    if not val and val != "":
        return False
    if isinstance(value, list):
        return any(item in value for item in ([val] if isinstance(val, str) else val))
    return None if value is None else value in val


def strict(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Truth]:
    """Return the test with the result unknown if one side is null."""
    return lambda left, right: None if left is None or right is None else test(left, right)


_COMPARISONS: dict[str, Callable[[Any, Any], Truth]] = {
    "eq": strict(lambda left, right: bool(left == right)),
    "ne": strict(lambda left, right: bool(left != right)),
    "lt": strict(lambda left, right: bool(left < right)),
    "le": strict(lambda left, right: bool(left <= right)),
    "gt": strict(lambda left, right: bool(left > right)),
    "ge": strict(lambda left, right: bool(left >= right)),
    # IS NOT DISTINCT FROM: true for two nulls, and never unknown.
    "is_": lambda left, right: bool(left == right),
    "isnot": lambda left, right: bool(left != right),
    "startswith": strict(lambda left, right: left.startswith(right)),
    "endswith": strict(lambda left, right: left.endswith(right)),
}

VALUE_OPERATORS: dict[str, Callable[[Any, Any], Truth]] = {
    **_COMPARISONS,
    "between": strict(lambda value, val: bool(val[0] <= value <= val[1])),
    "in_": _listed,
    "in": _listed,
    "notin_": lambda value, val: negation(_listed(value, val)),
    "like": strict(is_like),
    "notlike": strict(lambda value, val: not is_like(value, val)),
    "ilike": strict(lambda value, val: is_like(lower(value), lower(val))),
    "notilike": strict(lambda value, val: not is_like(lower(value), lower(val))),
    "match": strict(matches),
    "jsonb_contains": strict(contains),
}

FIELD_OPERATORS: dict[str, Callable[[Any, Any], Truth]] = {
    **_COMPARISONS,
    "in_": strict(lambda left, right: any(item in right for item in left)),
    "in": strict(lambda left, right: any(item in right for item in left)),
    "like": strict(lambda left, right: right in left),
    "notlike": strict(lambda left, right: right not in left),
    "ilike": strict(lambda left, right: lower(right) in lower(left)),
    "notilike": strict(lambda left, right: lower(right) not in lower(left)),
}


def fields_tested(op: str, left: Any, right: Any) -> Truth:
    if isinstance(left, Inner) and isinstance(right, Inner):
        return inner_fields(op, left.value, right.value)
    return FIELD_OPERATORS[op](left, right)


def tested_value(op: str, value: Any, val: Any) -> Truth:
    if isinstance(value, Inner):
        return inner_tested(op, value.value, val)
    if val is None:
        return (value is None) == (op == "is_")
    return VALUE_OPERATORS[op](value, val)
