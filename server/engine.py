"""Defines the engine: settings, catalog, encoders and caches as one value. A request keeps the engine that it began
with. A reload creates another.

What comes in: settings, the Catalog, facts about the live tables. What goes out: reads and writes that are ready to
run, from the caches if their shape is known.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import msgspec

from querybuild.attributes import checks_within
from querybuild.cache import BoundedCache, SecondUseCache
from querybuild.catalog import Catalog
from querybuild.changes import PlannedWrite, plan_write
from querybuild.clauses import reads_other_rows
from querybuild.counting import counted
from querybuild.errors import ApiError, Errors, raise_all
from querybuild.filters import vals_of
from querybuild.locks import compile_locks
from querybuild.modify import Create, WriteStatements, compile_rows, compile_together, compile_write
from querybuild.parse import parse, split_pairs
from querybuild.plan import LockStrength, Node, ReadPlan, Scope, Statement, Values, WritePlan, node_of
from querybuild.planner import PlannedRead, plan_collection, plan_linkage, plan_related, plan_resource
from querybuild.query import Change, Context, Limits, Page, Query
from querybuild.read_forms import Filled, ReadForm, fill, form_of, split_values
from querybuild.resource import Relationship, Resource
from querybuild.rows import Row, nodes, with_computed
from querybuild.rowsets import open_written
from querybuild.select import ReadStatements, compile_read
from querybuild.stream import StreamStatements, compile_stream
from querybuild.write_plan_cache import Form, form_key, plan_with_form
from querybuild.write_plan_cache import form_of as form_of_write
from serializers import pointers
from serializers.encode import DocumentEncoder, ResourceEncoder
from serializers.links import PageQueries, Pairs, page_queries
from serializers.streams import StreamEncoder
from server.routes import NO_PARAMETERS, fixed_paths
from server.schema.live_schema import LiveSchema
from server.settings import Settings

ROW_BODIES = 16
"""The assumed size of the largest row, in bodies of the largest size."""

_ENTRY_BYTES, _BYTES_PER_CHARACTER = 4096, 12
"""The assumed bytes of a cache entry, and those that each character of a query string adds: nodes, plan, values,
pairs. According to tracemalloc a short read, prepared and compiled, takes 4 to 5 KB, its encoders 2 to 5 KB more, and a
filter of 50 nodes 76 KB."""


class CompiledRead(msgspec.Struct, frozen=True, eq=False):
    """A compiled read, cached by its plan. has_computed: whether Python computes attributes. is_one_row: whether the
    row of one resource is everything that is read. unenforced_keys: the types whose ids, or keys of a to-one, are not
    unique by a constraint."""

    statements: ReadStatements
    encoder: DocumentEncoder
    has_computed: bool
    is_one_row: bool
    unenforced_keys: tuple[str, ...] = ()


class CompiledStream(msgspec.Struct, frozen=True, eq=False):
    """A compiled read whose rows are streamed."""

    statements: StreamStatements
    encoder: StreamEncoder


class Bare(msgspec.Struct, frozen=True, eq=False):
    """The encoding of a resource without relationships and links. is_returned: whether RETURNING of the statement that
    writes it has all values."""

    node: Node
    encoder: ResourceEncoder
    is_returned: bool

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the resource object of each row."""
        return self.encoder.encode(with_computed(self.node, rows), ())


class ReadShape(msgspec.Struct, frozen=True):
    """What a route reads. resource: that of the path. written: the relationships whose linkage the answer to a write
    shows. accepts: the parameter families of the route."""

    kind: Literal["collection", "resource", "related", "linkage"]
    resource: Resource
    relationship: Relationship | None = None
    written: tuple[str, ...] = ()
    accepts: frozenset[str] = NO_PARAMETERS


class PreparedWrite(msgspec.Struct, frozen=True, eq=False):
    """A write that is ready to run. planned: None if a hook runs first, because it may change the write."""

    resource: Resource
    change: Change
    planned: PlannedWrite | None

    @property
    def is_hooked(self) -> bool:
        """Whether custom code runs inside the transaction."""
        hooks, kind = self.resource.hooks, self.change.kind
        return hooks.before(kind) is not None or hooks.after(kind) is not None


class PreparedRead(msgspec.Struct, frozen=True, eq=False):
    """A read that is ready to run. It is cached by its query string as it was sent. pairs: its parameters."""

    pairs: Pairs
    page: Page
    queries: PageQueries
    plan: ReadPlan
    values: Values
    cursor_mark: str
    cursor_parent: str | None
    compiled: CompiledRead

    @property
    def is_unpaginated(self) -> bool:
        """Whether the request is for all rows, without pages."""
        return self.plan.is_collection and self.page.size == 0


class Caches(msgspec.Struct, frozen=True, eq=False):
    """The caches of a worker. Each has the same share of `statement_cache_bytes`."""

    prepared_reads: SecondUseCache[PreparedRead]
    read_forms: BoundedCache[tuple[ReadForm, CompiledRead]]
    compiled_reads: BoundedCache[CompiledRead]
    compiled_streams: BoundedCache[CompiledStream]
    compiled_writes: BoundedCache[WriteStatements]
    compiled_together: BoundedCache[Statement]
    forms: BoundedCache[Form]


def _caches(settings: Settings) -> Caches:
    names = Caches.__struct_fields__
    bounds = (settings.statement_cache_entries, settings.statement_cache_bytes // len(names))
    others: dict[str, BoundedCache[Any]] = {name: BoundedCache(*bounds) for name in names if name != "prepared_reads"}
    return Caches(prepared_reads=SecondUseCache(*bounds), **others)


class Engine:
    """Prepares reads and writes for one set of settings and declarations."""

    def __init__(
        self, settings: Settings, catalog: Catalog, schema: LiveSchema, context: Context | None = None
    ) -> None:
        self.settings = settings
        self.catalog = schema.catalog or catalog
        self.schema = schema
        self.checks = {attribute: checks_within(attribute, limit) for attribute, limit in schema.limits.items()}
        self.context = context or Context()
        self.fixed_paths = fixed_paths(settings.operations_path, has_admin=settings.admin_port is None)
        self.base_url = settings.path_prefix if settings.public_url is None else settings.public_url
        self.limits = msgspec.convert(settings, Limits, from_attributes=True)
        self.caches = _caches(settings)
        self._bare: dict[Resource, Bare] = {}

    @property
    def has_room_for_rows(self) -> bool:
        """Whether the largest assumed row fits into an answer. Then a write of one row can be a single statement: its
        answer is never too large, so nothing has to be rolled back."""
        return self.settings.max_answer_bytes >= ROW_BODIES * self.settings.max_body_bytes

    def prepare_read(self, shape: ReadShape, query_string: str) -> PreparedRead:
        """Return the read of this query string. Raises ApiError, or Several, for its errors."""
        key = (shape, self.context.criteria, query_string)
        prepared = self.caches.prepared_reads.get(key)
        if prepared is None:
            prepared = self._prepare(shape, query_string)
            self.caches.prepared_reads.put(key, prepared, _read_weight(query_string))
        return prepared

    def timeout_of(self, read: PreparedRead) -> float | None:
        """Return how many seconds a read may take, or None if only `statement_timeout_seconds` limits it."""
        return self.settings.filter_timeout_seconds if read.plan.conditions and read.plan.is_collection else None

    def stream_of(self, plan: ReadPlan) -> CompiledStream:
        """Return the compiled stream of a plan."""
        return self.caches.compiled_streams.get_or_make(plan, lambda: self._compile_stream(plan), _stream_bytes)

    def _compile_stream(self, plan: ReadPlan) -> CompiledStream:
        statements = compile_stream(plan)
        nodes_shown = [part.node for part in statements.parts]
        return CompiledStream(statements, StreamEncoder(plan, nodes_shown, self.base_url))

    def check_parameters(self, query_string: str, accepts: frozenset[str]) -> None:
        """Check the parameters of a request that reads nothing. Raises ParameterError."""
        if query_string:
            errors = Errors()
            parse(split_pairs(query_string, errors), accepts, self.limits, errors)
            raise_all(errors)

    def prepare_write(self, resource: Resource, change: Change, errors: list[ApiError]) -> PreparedWrite:
        """Return a write that is ready to run. Appends to errors, unless a hook runs first."""
        if resource.hooks.before(change.kind) is not None:
            return PreparedWrite(resource, change, None)
        return PreparedWrite(resource, change, self._planned_write(resource, change, errors))

    def plan_writes(self, resource: Resource, changes: Sequence[Change]) -> list[PlannedWrite]:
        """Return the plans of several changes. Raises ApiError, or Several, for their errors."""
        errors = Errors()
        planned = [self._planned_write(resource, change, errors) for change in changes]
        raise_all(errors)
        return planned

    def _planned_write(self, resource: Resource, change: Change, errors: list[ApiError]) -> PlannedWrite:
        key = form_key(change, resource)
        form = None if key is None else self.caches.forms.get((key, self.context.criteria))
        if form is not None and (alike := plan_with_form(change, form)) is not None:
            return alike
        known = len(errors)
        planned = plan_write(change, resource, self.catalog, self.context, pointers, errors, self.checks)
        if key is not None and form is None and len(errors) == known:
            self._keep_form(key, change, planned)
        return planned

    def _keep_form(self, key: Hashable, change: Change, planned: PlannedWrite) -> None:
        form = form_of_write(change, planned.plan, self.catalog, self.checks)
        if form is not None:
            self.caches.forms.put((key, self.context.criteria), form, _ENTRY_BYTES)

    def bare(self, resource: Resource) -> Bare:
        """Return the encoding of a resource with only its attributes, as in results of atomic operations."""
        bare = self._bare.get(resource)
        if bare is None:
            node = node_of(resource, resource.readable_attributes)
            encoder = ResourceEncoder(node, (), self.base_url, has_link=False)
            bare = self._bare[resource] = Bare(node, encoder, not reads_other_rows(node))
        return bare

    def write_statements(self, plan: WritePlan) -> WriteStatements:
        """Return the statements of a write."""
        return self.caches.compiled_writes.get_or_make(plan, lambda: compile_write(plan), lambda _: _ENTRY_BYTES)

    def rows_statement(self, plan: WritePlan) -> str:
        """Return the statement that creates as many rows as `rows_together` says."""
        make = lambda: Statement(compile_rows(plan), ())  # noqa: E731
        return self.caches.compiled_together.get_or_make(plan, make, _statement_bytes).sql

    def locks_statement(
        self, resource: Resource, columns: tuple[str, ...], strength: LockStrength | None, shown: tuple[str, ...] = ()
    ) -> Statement:
        """Return the statement that locks rows of a resource."""
        key = (resource, self.context.criteria, columns, strength, shown)
        make = lambda: compile_locks(open_written(resource, self.context), columns, strength, shown)  # noqa: E731
        return self.caches.compiled_together.get_or_make(key, make, _statement_bytes)

    def statement_together(self, creates: tuple[Create, ...]) -> str:
        """Return one statement for several creates."""
        make = lambda: Statement(compile_together(creates), ())  # noqa: E731
        return self.caches.compiled_together.get_or_make(creates, make, _statement_bytes).sql

    def _prepare(self, shape: ReadShape, query_string: str) -> PreparedRead:
        errors = Errors()
        pairs = split_pairs(query_string, errors)
        asked = None if errors else split_values(pairs, self.limits)
        key = None if asked is None else (shape, self.context.criteria, asked.key)
        known = None if key is None else self.caches.read_forms.get(key)
        if known is not None and asked is not None and (filled := fill(known[0], asked)) is not None:
            return _prepared(pairs, known[0].plan, filled, known[1])
        query = parse(pairs, shape.accepts, self.limits, errors)
        planned = self._plan(shape, query, self.context, errors)
        raise_all(errors)
        plan = counted(planned.plan, self.schema.references)
        compiled = self._compiled(plan)
        if key is not None and known is None:
            planned = msgspec.structs.replace(planned, plan=plan)
            form = form_of(planned, query.page, vals_of(query.filter))
            self.caches.read_forms.put(key, (form, compiled), _read_weight(query_string))
        filled = Filled(query.page, planned.values, planned.cursor_mark, planned.cursor_parent)
        return _prepared(pairs, plan, filled, compiled)

    def _plan(self, shape: ReadShape, query: Query, context: Context, errors: list[ApiError]) -> PlannedRead:
        resource, known = shape.resource, (self.catalog, context, self.limits, errors)
        if shape.kind == "resource":
            return plan_resource(query, resource, *known, shape.written)
        if shape.relationship is None:
            return plan_collection(query, resource, *known)
        scope = Scope(resource, shape.relationship, self.catalog.target(shape.relationship))
        return (plan_related if shape.kind == "related" else plan_linkage)(query, scope, *known)

    def _compiled(self, plan: ReadPlan) -> CompiledRead:
        return self.caches.compiled_reads.get_or_make(plan, lambda: self._compile(plan), _read_bytes)

    def _compile(self, plan: ReadPlan) -> CompiledRead:
        has_computed = any(node.computed for node, _ in nodes(plan.node))
        statements = compile_read(plan)
        has_parts = any(branch.needs_rows for branch in plan.node.branches)
        # RETURNING sees other rows as they were before the statement.
        is_one_row = plan.scope is None and not (has_parts or plan.node.targets or reads_other_rows(plan.node))
        encoder = DocumentEncoder(plan, self.base_url)
        return CompiledRead(statements, encoder, has_computed, is_one_row, self._uncertain(plan))

    def _uncertain(self, plan: ReadPlan) -> tuple[str, ...]:
        """The types that a read shows or joins for a sort, and whose ids or keys are not unique by a constraint."""
        if not self.schema.unenforced_keys:
            return ()
        shown = [node.resource.type for node, _ in nodes(plan.node)] + [step.resource.type for step in plan.joins]
        keys = [(name, "") for name in shown]
        keys += [(node.resource.type, one.relationship.name) for node, _ in nodes(plan.node) for one in node.branches]
        if plan.scope is not None:
            keys.append((plan.scope.parent.type, plan.scope.relationship.name))
        return tuple(dict.fromkeys(name for name, relation in keys if (name, relation) in self.schema.unenforced_keys))


def _prepared(pairs: Pairs, plan: ReadPlan, filled: Filled, compiled: CompiledRead) -> PreparedRead:
    queries = page_queries(pairs, filled.page)
    cursor = filled.cursor_mark, filled.cursor_parent
    return PreparedRead(pairs, filled.page, queries, plan, filled.values, *cursor, compiled)


def _read_weight(query_string: str) -> int:
    return _ENTRY_BYTES + _BYTES_PER_CHARACTER * len(query_string)


def _statement_bytes(statement: Statement) -> int:
    return _ENTRY_BYTES + len(statement.sql)


def _read_bytes(compiled: CompiledRead) -> int:
    return _ENTRY_BYTES + sum(len(statement.sql) for statement in compiled.statements.all())


def _stream_bytes(compiled: CompiledStream) -> int:
    return _ENTRY_BYTES + sum(len(part.rows.sql) + len(part.count.sql) for part in compiled.statements.parts)
