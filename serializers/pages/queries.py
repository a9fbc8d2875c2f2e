"""Edits query strings for the links of pages. What comes in: the parameters of a request. What goes out: URLs of the
same list with another sort, filter or page, and the filters in words.

It must not know: SQL, HTTP, resources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec

from querybuild.errors import ParameterError
from querybuild.filters import COUNT
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
    "like": "like",
    "ilike": "like",
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
    """An active filter in words. without: the URL of the list without it."""

    text: str
    without: str


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

    def with_filter(self, name: str, operator: str, value: str) -> str:
        """Return the URL with one more filter."""
        kept = [pair for pair in self.pairs if pair[0] not in _POSITIONS]
        key = f"filter[{name}]" if operator == "eq" else f"filter[{name}][{operator}]"
        return self._url((*kept, (key, value)))

    def with_count(self, name: str, operator: str, value: str) -> str:
        """Return the URL with one more filter, for the number of related resources."""
        kept = [pair for pair in self.pairs if pair[0] not in _POSITIONS]
        return self._url((*kept, (f"filter[{name}][{COUNT}][{operator}]", value)))

    def with_alternative(self, condition: Condition, keys: Sequence[str], value: str) -> str:
        """Return the URL with a group in place of the last filter: this, or `filter[key][key]=value`. condition: makes
        the filter object of a simple filter."""
        added = condition(keys, value)
        last = max(
            (index for index, pair in enumerate(self.pairs) if pair[0].partition("[")[0] == "filter"), default=-1
        )
        others, alternatives = list[msgspec.Raw](), [added]
        if last >= 0:
            name, text = self.pairs[last]
            if name == "filter":
                *others, before = _items(text)
                alternatives = [*_alternatives(before), added]
            else:
                alternatives = [condition(_keys(name)[1], text), added]
        pairs = [pair for index, pair in enumerate(self.pairs) if index != last and pair[0] not in _POSITIONS]
        # There may be only one filter of JSON.
        others += [item for name, text in pairs if name == "filter" for item in _items(text)]
        group = msgspec.json.encode([*others, {"or": alternatives}]).decode()
        return self._url((*[pair for pair in pairs if pair[0] != "filter"], ("filter", group)))

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
        for index, (name, value) in enumerate(self.pairs):
            family, keys = _keys(name)
            if name == "filter":
                yield from self._chips_of_json(index, value)
            elif family == "filter" and keys:
                yield Chip(_simple_text(keys, value), self._without(index))
            elif family == "searchText":
                yield Chip(f"has the words “{value}”", self._without(index))
            elif family == "nearTo" and keys:
                yield Chip(f"{keys[0]} near to {value}", self._without(index))

    def _chips_of_json(self, index: int, text: str) -> Iterator[Chip]:
        try:
            found = json.loads(text)
        except ValueError:
            yield Chip(text, self._without(index))
            return
        items = found if isinstance(found, list) else [found]
        for number, item in enumerate(items):
            others = items[:number] + items[number + 1 :]
            rest = json.dumps(others, ensure_ascii=False, separators=(",", ":")) if others else ""
            pairs = [pair for place, pair in enumerate(self.pairs) if place != index]
            if rest:
                pairs.insert(index, ("filter", rest))
            yield Chip(filter_text(item), self._url(tuple([pair for pair in pairs if pair[0] not in _POSITIONS])))

    def _without(self, index: int) -> str:
        pairs = [pair for place, pair in enumerate(self.pairs) if place != index and pair[0] not in _POSITIONS]
        return self._url(tuple(pairs))

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
        found = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        found = []
    if not found:
        raise ParameterError("It is no filter that another one can be joined with.", parameter="at")
    return found if isinstance(found, list) else [msgspec.Raw(text.encode())]


def _alternatives(item: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the filters of a group with `or`, or the filter itself."""
    try:
        found = msgspec.json.decode(item, type=dict[Literal["or"], list[msgspec.Raw]])
    except msgspec.MsgspecError:
        return [item]
    return found.get("or", [item])


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
        return json.dumps(node, ensure_ascii=False)
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
        return ", ".join([_shown(one) for one in value])
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
