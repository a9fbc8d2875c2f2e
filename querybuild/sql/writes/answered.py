"""Compiles a write of one row that makes its own answer: PostgreSQL fills the columns of the row into the form of a
document. So the answer is there before the commit, in the statement that writes the row.

It must not know: documents. Which gap of a form has which column is the position of the column in the row.
"""

from __future__ import annotations

from collections.abc import Iterator

from pypika.terms import Field, Term

from querybuild.declarations.terms import Template, as_text, sql_of
from querybuild.planning.plan import Node, node_of
from querybuild.planning.rowsets import with_alias
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.shortcuts import Knows
from querybuild.sql.binds import Binds
from querybuild.sql.statement import Statement
from querybuild.sql.writes.modify import row_statement

ANSWERED = Knows(WritePlan, used=("kind", "rows", "id_slot", "assignments", "checked", "precondition"))
"""What the statement knows of a write whose row's statement is the whole write. A create that may update a row has one
of two answers."""

SHOWN = Knows(
    Node,
    used=("rows", "read", "attributes", "computed", "keys", "version"),
    # The form of the document has them.
    ignored=("relationships", "branches"),
)
"""What it knows of the columns that the answer shows."""


def compile_answered(plan: WritePlan, shown: Node | None) -> Statement | None:
    """Return the beginning of a statement that writes a row, as the only one of a transaction: `the answer` has the
    id, the bytes of the document, the location and the tag. It has no row if the row was not written, may not be
    written, or may not be read. shown: the columns of the document. None: it has none. Returns None if PostgreSQL
    cannot write a shown value with the bytes of the encoder.

        WITH "the row" ("c0","c1","c2") AS (INSERT INTO "users" ("name") VALUES ($1) RETURNING ...),
        "the answer" ("id","document","location","etag") AS (SELECT "c0",convert_to(format($2,VARIADIC array_replace(
        ARRAY[CAST("c0" AS TEXT),CAST(to_json("c1") AS TEXT),"c2"],NULL,'null')),'UTF8'),format($3,CAST("c0" AS TEXT)),
        format($4,"c2") FROM "the row")

    The parameters after those of the statement: the forms of the document, of the location and of the tag, and for
    each key of the node what comes before the id in the identifier of the related resource.
    """
    node = shown or node_of(plan.rows)
    if node.computed or not (ANSWERED.takes(plan) and SHOWN.takes(node)):
        return None
    binds = Binds()
    readable = () if shown is None else with_alias(shown.rows.criteria, shown.rows.alias, plan.resource.table)
    right = () if plan.checked is None else plan.checked.rights
    row = row_statement(plan, shown, binds, readable, right)
    first = len(binds.slots) + 1
    filled = [term for term in _filled(node, first + 3) if term is not None]
    if len(filled) < node.width:
        return None
    tests = [f'"c{node.width + number}"' for number in range(bool(readable) + bool(right))]
    names = ",".join([*[f'"c{number}"' for number in range(node.width)], *tests])
    version = "NULL" if node.version is None else f'"c{node.position_of_version}"'
    gaps = f"array_replace(ARRAY[{','.join(map(sql_of, filled))}],NULL,'null')"
    made = [
        f"convert_to(format(${first},VARIADIC {gaps}),'UTF8')",
        f'format(${first + 1},CAST("c0" AS TEXT))',
        f"format(${first + 2},{version})",
    ]
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    answer = f'"the answer" ("id","document","location","etag") AS (SELECT "c0",{",".join(made)} FROM "the row"{where})'
    return Statement(f'WITH "the row" ({names}) AS ({row}),{answer}', binds.slots)


def _filled(node: Node, first_head: int) -> Iterator[Term | None]:
    """Yield what is filled in for each column: of an attribute its JSON, of a key the identifier of the related
    resource, of null null. None if PostgreSQL cannot write it. first_head: the number of the parameter that belongs to
    the first key."""
    yield as_text(Field("c0"))
    shown = set(node.attributes)
    for position, attribute in enumerate(node.read, 1):
        value, as_json = Field(f"c{position}"), attribute.type.sql.as_json
        if node.version is not None and position == node.position_of_version:
            yield value
        elif attribute in shown:
            yield None if as_json is None else as_text(as_json(value))
        else:
            yield Template("NULL")
    for number in range(len(node.keys)):
        position = 1 + len(node.read) + number
        yield Template(f'${first_head + number}||CAST("c{position}" AS TEXT)||\'"}}}}\'')
