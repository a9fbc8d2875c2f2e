"""Defines the context of a request: who sends it, and what this principal may do.

All planning gets it. Only `rowsets.py` asks it for conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from querybuild.declarations.access import Action
from querybuild.declarations.attributes import NO_CHECKS, Check, Checks, checks_of
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Attribute, Link, Resource, ToOne
from querybuild.errors import Forbidden, MethodForbidden, Unauthenticated, listed, not_allowed, quoted
from querybuild.planning.reads.counting import NO_REFERENCES, References
from querybuild.planning.row_plan import Condition
from querybuild.principal import ANONYMOUS, Principal
from querybuild.query import ChangeKind

Criteria = Mapping[str, tuple[Condition, ...]]
"""By the JSON:API type of the rows, the conditions that each row meets, whatever the request asks for. Their alias is
`rowsets.ANY_ROW`."""

NO_CRITERIA: Criteria = MappingProxyType({})


class View(msgspec.Struct, frozen=True, eq=False):
    """The declarations as some principals see them: without the fields that they may not read.

    checks: all checks of the attributes whose columns accept less than their declarations say. references: the foreign
    keys that allow counting keys instead of rows."""

    catalog: Catalog
    checks: Checks = NO_CHECKS
    references: References = NO_REFERENCES

    def checks_of(self, attribute: Attribute) -> Sequence[Check]:
        """Return all checks of an attribute: those of its declaration, and those of its column."""
        return self.checks.get(attribute) or checks_of(attribute)


class AssignedField(msgspec.Struct, frozen=True):
    """A field that a rule sets when a row is created: an attribute, or a to-one with its key in the row.

    index: that of its native value in `Context.values`.
    is_fixed: whether a client must not send another value. If False, a rule allows the creation without setting it.
    attribute: of the column, if the resource does not declare it."""

    name: str
    index: int
    is_fixed: bool
    attribute: Attribute | None = None


class LinkAccess(msgspec.Struct, frozen=True, eq=False):
    """What some principals may do with the rows of a link table. criteria: what each row meets, else it does not exist.
    assigned: the columns of new rows that rules set."""

    criteria: tuple[Condition, ...] = ()
    assigned: tuple[AssignedField, ...] = ()


ALL_LINKS = LinkAccess()


def assigned_target(field: AssignedField, resource: Resource, catalog: Catalog) -> Attribute | ToOne:
    """Return what a rule sets: an attribute, or a to-one with its key in the row. The principal may not see it."""
    if field.attribute is not None:
        return field.attribute
    attribute = resource.attribute(field.name)
    if attribute is not None:
        return attribute
    relationship = catalog.declared(resource).relationship(field.name)
    assert isinstance(relationship, ToOne)
    return relationship


class Access(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What some principals may do. Many principals share one. It is part of the keys of cached plans, and is compared
    by identity.

    read: the rows that may be read. Any other row does not exist for them.
    update, delete: the rows that may be updated and deleted, of those that may be read.
    check_create, check_update: what a row must meet after it is created or updated.
    refused: the types and actions that no rule allows them.
    assigned: by the JSON:API type, the fields that rules set when a row is created.
    read_only: by the JSON:API type, the fields that they may not write.
    links: by schema and name, the link tables whose rows they do not all see.
    view: the declarations as they see them. None if they may read all fields.
    """

    read: Criteria = NO_CRITERIA
    update: Criteria = NO_CRITERIA
    delete: Criteria = NO_CRITERIA
    check_create: Criteria = NO_CRITERIA
    check_update: Criteria = NO_CRITERIA
    refused: frozenset[tuple[str, Action]] = frozenset()
    assigned: Mapping[str, tuple[AssignedField, ...]] = MappingProxyType({})
    read_only: Mapping[str, frozenset[str]] = MappingProxyType({})
    links: Mapping[tuple[str | None, str], LinkAccess] = MappingProxyType({})
    view: View | None = None

    def of_links(self, link: Link) -> LinkAccess:
        """Return what they may do with the rows of a link table."""
        return self.links.get((link.schema, link.table), ALL_LINKS)

    def read_only_of(self, type_name: str) -> frozenset[str]:
        """Return the fields that they may not write. type_name: the JSON:API type."""
        return self.read_only.get(type_name, frozenset())


EVERYTHING = Access()
"""Everything that the declarations allow."""


def check_method(resource: Resource, kind: ChangeKind) -> None:
    """Check that the declaration allows this kind of write. Raises MethodForbidden."""
    if kind not in resource.methods:
        allowed = listed(name for name in ("list", "detail", "create", "update", "delete") if name in resource.methods)
        raise MethodForbidden(
            f"Resources of type {quoted(resource.type)} cannot be {kind}d here; allowed are: {allowed}."
        )


def check_action(resource: Resource, action: Action, context: Context) -> None:
    """Check that a rule allows the principal this action. Raises Forbidden, Unauthenticated."""
    error = refused_action(resource, action, context)
    if error is not None:
        raise error


def refused_action(
    resource: Resource, action: Action, context: Context, pointer: str | None = None
) -> Forbidden | Unauthenticated | None:
    """Return the error if no rule allows the principal this action. pointer: to what needs it."""
    access, principal = context.access, context.principal
    if not access.refused or (resource.type, action) not in access.refused:
        return None
    done = {"read": "read", "create": "created", "update": "updated", "delete": "deleted"}[action]
    by = "without credentials" if principal.is_anonymous else "with these credentials"
    what = f"Resources of type {quoted(resource.type)} may not be {done} {by}."
    return not_allowed(principal, what, pointer=pointer)


class Context(msgspec.Struct, frozen=True):
    """Who sends a request, and what this principal may do.

    access: a plan depends on it. values: those for its slots. A plan does not depend on these, so all requests with the
    same access share it."""

    access: Access = EVERYTHING
    values: tuple[Any, ...] = ()
    principal: Principal = ANONYMOUS
