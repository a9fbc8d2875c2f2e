"""Leaves out what does not fit the live tables, so that the server starts with every inspected database.

The declarations come from the same catalog, so there should be nothing. But a view may call a function that the role
may not execute, or the operators of a type may be out of the search path.
It must not know: settings, files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from querybuild.declarations.catalog import CatalogError
from querybuild.declarations.resource import Attribute, Relationship, own_key_of
from querybuild.errors import quoted
from server.schema.fault import Fault
from server.tools.inspecting.declaration.attributes import must_be_sent
from server.tools.inspecting.inspected import Inspected, InspectedField, Inspection, NotServed

_FAULT = re.compile(
    "(?:resource “(?P<resource>[^”]+)”|function “(?P<function>[^”]+)”): "
    "(?:attribute “(?P<attribute>[^”]+)”: |relationship “(?P<relationship>[^”]+)”: )?(?P<reason>.*)"
)


def faults_of(error: CatalogError) -> list[Fault]:
    """Return the faults of declarations that do not fit each other, one a line of the error."""
    lines = [(line, _FAULT.fullmatch(line)) for line in str(error).splitlines()]
    return [
        Fault(line) if match is None else Fault(**{name: text or "" for name, text in match.groupdict().items()})
        for line, match in lines
    ]


def without(inspection: Inspection, faults: Sequence[Fault]) -> Inspection:
    """Return the inspection without the fields and resources that faults of `read_live_schema` name. The first fault of
    each says why."""
    kept, dropped = [], {}
    by_type: defaultdict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_type[fault.resource].append(fault)
    for table in inspection.inspected:
        own = by_type[table.resource.type]
        others = [fault for fault in own if not fault.field]
        if others:
            dropped[table.resource.type] = NotServed(table.table.full_name, others[0].reason)
        else:
            kept.append(_without_fields(table, {fault.field: fault.text_within for fault in reversed(own)}))
    missing = {kind: f"refers to {left_out.full_name}, which is not served" for kind, left_out in dropped.items()}
    return msgspec.structs.replace(
        inspection,
        inspected=tuple([_without_targets(table, missing) for table in kept]),
        not_served=tuple(sorted((*inspection.not_served, *dropped.values()), key=lambda left_out: left_out.full_name)),
    )


def _without_fields(inspected: Inspected, texts: dict[str, str]) -> Inspected:
    return _filtered(inspected, lambda field: texts.get(field.declaration.name, ""), inspected.unstated)


def _without_targets(inspected: Inspected, missing: dict[str, str]) -> Inspected:
    def reason(field: InspectedField) -> str:
        target = None if isinstance(field.declaration, Attribute) else field.declaration.target
        return f"{quoted(field.declaration.name)} {missing[target]}" if target in missing else ""

    return _filtered(inspected, reason, inspected.unstated)


def _filtered(inspected: Inspected, reason: Callable[[InspectedField], str], unstated: tuple[str, ...]) -> Inspected:
    """Return a resource without the fields that have a reason, which becomes a comment."""
    reasons = {field.declaration.name: text for field in inspected.fields if (text := reason(field))}
    if not reasons:
        return inspected
    fields = tuple([field for field in inspected.fields if field.declaration.name not in reasons])
    declared = [field.declaration for field in fields]
    resource = msgspec.structs.replace(
        inspected.resource,
        attributes=tuple([field for field in declared if isinstance(field, Attribute)]),
        relationships=tuple([field for field in declared if not isinstance(field, Attribute)]),
    )
    changed = msgspec.structs.replace(
        inspected, resource=resource, fields=fields, unstated=(*unstated, *reasons.values())
    )
    lost = {name for field in inspected.fields if field.declaration.name in reasons for name in _columns_of(field)}
    unset = [
        column.name
        for column in inspected.table.columns
        if column.name in lost and must_be_sent(inspected.table, column)
    ]
    return _without_create(changed, unset[0]) if unset and "create" in resource.methods else changed


def _columns_of(field: InspectedField) -> tuple[str, ...]:
    """Return the columns of the resource's own rows that a field writes."""
    made = field.declaration
    if isinstance(made, Attribute):
        return (made.column_name,)
    own = own_key_of(made)
    return () if own is None else own.own_columns


def _without_create(inspected: Inspected, column: str) -> Inspected:
    """Return a resource that cannot be created, because no field sets a column that needs a value."""
    fields = tuple([InspectedField(_not_required(field.declaration), field.notes) for field in inspected.fields])
    resource = msgspec.structs.replace(
        inspected.resource,
        attributes=tuple([field for made in fields if isinstance(field := made.declaration, Attribute)]),
        methods=inspected.resource.methods - {"create"},
        client_ids=False,
    )
    note = f"It cannot be created: {quoted(column)} is NOT NULL, and its field is left out: give it a default"
    return msgspec.structs.replace(inspected, resource=resource, fields=fields, notes=(note, *inspected.notes))


def _not_required(made: Attribute | Relationship) -> Attribute | Relationship:
    is_changed = isinstance(made, Attribute) and made.required
    return msgspec.structs.replace(made, required=False) if is_changed else made
