"""Translates the database's refusal of a write or a call into an answer that points into the request. What comes in: a
driver's exception, and the write or call that it is about. What goes out: an ApiError; other exceptions are left as
they are.

Answers contain no SQL, no names of tables or columns, and no text of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from asyncpg import exceptions as pg

from querybuild.calls import SentCall
from querybuild.declarations.function import ARGUMENT
from querybuild.declarations.resource import Resource, link_of, own_key_of
from querybuild.declarations.types import ColumnType
from querybuild.errors import ApiError, AttributeFault, RelatedNotFound, RequiredLink, listed, quoted, related_not_found
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.writes.shared_columns import is_value_of
from querybuild.planning.writes.write_plan import Assignment, LinkWrite, WritePlan
from serializers.pointers import attribute_pointer, member_pointer, relationship_pointer, slot_pointer
from server.engine import Engine
from server.errors import BodyValueRefused, Conflict, NotWritten, ValueRefused, no_free_id
from server.execution.read_refusals import impossible_value
from server.execution.unfit_values import unfit_value
from server.postgres.driver_errors import (
    VIOLATED,
    PostgresMessage,
    describe_refusal,
    is_quoted,
    is_raised,
    is_schema_changed,
    is_value_refused,
    state_of,
)
from server.postgres.rules import is_rule, rule_answer
from server.postgres.said import said


def is_refusal(error: BaseException) -> bool:
    """Return whether PostgreSQL refused a write because of its content, so that a retry would be refused too."""
    if is_schema_changed(error):
        return False
    return isinstance(error, VIOLATED) or is_value_refused(error) or is_rule(error)


def translate_commit_error(error: Exception, planned: Sequence[PlannedWrite], engine: Engine) -> Exception:
    """Translate an error of a commit, which deferred constraints and triggers cause, or of a statement that reads what
    was written, whose computed values may not be possible. The answer is for the write that it is most likely about. If
    there are several writes, and a rule names no table, it is about none of them."""
    table = _table_name(error, engine)[1] if isinstance(error, PostgresMessage) else ""
    about = [write for write in planned if write.plan.resource.table == table]
    if is_rule(error):
        about = about or list(planned if len(planned) == 1 else ())
        return translate_write_error(error, about[0], engine) if about else rule_answer(error) or error
    about = about or list(planned)
    is_refused = isinstance(error, VIOLATED) or is_value_refused(error)
    return translate_write_error(error, about[0], engine) if about and is_refused else error


def translate_write_error(error: Exception, write: PlannedWrite, engine: Engine) -> Exception:
    """Translate the refusal of a write by a constraint, a rule or a data type. Return any other exception as it is."""
    if is_schema_changed(error):
        return error
    if is_rule(error):
        return rule_answer(error, _pointer_of_rule(error, write, engine)) or error
    if (unfit := unfit_value(error, write, engine)) is not None:
        return unfit
    if isinstance(error, pg.IntegrityConstraintViolationError):
        return _violation(error, write, engine)
    if isinstance(error, pg.SequenceGeneratorLimitExceededError):
        return no_free_id(write.plan.resource.type)
    if is_value_refused(error):
        if (suspect := _suspect(error, write)) is not None:
            name, pointer, column_type = suspect
            detail = f"{quoted(name)} has a value that the database does not take: {describe_refusal(error)}."
            if column_type is not None and column_type.json.example:
                detail += (
                    f" A value of {column_type.name.rstrip('[]')} is written as in {quoted(column_type.json.example)}."
                )
            return AttributeFault(detail, pointer=pointer)
        return value_refused(error, write.pointer)
    return error


def value_refused(error: Exception, pointer: str | None) -> BodyValueRefused:
    """Return the error for a document with a value that PostgreSQL refuses, or with which it cannot compute."""
    return BodyValueRefused(f"PostgreSQL refuses a value of the document: {describe_refusal(error)}.", pointer=pointer)


def call_answer(error: Exception, sent: SentCall) -> ApiError | None:
    """Return the answer to what PostgreSQL raises in a function that a request calls. None for errors that no argument
    can cause. It names the argument if PostgreSQL quotes its value."""
    pointer = sent.pointer
    if (answer := rule_answer(error, pointer)) is not None:
        return answer
    if isinstance(error, VIOLATED):
        return Conflict("What the function writes is in conflict with other rows, or not allowed.", pointer=pointer)
    if not is_value_refused(error) and not isinstance(error, pg.PLPGSQLError):
        return None
    if not sent.values:
        return impossible_value(error, f"the function {quoted(sent.call.function.name)}")
    values = zip(sent.call.names, sent.values, strict=True)
    quoted_names = [name for name, value in values if is_quoted(value, error)]
    name = quoted_names[0] if len(quoted_names) == 1 else None
    what = "an argument" if name is None else f"the argument {quoted(name)}"
    detail = f"The function does not accept {what}: {describe_refusal(error)}."
    if pointer is None:
        return ValueRefused(detail, parameter=None if name is None else ARGUMENT + name)
    return BodyValueRefused(detail, pointer=pointer if name is None else member_pointer(pointer, name))


_UNKNOWN_TRIGGER = (
    "The trigger was created after the server started, so what it wrote itself may have been kept. Reload the server."
)
"""The server wrote the row in a statement that does not undo itself, because no trigger could cancel it."""


def not_written(write: PlannedWrite, pointer: str | None = None) -> NotWritten:
    """Return the error for a write that a trigger or a policy cancelled without a reason. pointer: to the linkage,
    if that was written."""
    plan = write.plan
    what = f"{plan.kind} this {plan.resource.type}" if pointer is None else "change the relationship"
    is_known = pointer is not None or plan.resource.abilities.cancels_writes
    written = "Nothing was written." if is_known else _UNKNOWN_TRIGGER
    detail = f"The database did not {what}: a trigger or a policy cancelled it. {written}"
    return NotWritten(detail, pointer=_resource_pointer(write) if pointer is None else pointer)


def _pointer_of_rule(error: Exception, write: PlannedWrite, engine: Engine) -> str | None:
    """Return a pointer to the field of the column or constraint that a RAISE names, or else to the resource object."""
    assert isinstance(error, PostgresMessage)
    if write.plan.kind == "delete":
        return _resource_pointer(write)
    fields = [field for column in _columns(error, write, engine) if (field := _field(column, error, write, engine))]
    return fields[0][1] if fields else write.pointer


def _resource_pointer(write: PlannedWrite) -> str | None:
    """Return a pointer to the resource object, or None if only the path names what is written."""
    return None if write.plan.kind == "delete" and write.id_pointer is None else write.pointer


def _columns(error: PostgresMessage, write: PlannedWrite, engine: Engine) -> Sequence[str]:
    """Return the columns that the error is about, as the resource has them."""
    return _shown_columns(_named_columns(error, write, engine), error, write, engine)


def _named_columns(error: PostgresMessage, write: PlannedWrite, engine: Engine) -> Sequence[str]:
    """Return the columns that the error names, directly or by a constraint. A RAISE may name no table."""
    named = said(error)
    if named.column_name:
        return (named.column_name,)
    table = named.table_name or (write.plan.resource.table if is_raised(error) else "")
    schema, name = named.schema_name, named.constraint_name
    known = engine.schema.constraints
    if schema or not is_raised(error):
        return known.get((schema, table, name), ())
    return next((columns for key, columns in known.items() if key[1:] == (table, name)), ())


def _shown_columns(columns: Sequence[str], error: PostgresMessage, write: PlannedWrite, engine: Engine) -> list[str]:
    """Return the names that columns of a table have in the view of the write. Outside of views they are the same."""
    resources = (write.plan.resource, *[link.target for link in write.plan.links])
    for resource in resources if engine.schema.views else ():
        names = engine.schema.views.get((resource.schema, resource.table), {}).get(_table_name(error, engine))
        if names is not None:
            return [names[column] for column in columns if column in names]
    return list(columns)


def _violation(error: PostgresMessage, write: PlannedWrite, engine: Engine) -> Exception:
    plan = write.plan
    if plan.kind == "delete":
        detail = f"This {plan.resource.type} is still referred to by other resources."
        return Conflict(detail, pointer=_resource_pointer(write))
    columns = _columns(error, write, engine)
    fields = list(dict.fromkeys([field for column in columns if (field := _field(column, error, write, engine))]))
    if (domain := said(error).data_type_name) and not columns:
        fields = _domain_fields(domain, write, engine)
    pointer = fields[0][1] if fields else write.pointer
    names = listed(quoted(name) for name, _ in fields) if fields else f"This {plan.resource.type}"
    match error:
        case pg.UniqueViolationError():
            return _repeated(columns, [name for name, _ in fields], error, write, engine, pointer)
        case pg.ForeignKeyViolationError() if _is_referred_to(error, write, engine):
            detail = f"This {plan.resource.type} is still referred to by other resources: change these first."
            return Conflict(detail, pointer=write.pointer)
        case pg.ForeignKeyViolationError():
            what = f"The related resource is not there: {names}." if fields else "A related resource is not there."
            fault = _missing_related(columns, error, write, engine) or _shared_key(columns, error, write, engine)
            return fault or RelatedNotFound(what, pointer=pointer)
        case pg.NotNullViolationError() if (link := _required_link(columns, error, write, engine)) is not None:
            named = f"Resources of type {quoted(link.target.type)}"
            detail = f"{named} would be left without a required relationship: delete or move first."
            return RequiredLink(detail, pointer=slot_pointer(write, link.slot))
        case pg.NotNullViolationError() if pointer == member_pointer(write.pointer, "id"):
            detail = f"The client chooses ids of type {quoted(plan.resource.type)}: send one."
            return AttributeFault(detail, pointer=pointer)
        case pg.NotNullViolationError() if columns and fields:
            return AttributeFault(f"The database needs a value for {names}.", pointer=pointer)
        case pg.NotNullViolationError() | pg.CheckViolationError():
            have = "have values" if len(fields) > 1 else "has a value"
            return AttributeFault(f"{names} {have} that the database does not allow.", pointer=pointer)
        case _:
            be = "are" if len(fields) > 1 else "is"
            return Conflict(f"{names} {be} in conflict with another resource.", pointer=pointer)


def _repeated(
    columns: Sequence[str],
    names: Sequence[str],
    error: PostgresMessage,
    write: PlannedWrite,
    engine: Engine,
    pointer: str | None,
) -> Conflict:
    """Return the error for values that another row has. It may be a row of the related resources whose keys change.
    names: of the written fields that have the columns."""
    resource = write.plan.resource
    if not _is_about(error, resource, engine):
        targets = [link.target for link in write.plan.links if _is_about(error, link.target, engine)]
        if targets:
            resource = targets[0]
            names = list(dict.fromkeys([name for column in columns for name in _fields_of(resource, column)]))
    values = "these values" if len(names) > 1 else "this value"
    what = f"{values} already: {listed(map(quoted, names))}" if names else "values already that must be unique"
    return Conflict(f"Another {resource.type} has {what}.", pointer=pointer)


def _fields_of(resource: Resource, column: str) -> Iterator[str]:
    """Yield the names of the fields of a resource that are stored in a column."""
    for attribute in resource.attributes:
        if attribute.is_stored and attribute.readable and attribute.column_name == column:
            yield attribute.name
    for own in filter(None, map(own_key_of, resource.relationships)):
        if column in own.own_columns:
            yield own.name


def _is_referred_to(error: PostgresMessage, write: PlannedWrite, engine: Engine) -> bool:
    """Return whether a key in other rows refers to a column that the write changes."""
    if _is_changed_reference(error, write, engine):
        return True
    related = [link.target for link in write.plan.links]
    written = [write.plan.resource, *related]
    is_link_table = any(link_of(link.relationship) is not None for link in write.plan.links)
    return (
        write.plan.kind == "update"
        and not is_link_table
        and not any(_is_about(error, resource, engine) for resource in written)
    )


def _is_changed_reference(error: PostgresMessage, write: PlannedWrite, engine: Engine) -> bool:
    """Return whether the foreign key of the error is that of a relationship to columns other than the id, and the write
    changes one of these. The rows with this key may be written too, or be of the same table. A value that the write
    itself puts into the key exists, because the server looks it up."""
    columns, changed = set(_columns(error, write, engine)), {assignment.column for assignment in write.plan.assignments}
    resource = engine.catalog.by_type[write.plan.resource.type]
    for relationship in resource.relationships if write.plan.kind == "update" else ():
        own, target = own_key_of(relationship), engine.catalog.by_type[relationship.target]
        keys = relationship.foreign_columns if own is None else own.own_columns
        is_changed = (own is None or target is resource) and changed & set(relationship.referenced_columns)
        if is_changed and columns == set(keys) and _is_about(error, target, engine):
            return True
    return False


def _domain_fields(domain: str, write: PlannedWrite, engine: Engine) -> list[tuple[str, str]]:
    """Return the written attributes whose columns have this domain, with their pointers: PostgreSQL names no column. If
    there is none, it is in a composite type."""
    # The attribute may be that of a principal's view. The limits are those of the declared ones.
    declared = engine.catalog.by_type[write.plan.resource.type]
    limits = {
        attribute.name: limit
        for attribute in declared.attributes
        if (limit := engine.schema.limits.get(attribute)) is not None
    }
    sent = [
        (assignment.attribute, slot_pointer(write, assignment.slot))
        for assignment in write.plan.assignments
        if assignment.attribute is not None and not assignment.attribute.is_hidden
    ]
    fields = [
        (attribute, pointer)
        for attribute, pointer in sent
        if attribute.name in limits and domain in limits[attribute.name].domains
    ]
    fields = fields or [
        (attribute, pointer) for attribute, pointer in sent if (attribute.type.element or attribute.type).fields
    ]
    return [(attribute.name, pointer) for attribute, pointer in fields]


def _suspect(error: Exception, write: PlannedWrite) -> tuple[str, str, ColumnType | None] | None:
    """Return the field whose value PostgreSQL must have refused, with its pointer and type. If a text is too long, it
    is the client's id: the lengths of attributes are checked before. Else it is the only attribute of a type that can
    cause the error, or the only one whose value PostgreSQL quotes."""
    if write.plan.kind == "delete":
        return None
    state = state_of(error)
    sent = [
        (assignment.attribute, assignment.slot)
        for assignment in write.plan.assignments
        if assignment.attribute is not None and write.values[assignment.slot] is not None
    ]
    suspects = [pair for pair in sent if pair[0].type.is_checked_by_database and state not in _OF_EXPRESSIONS]
    if not suspects and state == "22001" and write.plan.kind == "create" and write.plan.id_slot is not None:
        return "id", member_pointer(write.pointer, "id"), None
    families = _FAMILIES.get(state, frozenset())
    suspects += [pair for pair in sent if pair[0].type.family.removesuffix("[]") in families]
    if state in _OF_TEXTS:
        # A text that was right when the server started, such as the label of an enum.
        suspects += [pair for pair in sent if pair not in suspects and is_quoted(write.values[pair[1]], error)]
    suspects = [pair for pair in suspects if is_quoted(write.values[pair[1]], error)] or suspects
    if len(suspects) != 1 or suspects[0][0].is_hidden:
        return None
    attribute, slot = suspects[0]
    return attribute.name, slot_pointer(write, slot), attribute.type


_OF_EXPRESSIONS = frozenset({"22012", "2201E", "2201F", "2201G", "22011"})
"""Errors of arithmetic and of substrings, in triggers and defaults: no value is invalid."""
_OF_TEXTS = frozenset({"22P02"})
"""Texts that are not a value of a type."""
_DATES = frozenset({"date", "timestamp", "timestamptz", "time", "interval"})
_FAMILIES = {
    "22001": frozenset({"text"}),
    "22003": frozenset({"number", "numeric", "interval"}),
    "22008": _DATES,
    "22015": frozenset({"interval"}),
    "42622": frozenset({"text"}),
}
"""SQLSTATE -> the families of types, or of element types of arrays, whose values can cause it."""


def _missing_related(
    columns: Sequence[str], error: PostgresMessage, write: PlannedWrite, engine: Engine
) -> ApiError | None:
    """Return the error for the to-one relationship whose related resource does not exist."""
    keys = [own for own in map(own_key_of, write.plan.resource.relationships) if own is not None]
    # The one with the most columns is that of the constraint, if others have some of its columns.
    unsent = None
    for own in sorted(keys, key=lambda own: -len(own.own_columns)):
        for assignment in write.plan.assignments if set(own.own_columns) <= set(columns) else ():
            if is_value_of(assignment, own):
                id_text, pointer = str(write.values[assignment.slot]), slot_pointer(write, assignment.slot)
                if unsent is not None:
                    detail = f"{quoted(unsent.name)} shares a column with it, and would refer to nothing: send both."
                    return Conflict(detail, pointer=pointer)
                target = engine.catalog.by_type[own.target]
                if _refers_to(target, error, engine) and target.abilities.has_unique_ids:
                    return related_not_found(own.target, id_text, pointer)
                if _refers_to(target, error, engine):
                    # The key of a table does not lead to the rows of the tables that inherit from it.
                    detail = f"The database does not let {quoted(own.name)} refer to the {own.target}"
                    return RelatedNotFound(f"{detail} {quoted(id_text)}.", pointer=pointer)
                detail = f"Another key of the {write.plan.resource.type} shares a column with it, and would refer to"
                return Conflict(f"{detail} nothing.", pointer=pointer)
        if set(own.own_columns) == set(columns):
            unsent = own
    return None


def _refers_to(target: Resource, error: PostgresMessage, engine: Engine) -> bool:
    """Return whether the foreign key of the error refers to the table of a resource, or may do so."""
    named = said(error)
    names = named.schema_name, named.table_name, named.constraint_name
    referenced = engine.schema.referenced.get(names)
    if referenced is None or referenced in engine.schema.views.get((target.schema, target.table), ()):
        return True
    schema, table = engine.schema.partitions.get(referenced, referenced)
    return table == target.table and target.schema in (None, schema)


def _shared_key(columns: Sequence[str], error: PostgresMessage, write: PlannedWrite, engine: Engine) -> Conflict | None:
    """Return the error for related rows whose key shares a column with another one, which would refer to nothing."""
    for link in write.plan.links:
        shared = set(columns) & set(link.relationship.foreign_columns)
        is_other = shared and set(columns) != set(link.relationship.foreign_columns)
        if is_other and link_of(link.relationship) is None and _is_about(error, link.target, engine):
            keys = [own for own in map(own_key_of, link.target.relationships) if own is not None]
            name = next((quoted(own.name) for own in keys if set(own.own_columns) == set(columns)), "Another key")
            named = f"{name} of resources of type {quoted(link.target.type)}"
            detail = f"{named} shares a column with it, and would refer to nothing: change that first."
            return Conflict(detail, pointer=slot_pointer(write, link.slot))
    return None


def _field(column: str, error: PostgresMessage, write: PlannedWrite, engine: Engine) -> tuple[str, str] | None:
    """Return the field that is stored in a column, with its pointer. The field may be missing from the document."""
    plan = write.plan
    if _is_about(error, plan.resource, engine):
        if (column,) == plan.resource.id.key.columns:
            return "id", member_pointer(write.pointer, "id")
        for assignment in plan.assignments:
            if assignment.column == column:
                if assignment.attribute is not None and assignment.attribute.is_hidden:
                    return None
                name = _key_name(assignment, plan) if assignment.attribute is None else assignment.attribute.name
                return name, slot_pointer(write, assignment.slot)
        if column in plan.resource.id.key.columns:
            return "id", member_pointer(write.pointer, "id")
        for attribute in plan.resource.attributes:
            if attribute.is_stored and attribute.column_name == column and not attribute.is_hidden:
                return attribute.name, attribute_pointer(write.pointer, attribute.name)
        for relationship in plan.resource.relationships if isinstance(error, pg.NotNullViolationError) else ():
            own = own_key_of(relationship)
            if own is not None and column in own.own_columns:
                return own.name, relationship_pointer(write.pointer, own.name)
    for link in plan.links:
        if _is_about(error, link.target, engine) and column in link.relationship.foreign_columns:
            return link.relationship.name, slot_pointer(write, link.slot)
    return None


def _required_link(
    columns: Sequence[str], error: PostgresMessage, write: PlannedWrite, engine: Engine
) -> LinkWrite | None:
    """Return the link whose key must not be null, although no declaration says so on the side of the key."""
    for link in write.plan.links:
        if _is_about(error, link.target, engine) and set(link.relationship.foreign_columns) & set(columns):
            return link
    return None


def _key_name(assignment: Assignment, plan: WritePlan) -> str:
    """Return the name of the relationship that has the key; a key without one belongs to the owner in the path."""
    for relationship in plan.resource.relationships:
        own = own_key_of(relationship)
        if own is not None and is_value_of(assignment, own):
            return own.name
    return plan.owner.resource.type if plan.owner is not None else "id"


def _is_about(error: PostgresMessage, resource: Resource, engine: Engine) -> bool:
    """Return whether the error is about the resource's table. A RAISE without a table is about the row that is
    written."""
    if is_raised(error) and not said(error).table_name:
        return True
    schema, table = _table_name(error, engine)
    if (schema, table) in engine.schema.views.get((resource.schema, resource.table), ()):
        return True
    return table == resource.table and (resource.schema in (None, schema) or (is_raised(error) and not schema))


def _table_name(error: PostgresMessage, engine: Engine) -> tuple[str, str]:
    """Return the schema and the table that the error names; for a partition, those of its table."""
    named = said(error)
    name = named.schema_name, named.table_name
    return engine.schema.partitions.get(name, name)
