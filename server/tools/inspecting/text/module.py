"""Writes declarations as a Python module that looks as if a person wrote it.

What comes in: an Inspection. What goes out: the text of a module, formatted like ruff, with only what differs from the
defaults, and the imports that it uses. It must not know: the database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from keyword import iskeyword
from typing import Any

import msgspec

import waterspout
from querybuild.declarations.function import Function
from querybuild.declarations.resource import (
    RELATIONSHIP_METHODS,
    RESOURCE_METHODS,
    Attribute,
    Id,
    Link,
    Resource,
    ToMany,
    ToOne,
)
from querybuild.declarations.types import ColumnType
from server.tools.inspecting.declaration.column_types import constants
from server.tools.inspecting.declaration.naming import constant_of
from server.tools.inspecting.inspected import Inspected, InspectedFunction, Inspection, NotServed
from server.tools.inspecting.text.expressions import (
    Expression,
    FunctionCall,
    Text,
    call,
    comment,
    flat,
    import_lines,
    lines_of,
    literal,
)

_POSITIONAL: dict[type, tuple[str, ...]] = {
    Resource: ("type", "path", "table"),
    Attribute: ("name", "type"),
    ToOne: ("name", "target"),
    ToMany: ("name", "target"),
    Link: ("table", "source", "target"),
    Id: ("column", "type"),
    Function: ("name",),
}
_ORDER: dict[type, tuple[str, ...]] = {
    Resource: ("schema", "id", "client_ids", "description", "label", "attributes", "relationships", "methods"),
    Function: ("path", "schema", "method", "description", "arguments", "returns"),
}
_TAKEN = frozenset({*waterspout.__all__, "CATALOG", "RESOURCES", "ROUTES", "AUTHENTICATE"})


def python_module(inspection: Inspection, database: str) -> str:
    """Return the text of the module. database: the name of the database."""
    writer = _Writer()
    body: list[str] = []
    names: list[str] = []
    for table in inspection.inspected:
        names.append(constant_of(table.resource.type, {*_TAKEN, *names}))
        body += ["", *writer.resource(table, names[-1])]
    for made in inspection.functions:
        names.append(constant_of(made.function.route_path.strip("/"), {*_TAKEN, *names}, "_FUNCTION"))
        body += ["", *writer.function(made, names[-1])]
    listed = FunctionCall("[", "]", tuple([("", name) for name in names]), is_broken=True)
    body += ["", *lines_of(listed, "RESOURCES = ", "")]
    for title, others in (("Not served", inspection.not_served), ("Functions without a route", inspection.not_called)):
        body += ["", f"# {title}:"] if others else []
        for same_reason in _by_reason(others):
            body += ["#", *comment(_told(same_reason))]
    title = f"Resources of the database {database}, as `waterspout inspect` declares them."
    head = ['"""' + title.replace("\\", "\\\\").replace('"', '\\"') + '"""', "", *writer.imports()]
    return "\n".join([*head, *body, ""])


def _by_reason(others: Sequence[NotServed]) -> list[list[NotServed]]:
    """Group what has equal reasons, in the order of the first of each."""
    groups: dict[str, list[NotServed]] = {}
    for left_out in others:
        groups.setdefault(left_out.reason, []).append(left_out)
    return list(groups.values())


def _told(same_reason: Sequence[NotServed]) -> str:
    """Return the comment on tables or functions with the same reason."""
    first, *more = same_reason
    if not more:
        return f"{first.full_name}: {first.text}"
    advice = f", such as {first.advice}" if first.advice else ""
    return f"{', '.join([left_out.full_name for left_out in same_reason])}: {first.reason}{advice}"


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


class _Writer:
    """Writes values, and collects the names that must be imported."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.from_library: dict[str, str] = {}

    def imports(self) -> list[str]:
        """Return the imports of what was written."""
        library = [
            f"from {module} import {name}"
            for name, module in sorted(self.from_library.items(), key=lambda pair: pair[1])
        ]
        return [*library, *([""] if library else []), *import_lines("waterspout", sorted(self.used))]

    def resource(self, inspected: Inspected, name: str) -> list[str]:
        """Return the lines of a resource, with the comments above it."""
        lines = [line for note in (*inspected.notes, *inspected.unstated) for line in comment(note)]
        written = self.struct(inspected.resource)
        notes = {field.declaration.name: field.notes for field in inspected.fields}
        parts = []
        for keyword, value in written.parts:
            if keyword in ("attributes", "relationships"):
                fields = getattr(inspected.resource, keyword)
                assert isinstance(value, FunctionCall)
                about = tuple([notes[field.name] for field in fields])
                value = FunctionCall("(", ")", value.parts, about, is_broken=True)
            parts.append((keyword, value))
        whole = FunctionCall(written.open, written.close, tuple(parts), is_broken=True)
        return [*lines, *lines_of(whole, f"{name} = ", "")]

    def function(self, function: InspectedFunction, name: str) -> list[str]:
        """Return the lines of a function, with the comments above it."""
        lines = [line for note in function.notes for line in comment(note)]
        written = self.struct(function.function)
        about = tuple([function.argument_notes.get(argument.name, ()) for argument in function.function.arguments])
        parts = [
            (
                keyword,
                FunctionCall("(", ")", value.parts, about)
                if keyword == "arguments" and isinstance(value, FunctionCall)
                else value,
            )
            for keyword, value in written.parts
        ]
        return [*lines, *lines_of(FunctionCall(written.open, written.close, tuple(parts)), f"{name} = ", "")]

    def struct(self, value: msgspec.Struct) -> FunctionCall:
        """Return the call that makes a declaration."""
        kind = type(value)
        self.used.add(kind.__name__)
        positional = _POSITIONAL[kind]
        if _is_composite(value):
            # The type is made of the types of the columns.
            positional = ()
        given = _fields(kind)
        order = [*positional, *_ORDER.get(kind, ()), *given]
        parts: list[tuple[str, Expression]] = []
        for name in dict.fromkeys(order):
            field_value = getattr(value, name)
            if name in positional:
                parts.append(("", self.value(field_value)))
            elif not self._is_default(value, given[name], field_value):
                parts.append((name, self.value(field_value, name)))
        return call(kind.__name__, *parts)

    @staticmethod
    def _is_default(value: msgspec.Struct, field: msgspec.structs.FieldInfo, given: object) -> bool:
        if isinstance(given, Id):
            return flat_id(given) == flat_id(Id())
        if isinstance(value, Id) and field.name in ("column", "type"):
            return True
        return bool(given == field.default)

    def value(self, value: Any, name: str = "") -> Expression:
        """Return the expression of any value in a declaration. name: of the argument."""
        match value:
            case ColumnType():
                return self.column_type(value)
            case msgspec.Struct():
                return self.struct(value)
            case frozenset():
                return self.methods(value)
            case tuple():
                return FunctionCall("(", ")", tuple([("", self.value(item)) for item in value]))
            case str() if name == "description":
                return Text(value)
            case str():
                return literal(value)
            case Decimal():
                self.from_library["Decimal"] = "decimal"
                return f'Decimal("{value}")'
            case date():
                self.from_library["date"] = "datetime"
                return f"date({value.year}, {value.month}, {value.day})"
            case _:
                return repr(value)

    def methods(self, methods: frozenset[str]) -> Expression:
        """Return the expression of a set of methods, the shorter one of two."""
        for name, every in (("RESOURCE_METHODS", RESOURCE_METHODS), ("RELATIONSHIP_METHODS", RELATIONSHIP_METHODS)):
            closed = every - methods
            if methods < every and len(closed) < len(methods):
                self.used.add(name)
                return f"{name} - {_set(closed)}"
        return f"frozenset({_set(methods)})"

    def column_type(self, column_type: ColumnType) -> Expression:
        """Return the expression of a type."""
        for name, known in constants().items():
            if known is column_type:
                self.used.add(name)
                return name
        if column_type.element is not None:
            self.used.add("array")
            element = ("", self.column_type(column_type.element))
            dimensions = (len(column_type.name) - len(column_type.element.name)) // 2
            return call("array", element, *([("dimensions", str(dimensions))] if dimensions > 1 else []))
        if column_type.fields:
            return self._composite(column_type)
        assert column_type.choices, column_type
        self.used.add("enum")
        return call("enum", *[("", literal(choice)) for choice in column_type.choices])

    def _composite(self, column_type: ColumnType) -> Expression:
        """Return the expression of a composite type. sql_type: `"library"."address"`."""
        self.used.add("composite")
        *schema, name = [part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")*)"', column_type.sql_type)]
        parts: list[tuple[str, Expression]] = [("", literal(part)) for part in (name, *schema)]
        for field, read_type in column_type.fields:
            value = self.column_type(read_type)
            is_name = field.isidentifier() and not iskeyword(field)
            parts.append((field, value) if is_name else ("", f"**{{{literal(field)}: {flat(value)}}}"))
        return call("composite", *parts)


def _is_composite(value: msgspec.Struct) -> bool:
    return isinstance(value, Id) and bool(msgspec.structs.asdict(value).get("columns"))


def flat_id(declared_id: Id) -> tuple[Any, ...]:
    """Return an Id as a value that can be compared."""
    return msgspec.structs.astuple(declared_id)


def _set(methods: frozenset[str]) -> str:
    order = ("list", "create", "detail", "update", "delete", "read", "add", "replace", "remove")
    return "{" + ", ".join(literal(name) for name in order if name in methods) + "}"
