"""Chooses how the writes of a request run (`way_of`), and groups them: by resource and kind for custom code, and by
their plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any, Literal

import msgspec

from querybuild.declarations.hooks import NO_HOOKS
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.page_values import Values
from querybuild.planning.plan import Node
from querybuild.planning.rows import Row
from querybuild.planning.writes.uniform import by_form, uniform
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.query import Lid
from querybuild.shortcuts import Knows
from querybuild.sql.statement import Statement
from querybuild.sql.writes.creates import Create
from querybuild.sql.writes.modify import WriteStatements
from serializers.operations.reader import uses_lid
from server.engine import Engine
from server.execution.arguments import Arguments, repeated
from server.execution.writes.answers import Answer
from server.execution.writes.outcomes import AbsentRow, Missing, WrittenRow, written_row
from server.postgres.opening import PREPARED_STATEMENT_BYTES
from server.postgres.wire.pipeline import as_parameter, has_texts
from server.preparing.writes import PreparedWrite

PREPARED = Knows(PreparedWrite, used=("resource", "change", "planned"), ignored=("path_id",))
PLANNED = Knows(
    PlannedWrite, used=("plan", "values"), ignored=("places", "item_pointers", "pointer", "id_pointer", "has_lids")
)
"""What a single statement knows of a write. What its plan may have is said where its statements are compiled. The ids
that stand for a lid are those of other creates of the statement."""

REPEATED = Knows(
    PlannedWrite, used=("plan", "values", "has_lids"), ignored=("places", "item_pointers", "pointer", "id_pointer")
)
"""What a batch knows of each of its writes."""

MAX_CREATES = 8
"""How many creates are written by a single statement."""

AROUND_BYTES = 1024
"""How long the part of a statement may be that belongs around a write."""


class SingleStatement(msgspec.Struct, frozen=True, eq=False):
    """One statement that does all writes of a request, or the last of those that do. ends: where the columns of each
    write end in its row. before: all of these statements, with values that can be pipelined."""

    sql: str
    values: Sequence[Any]
    writes: Sequence[PlannedWrite]
    ends: Sequence[int]
    before: Sequence[tuple[str, Sequence[Any]]] = ()

    @property
    def row_id(self) -> Any:
        """The id of the row, if there is one write and it is no create."""
        [write] = self.writes
        assert write.plan.id_slot is not None
        return write.values[write.plan.id_slot]

    def outcomes(self, row: Row) -> list[WrittenRow]:
        """Return what became of each write. The statement fails if a trigger cancels one. Raises ResourceNotFound if
        the row is absent."""
        if len(self.writes) > 1:
            return [WrittenRow(row[begin], row[begin:end]) for begin, end in pairwise(self.ends)]
        if row[0] is None:
            raise Missing(AbsentRow(self.writes[0]))
        if self.before:
            return [WrittenRow(row[0], None)]
        return [written_row(self.writes[0].plan, row)]


class WholeRequest(msgspec.Struct, frozen=True, eq=False):
    """All writes of a request that may be one statement. shown: what each returns. context: the values of `Context`.
    has_role: whether the role of the request is set, which is only for one statement."""

    writes: Sequence[PreparedWrite]
    answer: Answer[Any]
    engine: Engine
    context: Values
    has_role: bool

    def planned(self) -> list[PlannedWrite] | None:
        """Return the plans of the writes, or None if they are too many for one statement, if something else runs
        between them, or if the answer needs more than what they return."""
        if len(self.writes) > MAX_CREATES or not (self.answer.is_returned_whole or self.answer.last is not None):
            return None
        planned = [write.planned for write in self.writes if write.planned is not None and _is_plain(write)]
        return planned if len(planned) == len(self.writes) and PLANNED.takes_all(planned) else None

    def shown(self) -> list[Node | None]:
        """Return the columns that the statement of each write returns."""
        return [self.answer.shown(index) for index in range(len(self.writes))]


Way = SingleStatement | Literal["rows", "sequence"]


def way_of(group: Sequence[PlannedWrite], of: WholeRequest | WriteStatements) -> Way:
    """Return how writes run. of: their statements, if they have the same plan; or the whole request, if they are all
    that it writes, and if nothing else belongs to its transaction. Then their plans may differ, and the result is a
    single statement, or "sequence" for a transaction, which asks again for each group.

    | way | what runs | if one write is refused |
    | --- | --- | --- |
    | `SingleStatement` | one statement, which is its own transaction, or a few sent at once | again, in a transaction |
    | rows | one statement with the values of all writes, in a savepoint | again, in sequence |
    | sequence | the statements of each write, one after another | the request is refused |

    New rows that were decoded as columns (`PreparedRows`) have the second way from the beginning."""
    if isinstance(of, WholeRequest):
        return _single(group, of) or "sequence"
    if len(group) == 1 or not of.is_repeatable or not REPEATED.takes_all(group):
        return "sequence"
    return "sequence" if group[0].plan.kind == "create" and _refers_ahead(group) else "rows"


def _single(planned: Sequence[PlannedWrite], whole: WholeRequest) -> SingleStatement | None:
    """Return the statement that does all writes, or None if they need a transaction."""
    engine, shown = whole.engine, whole.shown()
    if len(planned) == 1:
        single = _standalone(planned[0], shown[0], engine, whole.context)
    elif _refers_ahead(planned) or not all(engine.statements.of_write(write.plan, None).is_merged for write in planned):
        single = None
    else:
        single = _creates(whole.writes, planned, shown, engine)
    if single is None or (whole.has_role if single.before else not whole.answer.is_returned_whole):
        return None
    return single


def answered_of(planned: Sequence[PlannedWrite], whole: WholeRequest) -> tuple[Statement, Sequence[Any]] | None:
    """Return the statement of a write that makes its own answer, and its values, or None if the request needs more.
    What belongs around it is done by the server's own role."""
    if len(planned) > 1 or whole.has_role or planned[0].has_lids:
        return None
    statement = whole.engine.statements.of_answered(planned[0].plan, whole.answer.shown(0))
    if statement is None or len(statement.sql) > PREPARED_STATEMENT_BYTES - AROUND_BYTES:
        return None
    return statement, Arguments(planned[0].values, whole.context).of(statement)


def _is_plain(write: PreparedWrite) -> bool:
    """Return whether a write has no custom code, and nothing else that a single statement does not know."""
    return PREPARED.takes(write) and not write.is_hooked and write.resource.hooks.after_commit is None


def _refers_ahead(planned: Sequence[PlannedWrite]) -> bool:
    """Return whether a create may refer to the id that a later one brings along. One after the other this is refused,
    and a single statement would allow it."""
    if all(write.plan.id_slot is None for write in planned):
        return False
    keys: set[Any] = set()
    for planned_write in planned:
        plan, values = planned_write.plan, planned_write.values
        if plan.id_slot is not None and values[plan.id_slot] in keys:
            return True
        sent = [values[each.slot] for each in plan.assignments if each.key is not None and each.slot != plan.id_slot]
        keys.update([value for value in sent if value is not None])
    return False


def _standalone(planned: PlannedWrite, shown: Node | None, engine: Engine, context: Values) -> SingleStatement | None:
    """One statement for one write."""
    if planned.has_lids:
        return None
    statements = engine.statements.of_write(planned.plan, shown)
    if statements.pipelined:
        return _pipelined(planned, statements.pipelined, engine)
    standalone = statements.standalone
    return (
        None
        if standalone is None
        else SingleStatement(standalone.sql, Arguments(planned.values, context).of(standalone), [planned], ())
    )


def _pipelined(planned: PlannedWrite, statements: Sequence[Statement], engine: Engine) -> SingleStatement | None:
    """Return the statements of a write of a to-many that are sent together, or None if its values have no text, or if
    its rows must be written one after the other."""
    plan, [link] = planned.plan, planned.plan.links
    wanted = planned.values[link.slot]
    if not wanted or "update" not in link.target.abilities.merged:
        return None
    assert plan.id_slot is not None
    row_id = planned.values[plan.id_slot]
    if not has_texts([row_id, wanted]):
        return None
    ids = repeated(wanted)
    native = Arguments((*planned.values[: link.slot], ids, *planned.values[link.slot + 1 :]))
    # Each value is encoded once.
    encoded = Arguments(tuple([as_parameter(value) for value in native.request]))
    count, row = as_parameter(len(wanted)), as_parameter(row_id)
    before = [(statement.sql, encoded.of(statement, keys=count, row=row)) for statement in statements]
    last = native.of(statements[-1], keys=len(wanted), row=row_id)
    return SingleStatement(statements[-1].sql, last, [planned], (), before)


def _creates(
    writes: Sequence[PreparedWrite], planned: Sequence[PlannedWrite], shown: Sequence[Node | None], engine: Engine
) -> SingleStatement | None:
    """One statement for several creates. Its values are those of all assignments, without the ids that another create
    makes."""
    creates: list[Create] = []
    values: list[Any] = []
    creates_at: dict[Lid, int] = {}
    for index, (write, planned_write, node) in enumerate(zip(writes, planned, shown, strict=True)):
        sent = [
            (assignment.slot, planned_write.values[assignment.slot]) for assignment in planned_write.plan.assignments
        ]
        ids = tuple([(slot, creates_at[value]) for slot, value in sent if isinstance(value, Lid)])
        creates.append(Create(planned_write.plan, node, ids))
        values += [value for _, value in sent if not isinstance(value, Lid)]
        if write.change.lid is not None:
            creates_at[Lid(write.resource.type, write.change.lid)] = index
    sql = engine.statements.of_creates(tuple(creates))
    if len(sql) > PREPARED_STATEMENT_BYTES:
        return None
    return SingleStatement(sql, values, planned, list(accumulate([create.width for create in creates], initial=1)))


def batches(writes: Sequence[PreparedWrite]) -> Iterator[list[PreparedWrite]]:
    """Group consecutive writes of one resource and one kind, which hooks get as a list. No write of a batch uses a lid
    that the same batch defines, and no two write the same row. If triggers may change the written row, it has to be
    read before the next write, so the write is a batch of its own. The hooks of a resource get their list all the
    same."""
    batch: list[PreparedWrite] = []
    defined: set[Lid] = set()
    written: set[str | Lid] = set()
    ids: dict[Lid, str] = {}
    for write in writes:
        identity = _identity(write, ids)
        is_next = _is_read_next(write)
        if batch and (
            is_next or identity in written or uses_lid(write.change, defined) or not _is_same_kind(batch[0], write)
        ):
            yield batch
            batch, defined, written = [], set(), set()
        batch.append(write)
        if write.change.kind != "create" or write.looked_for is not None:
            written.add(identity)
        if write.change.kind == "create" and write.change.lid is not None:
            lid = Lid(write.resource.type, write.change.lid)
            defined.add(lid)
            if write.change.id is not None:
                ids[lid] = write.change.id
    if batch:
        yield batch


def groups(
    planned: Sequence[PlannedWrite], statements_of: Callable[[WritePlan], WriteStatements]
) -> Iterator[tuple[Sequence[PlannedWrite], Sequence[PlannedWrite] | None]]:
    """Yield consecutive writes that run together, and the batch that they are: the same writes with one plan. None:
    they run one after the other."""

    def is_batch(group: Sequence[PlannedWrite]) -> bool:
        return way_of(group, statements_of(group[0].plan)) == "rows"

    for group in by_form(planned):
        batch = uniform(group)
        if batch is not None and is_batch(batch):
            yield group, batch
        elif batch is group:
            yield group, None
        else:
            for _, same in groupby(group, key=attrgetter("plan")):
                alike = list(same)
                yield alike, alike if is_batch(alike) else None


def _is_read_next(write: PreparedWrite) -> bool:
    kinds = {write.change.kind} if write.looked_for is None else {"create", "update"}
    return "delete" not in kinds and not kinds <= write.resource.abilities.returned and not write.is_hooked


def _identity(write: PreparedWrite, ids: dict[Lid, str]) -> str | Lid:
    """Return the id of the written resource, or its lid if it has no id yet, or the unique values by which it is looked
    for. A new resource may have an id and a lid. ids: the ids of resources that have a lid."""
    change = write.change
    if write.looked_for is not None and (conflict := write.looked_for.plan.conflict) is not None:
        return repr([write.looked_for.values[assignment.slot] for assignment in conflict.key])
    lid = Lid(write.resource.type, change.lid or "")
    return change.id if change.id is not None else ids.get(lid) or lid


def _is_same_kind(one: PreparedWrite, other: PreparedWrite) -> bool:
    if one.resource is not other.resource or one.change.kind != other.change.kind:
        return False
    if one.bulk is not None or other.bulk is not None:
        # Which rows a filter finds is not known.
        return False
    if one.looked_for is None or other.looked_for is None:
        return one.looked_for is other.looked_for
    # They may become updates. Custom code must not run for a create that is an update after all.
    return one.looked_for.plan == other.looked_for.plan and one.resource.hooks is NO_HOOKS
