"""The planning of writes: the values that are written, and every error of a document with its pointer."""

# ruff: noqa: E501  # the table of refusals has one row a case, with the whole detail

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.errors import (
    AttributeFault,
    BodyError,
    ClientIdForbidden,
    IdConflict,
    LinkageTypeConflict,
    MethodForbidden,
    RelatedNotFound,
    RelationshipFault,
    RequiredLink,
    TypeConflict,
)
from querybuild.planning.row_plan import Rows
from querybuild.planning.writes.write_plan import WritePlan
from serializers.pointers import slot_pointer
from tests import composite
from tests.catalog import CATALOG, NODE, attribute_of
from tests.planning import create, delete, refused, update
from tests.statements import TOKEN, linked

ONE_AUTHOR = linked(author=("author", "1"))


def rule(**attributes: Any) -> dict[str, Any]:
    return {"attributes": {"must": "x"} | attributes}


def article(**linkage: Any) -> dict[str, Any]:
    return {"attributes": {"title": "x"}, "relationships": ONE_AUTHOR | linked(**linkage)}


def profile(**linkage: Any) -> dict[str, Any]:
    return {"attributes": {"motto": "x"}, "relationships": linked(**linkage)}


CREATES: list[tuple[str, dict[str, Any], type[BodyError], str, str]] = [
    # values
    ("rule", rule(may=1), AttributeFault, "/data/attributes/may", "“may” must be a string, not 1."),
    ("rule", rule(must=None), AttributeFault, "/data/attributes/must", "“must” must be a value, since it cannot be null."),
    ("rule", rule(sized="a"), AttributeFault, "/data/attributes/sized", "“sized” must be from 2 to 5 characters long, not \"a\"."),
    ("rule", rule(sized="abcdef"), AttributeFault, "/data/attributes/sized", "“sized” must be from 2 to 5 characters long, not \"abcdef\"."),
    ("rule", rule(ranged=11), AttributeFault, "/data/attributes/ranged", "“ranged” must be from -1 to 10, not 11."),
    ("rule", rule(ranged=-2), AttributeFault, "/data/attributes/ranged", "“ranged” must be from -1 to 10, not -2."),
    ("rule", rule(ranged="1"), AttributeFault, "/data/attributes/ranged", "“ranged” must be a whole number from -2147483648 to 2147483647, not \"1\"."),
    ("rule", rule(since="x"), AttributeFault, "/data/attributes/since", "“since” must be a date such as 2024-05-31, from 0001-01-02 to 9999-12-30, not \"x\"."),
    ("rule", rule(patterned="A-1"), AttributeFault, "/data/attributes/patterned", "“patterned” must be a text that matches [a-z]+-\\d+, not \"A-1\"."),
    ("rule", rule(patterned="a-1\n"), AttributeFault, "/data/attributes/patterned", "“patterned” must be a text that matches [a-z]+-\\d+, not \"a-1\\n\"."),
    ("rule", rule(chosen="three"), AttributeFault, "/data/attributes/chosen", "“chosen” must be one of one, two, not \"three\"."),
    ("rule", rule(shaped={"a": ["1"]}), AttributeFault, "/data/attributes/shaped", "“shaped” must be JSON of the declared shape (Expected `int`, got `str` - at `$[...][0]`), not {\"a\":[\"1\"]}."),
    ("rule", rule(shaped=[1]), AttributeFault, "/data/attributes/shaped", "“shaped” must be JSON of the declared shape (Expected `object`, got `array`), not [1]."),
    ("rule", rule(listed=[]), AttributeFault, "/data/attributes/listed", "“listed” must be from 1 to 2 items long, not []."),
    ("rule", rule(listed=["a", "b", "c"]), AttributeFault, "/data/attributes/listed", "“listed” must be from 1 to 2 items long, not [\"a\",\"b\",\"c\"]."),
    ("rule", rule(listed="a"), AttributeFault, "/data/attributes/listed", "“listed” must be a list of text values, not \"a\"."),
    ("rule", rule(may="a" * 100, must=[{"a": "b" * 100}]), AttributeFault, "/data/attributes/must", f"“must” must be a string, not [{{\"a\":\"{'b' * 70}...."),
    # names
    ("rule", rule(mist=1), AttributeFault, "/data/attributes/mist", "rule has no attribute “mist”. Did you mean “must”?"),
    ("rule", rule(nope=1), AttributeFault, "/data/attributes/nope", "rule has no attribute “nope”."),
    ("rule", rule(**{"a/b~c": 1}), AttributeFault, "/data/attributes/a~1b~0c", "rule has no attribute “a/b~c”."),
    ("rule", rule(uncreatable="x"), AttributeFault, "/data/attributes/uncreatable", "“uncreatable” is read-only: leave it out."),
    ("sample", {"attributes": {"place": "(1,2)"}}, AttributeFault, "/data/attributes/place", "“place” is read-only: leave it out."),
    ("rule", {}, AttributeFault, "/data/attributes/must", "The attribute “must” is required."),
    ("rule", {"attributes": {}}, AttributeFault, "/data/attributes/must", "The attribute “must” is required."),
    # type and id
    ("tag", {"type": "tog", "attributes": {}}, TypeConflict, "/data/type", "This route is for resources of type “tag”, not “tog”."),
    ("rule", rule() | {"id": "1"}, ClientIdForbidden, "/data/id", "The server chooses ids of type “rule”: leave `id` out."),
    ("node", {"id": "X", "attributes": {"title": "x"}}, AttributeFault, "/data/id", f"An id of type “node” must be a UUID such as {TOKEN}."),
    ("node", {"id": TOKEN.upper(), "attributes": {"title": "x"}}, AttributeFault, "/data/id", "An id of type “node” must be a UUID in lower case."),
    ("country", {"id": "", "attributes": {"name": "x"}}, AttributeFault, "/data/id", "An id of type “country” must be a text, not empty and neither `.` nor `..`."),
    # relationships
    ("profile", {"attributes": {"motto": "x"}}, RelationshipFault, "/data/relationships/author", "The relationship “author” is required."),
    ("profile", profile(author=None), RelationshipFault, "/data/relationships/author/data", "The relationship “author” is required."),
    ("profile", profile(author=("user", "1")), LinkageTypeConflict, "/data/relationships/author/data/type", "This relationship is to resources of type “author”, not “user”."),
    ("profile", profile(author=("author", "01")), RelatedNotFound, "/data/relationships/author/data", "There is no author with the id “01”."),
    ("profile", profile(author=("author", "99999999999")), RelatedNotFound, "/data/relationships/author/data", "There is no author with the id “99999999999”."),
    ("profile", profile(author=[("author", "1")]), RelationshipFault, "/data/relationships/author/data", "The data of “author” must be one resource identifier or null."),
    ("profile", profile(author=("author", "1"), autor=None), RelationshipFault, "/data/relationships/autor", "profile has no relationship “autor”. Did you mean “author”?"),
    ("article", article(tags=None), RelationshipFault, "/data/relationships/tags/data", "The data of “tags” must be an array of resource identifiers."),
    ("article", article(tags=("tag", "1")), RelationshipFault, "/data/relationships/tags/data", "The data of “tags” must be an array of resource identifiers."),
    ("author", {"attributes": {"given-name": "x", "family-name": "y", "desk": 1}}, AttributeFault, "/data/attributes/desk", "“desk” is a relationship: put it under `relationships`."),
]  # fmt: skip

UPDATES: list[tuple[str, dict[str, Any], type[BodyError], str, str]] = [
    ("rule", {"attributes": {}}, AttributeFault, "/data/attributes/on_update", "The attribute “on_update” is required."),
    ("rule", {"attributes": {"on_update": None}}, AttributeFault, "/data/attributes/on_update", "“on_update” must be a value, since it cannot be null."),
    ("rule", {"id": "2"}, IdConflict, "/data/id", "The document's id “2” is not the id “1” of the path."),
    ("rule", {"id": "01"}, IdConflict, "/data/id", "The document's id “01” is not the id “1” of the path."),
    ("rule", {"type": "x"}, TypeConflict, "/data/type", "This route is for resources of type “rule”, not “x”."),
    ("profile", {"relationships": linked(author=None)}, RequiredLink, "/data/relationships/author/data", "The relationship “author” must not be empty."),
    ("author", {"relationships": linked(desk=[])}, RelationshipFault, "/data/relationships/desk/data", "The data of “desk” must be one resource identifier or null."),
    ("author", {"relationships": linked(articles=[("article", "")])}, RelatedNotFound, "/data/relationships/articles/data/0", "There is no article with the id “”."),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "data", "error", "pointer", "detail"), CREATES)
def test_create_refused(
    type_name: str, data: dict[str, Any], error: type[BodyError], pointer: str, detail: str
) -> None:
    with refused() as told:
        create(type_name, data)
    assert told == [(error, pointer, detail)]


@pytest.mark.parametrize(("type_name", "data", "error", "pointer", "detail"), UPDATES)
def test_update_refused(
    type_name: str, data: dict[str, Any], error: type[BodyError], pointer: str, detail: str
) -> None:
    with refused() as told:
        update(type_name, "1", data)
    assert told == [(error, pointer, detail)]


def test_a_relationship_that_may_not_be_replaced() -> None:
    with refused() as told:
        update("log", "1", {"relationships": linked(node=None)})
    detail = "Links of “node” cannot be replaced here; allowed are: read."
    assert told == [(MethodForbidden, "/data/relationships/node/data", detail)]
    assert update("unlisted", "1", {"relationships": linked(node=None)}).values == (1, None)


def test_all_faults_are_reported_in_the_order_of_the_document() -> None:
    data = {
        "id": "7",
        "attributes": {"pages": "x", "nope": 1},
        "relationships": linked(author=("user", "1"), tags=[("tag", "1"), ("tog", "2"), ("tag", "x")], writer=None),
    }
    with refused() as told:
        create("article", data)
    assert [(error, pointer) for error, pointer, _ in told] == [
        (AttributeFault, "/data/attributes/pages"),
        (AttributeFault, "/data/attributes/nope"),
        (LinkageTypeConflict, "/data/relationships/author/data/type"),
        (LinkageTypeConflict, "/data/relationships/tags/data/1/type"),
        (RelatedNotFound, "/data/relationships/tags/data/2"),
        (RelationshipFault, "/data/relationships/writer"),
        (AttributeFault, "/data/attributes/title"),
    ]


@pytest.mark.parametrize(
    ("attributes", "values"),
    [
        ({"may": None}, ("x", None)),
        ({"sized": "äö"}, ("x", "äö")),
        ({"sized": "🧀🧀🧀🧀🧀"}, ("x", "🧀🧀🧀🧀🧀")),
        ({"ranged": -1}, ("x", -1)),
        ({"ranged": 10}, ("x", 10)),
        ({"patterned": "a-12"}, ("x", "a-12")),
        ({"chosen": "two"}, ("x", "two")),
        ({"shaped": {}}, ("x", "{}")),
        ({"shaped": {"a": [1]}}, ("x", '{"a":[1]}')),
        ({"shaped": None}, ("x", None)),
        ({"listed": ["a", ""]}, ("x", ["a", ""])),
        ({"unreadable": "x"}, ("x", "x")),
        ({"unupdatable": "x"}, ("x", "x")),
    ],
)
def test_values(attributes: dict[str, Any], values: tuple[Any, ...]) -> None:
    assert create("rule", rule(**attributes)).values == values


def test_pointers_of_values() -> None:
    write = create("article", {"id": "a", **article(tags=[("tag", "2"), ("tag", "1"), ("tag", "2")], editor=None)})
    assert write.values == ("a", "x", 1, [2, 1], None)
    assert [slot_pointer(write, slot) for slot in range(len(write.values))] == [
        "/data/id",
        "/data/attributes/title",
        "/data/relationships/author/data",
        "/data/relationships/tags/data",
        "/data/relationships/editor/data",
    ]
    assert write.item_pointers == {3: ("/data/relationships/tags/data/0", "/data/relationships/tags/data/1")}
    assert [assignment.column for assignment in write.plan.assignments] == ["id", "title", "author_id", "editor_id"]
    ((name, is_detachable),) = [(link.relationship.name, link.is_detachable) for link in write.plan.links]
    assert (name, is_detachable) == ("tags", True)


def test_an_id_is_written_beside_a_key_of_several_columns() -> None:
    with_ids = [msgspec.structs.replace(one, client_ids=True) for one in composite.CATALOG]
    document = {"id": "7", "attributes": {"reason": "x"}, "relationships": linked(line=("line", "1,tea"))}
    write = create("return", document, Catalog(with_ids))
    columns = [assignment.column for assignment in write.plan.assignments]
    assert (columns, write.values) == (["id", "reason", "order_id", "product"], (7, "x", "1,tea"))


def test_read_only_attributes_that_are_sent_back_are_compared() -> None:
    write = update("rule", "1", {"attributes": {"on_update": "x", "unupdatable": "y", "uncreatable": "z"}})
    assert [assignment.column for assignment in write.plan.assignments] == ["on_update", "uncreatable"]
    [expected] = write.plan.precondition
    assert (expected.slot.source, write.values[expected.slot.index]) == ("request", "y")
    assert expected.attribute is attribute_of(CATALOG.by_type["rule"], "unupdatable")


def test_ids_may_be_numbers() -> None:
    assert create("country", {"id": 7, "attributes": {"name": "x"}}).values == ("7", "x")
    assert update("rule", "1", {"id": 1}).values == (1,)
    assert create("article", article(tags=[("tag", 3)])).values == ("x", 1, [3])


def test_required_links() -> None:
    write = update("author", "1", {"relationships": linked(articles=[], edited=[], profile=None, desk=None)})
    found = [(link.relationship.name, link.is_detachable) for link in write.plan.links]
    assert found == [("articles", False), ("edited", True), ("profile", False), ("desk", True)]
    assert write.values == (1, [], [], [], [])


def test_a_write_plan_has_no_values() -> None:
    plans = [update("tag", str(number), {"attributes": {"name": f"x{number}"}}).plan for number in (1, 2)]
    assert plans[0] == plans[1]
    assert hash(plans[0]) == hash(plans[1])


def test_delete() -> None:
    write = delete("node", TOKEN)
    assert (write.plan, write.values) == (WritePlan(kind="delete", rows=Rows(NODE, "nodes"), id_slot=0), (UUID(TOKEN),))
