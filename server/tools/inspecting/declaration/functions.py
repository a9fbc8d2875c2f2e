"""Declares the functions of a database as routes.

A function becomes a route if it only reads, and if all that it needs and returns can be declared. Otherwise a comment
says why, and what would help.
What comes in: Routines, and the resources that are served. What goes out: Functions with comments.
It must not know: files, connections.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

import msgspec

from querybuild.declarations.function import Function
from querybuild.declarations.resource import Attribute
from querybuild.declarations.terms import quote_ident
from querybuild.errors import nearest, quoted
from server.schema.fault import Fault
from server.tools.inspecting.catalog.model import Argument, Routine, Type
from server.tools.inspecting.declaration.attributes import limited
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.declaration.naming import ascii_of, snake_case
from server.tools.inspecting.hints import FunctionHints, Hints, quoted_key
from server.tools.inspecting.inspected import Inspected, InspectedFunction, Inspection, Notes, NotServed

_PREFIX = "p_"
"""Many functions have it before all names of arguments, to tell them from columns."""


class _Known(msgspec.Struct, frozen=True, eq=False):
    """What all functions share. served: the resources, by the oid of their table. types: of the resources. refused: why
    a function does not fit, by its name with types. has_roles: whether requests run with other roles, so that the
    privileges of this one do not matter."""

    served: Mapping[int, Inspected]
    types: frozenset[str]
    refused: Mapping[str, str]
    has_roles: bool


class _Arguments(msgspec.Struct, frozen=True):
    """The declared arguments. notes: by their names. reasons: why others cannot be declared."""

    declared: tuple[Attribute, ...]
    notes: Mapping[str, Notes]
    reasons: tuple[str, ...]


def with_functions(
    inspection: Inspection,
    routines: Sequence[Routine],
    hints: Hints,
    refused: Mapping[str, str],
    *,
    has_roles: bool = False,
) -> Inspection:
    """Return the inspection with the functions that call the served tables, and others. refused: why a function does
    not fit, by its name with types. has_roles: as in `_Known`."""
    served = {table.table.oid: table for table in inspection.inspected}
    known = _Known(served, frozenset(table.resource.type for table in inspection.inspected), refused, has_roles)
    paths = {"/operations", *[table.resource.path for table in inspection.inspected]}
    paths |= {hints.of_function(routine).path for routine in routines}
    by_name: defaultdict[tuple[str, str], list[Routine]] = defaultdict(list)
    for routine in routines:
        by_name[routine.schema, routine.name].append(routine)
    made: list[InspectedFunction] = []
    reasons: list[NotServed] = []
    remarks = [*hints.unknown_functions(routines), *_unused_names(routines, hints)]
    for routine in routines:
        others = [other for other in by_name[routine.schema, routine.name] if other is not routine]
        function = _declared(routine, others, hints.of_function(routine), known, paths)
        if isinstance(function, NotServed):
            reasons.append(function)
        else:
            path, usual = function.function.route_path, f"/{_base(routine)}"
            if path != (hints.of_function(routine).path or usual):
                remarks.append(f"{routine.shown}: its path is {quoted(path)}: {quoted(usual)} is taken")
            remarks += [f"{routine.shown}: {note}" for note in function.notes]
            paths.add(path)
            made.append(function)
    return msgspec.structs.replace(
        inspection, functions=tuple(made), not_called=tuple(reasons), remarks=(*inspection.remarks, *remarks)
    )


def refused_functions(inspection: Inspection, faults: Sequence[Fault]) -> dict[str, str]:
    """Return why functions do not fit, by their names with types: the first of their faults."""
    # Faults of declarations that do not fit each other name no path.
    texts = {fault.path or fault.function: fault.text_within for fault in reversed(faults)}
    return {
        function.full_name: text
        for function in inspection.functions
        if (text := texts.get(function.function.route_path) or texts.get(function.function.name))
    }


def _unused_names(routines: Sequence[Routine], hints: Hints) -> Iterator[str]:
    for routine in routines:
        known = {argument.name for argument in routine.arguments}
        for name in hints.of_function(routine).names.keys() - known:
            yield f"{routine.shown}: the hint about {quoted(name)} fits no argument"


def _declared(
    routine: Routine, others: Sequence[Routine], hints: FunctionHints, known: _Known, paths: set[str]
) -> InspectedFunction | NotServed:
    arguments = _arguments(routine, hints)
    returns = hints.returns or _returned(routine, known.served)
    place = routine.shown if others else routine.full_name
    reasons = [*_call_reasons(routine, known), *arguments.reasons]
    if returns and returns not in known.types:
        reasons.append(f"the hints say that it returns {quoted(returns)}: no such type.{nearest(returns, known.types)}")
    if not reasons and any(_takes(other, arguments.declared) for other in others):
        reasons.append("several functions with this name take these arguments: rename one, or drop it")
    reasons = reasons or _open_questions(routine, returns, hints, quoted_key(place))
    if reasons:
        return NotServed(routine.shown, "; ".join(reasons))
    notes = []
    if routine.is_definer:
        notes.append(f"SECURITY DEFINER: it does all that the role {quoted(routine.owner)} may do")
    path = hints.path or _path(routine, arguments.declared, paths)
    function = Function(
        routine.name,
        "" if path == Function(routine.name).route_path else path,
        arguments.declared,
        returns,
        hints.method or "GET",
        schema=None if routine.is_default else routine.schema,
        description=routine.comment,
    )
    return InspectedFunction(routine.shown, function, tuple(notes), arguments.notes)


def _call_reasons(routine: Routine, known: _Known) -> Iterator[str]:
    """Yield why a function cannot be called at all."""
    if routine.shown in known.refused:
        yield known.refused[routine.shown]
    if not routine.may_use_schema and not known.has_roles:
        grant = f"GRANT USAGE ON SCHEMA {quote_ident(routine.schema)} TO {quote_ident(routine.role)}"
        yield f"the role may not use the schema: {grant}"
    if not routine.may_execute and not known.has_roles:
        name = f"{quote_ident(routine.schema)}.{quote_ident(routine.name)}({routine.shown_types})"
        yield f"the role may not call it: GRANT EXECUTE ON FUNCTION {name} TO {quote_ident(routine.role)}"
    if routine.is_variadic:
        yield "it is VARIADIC, and a route has a fixed number of arguments: write one that takes an array"
    elif any(not argument.name for argument in routine.arguments):
        yield "its arguments have no names: CREATE OR REPLACE it with names"


def _arguments(routine: Routine, hints: FunctionHints) -> _Arguments:
    declared: list[Attribute] = []
    notes: dict[str, Notes] = {}
    reasons: list[str] = []
    has_prefix = all(
        len(parameter.name) > len(_PREFIX) and parameter.name.startswith(_PREFIX) for parameter in routine.arguments
    )
    taken = set(hints.names.values())
    for number, argument in enumerate(routine.arguments, 1):
        column_type = column_type_of(argument.type)
        if column_type.is_read_only:
            if not argument.has_default:
                reasons.append(_unsent(argument))
            continue
        name = hints.names.get(argument.name) or _argument_name(argument, number, taken, has_prefix=has_prefix)
        taken.add(name)
        own: list[str] = []
        is_exact = argument.type.name != "citext"
        column_type, limits = limited(argument.type, argument.name, column_type, own, is_exact=is_exact)
        if own:
            notes[name] = tuple(own)
        column = "" if name == argument.name else argument.name
        declared.append(Attribute(name, column_type, column=column, required=not argument.has_default, **limits))
    return _Arguments(tuple(declared), notes, tuple(reasons))


def _unsent(argument: Argument) -> str:
    shown = f"its argument {quoted(argument.name)} is {argument.type.shown}"
    if argument.type.kind == "p":
        return f"{shown}, which is no single type: write one with the type that you need"
    return f"{shown}, which no request can contain: write one that takes a text and casts it"


def _argument_name(argument: Argument, number: int, taken: set[str], *, has_prefix: bool) -> str:
    plain = argument.name.removeprefix(_PREFIX) if has_prefix else argument.name
    name = ascii_of(snake_case(plain)) or f"argument_{number}"
    return name if name not in taken else f"{name}_{number}"


def _returned(routine: Routine, served: Mapping[int, Inspected]) -> str:
    """Return the type of the resources that a function returns; empty if they are none."""
    return served[routine.table].resource.type if routine.table in served else ""


def _open_questions(routine: Routine, returns: str, hints: FunctionHints, place: str) -> list[str]:
    """Return why only hints can publish a function, and which. place: its key in the hints."""
    reasons: list[str] = []
    answers: list[str] = []
    if routine.is_set and not returns:
        shown = "rows" if routine.result.fields or routine.result.name == "record" else routine.result.shown
        reasons.append(f"it returns a set of {shown}: if these have ids of a resource, name its type")
        answers.append('returns = "..."')
    if routine.is_volatile and hints.method != "POST":
        reasons.append("it is VOLATILE, so that it may write: if it only reads, make it STABLE")
        answers.append('method = "POST"')
    if reasons:
        reasons.append(f"to publish it, write to the hints, in [functions.{place}]: {' and '.join(answers)}")
    return reasons


def _takes(other: Routine, arguments: Sequence[Attribute]) -> bool:
    """Return whether another function with this name accepts the arguments, or only the required ones."""
    types = {argument.name: _type_name(argument.type) for argument in other.arguments}
    needed = {argument.name for argument in other.arguments if not argument.has_default}
    for sent in (arguments, [argument for argument in arguments if argument.required]):
        fits = all(types.get(attribute.column_name, "") in attribute.type.sql_names for attribute in sent)
        if fits and needed <= {attribute.column_name for attribute in sent}:
            return True
    return False


def _type_name(live_type: Type) -> str:
    """Return the name of a type as `ColumnType.sql_names` has it."""
    if live_type.element is not None:
        return f"_{_type_name(live_type.element)}"
    return "enum" if live_type.labels else live_type.name


def _base(routine: Routine) -> str:
    """Return the path that a function usually has, without its `/`."""
    return _with_dashes(routine.name) or "function"


def _with_dashes(name: str) -> str:
    return ascii_of(snake_case(name)).replace("_", "-")


def _path(routine: Routine, arguments: Sequence[Attribute], taken: set[str]) -> str:
    """Return a path that is not taken."""
    base, schema = _base(routine), _with_dashes(routine.schema)
    by = "-and-".join(argument.name for argument in arguments).replace("_", "-")
    other = f"{base}-function" if routine.is_default or not schema else f"{schema}-{base}"
    own = [base, f"{base}-by-{by}", other] if by else [base, other]
    candidates = chain(own, (f"{other}-{number}" for number in count(2)))
    return next(path for candidate in candidates if (path := f"/{candidate}") not in taken)
