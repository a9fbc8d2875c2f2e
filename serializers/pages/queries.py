"""Edits query strings for the links of pages. What comes in: the parameters of a request. What goes out: URLs of the
same list with another sort, filter or page, and the filters in words.

It must not know: SQL, HTTP, resources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any, Literal

import msgspec

from querybuild.errors import ParameterError
from querybuild.parse import ANSWER_AS, SEARCH_TEXT
from serializers.links import Pairs, quote_segment, with_query

SIGNS = {
    "eq": "=",
    "ne": "≠",
    "lt": "<",
    "le": "≤",
    "gt": ">",
    "ge": "≥",
    "in_": "one of",
    "in": "one of",
    "notin_": "none of",
    # Without `%`, a text is looked for anywhere.
    "ilike": "contains",
    "like": "contains, same case",
    "notilike": "does not contain",
    "notlike": "does not contain, same case",
    "match": "matches the expression",
    "is_": "is",
    "isnot": "is not",
    "startswith": "begins with",
    "endswith": "ends with",
    "has_key": "has the key",
    "contained_in": "is within",
    "jsonb_contains": "contains",
}
"""Operators in words. Others have their own names."""

_POSITIONS = frozenset({"page[number]", "page[offset]", "page[after]", "page[before]"})


Condition = Callable[[Sequence[str], str], Any]
"""Makes the filter object of a simple filter, from the keys in its brackets and its value."""


class Chip(msgspec.Struct, frozen=True):
    """An active filter in words. without: the URL of the list without it. number: of the filter, None for a search."""

    text: str
    without: str
    number: int | None = None


class ListQuery:
    """The parameters of a list. path: of the list, as links have it."""

    def __init__(self, path: str, pairs: Pairs) -> None:
        self.path = path
        self.pairs = tuple([pair for pair in pairs if pair[0] != ANSWER_AS])

    def value(self, name: str) -> str | None:
        """Return the value of a parameter, None without it."""
        return next((value for key, value in self.pairs if key == name), None)

    @property
    def filters(self) -> Pairs:
        """The parameters that say which rows the list has."""
        return tuple([pair for pair in self.pairs if pair[0] == SEARCH_TEXT or pair[0].partition("[")[0] == "filter"])

    def url(self, *added: tuple[str, str], without: frozenset[str] = _POSITIONS) -> str:
        """Return the URL with these parameters instead of those of the same names. without: others that it leaves out:
        those for the position of the page."""
        names = without | {name for name, _ in added}
        return self._url((*[pair for pair in self.pairs if pair[0] not in names], *[pair for pair in added if pair[1]]))

    def with_filter(self, keys: Sequence[str], value: str) -> str:
        """Return the URL with one more filter, `filter[key][key]=value`."""
        names = keys[:1] if tuple(keys[1:]) == ("eq",) else keys
        return self._first_page((*self.pairs, ("filter" + "".join([f"[{name}]" for name in names]), value)))

    def with_alternative(self, number: int, condition: Condition, keys: Sequence[str], value: str) -> str:
        """Return the URL with a group in place of a filter: this one, or `filter[key][key]=value`. number: that of its
        chip. condition: makes the filter object of a simple filter. Raises ParameterError."""
        places = list(self._places())
        if not 0 <= number < len(places):
            raise ParameterError("There is no such filter to join the new one with.", parameter="join")
        items: list[Any] = []
        for place, (index, item) in enumerate(places):
            if place == number:
                before = condition(_keys(self.pairs[index][0])[1], self.pairs[index][1]) if item is None else item
                items.append({"or": [*_alternatives(before), condition(keys, value)]})
            elif item is not None:
                items.append(item)
        replaced = {index for place, (index, item) in enumerate(places) if place == number or item is not None}
        pairs = [pair for index, pair in enumerate(self.pairs) if index not in replaced]
        # There may be only one filter of JSON.
        return self._first_page((*pairs, ("filter", msgspec.json.encode(items).decode())))

    def _places(self) -> Iterator[tuple[int, msgspec.Raw | None]]:
        """Yield the filters: the position of their parameter, and the filter object of one in JSON. Raises
        ParameterError."""
        for index, (name, text) in enumerate(self.pairs):
            family, keys = _keys(name)
            if name == "filter":
                yield from [(index, item) for item in _items(text)]
            elif family == "filter" and keys:
                yield index, None

    def sorted_by(self, key: str) -> tuple[str, str]:
        """Return how the list is sorted by a key: `ascending`, `descending` or nothing, and the URL of the next way."""
        now = self.value("sort") or ""
        if now == key:
            return "ascending", self.url(("sort", f"-{key}"))
        return ("descending", self.url(("sort", ""))) if now == f"-{key}" else ("", self.url(("sort", key)))

    def as_form(self, answer: str) -> str:
        """Return the URL of the same list in another form."""
        without = _POSITIONS | {"page[size]", "page[limit]", "page[total]", "include"}
        return self.url((ANSWER_AS, answer), without=frozenset() if answer == "json" else without)

    def chips(self) -> Iterator[Chip]:
        """Yield the active filters."""
        numbers = count()
        for index, (name, value) in enumerate(self.pairs):
            family, keys = _keys(name)
            if name == "filter":
                yield from self._chips_of_json(index, value, numbers)
            elif family == "filter" and keys:
                yield Chip(_simple_text(keys, value), self._without(index), next(numbers))
            elif family == "searchText":
                yield Chip(f"has the words “{value}”", self._without(index))
            elif family == "nearTo" and keys:
                yield Chip(f"{keys[0]} near to {value}", self._without(index))

    def _chips_of_json(self, index: int, text: str, numbers: Iterator[int]) -> Iterator[Chip]:
        try:
            items = _items(text)
        except ParameterError:
            yield Chip(text, self._without(index))
            return
        for number, item in enumerate(items):
            others = items[:number] + items[number + 1 :]
            pairs = [pair for place, pair in enumerate(self.pairs) if place != index]
            if others:
                pairs.insert(index, ("filter", msgspec.json.encode(others).decode()))
            node = json.loads(bytes(item), parse_float=Decimal)
            yield Chip(filter_text(node), self._first_page(pairs), next(numbers))

    def _without(self, index: int) -> str:
        return self._first_page([pair for place, pair in enumerate(self.pairs) if place != index])

    def _first_page(self, pairs: Sequence[tuple[str, str]]) -> str:
        """Return the URL with these parameters, but for the position of the page: the list has other rows."""
        return self._url(tuple([pair for pair in pairs if pair[0] not in _POSITIONS]))

    def _url(self, pairs: Pairs) -> str:
        return with_query(
            self.path, "&".join([f"{quote_segment(name)}={quote_segment(value)}" for name, value in pairs])
        )


def _keys(name: str) -> tuple[str, list[str]]:
    """Return the family of a parameter and the keys in its brackets."""
    family, *keys = [part.removesuffix("]") for part in name.split("[")]
    return family, keys


def _items(text: str) -> list[msgspec.Raw]:
    """Return the filters in the JSON of a parameter. Raises ParameterError."""
    try:
        decoded = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        decoded = []
    if not decoded:
        raise ParameterError("It is no filter that another one can be joined with.", parameter="at")
    return decoded if isinstance(decoded, list) else [msgspec.Raw(text.encode())]


def _alternatives(item: Any) -> list[Any]:
    """Return the filters of a group with `or`, or the filter itself. item: JSON, or a filter object."""
    if not isinstance(item, msgspec.Raw):
        return [item]
    try:
        decoded = msgspec.json.decode(item, type=dict[Literal["or"], list[msgspec.Raw]])
    except msgspec.MsgspecError:
        return [item]
    return decoded.get("or", [item])


def _simple_text(keys: list[str], value: str) -> str:
    name, operators = keys[0], keys[1:] or ["eq"]
    if operators[0] == "count":
        name, operators = f"count of {name}", operators[1:] or ["eq"]
    return f"{name} {_sign(operators[0])} {value or '“”'}"


def filter_text(node: Any) -> str:
    """Return a node of a filter in words.

    >>> filter_text({"or": [{"name": "age", "op": "ge", "val": 18}, {"name": "group", "op": "any"}]})
    'age ≥ 18 or has group'
    """
    if not isinstance(node, dict):
        return json.dumps(node, ensure_ascii=False, default=str)
    for group in ("and", "or"):
        if isinstance(node.get(group), list):
            parts = [filter_text(item) for item in node[group]]
            return f" {group} ".join([f"({part})" if " and " in part or " or " in part else part for part in parts])
    if "not" in node:
        return f"not ({filter_text(node['not'])})"
    name, operator, value = str(node.get("name", "")), str(node.get("op", "")), node.get("val")
    if operator in ("any", "has"):
        inner = value if isinstance(value, list) else [] if value is None else [value]
        return f"has {name}" + (f" with {' and '.join(map(filter_text, inner))}" if inner else "")
    other = node.get("field")
    return f"{name} {_sign(operator)} {other if other is not None else _shown(value)}"


def _sign(operator: str) -> str:
    return SIGNS.get(operator, operator.replace("_", " ").strip())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join([_shown(item) for item in value])
    return str(value) if isinstance(value, str | Decimal) else json.dumps(value, ensure_ascii=False, default=str)
