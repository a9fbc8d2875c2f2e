"""Compiles one statement for several creates, each of which may use the ids of those before it.

It must not know: values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
from pypika import Parameter

from querybuild.declarations.terms import Template
from querybuild.planning.plan import Node
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.sql.binds import Binds
from querybuild.sql.writes.modify import assigned, inserted, returning, width_of


class Create(msgspec.Struct, frozen=True):
    """One of several creates in one statement. shown: the columns that it returns. ids: pairs of a slot and the index
    of the create that returns the id for this slot."""

    plan: WritePlan
    shown: Node | None
    ids: tuple[tuple[int, int], ...]

    @property
    def width(self) -> int:
        """The number of columns that it returns."""
        return width_of(self.plan, self.shown)


def compile_creates(creates: Sequence[Create]) -> str:
    """Return one statement for several creates, each of which may use the ids of those before it. It returns one row:
    the columns of all creates. Its parameters are the values of all assignments in their order, without those ids.

    PostgreSQL evaluates the left joins from left to right, so the rows are written in their order. Only the order of
    their ids depends on this. If a trigger prevents one of the rows, the division fails, and nothing is written.

        WITH "o0" ("c0","c1") AS (INSERT INTO "users" ("name") VALUES ($1) RETURNING "users"."id","users"."name"),
        "o1" ("c0","c1") AS (INSERT INTO "computers" ("name","owner_id") VALUES ($2,(SELECT "c0" FROM "o0")) RETURNING
        "computers"."id","computers"."name")
        SELECT 1/("o0"."c0" IS NOT NULL AND "o1"."c0" IS NOT NULL)::int,"o0".*,"o1".*
        FROM (VALUES (0)) "all" LEFT JOIN "o0" ON TRUE LEFT JOIN "o1" ON TRUE
    """
    numbers = count(1)
    names = [f'"o{number}"' for number in range(len(creates))]
    parts = [f"{name} {_part(create, numbers)}" for name, create in zip(names, creates, strict=True)]
    are_there = " AND ".join([f'{name}."c0" IS NOT NULL' for name in names])
    shown = ",".join([f"1/({are_there})::int", *[f"{name}.*" for name in names]])
    joined = " ".join(['(VALUES (0)) "all"', *[f"LEFT JOIN {name} ON TRUE" for name in names]])
    return f"WITH {','.join(parts)} SELECT {shown} FROM {joined}"


def _part(create: Create, numbers: Iterator[int]) -> str:
    """Return the CTE of one INSERT. The names of its columns are their positions."""
    plan, ids = create.plan, dict(create.ids)
    terms = [
        assigned(
            assignment,
            Template(f'(SELECT "c0" FROM "o{ids[assignment.slot]}")')
            if assignment.slot in ids
            else Parameter(f"${next(numbers)}"),
        )
        for assignment in plan.assignments
    ]
    names = ",".join([f'"c{number}"' for number in range(create.width)])
    return f"({names}) AS ({inserted(plan, [terms]).get_sql()}{returning(plan, create.shown, Binds())})"
