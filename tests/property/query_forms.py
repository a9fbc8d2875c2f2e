"""Creates requests of one form: the same parameters with different values. What comes in: a source of random numbers, a
type, and the parameter families that a route accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec

from querybuild.parse import FAMILIES
from tests.property import filters as known
from tests.property.filters import KINDS, LIKES, LISTS, NULLS, OPERATORS, TO_MANY, relationships_of
from tests.property.rows import DATES


class CursorText(msgspec.Struct, frozen=True):
    """A cursor. It can only be written when the other parameters are known. of_list: whether it belongs to their list.
    values: those of the sort keys."""

    of_list: bool
    parent: str
    values: tuple[str | None, ...]


Value = str | CursorText


class Filling(msgspec.Struct, frozen=True):
    """One request of a form. encode: encodes a name or a value."""

    parameters: list[tuple[str, Value]]
    encode: Callable[[str], str]


def _quoted(text: str, safe: str = "") -> str:
    return quote_from_bytes(text.encode("utf-8", "surrogatepass"), safe)


def _lower(text: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), _quoted(text))


ENCODINGS: tuple[Callable[[str], str], ...] = (
    _quoted,
    lambda text: _quoted(text, "[]{}:,"),
    lambda text: _quoted(text, "/").replace("%20", "+"),
    _lower,
    # With few characters encoded: the bytes of a request line, decoded as the server does.
    lambda text: _quoted(text, '[]{}:,"<>|^`\\').replace("%C3%A9", "\xc3\xa9"),
)

WORDS = ("", "a", "b c", "é", "a,b", "a\\", "100%", "%22", '"', "+", "&", "null", "1", "🧀", "true")
UNUSUAL_TEXTS = ("", "x", "null", "1,2", "1,2,3", "[", "{}", "\x00", "\ud800", "9" * 30, "1e400")
UNUSUAL_VALUES: tuple[Any, ...] = (
    None,
    True,
    1.5,
    "",
    "x",
    [],
    [None],
    [1, 2, 3],
    {},
    {"a": 1},
    10**30,
    "\x00",
    "\ud800",
    [[1]],
)
LIKE_PATTERNS = ("", "a%", "%", "a_", "\\%", "a%\\", "a", "é%", "\\")
EXPRESSIONS = ("a", "^a$", "(a|b)+", "[a-z]", "(", "a{9}{9}", "", "é")
JSON_VALUES: tuple[Any, ...] = ({}, {"a": 1}, {"a": [1.5, None]}, [1], ["a", {"b": "é"}], {"a": 1e300})
NUMBERS = ("1", "1", "2", "2", "3", "34", "35", "500", "1001", "2000", "9" * 15, "9" * 19, "9" * 25)
UNUSUAL_NUMBERS = ("0", "0", "0", "-1", "01", "", "x", "١", "1.0", " 1", "null")
SIZES = ("1", "2", "30", "100", "101", "1000", "10000", "0")
UNUSUAL_CURSORS = ("", "x", "W10", "WyIiLCIiXQ", "é", "WzEsMl0")
IGNORED = ("filter-x", "filterX[y]", "page-x[number]", "x_y", "_", "é", "sort.x", "f[1]")
REFUSED = ("Filter", "nothing", "page[x]", "sort[x]", "filter[", "filter[a][b][c]", "fields")
PAGES = (
    *(("page[number]",), ("page[size]", "page[number]"), ("page[limit]", "page[offset]"), ("page[offset]",)),
    *(("page[size]", "page[after]"), ("page[after]",), ("page[size]", "page[before]"), ("page[size]",), (), ()),
)
UNUSUAL_PAGES = (
    *(("page[after]", "page[number]"), ("page[size]", "page[offset]"), ("page[after]", "page[before]")),
    *(("page[limit]", "page[after]"), ("page[number]", "page[number]")),
)

Make = Callable[[], Value]
"""Draws the value of a parameter."""


class FormMaker:
    """Creates forms for one type. unusual_rate: the share of unusual parameters and values. Most of these are
    refused."""

    def __init__(self, random: Random, type_name: str, unusual_rate: float = 0.08) -> None:
        self.random = random
        self.type = type_name
        self.unusual_rate = unusual_rate

    def fillings(self, accepted: frozenset[str]) -> list[Filling]:
        """Return some requests of one form. accepted: the families of the route."""
        form = self.form(accepted)
        count = self.random.randint(2, 5)
        return [Filling([(name, make()) for name, make in form], self.random.choice(ENCODINGS)) for _ in range(count)]

    def form(self, accepted: frozenset[str]) -> list[tuple[str, Make]]:
        """Return the names of parameters, with a function that draws a value for each."""
        sort = [self.sort_key() for _ in range(self.random.choice((0, 0, 1, 1, 2)))]
        form = [self.filter_parameter() for _ in range(self.random.choice((0, 1, 1, 1, 2)))]
        form += self.page(len(sort) + 1)
        form += [self.other_parameter() for _ in range(self.random.choice((0, 0, 1, 2)))]
        form += self.choice() if self.random.random() < 0.3 else []
        if sort:
            form.append(("sort", self.settled(lambda: ",".join(sort), lambda: self.random.choice(("-id", "", "x")))))
        if not self.is_unusual():
            form = [one for one in form if one[0].partition("[")[0] not in set(FAMILIES) - accepted]
        if form and self.is_unusual():
            form.append(self.random.choice(form))
        self.random.shuffle(form)
        return form

    def is_unusual(self) -> bool:
        return self.random.random() < self.unusual_rate

    def settled(self, make: Make, other: Make | None = None) -> Make:
        """Return a function that returns the same value in most cases. It is for values that belong to the form."""
        value = make()
        return lambda: (other or make)() if self.is_unusual() else value

    # filters

    def filter_parameter(self) -> tuple[str, Make]:
        if self.random.random() < 0.5:
            filters = [self.filter(self.type, 3) for _ in range(self.random.choice((0, 1, 1, 2)))]
            content: Any = filters[0] if len(filters) == 1 and self.random.random() < 0.3 else filters
            return "filter", lambda: json.dumps(self.filled(content), ensure_ascii=self.random.random() < 0.5)
        test = self.value_test(self.type)
        name = f"filter[{test['name']}]" if test["op"] == "eq" else f"filter[{test['name']}][{test['op']}]"
        return name, lambda: self.random.choice(UNUSUAL_TEXTS) if self.is_unusual() else self.text(test)

    def choice(self) -> list[tuple[str, Make]]:
        """Return the parameters that choose what is included of a to-many, in any order."""
        names = [name for name in relationships_of(self.type) if name in TO_MANY]
        if not names:
            return []
        name = self.random.choice(names)
        target = FormMaker(self.random, relationships_of(self.type)[name], self.unusual_rate)
        form = [("include", self.settled(lambda: name))]
        for _ in range(self.random.choice((0, 1, 1, 2))):
            own, make = target.filter_parameter()
            form.append((f"includeFilter[{name}]{own.removeprefix('filter')}", make))
        if self.random.random() < 0.5:
            form.append((f"includeSort[{name}]", self.settled(lambda: self.random.choice(("id", "-id", "x")))))
        if self.random.random() < 0.5:
            form.append((f"includePage[{name}][size]", lambda: self.random.choice(("0", "1", "2", "1001", "x"))))
        return form

    def text(self, test: dict[str, Any]) -> str:
        pair = known.simple(self.filled(test))
        return "null" if pair is None else pair[1]

    def filter(self, type_name: str, depth: int) -> dict[str, Any]:
        """Draw a filter with kinds of attributes instead of vals, and with lists of names instead of fields."""
        relationships = relationships_of(type_name)
        choice = self.random.random() if depth else 1.0
        if choice < 0.15:
            return {"not": self.filter(type_name, depth - 1)}
        if choice < 0.3:
            items = [self.filter(type_name, depth - 1) for _ in range(self.random.randint(0, 3))]
            return {self.random.choice(("and", "or")): items}
        if choice < 0.45 and relationships:
            name = self.random.choice(list(relationships))
            op = "any" if (name in TO_MANY) != self.is_unusual() else "has"
            return {"name": name, "op": op, "val": [self.filter(relationships[name], depth - 1)]}
        return self.field_test(type_name) if choice < 0.55 else self.value_test(type_name)

    def value_test(self, type_name: str) -> dict[str, Any]:
        path, kind = self.path(type_name)
        return {"name": path, "op": self.random.choice((*OPERATORS[kind], "eq")), "val": kind}

    def field_test(self, type_name: str) -> dict[str, Any]:
        path, kind = self.path(type_name)
        family = known.FAMILIES.get(kind, kind)
        others = [name for name, other in KINDS[type_name].items() if known.FAMILIES.get(other, other) == family]
        op = self.random.choice(known.FIELD_OPERATORS.get(family, ("eq",)))
        return {"name": path, "op": op, "field": [self.random.choice(others or ["id"])] * 4 + others}

    def path(self, type_name: str) -> tuple[str, str]:
        """Draw a dotted path. Return it with the kind of the attribute at its end."""
        steps = []
        while (targets := relationships_of(type_name)) and self.random.random() < 0.25:
            steps.append(self.random.choice(list(targets)))
            type_name = targets[steps[-1]]
        name = "nothing" if self.is_unusual() else self.random.choice(list(KINDS[type_name]))
        return ".".join((*steps, name)), KINDS[type_name].get(name, "text")

    def filled(self, node: Any) -> Any:
        """Return such a filter with drawn values."""
        if isinstance(node, list):
            return [self.filled(item) for item in node]
        if len(node) == 1:
            return {op: self.filled(content) for op, content in node.items()}
        if "field" in node:
            return {**node, "field": self.random.choice(node["field"])}
        if node["op"] in ("any", "has"):
            return {**node, "val": self.filled(node["val"])}
        is_unusual = self.random.random() < self.unusual_rate / 2
        return {**node, "val": self.random.choice(UNUSUAL_VALUES) if is_unusual else self.val(node["val"], node["op"])}

    def val(self, kind: str, op: str) -> Any:
        """Draw a val that is valid for the operator."""
        if op in NULLS and (kind == "json" or self.random.random() < 0.4):
            return None
        if op == "between":
            return [self.value(kind), self.value(kind)]
        if op in LISTS:
            return [self.value(kind) for _ in range(self.random.randint(0, 3))]
        if op in LIKES or op == "match":
            return self.random.choice(EXPRESSIONS if op == "match" else LIKE_PATTERNS)
        return self.value(kind)

    def value(self, kind: str) -> Any:
        match kind:
            case "id" | "int":
                return self.random.choice((0, 1, 2, 7, 40, -3, 2**31 - 1))
            case "date":
                return self.random.choice(DATES)
            case "status" | "gender":
                return self.random.choice(known.CHOICES[kind])
            case "uuid":
                return f"00000000-0000-0000-0000-{self.random.randint(0, 20):012}"
            case "array":
                return [self.random.choice(WORDS) for _ in range(self.random.randint(0, 2))]
            case "json":
                return self.random.choice(JSON_VALUES)
            case _:
                return self.random.choice(WORDS)

    # the other families

    def sort_key(self) -> str:
        path, _ = self.path(self.type)
        return self.random.choice(("", "-")) + path

    def page(self, key_count: int) -> list[tuple[str, Make]]:
        choice = self.random.choice
        size, total = self.settled(lambda: choice(SIZES)), self.settled(lambda: choice(("exact", "none", "estimated")))
        makes: dict[str, Make] = {"page[size]": size, "page[limit]": size, "page[total]": total}
        makes |= dict.fromkeys(("page[number]", "page[offset]"), self.number)
        makes |= dict.fromkeys(("page[after]", "page[before]"), lambda: self.cursor(key_count))
        names = choice(UNUSUAL_PAGES if self.is_unusual() else PAGES) + choice(((), (), ("page[total]",)))
        return [(name, makes[name]) for name in names]

    def number(self) -> str:
        return self.random.choice(UNUSUAL_NUMBERS if self.is_unusual() else NUMBERS)

    def cursor(self, key_count: int) -> Value:
        """Draw a cursor. Most of them are valid, but the row need not exist."""
        if self.is_unusual():
            return self.random.choice(UNUSUAL_CURSORS)
        count = key_count + self.is_unusual()
        keys = [self.random.choice(("1", "2", "a", "é", None)) for _ in range(count - 1)]
        last = None if self.is_unusual() else self.random.choice(("1", "2", "3"))
        return CursorText(not self.is_unusual(), "1" if self.is_unusual() else "", (*keys, last))

    def other_parameter(self) -> tuple[str, Make]:
        """Draw another parameter: one whose whole text belongs to the form, or one that is ignored."""
        choice, names = self.random.choice, relationships_of(self.type)
        if self.is_unusual():
            return choice(REFUSED), lambda: choice(UNUSUAL_TEXTS)
        match choice(("include", "fields", "ignored")):
            case "include" if names:
                paths = [*names, *(f"{name}.{far}" for name in names for far in relationships_of(names[name]))]
                return "include", self.settled(lambda: ",".join([choice(paths) for _ in range(choice((1, 1, 2)))]))
            case "fields":
                fields = [*KINDS[self.type], *names]
                return f"fields[{self.type}]", self.settled(lambda: ",".join({choice(fields) for _ in range(3)}))
            case _:
                return choice(IGNORED), lambda: choice((*WORDS, *UNUSUAL_TEXTS))
