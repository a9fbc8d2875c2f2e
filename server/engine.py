"""Defines the engine: settings, catalog, and what was made of them, as one value. A request keeps the engine that it
began with. A reload creates another.

What comes in: settings, the Catalog, facts about the live tables. What goes out: reads and writes that are ready to
run. What was planned is kept here, statements in `statements.py`, encoders in `encoders.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.access import ANYONE
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Call
from querybuild.declarations.hooks import NO_HOOKS
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import ApiError, Errors, raise_all
from querybuild.filters import SentFilter, vals_of
from querybuild.parse import parse, split_pairs
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import Access, Context, View, check_action
from querybuild.planning.plan import ReadPlan, RelatedScope, Rows, Values
from querybuild.planning.planner import PlannedRead, plan_collection, plan_linkage, plan_related, plan_resource
from querybuild.planning.reads.read_forms import Filled, ReadForm, fill, read_form_of, split_values
from querybuild.planning.rows import nodes
from querybuild.planning.rowsets import hides
from querybuild.planning.rules import read_rules
from querybuild.planning.write_plan_cache import WriteForm, form_key, plan_columns, plan_with_form, write_form_of
from querybuild.planning.writes.write_locks import RelatedRow, plan_related_row
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.principal import ANONYMOUS, Principal
from querybuild.query import Change, Limits, Page, Query
from querybuild.shortcuts import Knows
from querybuild.sql.clauses import decides_again, reads_other_rows
from querybuild.sql.select import ReadStatements
from querybuild.sql.stream import StreamStatements
from serializers import pointers
from serializers.encode import DocumentEncoder
from serializers.links import PageQueries, QueryForm, page_queries, query_form
from serializers.operations import AlikeAdds
from serializers.steps import SHARED
from serializers.streams import StreamEncoder
from server.authentication.authenticator import Authenticate, Authenticator
from server.authentication.well_known import resource_metadata
from server.encoders import EncoderCaches, Encoders
from server.http.headers import private_directives
from server.routes import NO_PARAMETERS, fixed_paths
from server.schema.live_limits import checks_of_limits
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from server.statements import ENTRY_BYTES, StatementCaches, Statements
from server.typed_writes import TypedCaches, TypedWrites

ROW_BODIES = 16
"""The assumed size of the largest row, in bodies of the largest size."""

_BYTES_PER_CHARACTER = 12
"""The assumed bytes that each character of a query string adds to an entry: nodes, plan, values, pairs. According to
tracemalloc a filter of 50 nodes takes 76 KB."""


class ReadyPlan(msgspec.Struct, frozen=True, eq=False):
    """A plan with its statements and its encoder. has_computed: whether Python computes attributes. is_one_row: whether
    the row of one resource is everything that is read. unenforced_keys: the types whose ids, or keys of a to-one, are
    not unique by a constraint."""

    plan: ReadPlan
    statements: ReadStatements
    encoder: DocumentEncoder
    has_computed: bool
    is_one_row: bool
    unenforced_keys: tuple[str, ...] = ()


ReadKind = Literal["collection", "resource", "related", "linkage"]


class ReadShape(msgspec.Struct, frozen=True):
    """What a route reads. resource: that of the path. written: the relationships whose linkage the answer to a write
    shows. accepts: the parameter families of the route. call: that of a function, if it reads what the function
    returns."""

    kind: ReadKind
    resource: Resource
    relationship: Relationship | None = None
    written: tuple[str, ...] = ()
    accepts: frozenset[str] = NO_PARAMETERS
    call: Call | None = None


class PreparedWrite(msgspec.Struct, frozen=True, eq=False):
    """A write that is ready to run. planned: None if the write can only be planned in its transaction, because a hook
    may change it, or because the path names its row over a to-one. related: that row. path_id: the id of the path."""

    resource: Resource
    change: Change
    planned: PlannedWrite | None
    related: RelatedRow | None = None
    path_id: Any = None

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


class PreparedRead(msgspec.Struct, frozen=True, eq=False):
    """A read that is ready to run, but for the id of its path and the values of its context. filters: those of the
    request."""

    page: Page
    queries: PageQueries
    plan: ReadPlan
    values: Values
    cursor_mark: str
    cursor_parent: str | None
    filters: tuple[SentFilter, ...]
    ready: ReadyPlan

    @property
    def may_be_streamed(self) -> bool:
        """Whether the request is for all rows, without pages, and they are streamed if they are many."""
        return self.plan.first_rows is not None

    @property
    def is_long(self) -> bool:
        """Whether a long answer is expected, by the size of the page."""
        return self.plan.is_collection and not 0 < self.page.size < SHARED.short_rows


class PreparedStream(msgspec.Struct, frozen=True, eq=False):
    """A read that is ready to be streamed."""

    read: PreparedRead
    statements: StreamStatements
    encoder: StreamEncoder


class KnownRead(msgspec.Struct, frozen=True, eq=False):
    """A read that was planned. query: its parameters."""

    form: ReadForm
    ready: ReadyPlan
    query: QueryForm


class PlanCaches(msgspec.Struct, frozen=True, eq=False):
    """What was planned, by the form of the request. The names are those of the metrics."""

    read_forms: BoundedCache[KnownRead]
    forms: BoundedCache[WriteForm]


CONTEXT = Knows(Context, used=("access", "values"), ignored=("principal",))
"""What is known of a context where a read or a write is planned once for many requests: the access is in the key, and
the values are for slots."""

RETURNED = Knows(ReadPlan, used=("node", "is_collection", "has_included"))
RETURNED_ROWS = Knows(Rows, used=("resource", "alias", "criteria", "conditions"))
"""What the row that a statement has written knows of the read that answers the write."""

ANYBODY = Context()
CACHES = sum(len(caches.__struct_fields__) for caches in (PlanCaches, TypedCaches, StatementCaches, EncoderCaches))


class Engine:
    """Prepares reads and writes for one set of settings and declarations. authenticator: finds out who sends a request.
    authenticate: its method. has_authentication: whether anybody can be signed in. is_open: whether nobody can, and
    there are no rules. hides_relationships: whether some routes only exist for some principals."""

    def __init__(
        self, settings: Settings, catalog: Catalog, schema: LiveSchema, authenticator: Authenticator | None = None
    ) -> None:
        """authenticator: that of the worker, or None to make one from the settings."""
        self.settings = settings
        self.catalog = schema.catalog or catalog
        self.schema = schema
        self.authenticator = Authenticator(settings) if authenticator is None else authenticator
        self.authenticate: Authenticate = self.authenticator.authenticate
        self.has_authentication = self.authenticator.is_configured
        self.private_cache_control = private_directives(settings.cache_control)
        self.resource_metadata = resource_metadata(settings)
        self.view = View(self.catalog, checks_of_limits(schema.limits), schema.references)
        self._rules = read_rules(self.view, is_closed=self.has_authentication)
        self.is_open = not self.has_authentication and self._rules is None
        self.hides_relationships = any(one.read_by != ANYONE for each in self.catalog for one in each.relationships)
        self.fixed_paths = fixed_paths(
            settings.operations_path,
            has_admin=settings.admin_port is None,
            has_openapi=settings.openapi,
            has_docs=settings.docs_page,
        )
        self.base_url = settings.path_prefix if settings.public_url is None else settings.public_url
        self.limits = msgspec.convert(settings, Limits, from_attributes=True)
        bounds = (settings.statement_cache_entries, settings.statement_cache_bytes // CACHES)
        make_cache: Callable[[], BoundedCache[Any]] = lambda: BoundedCache(*bounds)  # noqa: E731
        self._plans = PlanCaches(make_cache(), make_cache())
        self._typed_writes = TypedWrites(self.limits, make_cache)
        self.statements = Statements(make_cache)
        self.encoders = Encoders(self.base_url, make_cache)

    def context_of(self, principal: Principal) -> Context:
        """Return the context of the requests of a principal. Raises what the functions of the rules raise."""
        if self._rules is not None:
            return self._rules.context_of(principal)
        return ANYBODY if principal is ANONYMOUS else Context(principal=principal)

    def view_of(self, context: Context) -> View:
        """Return the declarations as the principal sees them."""
        return context.access.view or self.view

    @property
    def caches(self) -> dict[str, BoundedCache[Any]]:
        """All caches by their names. Each has the same share of `statement_cache_bytes`."""
        parts = (self._plans, self._typed_writes.caches, self.statements.caches, self.encoders.caches)
        return {name: getattr(part, name) for part in parts for name in part.__struct_fields__}

    @property
    def has_room_for_rows(self) -> bool:
        """Whether the largest assumed row fits into an answer. Then a write of one row can be a single statement: its
        answer is never too large, so nothing has to be rolled back."""
        return self.settings.max_answer_bytes >= ROW_BODIES * self.settings.max_body_bytes

    def prepare_read(self, shape: ReadShape, query_string: str, context: Context) -> PreparedRead:
        """Return the read of this query string. Raises ApiError, or Several, for its errors."""
        split = split_values(query_string, self.limits) if CONTEXT.takes(context) else None
        key = None if split is None else (shape, context.access, split.key)
        known = None if key is None else self._plans.read_forms.get(key)
        if known is not None and split is not None and (filled := fill(known.form, split)) is not None:
            return _prepared(filled, known, page_queries(known.query, split.sent))
        errors = Errors()
        pairs = split_pairs(query_string, errors)
        query = parse(pairs, shape.accepts, self.limits, errors)
        planned = self._plan(shape, query, context, errors)
        raise_all(errors)
        sent = [] if split is None else split.sent
        own = query_form(pairs, planned.page, sent)
        made = KnownRead(read_form_of(planned, vals_of(query.filter)), self._ready(planned.plan), own)
        if key is not None and known is None:
            self._plans.read_forms.put(key, made, _read_weight(query_string))
        filled = Filled(planned.page, planned.values, planned.cursor_mark, planned.cursor_parent)
        return _prepared(filled, made, page_queries(own, sent))

    def check_read(self, shape: ReadShape, context: Context) -> None:
        """Check that the principal may read what a route shows. Raises Forbidden, Unauthenticated."""
        check_action(shape.resource, "read", context)
        if shape.relationship is not None:
            check_action(self.catalog.target(shape.relationship), "read", context)

    def prepare_stream(self, read: PreparedRead) -> PreparedStream:
        """Return the stream of a read without pages."""
        statements = self.statements.of_stream(read.plan, self.catalog)
        return PreparedStream(read, statements, self.encoders.of_stream(read.plan, statements))

    def timeout_of(self, read: PreparedRead) -> float | None:
        """Return how many seconds a read may take, or None if only `statement_timeout_seconds` limits it."""
        return self.settings.filter_timeout_seconds if read.plan.rows.conditions and read.plan.is_collection else None

    def check_parameters(self, query_string: str, accepts: frozenset[str]) -> None:
        """Check the parameters of a request that reads nothing. Raises ParameterError."""
        if query_string:
            errors = Errors()
            parse(split_pairs(query_string, errors), accepts, self.limits, errors)
            raise_all(errors)

    def prepare_write(
        self, resource: Resource, change: Change, context: Context, errors: list[ApiError]
    ) -> PreparedWrite:
        """Return a write that is ready to run. Appends to errors, unless a hook runs first. Raises Forbidden,
        Unauthenticated."""
        if context.access.refused:
            check_action(resource, change.kind, context)
        if resource.hooks is not NO_HOOKS and resource.hooks.before(change.kind) is not None:
            return PreparedWrite(resource, change, None)
        return PreparedWrite(resource, change, self.plan_write(resource, change, context, errors))

    def prepare_typed(self, resource: Resource, asked: Change, body: bytes, context: Context) -> TypedWrite | None:
        """Decode and prepare a write in one step. Returns None if it must be decoded step by step. asked: the change as
        the request asks for it besides its body."""
        if resource.hooks is not NO_HOOKS or (resource.type, asked.kind) in context.access.refused:
            return None
        if not CONTEXT.takes(context):
            return None
        found = self._typed_writes.plan(resource, asked, body, context, self.view_of(context))
        if found is None:
            return None
        change, planned, written = found
        return TypedWrite(PreparedWrite(resource, change, planned), written)

    def prepare_related_write(
        self, resource: Resource, relationship: Relationship, path_id: Any, change: Change, context: Context
    ) -> PreparedWrite:
        """Return a write of the resource at the other end of a to-one. Its transaction finds the id and plans the
        write. path_id: of the resource that has the relationship. Raises Forbidden, Unauthenticated."""
        check_action(resource, "read", context)
        catalog = self.view_of(context).catalog
        check_action(catalog.target(relationship), change.kind, context)
        related = plan_related_row(resource, relationship, catalog, context)
        return PreparedWrite(related.resource, change, None, related, path_id)

    def prepare_rows(self, resource: Resource, adds: AlikeAdds, context: Context) -> PreparedRows | None:
        """Return the rows of adds with the same members. Returns None if one of them has errors, or if more belongs to
        it than its row: then they are prepared one by one."""
        if (resource.type, "create") in context.access.refused or not CONTEXT.takes(context):
            return None
        hooks, errors = resource.hooks, list[ApiError]()
        if hooks.before("create") or hooks.after("create") or hooks.after_commit:
            return None
        access = context.access
        if hides(resource, context) or resource.type in access.check_create or resource.type in access.assigned:
            return None
        if not self.encoders.bare(resource).is_returned or "create" not in resource.abilities.returned:
            return None
        self.plan_write(resource, adds.first, context, errors)
        key = form_key(adds.first, resource)
        form = None if errors or key is None else self._plans.forms.get((key, context.access))
        columns = None if form is None else plan_columns(form, adds.attributes, adds.linked)
        if form is None or columns is None or not self.statements.of_write(form.plan, None).is_repeatable:
            return None
        return PreparedRows(form.plan, columns)

    def plan_write(self, resource: Resource, change: Change, context: Context, errors: list[ApiError]) -> PlannedWrite:
        """Return the plan of a change with its values. Appends to errors."""
        key = form_key(change, resource) if CONTEXT.takes(context) else None
        form = None if key is None else self._plans.forms.get((key, context.access))
        if form is not None and (alike := plan_with_form(change, form, context.values)) is not None:
            return alike
        known = len(errors)
        view = self.view_of(context)
        planned = plan_write(change, resource, view, context, pointers, errors)
        if key is not None and form is None and len(errors) == known:
            self._keep_form((key, context.access), change, planned, view, context.access)
        return planned

    def _keep_form(self, key: Hashable, change: Change, planned: PlannedWrite, view: View, access: Access) -> None:
        form = write_form_of(change, planned, view, access)
        if form is not None:
            self._plans.forms.put(key, form, ENTRY_BYTES)

    def _plan(self, shape: ReadShape, query: Query, context: Context, errors: list[ApiError]) -> PlannedRead:
        view = self.view_of(context)
        resource, known = shape.resource, (view.catalog, context, self.limits, errors)
        if shape.kind == "resource":
            return plan_resource(query, resource, *known, shape.written)
        if shape.relationship is None:
            return plan_collection(query, resource, *known, view.references, shape.call)
        scope = RelatedScope(resource, shape.relationship, view.catalog.target(shape.relationship))
        return (plan_related if shape.kind == "related" else plan_linkage)(query, scope, *known)

    def _ready(self, plan: ReadPlan) -> ReadyPlan:
        has_computed = any(node.computed for node, _ in nodes(plan.node))
        has_parts = any(branch.fetch != "row" for branch in plan.node.branches)
        # RETURNING sees other rows as they were before the statement.
        is_more = has_parts or plan.node.targets or reads_other_rows(plan.node) or decides_again(plan.rows)
        is_named = RETURNED.takes(plan) and RETURNED_ROWS.takes(plan.rows)
        is_one_row = is_named and not is_more
        statements, encoder = self.statements.of_read(plan), self.encoders.of_document(plan)
        return ReadyPlan(plan, statements, encoder, has_computed, is_one_row, self._uncertain(plan))

    def _uncertain(self, plan: ReadPlan) -> tuple[str, ...]:
        """Return the types that a read shows or joins for a sort, and whose ids or keys are not unique by a
        constraint."""
        if not self.schema.unenforced_keys:
            return ()
        shown = [node.resource.type for node, _ in nodes(plan.node)] + [step.resource.type for step in plan.rows.joins]
        keys = [(name, "") for name in shown]
        keys += [(node.resource.type, one.relationship.name) for node, _ in nodes(plan.node) for one in node.branches]
        if plan.scope is not None:
            keys.append((plan.scope.parent.type, plan.scope.relationship.name))
        return tuple(dict.fromkeys(name for name, relation in keys if (name, relation) in self.schema.unenforced_keys))


def _prepared(filled: Filled, known: KnownRead, queries: PageQueries) -> PreparedRead:
    cursor = filled.cursor_mark, filled.cursor_parent
    return PreparedRead(filled.page, queries, known.form.plan, filled.values, *cursor, known.form.filters, known.ready)


def _read_weight(query_string: str) -> int:
    return ENTRY_BYTES + _BYTES_PER_CHARACTER * len(query_string)
