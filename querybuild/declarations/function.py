"""Defines the declaration of a database function that is a route, and checks it.

It must not know: requests, statements, documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from querybuild.declarations.access import ANYONE, Audience, audiences_of
from querybuild.declarations.faults.declaration_types import wrong_types
from querybuild.declarations.faults.rule_faults import audience_faults
from querybuild.declarations.keys import Key
from querybuild.declarations.resource import Attribute, Resource
from querybuild.errors import nearest, quoted

ARGUMENT = "arg_"
"""The names of query parameters begin with this. JSON:API reserves the names that only have a-z."""

RESULT = "result"
"""The member of `meta` with the value of a function that returns no resources."""

_PATH_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
_RESERVED_PATHS = frozenset({"-", "operations"})
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")


class Signature(msgspec.Struct, frozen=True):
    """The function of the database that a declaration means. types: by the name of each argument, its SQL type.
    is_scalar: whether it returns ids and not rows. is_void: whether it returns nothing. oid: of the function."""

    types: Mapping[str, str] = {}
    is_scalar: bool = False
    is_void: bool = False
    oid: int = 0


class Function(msgspec.Struct, frozen=True, eq=False):
    """A function of the database as a route.

    name, schema: of the function. Without a schema, PostgreSQL finds it by its search path.
    path: of the route (default: the name with `-` for `_`).
    arguments: attributes, whose columns are the names of the arguments. Without `required`, the function has a default.
    returns: the JSON:API type of the resources that it returns. Empty: it returns one value, which is shown as JSON.
    method: GET, which only STABLE and IMMUTABLE functions may answer, or POST.
    access: for whom it is (default: for everybody if it is not known who asks, otherwise for nobody).
    description: what it does, for readers of the API.
    signature: what the server finds out about the function.
    """

    name: str
    path: str = ""
    arguments: tuple[Attribute, ...] = ()
    returns: str = ""
    method: Literal["GET", "POST"] = "GET"
    schema: str | None = None
    access: Audience | tuple[Audience, ...] | None = None
    description: str = ""
    signature: Signature = Signature()

    @property
    def route_path(self) -> str:
        """The path of its route."""
        return self.path or f"/{str(self.name).replace('_', '-')}"

    def audiences(self, *, is_authenticated: bool) -> tuple[Audience, ...]:
        """Return who may call it. is_authenticated: whether it is known who asks."""
        if self.access is not None:
            return audiences_of(self.access)
        return () if is_authenticated else (ANYONE,)

    def __repr__(self) -> str:
        return f"function {self.name}"


class Call(msgspec.Struct, frozen=True):
    """A call of a function, without its values. names: those of the sent arguments, in the order of the declaration.
    is_done: whether it has been called, so that the ids that it has returned are the only value."""

    function: Function
    names: tuple[str, ...] = ()
    is_done: bool = False

    @property
    def arguments(self) -> tuple[Attribute, ...]:
        """The sent arguments."""
        return tuple([argument for argument in self.function.arguments if argument.name in self.names])


class Returned(msgspec.Struct, frozen=True):
    """A condition of a plan: whether the row with this alias is one of those that a call returns. key: its id."""

    alias: str
    key: Key
    call: Call


def split_functions(declarations: Any) -> tuple[Any, tuple[Function, ...]]:
    """Return the declarations without the functions, and the functions."""
    if not isinstance(declarations, Iterable) or isinstance(declarations, str | bytes):
        return declarations, ()
    remaining = list(declarations)
    others = [declared for declared in remaining if not isinstance(declared, Function)]
    return others, tuple([function for function in remaining if isinstance(function, Function)])


def invalid_path(path: str) -> Iterator[str]:
    """Yield why a path cannot be that of a route."""
    if not path.startswith("/"):
        yield f"the path {quoted(path)} does not begin with /"
        return
    segments = path[1:].split("/")
    if not all(_PATH_SEGMENT.fullmatch(segment) for segment in segments):
        yield f"the path {quoted(path)} has a segment that is not of letters, digits, and . _ ~ -"
    if segments[0] in _RESERVED_PATHS:
        yield f"the path {quoted(path)} is reserved"


def function_faults(functions: Sequence[Function], resources: Mapping[str, Resource]) -> Iterator[str]:
    """Yield the faults of declarations. resources: by type."""
    paths: set[str] = set()
    for function in functions:
        path = function.route_path
        faults = [*_function_faults(function, resources), *invalid_path(path)]
        owners = [resource for resource in resources.values() if f"{path}/".startswith(f"{resource.path}/")]
        faults += [
            f"its path {quoted(path)} belongs to the resource {quoted(resource.type)}: declare another"
            for resource in owners
        ]
        if path in paths:
            faults.append(f"its path {quoted(path)} is that of another function: declare another")
        paths.add(path)
        yield from (f"function {quoted(str(function.name))}: {fault}" for fault in faults)


def _function_faults(function: Function, resources: Mapping[str, Resource]) -> Iterator[str]:
    wrong = list(wrong_types(function, but=("access", "method", "signature")))
    wrong += [
        fault
        for attribute in function.arguments
        if not wrong
        for fault in wrong_types(attribute, but=("of", "compute"))
    ]
    if wrong:
        yield from wrong
        return
    if function.method not in ("GET", "POST"):
        yield f"the method is GET or POST, not {function.method!r}"
    if function.returns and function.returns not in resources:
        yield f"it returns {quoted(function.returns)}, which is not declared.{nearest(function.returns, resources)}"
    if function.access is not None:
        yield from (fault for audience in audiences_of(function.access) for fault in audience_faults(audience))
    names = [argument.name for argument in function.arguments]
    for index, argument in enumerate(function.arguments):
        label = f"argument {quoted(argument.name)}: "
        if argument.name in names[:index]:
            yield f"{label}it is declared twice"
        if not _NAME.fullmatch(argument.name):
            yield f"{label}the name may have letters and digits, with `_` and `-` between them"
        if not argument.is_stored or argument.filled or argument.type.is_read_only:
            yield f"{label}it must be a value that a client can send"
