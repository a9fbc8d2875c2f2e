"""Prepares reads. What comes in: a shape and a query string. What goes out: a read that is ready to run: its plan, its
statements, its encoder and its values. A query string whose form was planned before is not planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from querybuild.cache import BoundedCache, SecondUseCache
from querybuild.declarations.function import Call
from querybuild.declarations.resource import Relationship, Resource
from querybuild.errors import ApiError, Errors, raise_all
from querybuild.parse import parse, split_pairs
from querybuild.planning.context import Context, View, check_action
from querybuild.planning.plan import ReadPlan, without_versions
from querybuild.planning.planner import (
    PlannedRead,
    plan_all_linkage,
    plan_collection,
    plan_linkage,
    plan_related,
    plan_resource,
)
from querybuild.planning.reads.costs import check_cost, costs_of
from querybuild.planning.reads.read_forms import SplitQuery, fill, form_of, split_values
from querybuild.planning.row_plan import RelatedScope, Rows
from querybuild.planning.rows import nodes
from querybuild.query import Limits, Page, Query, ReadForm
from querybuild.shortcuts import Knows
from querybuild.sql.clauses import decides_again
from querybuild.sql.select import ReadStatements
from querybuild.sql.statement import Statement
from querybuild.sql.stream import StreamStatements
from querybuild.sql.terms import reads_other_rows
from serializers.json_api import JSON_API
from serializers.links import NO_QUERIES, PageQueries, QueryForm, page_queries, query_form
from serializers.representation import Representation
from serializers.steps import SHARED
from serializers.streams import StreamEncoder
from server.preparing.encoders import DocumentEncoders, Encoders
from server.preparing.statements import ENTRY_BYTES, Statements
from server.preparing.views import CONTEXT, view_of
from server.routes import NO_PARAMETERS

_BYTES_PER_CHARACTER = 12
"""The assumed bytes that each character of a query string adds to an entry: nodes, plan, values, pairs. According to
tracemalloc a filter of 50 nodes takes 76 KB."""


RETURNED = Knows(ReadPlan, used=("node", "data", "included"))
RETURNED_ROWS = Knows(Rows, used=("resource", "alias", "criteria", "conditions"))
"""What the row that a statement has written knows of the read that answers the write."""


class ReadyPlan(msgspec.Struct, frozen=True, eq=False):
    """A plan with its statements and its encoders. is_single_statement: as of the plan. has_computed: whether Python
    computes attributes. is_one_row: whether the row of one resource is everything that is read. unenforced_keys: the
    types whose ids, or keys of a to-one, are not unique by a constraint."""

    plan: ReadPlan
    statements: ReadStatements
    encoders: DocumentEncoders
    is_single_statement: bool
    has_computed: bool
    is_one_row: bool
    unenforced_keys: tuple[str, ...] = ()


ReadKind = Literal["collection", "resource", "related", "linkage"]


class ReadShape(msgspec.Struct, frozen=True):
    """What a route reads. resource: that of the path. written: the relationships whose linkage the answer to a write
    shows. accepts: the parameter families of the route. call: that of a function, if it reads what the function
    returns. has_versions: whether it reads the versions of rows that have some. form: of the answer."""

    kind: ReadKind
    resource: Resource
    relationship: Relationship | None = None
    written: tuple[str, ...] = ()
    accepts: frozenset[str] = NO_PARAMETERS
    call: Call | None = None
    has_versions: bool = True
    form: ReadForm = "document"


class PreparedRead(msgspec.Struct, frozen=True, eq=False):
    """A read that is ready to run, but for the id of its path and the values of its context. It is cached by its query
    string as it was sent, and by its form, for reads with other values. plan, page: those of `planned`, at hand. query:
    its parameters. queries: for links."""

    plan: ReadPlan
    page: Page
    planned: PlannedRead
    ready: ReadyPlan
    query: QueryForm
    queries: PageQueries

    @property
    def may_be_streamed(self) -> bool:
        """Whether the request is for all rows, without pages, and they are streamed if they are many."""
        return self.plan.first_rows is not None

    @property
    def is_long(self) -> bool:
        """Whether a long answer is expected, by the size of the page."""
        return not 0 < self.page.size < SHARED.short_rows and self.plan.is_collection


class PreparedStream(msgspec.Struct, frozen=True, eq=False):
    """A read that is ready to be streamed."""

    read: PreparedRead
    statements: StreamStatements
    encoder: StreamEncoder


class PreparedLinkage(msgspec.Struct, frozen=True, eq=False):
    """The read of the version of linkage. max_count: how many links have a version."""

    planned: PlannedRead
    statement: Statement
    max_count: int


class ReadCaches(msgspec.Struct, frozen=True, eq=False):
    """What was planned, by the form of the request. The names are those of the metrics."""

    prepared_reads: SecondUseCache[PreparedRead]
    read_forms: BoundedCache[PreparedRead]
    linkage_reads: BoundedCache[PreparedLinkage]


class Reads:
    """Prepares the reads of one engine. view: the declarations. unenforced_keys: pairs of a type and a relationship, or
    "", whose ids or keys are not unique by a constraint. filter_seconds: how long a list with a filter may take."""

    def __init__(
        self,
        limits: Limits,
        view: View,
        unenforced_keys: Collection[tuple[str, str]],
        filter_seconds: float | None,
        statements: Statements,
        encoders: Encoders,
        make_cache: Callable[[], BoundedCache[Any]],
    ) -> None:
        forms = make_cache()
        self.caches = ReadCaches(SecondUseCache(forms.max_entries, forms.max_bytes), forms, make_cache())
        self._limits = limits
        self._view = view
        self._unenforced_keys = unenforced_keys
        self._filter_seconds = filter_seconds
        self._statements = statements
        self._encoders = encoders

    def prepare(self, shape: ReadShape, query_string: str, context: Context) -> PreparedRead:
        """Return the read of this query string. Raises ApiError, or Several, for its errors."""
        if not CONTEXT.takes(context):
            return self._prepare(shape, query_string, context, None)
        key = (shape, context.access, query_string)
        prepared = self.caches.prepared_reads.get(key)
        if prepared is None:
            prepared = self._prepare(shape, query_string, context, split_values(query_string, self._limits))
            self.caches.prepared_reads.put(key, prepared, _read_weight(query_string))
        return prepared

    def _prepare(self, shape: ReadShape, query_string: str, context: Context, split: SplitQuery | None) -> PreparedRead:
        key = None if split is None else (shape, context.access, split.key)
        known = None if key is None else self.caches.read_forms.get(key)
        if known is not None and split is not None and (filled := fill(known.planned, split)) is not None:
            return _prepared(
                filled, known.ready, known.query, page_queries(known.query, split.sent, self._limits.max_url_bytes)
            )
        errors = Errors()
        pairs = split_pairs(query_string, errors)
        query = parse(pairs, shape.accepts, self._limits, errors, shape.form)
        planned = self._plan(shape, query, context, errors)
        raise_all(errors)
        costs = costs_of(query, planned.plan, self._limits)
        if self._limits.max_query_cost is not None:
            check_cost(costs, self._limits.max_query_cost)
        planned = msgspec.structs.replace(planned, cost=sum([part.cost for part in costs]))
        if not shape.has_versions:
            plan = msgspec.structs.replace(planned.plan, node=without_versions(planned.plan.node))
            planned = msgspec.structs.replace(planned, plan=plan)
        sent = [] if split is None else split.sent
        own = query_form(pairs, planned.page, sent)
        made = _prepared(planned, self._ready(planned.plan), own, page_queries(own, sent, self._limits.max_url_bytes))
        if key is not None and known is None and planned.has_form:
            form = _prepared(form_of(planned), made.ready, own, NO_QUERIES)
            # A form has no values, however long those of this request are.
            self.caches.read_forms.put(key, form, _read_weight(repr(key[-1])))
        return made

    def check(self, shape: ReadShape, context: Context) -> None:
        """Check that the principal may read what a route shows. Raises Forbidden, Unauthenticated."""
        check_action(shape.resource, "read", context)
        if shape.relationship is not None:
            check_action(self._view.catalog.target(shape.relationship), "read", context)

    def prepare_linkage(self, shape: ReadShape, context: Context) -> PreparedLinkage:
        """Return the read of the version of all linkage of a relationship."""
        resource, relationship = shape.resource, shape.relationship
        assert relationship is not None
        shape = ReadShape(shape.kind, resource, relationship)
        key = (shape, context.access)
        prepared = self.caches.linkage_reads.get(key)
        if prepared is None:
            errors = Errors()
            view = view_of(context, self._view)
            scope = RelatedScope(resource, relationship, view.catalog.target(relationship))
            planned = plan_all_linkage(scope, view.catalog, context, self._limits, errors)
            raise_all(errors)
            statement = self._statements.of_linkage(planned.plan)
            prepared = PreparedLinkage(planned, statement, self._limits.max_included)
            if CONTEXT.takes(context):
                self.caches.linkage_reads.put(key, prepared, ENTRY_BYTES)
        return prepared

    def prepare_stream(self, read: PreparedRead, representation: Representation = JSON_API) -> PreparedStream:
        """Return the stream of a read without pages."""
        statements = self._statements.of_stream(read.plan, self._view.catalog)
        return PreparedStream(read, statements, self._encoders.of_stream(read.plan, statements, representation))

    def timeout_of(self, read: PreparedRead) -> float | None:
        """Return how many seconds a read may take, or None if only `statement_timeout_seconds` limits it."""
        rows = read.plan.rows
        is_filtered = (rows.conditions and read.plan.is_collection) or rows.grouping is not None or read.planned.choices
        return self._filter_seconds if is_filtered else None

    def check_parameters(self, query_string: str, accepts: frozenset[str]) -> None:
        """Check the parameters of a request that reads nothing. Raises ParameterError."""
        if query_string:
            errors = Errors()
            parse(split_pairs(query_string, errors), accepts, self._limits, errors)
            raise_all(errors)

    def _plan(self, shape: ReadShape, query: Query, context: Context, errors: list[ApiError]) -> PlannedRead:
        view = view_of(context, self._view)
        resource, known = shape.resource, (view.catalog, context, self._limits, errors)
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
        version = plan.node.version
        is_more = is_more or (version is not None and not version.is_returned)
        is_named = RETURNED.takes(plan) and RETURNED_ROWS.takes(plan.rows)
        is_one_row = is_named and not is_more and not plan.is_linkage
        statements, encoders = self._statements.of_read(plan), self._encoders.of_documents(plan)
        made = statements, encoders, plan.is_single_statement
        return ReadyPlan(plan, *made, has_computed, is_one_row, self._uncertain(plan))

    def _uncertain(self, plan: ReadPlan) -> tuple[str, ...]:
        """Return the types that a read shows or joins for a sort, and whose ids or keys are not unique by a
        constraint."""
        if not self._unenforced_keys:
            return ()
        shown = [node.resource.type for node, _ in nodes(plan.node)]
        shown += [step.resource.type for step in plan.rows.joins if not step.is_counted]
        keys = [(name, "") for name in shown]
        keys += [
            (node.resource.type, branch.relationship.name) for node, _ in nodes(plan.node) for branch in node.branches
        ]
        if plan.scope is not None:
            keys.append((plan.scope.parent.type, plan.scope.relationship.name))
        return tuple(dict.fromkeys(name for name, relation in keys if (name, relation) in self._unenforced_keys))


def _prepared(planned: PlannedRead, ready: ReadyPlan, query: QueryForm, queries: PageQueries) -> PreparedRead:
    return PreparedRead(planned.plan, planned.page, planned, ready, query, queries)


def _read_weight(query_string: str) -> int:
    return ENTRY_BYTES + _BYTES_PER_CHARACTER * len(query_string)
