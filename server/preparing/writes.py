"""Prepares writes. What comes in: a change, a body or many adds. What goes out: writes that are ready to run. A change
whose form was planned before is not planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.hooks import NO_HOOKS
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import ApiError, ConflictFault, quoted
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Access, Context, View, check_action
from querybuild.planning.rowsets import hides
from querybuild.planning.write_plan_cache import WriteForm, form_key, plan_columns, plan_with_form, write_form_of
from querybuild.planning.writes.bulk import PlannedBulk, plan_bulk
from querybuild.planning.writes.write_locks import RelatedRow, plan_related_row
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.query import Bulk, Change, Limits
from serializers import pointers
from serializers.operations.requests import UniformAdds
from server.errors import PreconditionRequired, PreconditionUnsupported
from server.preparing.encoders import Encoders
from server.preparing.statements import ENTRY_BYTES, Statements
from server.preparing.typed_writes import TypedWrites
from server.preparing.views import CONTEXT, view_of


class PreparedWrite(msgspec.Struct, frozen=True, eq=False):
    """A write that is ready to run. planned: None if the write can only be planned in its transaction, because a hook
    may change it, or because the path names its row over a to-one. related: that row. path_id: the id of the path.
    looked_for: a create of which only its transaction can say whether it updates a row instead. bulk: the rows of a
    write that names no id."""

    resource: Resource
    change: Change
    planned: PlannedWrite | None
    related: RelatedRow | None = None
    path_id: Any = None
    looked_for: PlannedWrite | None = None
    bulk: PlannedBulk | None = None

    @property
    def is_hooked(self) -> bool:
        """Whether custom code runs inside the transaction."""
        hooks, kind = self.resource.hooks, self.change.kind
        return hooks is not NO_HOOKS and (hooks.before(kind) is not None or hooks.after(kind) is not None)


class TypedWrite(msgspec.Struct, frozen=True, eq=False):
    """A write that was decoded and prepared in one step. Its change has none of the values. written: the relationships
    whose linkage the answer shows."""

    write: PreparedWrite
    written: tuple[str, ...]


class PreparedRows(msgspec.Struct, frozen=True, eq=False):
    """New rows with one plan that are ready to be created. columns: the values of each slot in all rows."""

    plan: WritePlan
    columns: Sequence[Sequence[Any]]


class WriteCaches(msgspec.Struct, frozen=True, eq=False):
    """What was planned, by the form of the change. The names are those of the metrics."""

    forms: BoundedCache[WriteForm]


def check_match(resource: Resource, change: Change) -> None:
    """Check that a write says which version it is meant for, if it must, and that there are versions. Adding links
    needs none. Raises PreconditionRequired, PreconditionUnsupported."""
    match = change.match
    if match is None:
        adds = bool(change.relationships) and change.attributes is None
        adds = adds and all(linkage.mode == "add" for linkage in change.relationships.values())
        if resource.requires_match and change.kind != "create" and not adds:
            detail = f"A {resource.type} is only written with the tag that a GET has answered: send it as If-Match."
            if change.bulk is not None:
                detail = f"Each {resource.type} is only written with its tag, and never by a filter: name it by its id."
            raise PreconditionRequired(detail, header="If-Match")
    elif not match.of_linkage and resource.abilities.version is None:
        detail = f"Resources of type {quoted(resource.type)} have no versions, because their table declares none."
        header = "If-Match" if match.pointer is None else None
        raise PreconditionUnsupported(detail, header=header, pointer=match.pointer)


class Writes:
    """Prepares the writes of one engine. view: the declarations. typed: those that are decoded and planned in one
    step."""

    def __init__(
        self,
        limits: Limits,
        view: View,
        statements: Statements,
        encoders: Encoders,
        make_cache: Callable[[], BoundedCache[Any]],
    ) -> None:
        self.caches = WriteCaches(make_cache())
        self.typed = TypedWrites(limits, make_cache)
        self._limits = limits
        self._view = view
        self._statements = statements
        self._encoders = encoders

    def prepare(self, resource: Resource, change: Change, context: Context, errors: list[ApiError]) -> PreparedWrite:
        """Return a write that is ready to run. Appends to errors, unless a hook runs first. Raises Forbidden,
        Unauthenticated, PreconditionRequired, PreconditionUnsupported."""
        if context.access.refused:
            check_action(resource, change.kind, context)
        check_match(resource, change)
        if change.on_conflict is not None:
            return self._prepare_looked_for(resource, change, context, errors)
        if change.bulk is not None:
            return self._prepare_bulk(resource, change, change.bulk, context, errors)
        if resource.hooks is not NO_HOOKS and resource.hooks.before(change.kind) is not None:
            return PreparedWrite(resource, change, None)
        return PreparedWrite(resource, change, self.plan(resource, change, context, errors))

    def _prepare_looked_for(
        self, resource: Resource, change: Change, context: Context, errors: list[ApiError]
    ) -> PreparedWrite:
        """Return a create that may update a row instead."""
        refused: list[ApiError] = []
        planned = self.plan(resource, change, context, refused)
        # After a hook it is planned again.
        is_hooked = resource.hooks.before("create") is not None
        errors += [error for error in refused if not is_hooked or isinstance(error, ConflictFault)]
        conflict = planned.plan.conflict
        if conflict is None or conflict.is_one_statement:
            return PreparedWrite(resource, change, planned)
        return PreparedWrite(resource, change, None, looked_for=planned)

    def _prepare_bulk(
        self, resource: Resource, change: Change, bulk: Bulk, context: Context, errors: list[ApiError]
    ) -> PreparedWrite:
        """Return a write of the rows that a filter finds."""
        check_action(resource, "read", context)
        is_hooked = resource.hooks.before(change.kind) is not None
        write = None if is_hooked else self.plan(resource, change, context, errors)
        view = view_of(context, self._view)
        planned = plan_bulk(change.kind, bulk, resource, view, context, self._limits, write, errors)
        return PreparedWrite(resource, change, None, bulk=planned)

    def prepare_typed(self, resource: Resource, asked: Change, body: bytes, context: Context) -> TypedWrite | None:
        """Decode and prepare a write in one step. Returns None if it must be decoded step by step. asked: the change as
        the request asks for it besides its body."""
        if resource.hooks is not NO_HOOKS or (resource.type, asked.kind) in context.access.refused:
            return None
        if not CONTEXT.takes(context) or resource.requires_match:
            return None
        typed = self.typed.plan(resource, asked, body, context, view_of(context, self._view))
        if typed is None:
            return None
        change, planned, written = typed
        return TypedWrite(PreparedWrite(resource, change, planned), written)

    def prepare_related(
        self, resource: Resource, relationship: Relationship, path_id: Any, change: Change, context: Context
    ) -> PreparedWrite:
        """Return a write of the resource at the other end of a to-one. Its transaction finds the id and plans the
        write. path_id: of the resource that has the relationship. Raises Forbidden, Unauthenticated."""
        check_action(resource, "read", context)
        catalog = view_of(context, self._view).catalog
        check_action(catalog.target(relationship), change.kind, context)
        related = plan_related_row(resource, relationship, catalog, context)
        check_match(related.resource, change)
        return PreparedWrite(related.resource, change, None, related, path_id)

    def prepare_rows(self, resource: Resource, adds: UniformAdds, context: Context) -> PreparedRows | None:
        """Return the rows of adds with the same members. Returns None if one of them has errors, or if more belongs to
        it than its row: then they are prepared one by one."""
        if (resource.type, "create") in context.access.refused or not CONTEXT.takes(context):
            return None
        hooks = resource.hooks
        errors: list[ApiError] = []
        if hooks.before("create") or hooks.after("create") or hooks.after_commit:
            return None
        access = context.access
        if hides(resource, context) or resource.type in access.check_create or resource.type in access.assigned:
            return None
        if not self._encoders.of_objects(resource).is_returned or "create" not in resource.abilities.returned:
            return None
        self.plan(resource, adds.first, context, errors)
        key = form_key(adds.first, resource)
        form = None if errors or key is None else self.caches.forms.get((key, context.access))
        columns = None if form is None else plan_columns(form, adds.attributes, adds.linked)
        if form is None or columns is None or not self._statements.of_write(form.plan, None).is_repeatable:
            return None
        if form.plan.conflict is not None and not form.plan.conflict.is_one_statement:
            return None
        return PreparedRows(form.plan, columns)

    def plan(self, resource: Resource, change: Change, context: Context, errors: list[ApiError]) -> PlannedWrite:
        """Return the plan of a change with its values. Appends to errors."""
        key = form_key(change, resource) if CONTEXT.takes(context) else None
        form = None if key is None else self.caches.forms.get((key, context.access))
        if form is not None and (planned := plan_with_form(change, form, context.values)) is not None:
            return planned
        known = len(errors)
        view = view_of(context, self._view)
        planned = plan_write(change, resource, view, context, pointers, errors)
        if key is not None and form is None and len(errors) == known:
            self._keep_form((key, context.access), change, planned, view, context.access)
        return planned

    def _keep_form(self, key: Hashable, change: Change, planned: PlannedWrite, view: View, access: Access) -> None:
        form = write_form_of(change, planned, view, access)
        if form is not None:
            self.caches.forms.put(key, form, ENTRY_BYTES)
