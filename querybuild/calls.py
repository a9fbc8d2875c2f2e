"""Reads the arguments of a function that a request calls. What comes in: parameters of a query string, or the `meta` of
a document. What goes out: the names and the native values of the sent arguments. All errors are collected.

It must not know: SQL, how a JSON pointer is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from querybuild.declarations.attributes import checks_of, read_attribute
from querybuild.declarations.function import ARGUMENT, Call, Function
from querybuild.declarations.json_texts import JsonFault, dump_json, load_json
from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import JSON, JSONB
from querybuild.declarations.values import ValueFault
from querybuild.errors import ApiError, AttributeFault, ParameterError, nearest, quoted, shortened
from querybuild.places import Pointers

Refuse = Callable[[str, str], None]
"""Takes the name of an argument and a detail, and keeps the error."""


class SentCall(msgspec.Struct, frozen=True, eq=False):
    """A call with its values, in the order of the declared arguments. pointer: to the arguments, if they are in a
    document."""

    call: Call
    values: tuple[Any, ...]
    pointer: str | None = None


def read_parameters(
    function: Function, pairs: tuple[tuple[str, str], ...], depth: int, errors: list[ApiError]
) -> SentCall:
    """Read the arguments of a query string: `arg_film_id=1`. depth: that JSON values may have. Appends ParameterError
    to errors. Other parameters are ignored here.

    >>> read_parameters(Function("film_count", arguments=(Attribute("year", INT),)), (("arg_year", "1999"),), 8, [])
    SentCall(call=Call(function=function film_count, names=('year',), is_done=False), values=(1999,), pointer=None)
    """
    sent: dict[str, str] = {}

    def refuse(name: str, detail: str) -> None:
        errors.append(ParameterError(detail, parameter=ARGUMENT + name))

    for name, text in pairs:
        if name.startswith(ARGUMENT):
            if name.removeprefix(ARGUMENT) in sent:
                refuse(name.removeprefix(ARGUMENT), "It occurs more than once.")
            sent[name.removeprefix(ARGUMENT)] = text
    return _read(function, sent, lambda argument, text: _of_text(argument, text, depth), refuse)


def read_members(
    function: Function, members: Mapping[str, Any], pointer: str, pointers: Pointers, errors: list[ApiError]
) -> SentCall:
    """Read the arguments in an object of a document. pointer: to the object. pointers: writes the pointers of the
    errors. Appends AttributeFault to errors."""

    def refuse(name: str, detail: str) -> None:
        errors.append(AttributeFault(detail, pointer=pointers.member_pointer(pointer, name)))

    return _read(function, members, read_attribute, refuse, pointer)


def _read(
    function: Function,
    sent: Mapping[str, Any],
    read: Callable[[Attribute, Any], Any],
    refuse: Refuse,
    pointer: str | None = None,
) -> SentCall:
    known = [argument.name for argument in function.arguments]
    for name in [unknown for unknown in sent if unknown not in known]:
        refuse(name, f"{function.route_path} has no argument {quoted(name)}.{nearest(name, known)}")
    values: dict[str, Any] = {}
    for argument in function.arguments:
        if argument.name not in sent:
            if argument.required:
                refuse(argument.name, f"The argument {quoted(argument.name)} is required.")
            continue
        value = sent[argument.name]
        try:
            values[argument.name] = read(argument, value)
        except ValueFault as error:
            shown = "" if value is None else f", not {quoted(value) if isinstance(value, str) else _shown(value)}"
            refuse(argument.name, f"{quoted(argument.name)} must be {error}{shown}.")
    return SentCall(Call(function, tuple(values)), tuple(values.values()), pointer)


def _shown(value: Any) -> str:
    return shortened(dump_json(value))


def _of_text(argument: Attribute, text: str, depth: int) -> Any:
    """Return the value of a text, as a simple filter reads it. Raises ValueFault."""
    if argument.type in (JSON, JSONB):
        try:
            return read_attribute(argument, load_json(text, depth))
        except JsonFault as error:
            raise ValueFault(f"JSON ({error})") from error
    if "\0" in text:
        raise ValueFault("a text without U+0000, which PostgreSQL cannot store")
    native = argument.type.json.from_text(text)
    for check in checks_of(argument):
        check(argument, text if argument.type.element is None else native, native)
    return native
