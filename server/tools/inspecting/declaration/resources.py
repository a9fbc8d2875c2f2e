"""Makes declarations of a database: which tables become resources, how they are called, and what may be done with them.

What comes in: a Database, and hints. What goes out: an Inspection. It must not know: files, connections.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from querybuild.declarations.resource import RESOURCE_METHODS, Attribute, Resource
from querybuild.declarations.terms import quote_ident
from querybuild.errors import listed, quoted
from server.tools.inspecting.catalog.model import (
    DELETE,
    INSERT,
    UPDATE,
    VIEWS,
    InspectedColumn,
    InspectedDatabase,
    InspectedTable,
)
from server.tools.inspecting.declaration.attributes import attribute_field, is_filled, must_be_sent, one_line
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.declaration.facets import with_facets
from server.tools.inspecting.declaration.identity import Identity, NoIdentity, identity_of
from server.tools.inspecting.declaration.labels import declared_label
from server.tools.inspecting.declaration.names_taken import Names
from server.tools.inspecting.declaration.naming import path_of, plural, singular, snake_case
from server.tools.inspecting.declaration.references import (
    Ends,
    InspectedReference,
    Served,
    links_of,
    references_of,
    unserved_keys,
)
from server.tools.inspecting.declaration.relationships import Methods, reverse, through, to_one
from server.tools.inspecting.hints import Hints
from server.tools.inspecting.inspected import Inspected, InspectedField, Inspection, NotServed


class _Known(msgspec.Struct, frozen=True, eq=False):
    """What all tables together determine. served: by oid. names: of tables, by oid. references: the keys of each served
    table. reverse: the keys that refer to each."""

    served: Mapping[int, Served]
    names: Mapping[int, str]
    references: Mapping[int, list[InspectedReference]]
    reverse: Mapping[int, list[InspectedReference]]
    links: list[Ends]
    methods: Methods
    hints: Hints


def declare(database: InspectedDatabase, hints: Hints) -> Inspection:
    """Make the declarations of a database."""
    tables = {table.oid: table for table in database.tables}
    identities = {table.oid: identity_of(table, hints.of(table)) for table in database.tables}
    served = _served(tables, identities, hints)
    links = links_of(tables, served)
    referred = {key.target for table in database.tables for key in table.foreign_keys}
    pure = {ends.table.oid for ends in links if ends.is_pure and ends.table.oid not in referred}
    if pure:
        served = _served(tables, {oid: identity for oid, identity in identities.items() if oid not in pure}, hints)
        links = links_of(tables, served)
    known = _known(database.full_names, served, links, hints)
    names = {
        oid: Names(served_table.table.full_name, hints.of(served_table.table)) for oid, served_table in served.items()
    }
    made = _all_inspected(known, names)
    reasons = [
        NotServed(table.full_name, no_identity.reason, no_identity.advice)
        for table in database.tables
        if table.oid not in served and table.oid not in pure
        if isinstance(no_identity := identities[table.oid], NoIdentity)
    ]
    told = [NotServed(left_out.full_name, left_out.reason) for left_out in database.left_out if not left_out.kind]
    remarks = [*hints.unknown(database), *_remarks(served, hints)]
    for oid in served:
        remarks += [*names[oid].remarks, *names[oid].unused_hints()]
    return Inspection(
        inspected=tuple(made),
        not_served=tuple(sorted((*reasons, *told), key=lambda left_out: left_out.full_name)),
        remarks=tuple(remarks),
        links=len(pure),
        left_out=tuple([left_out.kind for left_out in database.left_out if left_out.kind]),
    )


def _served(
    tables: Mapping[int, InspectedTable], identities: Mapping[int, Identity | NoIdentity], hints: Hints
) -> dict[int, Served]:
    """Return the tables that become resources, with their types and paths."""
    ids = {oid: identity for oid, identity in identities.items() if isinstance(identity, Identity)}
    bases = _bases({oid: tables[oid].name for oid in ids}, hints.prefixes)
    count = Counter(singular(base) for oid, base in bases.items())
    types: dict[int, str] = {oid: hints.of(tables[oid]).type for oid in ids if hints.of(tables[oid]).type}
    # The plain names come first.
    order = sorted(ids, key=lambda oid: (not tables[oid].is_default, bases[oid] != singular(bases[oid])))
    taken = set(types.values())
    for oid in order:
        if oid not in types:
            types[oid] = _free_type(tables[oid], bases[oid], count, taken)
            taken.add(types[oid])
    paths: dict[int, str] = {}
    taken = set()
    for oid in sorted(ids, key=lambda oid: (not hints.of(tables[oid]).path, not hints.of(tables[oid]).type)):
        path = _wanted_path(tables[oid], types[oid], hints)
        while path in taken:
            path += "_"
        taken.add(path)
        paths[oid] = path
    return {oid: Served(tables[oid], identity, types[oid], paths[oid]) for oid, identity in ids.items()}


def _bases(names: Mapping[int, str], prefixes: Sequence[str]) -> dict[int, str]:
    """Return the names of tables in snake_case, without the prefixes of the hints where what remains is unique."""
    bases = {oid: snake_case(name) or "table" for oid, name in names.items()}
    stripped = {oid: snake_case(_without(name, prefixes)) for oid, name in names.items()}
    count = Counter(singular(name) for name in stripped.values())
    return {oid: name if (name := stripped[oid]) and count[singular(name)] == 1 else bases[oid] for oid in bases}


def _without(name: str, prefixes: Sequence[str]) -> str:
    longest = max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default="")
    return name.removeprefix(longest)


def _wanted_path(table: InspectedTable, type_name: str, hints: Hints) -> str:
    return hints.of(table).path or path_of(plural(type_name))


def _free_type(table: InspectedTable, base: str, count: Counter[str], taken: set[str]) -> str:
    """Return the type of a table. Tables of equal names in several schemas get the names of these schemas, except the
    one in `public`."""
    single, schema = singular(base), snake_case(table.schema) or "schema"
    candidates = [single] if table.is_default or count[single] == 1 else [f"{schema}_{single}"]
    candidates += [base, f"{schema}_{single}", f"{schema}_{base}"]
    free = next((name for name in candidates if name not in taken), "")
    number = 2
    while not free:
        free = f"{single}_{number}" if f"{single}_{number}" not in taken else ""
        number += 1
    return free


def _remarks(served: Mapping[int, Served], hints: Hints) -> list[str]:
    """Return a message for each type and each path that is not the first choice."""
    plain = {oid: singular(snake_case(served_table.table.name)) for oid, served_table in served.items()}
    count = Counter(plain.values())
    hinted = {hints.of(served_table.table).type for served_table in served.values()} - {""}
    remarks = []
    for oid, served_table in served.items():
        name, wanted = served_table.table.full_name, plain[oid]
        if wanted != served_table.type and count[wanted] > 1:
            remarks.append(
                f"{name}: its type is {quoted(served_table.type)}: several tables are called {quoted(wanted)}"
            )
        elif wanted in hinted and not hints.of(served_table.table).type:
            remarks.append(f"{name}: its type is {quoted(served_table.type)}: another table has {quoted(wanted)}")
        path = _wanted_path(served_table.table, served_table.type, hints)
        if path != served_table.path:
            remarks.append(f"{name}: its path is {quoted(served_table.path)}: another resource has {quoted(path)}")
    return remarks


def _known(names: Mapping[int, str], served: Mapping[int, Served], links: list[Ends], hints: Hints) -> _Known:
    references = {oid: references_of(served_table.table, served) for oid, served_table in served.items()}
    by_target: defaultdict[int, list[InspectedReference]] = defaultdict(list)
    for list_of_target in references.values():
        for reference in list_of_target:
            # Related resources need an index over the key, which a view has only by chance.
            if reference.source.kind not in VIEWS:
                by_target[reference.target.table.oid].append(reference)
    methods = {oid: _methods(served_table)[0] for oid, served_table in served.items()}
    return _Known(served, names, references, by_target, links, methods, hints)


def _all_inspected(known: _Known, names: Mapping[int, Names]) -> list[Inspected]:
    """Declare all resources. Attributes get their names first, then the to-ones, then the other sides."""
    fields: defaultdict[int, list[InspectedField]] = defaultdict(list)
    for oid, served_table in known.served.items():
        fields[oid] += _attributes(served_table, known, names[oid])
    to_one_names: dict[InspectedReference, tuple[str, str]] = {}
    for oid, served_table in known.served.items():
        for reference in known.references[oid]:
            made = to_one(reference, served_table, names[oid], known.methods)
            to_one_names[reference] = made.name, names[oid].unhinted.get(made.name, made.name)
            fields[oid].append(InspectedField(made))
    for oid in known.served:
        others = [InspectedField(made) for made in _other_sides(oid, known, names[oid], to_one_names)]
        fields[oid] += sorted(others, key=lambda field: field.declaration.name)
    return [
        _inspected(served_table, tuple(fields[oid]), known, names[oid]) for oid, served_table in known.served.items()
    ]


def _attributes(served: Served, known: _Known, names: Names) -> list[InspectedField]:
    table = served.table
    written = [key for key in known.references[table.oid] if not key.is_part_of_id(served.identity)]
    keys = {column for reference in written for column in reference.columns}
    parts = served.identity.columns
    own = [
        column
        for column in table.columns
        if column.may_select and column.name not in keys and (served.identity.is_composite or column.name not in parts)
    ]
    # A column whose name needs no change keeps it.
    chosen = {}
    for column in sorted(own, key=lambda column: column.name != snake_case(column.name)):
        plain = snake_case(column.name)
        candidates = (plain, f"{served.type}_{plain}" if plain else f"column_{column.number}")
        chosen[column.name] = names.take(f"the column {quoted(column.name)}", candidates, column=column.name)
    methods = known.methods[table.oid]
    fields = [
        attribute_field(table, column, chosen[column.name], methods, is_part=column.name in parts) for column in own
    ]
    return with_facets(fields, table, names)


def _other_sides(
    oid: int, known: _Known, names: Names, to_one_names: Mapping[InspectedReference, tuple[str, str]]
) -> list[Any]:
    count = Counter(reference.source.oid for reference in known.reverse.get(oid, ()))
    made: list[Any] = []
    for reference in sorted(known.reverse.get(oid, ()), key=lambda each: to_one_names[each][0] != each.target.type):
        source = known.served[reference.source.oid]
        is_only = count[source.table.oid] == 1
        made.append(reverse(reference, source, to_one_names[reference], is_only, names, known.methods))
    for ends in known.links:
        for own, other in ((ends.one, ends.other), (ends.other, ends.one)):
            if own.target.table.oid == oid:
                made.append(through(ends, own, other, names, known.methods))
    return made


def _inspected(served: Served, fields: tuple[InspectedField, ...], known: _Known, names: Names) -> Inspected:
    table = served.table
    methods, notes = _methods(served)
    arguments: dict[str, Any] = {}
    if not table.is_default:
        arguments["schema"] = table.schema
    if "create" in methods and _has_client_ids(served):
        arguments["client_ids"] = True
    if methods != RESOURCE_METHODS:
        arguments["methods"] = methods
    if table.comment:
        arguments["description"] = table.comment
    resource = Resource(
        served.type,
        served.path,
        table.name,
        attributes=tuple([made for field in fields if isinstance(made := field.declaration, Attribute)]),
        relationships=tuple([made for field in fields if not isinstance(made := field.declaration, Attribute)]),
        id=served.identity.id,
        **arguments,
    )
    resource = msgspec.structs.replace(resource, label=declared_label(resource, table, names))
    unstated = [text for _, text in unserved_keys(table, known.served, known.names)]
    if hidden := [column.name for column in table.columns if not column.may_select]:
        unstated.append(f"the role may not read {listed(map(quoted, hidden))}")
    return Inspected(table, resource, fields, (*notes, *_table_notes(table)), tuple(unstated))


def _table_notes(table: InspectedTable) -> list[str]:
    """Return the comments about a table's behaviour that its declaration does not state."""
    notes = [f"CHECK {one_line(check.expression)}" for check in table.checks if len(check.columns) != 1]
    notes += [
        f"The trigger {trigger.name} runs before a DELETE: if it keeps the row, declare soft_delete=True"
        for trigger in table.triggers
        if trigger.is_before and trigger.events & DELETE and not trigger.is_instead
    ]
    if table.is_guarded:
        notes.append("Row-level security is on: see the setting row_security")
    if table.has_children:
        notes.append("It shows the rows of the tables that inherit from it, too")
    if table.has_children and table.disproved:
        notes.append("Several of its rows have the same id: an answer that would show them is a 409, and so is a write")
    return notes


def _methods(served: Served) -> tuple[frozenset[str], list[str]]:
    """Return what may be done with a resource, and comments about what may not."""
    table, closed, notes = served.table, set(), []
    if not table.allowed_writes & INSERT or not any(column.may_insert for column in table.columns):
        closed.add("create")
    elif reason := _reason_against_create(served):
        closed.add("create")
        notes.append(f"It cannot be created: {reason}")
    if not table.allowed_writes & UPDATE or not any(column.may_update for column in table.columns):
        closed.add("update")
    if not table.allowed_writes & DELETE or not table.may_delete:
        closed.add("delete")
    return RESOURCE_METHODS - closed, notes


def _reason_against_create(served: Served) -> str:
    table, columns = served.table, served.identity.columns
    for column in table.columns:
        if column.denied_sequences and not column.is_fixed:
            sequences = ", ".join(column.denied_sequences)
            grant = f"GRANT USAGE ON SEQUENCE {sequences} TO {quote_ident(table.role)}"
            return f"the role may not use a sequence: {grant}"
        if must_be_sent(table, column) or (column.name in columns and _is_chosen(table, column.name)):
            if not column.may_insert:
                return f"the role may not write {quoted(column.name)}: {table.grant('INSERT', column.name)}"
            if not column.may_select:
                return f"the role may not read {quoted(column.name)}: {table.grant('SELECT', column.name)}"
            if column_type_of(column.type, column.dimensions).is_read_only:
                return f"{quoted(column.name)} is {column.type.shown}, which can only be read: give it a default"
    # A row of nothing but defaults names the id.
    denied = [name for name in columns if not table.column(name).may_insert]
    if denied and not any(_may_send(served, column) for column in table.columns):
        return f"the role may write none of its columns that it may read: {table.grant('INSERT', *denied)}"
    return ""


def _may_send(served: Served, column: InspectedColumn) -> bool:
    """Return whether a POST may contain the value of a column."""
    is_open = column.may_insert and column.may_select and not column.is_fixed
    is_free = served.identity.is_composite or column.name not in served.identity.columns
    return is_open and is_free and not column_type_of(column.type, column.dimensions).is_read_only


def _is_chosen(table: InspectedTable, name: str) -> bool:
    """Return whether clients have to choose the value of an id column."""
    column = table.column(name)
    return not (column.has_default or column.is_fixed or is_filled(table, column))


def _has_client_ids(served: Served) -> bool:
    """Return whether a POST has to contain the id. The parts of an id come from attributes and relationships."""
    return not served.identity.is_composite and _is_chosen(served.table, served.identity.columns[0])
