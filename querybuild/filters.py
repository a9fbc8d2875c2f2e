"""Parses filters. What comes in: the text of a `filter` parameter. What goes out: nodes, each with its position in the
request. Names and operators are not resolved here, except `any` and `has`, because their val is a filter.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.errors import ApiError, FilterError, nearest, quoted
from querybuild.query import CountFilter, FieldFilter, FilterGroup, FilterNode, Limits, RelationFilter, Source

GROUPS = ("and", "or", "not")
RELATION_OPERATORS = ("any", "has")
COUNT = "count"
COUNT_MEMBERS, COMPARISON_MEMBERS = frozenset({"name", "op", "of", "val"}), frozenset({"op", "val"})
"""The members of a filter object with `count`, and those of its val."""

_MEMBERS = ("name", "op", "val", "field")
_NAMES = re.compile(r"[^.\[\]]+")
"""The parts of a path: names of members, and indexes."""


def fault(source: Source, detail: str, kind: type[ApiError] = FilterError) -> ApiError:
    """Return an error at this position: its detail begins with the path in the parameter, or its pointer ends with
    it."""
    if source.pointer is not None:
        return kind(detail, pointer=source.pointer + "".join([f"/{name}" for name in _NAMES.findall(source.path)]))
    return kind(f"{source.path}: {detail}" if source.path else detail, parameter=source.parameter)


def field_filters(nodes: Iterable[FilterNode]) -> Iterator[FieldFilter]:
    """Yield the filter objects of a tree that are about a field or a number of rows, in their order."""
    for node in nodes:
        if isinstance(node, FieldFilter):
            yield node
            continue
        if isinstance(node, CountFilter):
            yield node.test
        yield from field_filters(node.items)


def vals_of(nodes: Iterable[FilterNode]) -> list[Any]:
    """Return the values of a filter, in their order."""
    return [node.val for node in field_filters(nodes) if node.field is None]


class SentFilter(msgspec.Struct, frozen=True):
    """A filter object of a request, without its value, for errors that only the database finds. has_field: whether it
    compares two fields. slots: the indexes of its values. is_checked: whether only PostgreSQL knows which texts are
    valid."""

    source: Source
    op: str
    has_field: bool
    slots: tuple[int, ...] = ()
    is_checked: bool = False


def sent_filters(
    nodes: Iterable[FilterNode],
    slots: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    checked: Container[int] = frozenset(),
) -> tuple[SentFilter, ...]:
    """Return the filter objects of a tree. slots: by the index of a val. checked: the indexes of those that only
    PostgreSQL checks."""
    return tuple(
        [
            SentFilter(node.source, node.op, True)
            if node.field is not None
            else SentFilter(node.source, node.op, False, slots.get(node.index, ()), node.index in checked)
            for node in field_filters(nodes)
        ]
    )


class FilterReader:
    """Parses the filters of one request. Their limits apply to all of them together. It appends to errors."""

    def __init__(self, limits: Limits, errors: list[ApiError]) -> None:
        self.limits = limits
        self.errors = errors
        self.parameter = ""
        self._pointer: str | None = None
        self.node_count = 0
        self._value_count = 0

    def full(self, parameter: str, text: str) -> tuple[FilterNode, ...]:
        """Parse the JSON of a `filter` parameter, which is a conjunction. All its errors are reported.

        >>> (node,) = FilterReader(limits, []).full("filter", '[{"name":"age","op":"ge","val":18}]')
        >>> (node.name, node.op, node.val, node.field, node.is_text, node.source)
        ('age', 'ge', 18, None, False, Source(parameter='filter', path='[0]', pointer=None))
        """
        self.parameter = parameter
        try:
            tree = load_json(text, self.limits.max_json_depth)
        except JsonFault as error:
            self.refuse("", f"The filter is not valid JSON: {error}.")
            return ()
        return self.tree(parameter, tree)

    def tree(self, parameter: str, tree: Any, pointer: str | None = None) -> tuple[FilterNode, ...]:
        """Parse a filter that is a JSON tree already. pointer: to it in a document, instead of the parameter."""
        self.parameter, self._pointer = parameter, pointer
        return self.items(tree, "", 1)

    def simple(
        self, parameter: str, name: str, op: str, text: str, *, is_count: bool = False
    ) -> tuple[FilterNode, ...]:
        """Parse `filter[name][op]=text`. The text is not converted to the type of the attribute here. is_count: whether
        it is `filter[name][count][op]=text`."""
        self.parameter = parameter
        if not self.has_room(""):
            return ()
        source = Source(parameter)
        test = FieldFilter(name, op, text, None, True, source, self.next_index())
        return (CountFilter(name, test, (), source) if is_count else test,)

    def next_index(self) -> int:
        """Count a value of the request, and return its index."""
        self._value_count += 1
        return self._value_count - 1

    def has_room(self, path: str) -> bool:
        """Count a filter object or group, and return whether it is within the limit. The first beyond it is an
        error."""
        self.node_count += 1
        if self.node_count == self.limits.max_filter_nodes + 1:
            self.refuse(path, f"a filter has at most {self.limits.max_filter_nodes} filter objects and groups")
        return self.node_count <= self.limits.max_filter_nodes

    def refuse(self, path: str, detail: str) -> None:
        """Add an error at this path."""
        self.errors.append(fault(self._source(path), detail))

    def _source(self, path: str) -> Source:
        return Source(self.parameter, path, self._pointer)

    def items(self, value: Any, path: str, depth: int) -> tuple[FilterNode, ...]:
        """Parse a list of filters, or one filter object instead of a list."""
        if isinstance(value, dict):
            nodes = [self.node(value, path, depth)]
        elif isinstance(value, list):
            nodes = [self.node(item, f"{path}[{index}]", depth) for index, item in enumerate(value)]
        else:
            self.refuse(path, "expected a filter object, a group, or a list of them")
            return ()
        return tuple(node for node in nodes if node is not None)

    def node(self, value: Any, path: str, depth: int) -> FilterNode | None:
        """Parse a filter object or a group."""
        if not self.has_room(path):
            return None
        if depth > self.limits.max_filter_depth:
            self.refuse(path, f"filters are nested at most {self.limits.max_filter_depth} deep")
        elif not isinstance(value, dict):
            self.refuse(path, "expected a filter object or a group")
        elif any(name in value for name in GROUPS):
            return self.group(value, path, depth)
        else:
            return self.filter_object(value, path, depth)
        return None

    def group(self, value: dict[str, Any], path: str, depth: int) -> FilterGroup | None:
        """Parse a group: `and`, `or` or `not`."""
        if len(value) != 1:
            self.refuse(path, "a group has exactly one member, `and`, `or` or `not`")
            return None
        ((op, content),) = value.items()
        inner_path = f"{path}.{op}".lstrip(".")
        match op:
            case "and" | "or":
                if isinstance(content, list):
                    return FilterGroup(op, self.items(content, inner_path, depth + 1))
                self.refuse(inner_path, f"`{op}` takes a list of filters")
            case _:
                if isinstance(content, list) and len(content) == 1:
                    content = content[0]
                if isinstance(content, dict):
                    return FilterGroup("not", self.items(content, inner_path, depth + 1))
                self.refuse(inner_path, "`not` takes one filter object or group")
        return None

    def filter_object(self, value: dict[str, Any], path: str, depth: int) -> FilterNode | None:
        """Parse a filter object."""
        if value.get("op") == COUNT:
            return self.count(value, path, depth)
        faults = len(self.errors)
        for member in value:
            if member not in _MEMBERS:
                known = (*_MEMBERS, *GROUPS)
                self.refuse(path, f"{quoted(member)} is not a member of a filter object.{nearest(member, known)}")
        name, op, field = value.get("name"), value.get("op"), value.get("field")
        for member, content in (("name", name), ("op", op)):
            if not isinstance(content, str):
                self.refuse(path, f"a filter object has a `{member}`, a string")
        if "field" in value and not isinstance(field, str):
            self.refuse(path, "`field` is the name of another field, a string")
        if ("val" in value) == ("field" in value):
            self.refuse(path, "a filter object has either `val` or `field`")
        if len(self.errors) > faults or not isinstance(name, str) or not isinstance(op, str):
            return None
        source = self._source(path)
        if op in RELATION_OPERATORS:
            return self.relation(name, op, value, source, depth)
        index = self.next_index() if field is None else 0
        return FieldFilter(name, op, value.get("val"), field, False, source, index)

    def count(self, value: dict[str, Any], path: str, depth: int) -> CountFilter | None:
        """Parse a filter object with `count`."""
        name, test = value.get("name"), value.get("val")
        if not isinstance(name, str):
            self.refuse(path, "a filter object has a `name`, a string")
        elif not value.keys() <= COUNT_MEMBERS:
            self.refuse(path, "`count` has the members `name`, `op`, `val` and `of`")
        elif not isinstance(test, dict) or test.keys() != COMPARISON_MEMBERS or not isinstance(test["op"], str):
            detail = '`count` takes a `val` with an operator and a number: {"op": "ge", "val": 3}'
            self.refuse(f"{path}.val".lstrip("."), detail)
        else:
            source = self._source(path)
            own = self._source(f"{path}.val".lstrip("."))
            compared = FieldFilter(name, test["op"], test["val"], None, False, own, self.next_index())
            items = self.items(value["of"], f"{path}.of".lstrip("."), depth + 1) if "of" in value else ()
            return CountFilter(name, compared, items, source)
        return None

    def relation(self, name: str, op: str, value: dict[str, Any], source: Source, depth: int) -> RelationFilter | None:
        """Parse a filter object with `any` or `has`."""
        if "val" not in value:
            self.refuse(source.path, f"`{op}` takes a `val`: a filter object, a group, or a list of them")
            return None
        items = self.items(value["val"], f"{source.path}.val".lstrip("."), depth + 1)
        return RelationFilter(name, "any" if op == "any" else "has", items, source)
