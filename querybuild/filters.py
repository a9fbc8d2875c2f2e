"""Filter JSON -> filter nodes. What comes in: the text of a `filter` parameter. What goes out: nodes that keep
where each came from. Names and operators are not resolved here; `any` and `has` are told apart because their
val is a filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from querybuild.errors import ApiError, FilterError, nearest, quoted
from querybuild.query import FieldFilter, FilterNode, Group, Limits, RelationFilter, Source
from querybuild.values import JsonFault, load_json

GROUPS = ("and", "or", "not")
RELATION_OPERATORS = ("any", "has")
_MEMBERS = ("name", "op", "val", "field")


def placed(source: Source, detail: str) -> str:
    """A detail that begins with the place in the filter."""
    return f"{source.path}: {detail}" if source.path else detail


def fault(source: Source, detail: str) -> FilterError:
    return FilterError(placed(source, detail), parameter=source.parameter)


def field_filters(nodes: Iterable[FilterNode]) -> Iterator[FieldFilter]:
    """The filter objects of a tree that are about a field, in the order in which they stand."""
    for node in nodes:
        if isinstance(node, FieldFilter):
            yield node
        else:
            yield from field_filters(node.items)


def vals_of(nodes: Iterable[FilterNode]) -> list[Any]:
    """Of a filter, in the order in which they stand."""
    return [node.val for node in field_filters(nodes) if node.field is None]


class FilterReader:
    """The reading of a request's filters: their limits, which hold over all of them, and the faults found so far."""

    def __init__(self, limits: Limits, errors: list[ApiError]) -> None:
        self.limits = limits
        self.errors = errors
        self.parameter = ""
        self.node_count = 0
        self._value_count = 0

    def full(self, parameter: str, text: str) -> tuple[FilterNode, ...]:
        """A `filter` parameter's JSON as the conjunction that it is; every fault in it is kept.

        >>> (node,) = FilterReader(limits, []).full("filter", '[{"name":"age","op":"ge","val":18}]')
        >>> (node.name, node.op, node.val, node.field, node.is_text, node.source)
        ('age', 'ge', 18, None, False, Source(parameter='filter', path='[0]'))
        """
        self.parameter = parameter
        try:
            tree = load_json(text, self.limits.max_json_depth)
        except JsonFault as error:
            self.refuse("", f"The filter is not valid JSON: {error}.")
            return ()
        return self.items(tree, "", 1)

    def simple(self, parameter: str, name: str, op: str, text: str) -> tuple[FilterNode, ...]:
        """`filter[name][op]=text`, whose text is yet to be read as the attribute's type."""
        self.parameter = parameter
        if not self.has_room(""):
            return ()
        return (FieldFilter(name, op, text, None, True, Source(parameter), self._next_index()),)

    def _next_index(self) -> int:
        self._value_count += 1
        return self._value_count - 1

    def has_room(self, path: str) -> bool:
        """Whether one more filter object or group is within the limit; the first that is not is a fault."""
        self.node_count += 1
        if self.node_count == self.limits.max_filter_nodes + 1:
            self.refuse(path, f"a filter has at most {self.limits.max_filter_nodes} filter objects and groups")
        return self.node_count <= self.limits.max_filter_nodes

    def refuse(self, path: str, detail: str) -> None:
        self.errors.append(fault(Source(self.parameter, path), detail))

    def items(self, value: Any, path: str, depth: int) -> tuple[FilterNode, ...]:
        """A list of filters, or one filter object that stands for a list of one."""
        if isinstance(value, dict):
            nodes = [self.node(value, path, depth)]
        elif isinstance(value, list):
            nodes = [self.node(item, f"{path}[{index}]", depth) for index, item in enumerate(value)]
        else:
            self.refuse(path, "expected a filter object, a group, or a list of them")
            return ()
        return tuple(node for node in nodes if node is not None)

    def node(self, value: Any, path: str, depth: int) -> FilterNode | None:
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

    def group(self, value: dict[str, Any], path: str, depth: int) -> Group | None:
        if len(value) != 1:
            self.refuse(path, "a group has exactly one member, `and`, `or` or `not`")
            return None
        ((op, content),) = value.items()
        place = f"{path}.{op}".lstrip(".")
        match op:
            case "and" | "or":
                if isinstance(content, list):
                    return Group(op, self.items(content, place, depth + 1))
                self.refuse(place, f"`{op}` takes a list of filters")
            case _:
                if isinstance(content, list) and len(content) == 1:
                    content = content[0]
                if isinstance(content, dict):
                    return Group("not", self.items(content, place, depth + 1))
                self.refuse(place, "`not` takes one filter object or group")
        return None

    def filter_object(self, value: dict[str, Any], path: str, depth: int) -> FilterNode | None:
        faults = len(self.errors)
        for member in value:
            if member not in _MEMBERS:
                known = (*_MEMBERS, *GROUPS)
                self.refuse(path, f"{quoted(member)} is no member of a filter object.{nearest(member, known)}")
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
        source = Source(self.parameter, path)
        if op in RELATION_OPERATORS:
            return self.relation(name, op, value, source, depth)
        index = self._next_index() if field is None else 0
        return FieldFilter(name, op, value.get("val"), field, False, source, index)

    def relation(self, name: str, op: str, value: dict[str, Any], source: Source, depth: int) -> RelationFilter | None:
        if "val" not in value:
            self.refuse(source.path, f"`{op}` takes a `val`: a filter object, a group, or a list of them")
            return None
        items = self.items(value["val"], f"{source.path}.val".lstrip("."), depth + 1)
        return RelationFilter(name, "any" if op == "any" else "has", items, source)
