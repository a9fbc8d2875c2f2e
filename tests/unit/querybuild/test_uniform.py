"""Which writes are made uniform, and their values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from querybuild.planning.changes import PlannedWrite
from querybuild.planning.writes.uniform import by_form, uniform
from querybuild.sql.writes.modify import compile_rows, compile_write
from server.resources import built_in
from tests.http.people import linked, of
from tests.planning import create, update
from waterspout import Catalog

NULL_COLUMNS = frozenset({"age", "email", "birth_date", "gender", "group_id"})


def catalog() -> Catalog:
    """The built-in resources, as they are on their tables."""
    return Catalog(
        [
            msgspec.structs.replace(
                resource, abilities=msgspec.structs.replace(resource.abilities, null_columns=NULL_COLUMNS)
            )
            for resource in built_in()
        ]
    )


CATALOG = catalog()


def user(group: str | None = None, **attributes: Any) -> PlannedWrite:
    data: dict[str, Any] = {"attributes": {"first_name": "a", "last_name": "b"} | attributes}
    if group is not None:
        data["relationships"] = linked(group=of("group", group)[0])
    return create("user", data, CATALOG)


def test_what_is_left_out_is_null() -> None:
    group = [user(age=7), user(email="a@b"), user("3")]
    [same] = by_form(group)
    assert same == group
    made = uniform(group)
    assert made is not None
    assert len({write.plan for write in made}) == 1
    columns = [assignment.column for assignment in made[0].plan.assignments]
    assert columns == ["age", "email", "first_name", "group_id", "last_name"]
    assert [write.values for write in made] == [
        (7, None, "a", None, "b"),
        (None, "a@b", "a", None, "b"),
        (None, None, "a", 3, "b"),
    ]
    assert compile_rows(made[0].plan, 2) == (
        'INSERT INTO "users" ("age","email","first_name","group_id","last_name") '
        'VALUES ($1,$2,$3,$4,$5),($6,$7,$8,$9,$10) RETURNING "users"."id"'
    )


def test_one_plan_stays() -> None:
    group = [user(age=7), user(age=8)]
    assert uniform(group) is group


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([user(status="block")], id="a column with a default"),
        pytest.param([user(words=["a"])], id="a column that cannot be null"),
        pytest.param([create("group", {"attributes": {"name": "g"}}, CATALOG)], id="another resource"),
        pytest.param([update("user", "1", {"attributes": {"age": 1}}, CATALOG)], id="an update"),
    ],
)
def test_what_stays_apart(others: list[PlannedWrite]) -> None:
    first = [user(age=7)]
    assert list(by_form([*first, *others])) == [first, others]


def test_updates_stay_apart() -> None:
    """What an update does not send stays as it is."""
    group = [update("user", "1", {"attributes": {"age": 1}}, CATALOG), update("user", "2", {"attributes": {}}, CATALOG)]
    assert [len(same) for same in by_form(group)] == [1, 1]


def test_an_update_keeps_what_it_leaves_out() -> None:
    group = [
        update("user", id_text, {"attributes": attributes}, CATALOG)
        for id_text, attributes in (("7", {"age": 1}), ("8", {"email": "a@b", "age": 2}), ("9", {"age": None}))
    ]
    [same] = by_form(group)
    assert same == group
    made = uniform(group)
    assert made is not None
    assert [write.values for write in made] == [(1, None, 7, False), (2, "a@b", 8, True), (None, None, 9, False)]
    [plan] = {write.plan for write in made}
    row = compile_write(plan).row
    assert row is not None
    assert row.sql.startswith('UPDATE "users" SET "age"=$1,"email"=CASE WHEN $3 THEN $2 ELSE "email" END WHERE "id"=$4')


@pytest.mark.parametrize("abilities", [{"merged": frozenset({"create"})}, {"is_view": True}], ids=["triggers", "view"])
def test_updates_that_something_looks_at_stay_apart(abilities: dict[str, Any]) -> None:
    seen = Catalog(
        [
            msgspec.structs.replace(resource, abilities=msgspec.structs.replace(resource.abilities, **abilities))
            for resource in built_in()
        ]
    )
    group = [
        update("user", "1", {"attributes": {"age": 1}}, seen),
        update("user", "2", {"attributes": {"email": "a@b"}}, seen),
    ]
    assert [len(same) for same in by_form(group)] == [1, 1]
