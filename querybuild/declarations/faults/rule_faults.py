"""Checks rules and field rights as declared. What comes in: resources whose other arguments have valid types. What goes
out: a line for each fault.

Filters are checked when they are read (`querybuild/planning/rules.py`), because that needs a valid catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from querybuild.declarations.access import (
    ACTIONS,
    ALL,
    ANYONE,
    SIGNED_IN,
    Allow,
    Anyone,
    Audience,
    Role,
    Scope,
    SignedIn,
    audience_name,
    audiences_of,
)
from querybuild.declarations.hooks import accepts_arguments, is_async
from querybuild.declarations.resource import RESOURCE_METHODS, Attribute, Relationship, Resource, ToOne, own_key_of
from querybuild.errors import listed, nearest, quoted


def rule_faults(resource: Resource) -> Iterator[str]:
    """Yield the faults of the rules of a resource, and of the rights of its fields."""
    for number, allow in enumerate(resource.access, 1):
        faults = list(audience_faults(allow.to))
        name = "" if faults else f" ({audience_name(allow.to)})"
        for fault in (*faults, *_action_faults(allow), *_filter_faults(allow), *_assign_faults(allow, resource)):
            yield f"rule {number}{name}: {fault}"
    for attribute in resource.attributes:
        yield from (f"attribute {quoted(attribute.name)}: {fault}" for fault in _attribute_faults(attribute, resource))
    for relationship in resource.relationships:
        yield from (
            f"relationship {quoted(relationship.name)}: {fault}"
            for fault in _relationship_faults(relationship, resource)
        )


def key_faults(resource: Resource, keys: Iterable[tuple[tuple[str, ...], str, Resource]]) -> Iterator[str]:
    """Yield the faults of fields that would show or set a key to rows that rules may hide. keys: each with its columns,
    the name of its relationship, and the resource that it refers to."""
    targets: dict[tuple[str, ...], Resource] = {}
    for columns, name, target in keys:
        other = targets.setdefault(columns, target)
        if other is not target and (other.access or target.access):
            what = f"{quoted(other.type)} and {quoted(target.type)}"
            yield f"relationship {quoted(name)}: its column refers to {what}, and rules of one would not hold"
    for attribute in resource.attributes:
        is_shown = attribute.is_stored and not attribute.is_hidden
        referred = (
            [referred_to for columns, referred_to in targets.items() if attribute.column_name in columns]
            if is_shown
            else []
        )
        for restricted in [referred_to for referred_to in referred if referred_to.access]:
            yield (
                f"attribute {quoted(attribute.name)}: its column is a key to {quoted(restricted.type)}, whose rows "
                "rules may hide: leave the attribute out, or declare it neither readable nor writable"
            )


def audience_faults(audience: object) -> Iterator[str]:
    match audience:
        case Anyone() | SignedIn():
            pass
        case Role(name=name) | Scope(name=name):
            if not isinstance(name, str) or not name:
                yield f"a role or a scope is a text, not {name!r}"
        case _ if isinstance(audience, type) or is_async(audience) or not accepts_arguments(audience, 1):
            expected = "ANYONE, SIGNED_IN, Role(...), Scope(...), or a function of the principal that is not async"
            yield f"it must be for {expected}, not {getattr(audience, '__name__', repr(audience))}"


def _action_faults(allow: Allow) -> Iterator[str]:
    known = (*ACTIONS, ALL)
    if not allow.actions:
        yield f"it allows nothing: name some of {listed(known)}"
    for action in allow.actions:
        if action not in known:
            yield f"{action!r} is not an action.{_meant(action)} There are: {listed(known)}"


def _meant(action: object) -> str:
    """Return what may have been meant by an unknown action."""
    if isinstance(action, list | tuple | set | frozenset):
        return ' Name them one by one, as in Allow(..., "read", "update").'
    if not isinstance(action, str):
        return ""
    if action in RESOURCE_METHODS:
        return " It is a method of a resource; the action for it is “read”."
    return nearest(action, (*ACTIONS, ALL))


def _filter_faults(allow: Allow) -> Iterator[str]:
    filters: tuple[tuple[str, object], ...] = (("rows", allow.rows), ("check", allow.check))
    for name, given in filters:
        if given is not None and not isinstance(given, Mapping | list | tuple):
            yield f"`{name}` must be a filter as Python data, not {type(given).__name__}"
        elif given is not None and not given:
            yield f"`{name}` is empty: leave it out for all rows"
    if allow.check is not None and not (allow.allows("create") or allow.allows("update")):
        yield "`check` is for rows that are written, and it allows neither create nor update"


def _assign_faults(allow: Allow, resource: Resource) -> Iterator[str]:
    given: object = allow.assign
    if not isinstance(given, Mapping):
        yield f"`assign` must be a dict of fields and values, not {type(given).__name__}"
        return
    if allow.assign and not allow.allows("create"):
        yield "`assign` is for create, which it does not allow"
    columns: dict[str, str] = {}
    for name in allow.assign:
        attribute, relationship = resource.attribute(name), resource.relationship(name)
        own = None if relationship is None else own_key_of(relationship)
        if attribute is None and relationship is None:
            known = [field.name for field in (*resource.attributes, *resource.relationships)]
            yield f"`assign`: there is no field {quoted(str(name))}.{nearest(str(name), known)}"
        elif attribute is not None and (not attribute.is_stored or attribute.type.is_read_only):
            yield f"`assign`: {quoted(name)} is read-only"
        elif attribute is None and own is None:
            yield f"`assign`: {quoted(name)} has its key in other rows"
        else:
            own_columns = (attribute.column_name,) if attribute is not None else own.own_columns if own else ()
            for column in own_columns:
                if columns.setdefault(column, name) != name:
                    yield f"`assign`: {quoted(columns[column])} and {quoted(name)} set the same column"


def _rights_faults(field: Attribute | Relationship) -> Iterator[str]:
    for name, declared in (("read_by", field.read_by), ("write_by", field.write_by)):
        audiences = audiences_of(declared)
        if not audiences:
            yield f"`{name}` is for nobody: declare what nobody may do without rules"
        yield from (f"`{name}`: {fault}" for audience in audiences for fault in audience_faults(audience))


def _attribute_faults(attribute: Attribute, resource: Resource) -> Iterator[str]:
    faults = list(_rights_faults(attribute))
    is_written = attribute.is_writable(on_create=True) or attribute.is_writable(on_create=False)
    if attribute.read_by != ANYONE and not attribute.readable:
        faults.append("`read_by` is for attributes that are readable")
    if attribute.write_by != ANYONE and not is_written:
        faults.append("`write_by` is for attributes that can be written")
    yield from faults
    if attribute.required and not faults:
        yield from _required_faults(attribute.name, (attribute.write_by,), resource)


def _relationship_faults(relationship: Relationship, resource: Resource) -> Iterator[str]:
    faults = list(_rights_faults(relationship))
    if relationship.write_by != ANYONE and relationship.methods <= {"read"}:
        faults.append("`write_by` is for relationships that can be written")
    yield from faults
    if isinstance(relationship, ToOne) and relationship.is_required and not faults:
        # Who may not read a relationship may not write it.
        yield from _required_faults(relationship.name, (relationship.read_by, relationship.write_by), resource)


def _required_faults(name: str, rights: Iterable[Audience | tuple[Audience, ...]], resource: Resource) -> Iterator[str]:
    """Yield the rules for creators who could never send a required field."""
    creators = [(number, rule) for number, rule in enumerate(resource.access, 1) if rule.allows("create")]
    without = [number for number, rule in creators if name not in rule.assign and not _within(rule.to, rights)]
    if "create" not in resource.methods:
        return
    for number in without:
        yield f"it is required, and not everybody who may create by rule {number} may write it"
    if not resource.access and not _within(ANYONE, rights):
        yield "it is required, and not everybody who may create may write it"


def _within(audience: Any, rights: Iterable[Audience | tuple[Audience, ...]]) -> bool:
    """Return whether everybody in the audience has all rights, as far as this is known without a principal."""
    return all(any(_covers(given, audience) for given in audiences_of(right)) for right in rights)


def _covers(wide: Any, narrow: Any) -> bool:
    is_signed_in = isinstance(narrow, SignedIn | Role | Scope)
    return wide in (ANYONE, narrow) or (wide == SIGNED_IN and is_signed_in)
