"""The planning of a write whose form is known: the result equals that of `plan_write`, or is None if the write has an
error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from querybuild.errors import ApiError
from querybuild.planning.changes import PlannedWrite, plan_write
from querybuild.planning.context import EVERYTHING, Context, View
from querybuild.planning.write_plan_cache import form_key, plan_columns, plan_with_form, write_form_of
from querybuild.query import Change, ChangeKind, Owner
from serializers import pointers
from serializers.decode import Decoder
from tests.catalog import CATALOG
from tests.statements import TOKEN, linked


def changed(kind: ChangeKind, data: dict[str, Any]) -> Change:
    errors: list[ApiError] = []
    change = Decoder(errors, takes_lids=True).resource(data, "/atomic:operations/3/data", Change(kind=kind, type=None))
    assert change is not None
    assert errors == []
    return change


def planned(change: Change) -> tuple[PlannedWrite, list[ApiError]]:
    errors: list[ApiError] = []
    return plan_write(change, CATALOG.by_type[str(change.type)], View(CATALOG), Context(), pointers, errors), errors


def article(title: Any, author: Any, *tags: Any) -> dict[str, Any]:
    relationships = {"author": {"data": author}, "tags": {"data": list(tags)}}
    return {"type": "article", "attributes": {"title": title}, "relationships": relationships}


def one(type_name: str, id_text: str) -> dict[str, str]:
    return {"type": type_name, "id": id_text}


AUTHOR = one("author", "1")
LID = {"type": "author", "lid": "new"}
RANGED = {"on_update": "x", "ranged": 1}

ALIKE: list[tuple[ChangeKind, dict[str, Any], dict[str, Any]]] = [
    ("create", article("x", AUTHOR), article("y", one("author", "2"))),
    ("create", article("x", AUTHOR, one("tag", "1")), article("y", LID, *[one("tag", "2")] * 2, one("tag", "3"))),
    ("create", article("x", LID), article("y", AUTHOR)),
    (
        "create",
        {"type": "country", "id": "7", "attributes": {"name": "x"}},
        {"type": "country", "id": "8", "attributes": {"name": "y"}},
    ),
    (
        "update",
        {"type": "rule", "id": "1", "attributes": RANGED},
        {"type": "rule", "id": "2", "attributes": RANGED | {"ranged": None}},
    ),
    (
        "update",
        {"type": "author", "lid": "a", "attributes": {"born": 1}},
        {"type": "author", "lid": "b", "attributes": {"born": 2}},
    ),
    ("update", {"type": "node", "id": TOKEN}, {"type": "node", "id": TOKEN[::-1].replace("-", "")[:8] + TOKEN[8:]}),
]


@pytest.mark.parametrize(("kind", "first", "second"), ALIKE)
def test_a_write_of_a_known_form(kind: ChangeKind, first: dict[str, Any], second: dict[str, Any]) -> None:
    earlier, change = changed(kind, first), changed(kind, second)
    resource = CATALOG.by_type[first["type"]]
    assert form_key(earlier, resource) == form_key(change, resource) is not None
    form = write_form_of(earlier, planned(earlier)[0], View(CATALOG), EVERYTHING)
    assert form is not None
    assert (plan_with_form(change, form, ()), []) == planned(change)


FAULTS: list[tuple[ChangeKind, dict[str, Any], dict[str, Any]]] = [
    ("create", article("x", AUTHOR), article(None, AUTHOR)),
    ("create", article("x", AUTHOR), article(1, AUTHOR)),
    ("create", article("x", AUTHOR), article("a\0b", AUTHOR)),
    ("create", article("x", AUTHOR), article("x", one("tag", "1"))),
    ("create", article("x", AUTHOR), article("x", one("author", "01"))),
    (
        "update",
        {"type": "rule", "id": "1", "attributes": RANGED},
        {"type": "rule", "id": "1", "attributes": RANGED | {"ranged": 11}},
    ),
    ("update", {"type": "author", "id": "1"}, {"type": "author", "id": "x"}),
]


@pytest.mark.parametrize(("kind", "first", "second"), FAULTS)
def test_a_write_with_faults_is_planned_in_full(
    kind: ChangeKind, first: dict[str, Any], second: dict[str, Any]
) -> None:
    earlier, change = changed(kind, first), changed(kind, second)
    form = write_form_of(earlier, planned(earlier)[0], View(CATALOG), EVERYTHING)
    assert form is not None
    assert plan_with_form(change, form, ()) is None
    assert planned(change)[1] != []


def with_title(**members: Any) -> dict[str, Any]:
    return {"type": "article", "attributes": {"title": "x"}, **members}


OTHER_FORMS: list[tuple[ChangeKind, dict[str, Any]]] = [
    ("create", with_title()),
    ("create", with_title(id="1")),
    ("create", {"type": "article"}),
    ("create", {"type": "article", "attributes": {}}),
    ("create", {"type": "tag", "attributes": {"title": "x"}}),
    ("create", with_title(relationships=linked(author=("author", "1")))),
    ("create", with_title(relationships={"author": {"data": None}})),
    ("create", with_title(relationships={"author": {"data": []}})),
    ("update", with_title()),
    ("update", with_title(id="1")),
]


def test_different_forms() -> None:
    keys = [form_key(changed(kind, data), CATALOG.by_type["article"]) for kind, data in OTHER_FORMS]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_writes_without_a_form() -> None:
    resource, change = CATALOG.by_type["article"], changed("create", article("x", AUTHOR))
    for more in (
        {"assigned": {"title": "y"}},
        {"owner": Owner("author", "1", "articles")},
        {"undecoded": {"relationships"}},
    ):
        assert form_key(msgspec.structs.replace(change, **more), resource) is None
    compared = changed("update", {"type": "rule", "id": "1", "attributes": {"on_update": "x", "unupdatable": "y"}})
    assert write_form_of(compared, planned(compared)[0], View(CATALOG), EVERYTHING) is None


def book(title: Any, author: dict[str, str]) -> dict[str, Any]:
    return {"type": "article", "attributes": {"title": title}, "relationships": {"author": {"data": author}}}


@pytest.mark.parametrize(
    ("titles", "authors", "is_planned"),
    [
        (["x", "y", "x"], ["1", "2", "1"], True),
        (["x", None, "x"], ["1", "2", "1"], False),
        (["x", 1, "x"], ["1", "2", "1"], False),
        (["x", "y", "x"], ["1", "02", "1"], False),
    ],
)
def test_many_creates_are_planned_as_columns(titles: list[Any], authors: list[str], is_planned: bool) -> None:
    changes = [
        changed("create", book(title, one("author", author))) for title, author in zip(titles, authors, strict=True)
    ]
    form = write_form_of(changes[0], planned(changes[0])[0], View(CATALOG), EVERYTHING)
    assert form is not None
    columns = plan_columns(form, [titles], [("author", authors)])
    each = [plan_with_form(change, form, ()) for change in changes]
    assert (columns is not None) is is_planned is all(each)
    if columns is not None:
        assert list(zip(*columns, strict=True)) == [write.values for write in each if write is not None]


def test_columns_hold_no_links_and_no_other_types() -> None:
    change = changed("create", article("x", AUTHOR, one("tag", "1")))
    form = write_form_of(change, planned(change)[0], View(CATALOG), EVERYTHING)
    assert form is not None
    assert plan_columns(form, [["x"]], [("author", ["1"]), ("tag", ["1"])]) is None
    change = changed("create", book("x", AUTHOR))
    form = write_form_of(change, planned(change)[0], View(CATALOG), EVERYTHING)
    assert form is not None
    assert plan_columns(form, [["x"]], [("tag", ["1"])]) is None
