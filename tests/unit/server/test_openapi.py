"""The OpenAPI document: it is valid, small, and says of each field and route what the server does."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import jsonschema_rs
import msgspec
import pytest

import waterspout
from querybuild.declarations.attributes import Limit
from querybuild.declarations.operators import operator_names
from querybuild.declarations.types import ColumnType
from querybuild.errors import ApiError
from querybuild.principal import ANONYMOUS, Principal
from serializers.openapi.api import component
from serializers.openapi.attributes import written_schema
from server.describing import descriptions
from server.describing.document import describe
from server.describing.operations import PURPOSES
from server.engine import Engine
from server.resources import built_in
from server.routes import TABLE, Shape, methods_of
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.http.access.test_field_rights import FIELDS, HR, staff
from tests.openapi import validate_openapi
from tests.planning import read_collection
from waterspout import (
    DATE,
    INET,
    INT,
    INT4RANGE,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    TSRANGE,
    UUID,
    Allow,
    Attribute,
    Catalog,
    CustomHandler,
    Function,
    Id,
    Resource,
    ToMany,
    ToOne,
    array,
    composite,
    enum,
)


class Point(msgspec.Struct):
    x: int
    y: int = 0


THING = Resource(
    "größe",
    "/things",
    "things",
    (
        Attribute("name", TEXT, required=True, min_length=1, max_length=9, description="What it is called."),
        Attribute("secret", TEXT, readable=False, nullable=True),
        Attribute("made", TIMESTAMPTZ, creatable=False, updatable=False),
        Attribute("once", DATE, updatable=False, nullable=True),
        Attribute("why", TEXT, required_on_update=True),
        Attribute("kind", enum("a", "b"), nullable=True),
        Attribute("price", NUMERIC, nullable=True),
        Attribute("sizes", array(INT)),
        Attribute("at", JSONB, shape=Point, nullable=True),
        Attribute("more", JSONB),
    ),
    (
        ToOne("parent", "größe", nullable=False, description="What it is a part of."),
        ToOne("maker", "größe", updatable=False),
        ToMany("parts", "größe", foreign_key="parent_id"),
    ),
    id=Id("id", UUID),
    client_ids=True,
    description="Things of all kinds.",
)


def described(catalog: Catalog, who: Principal = ANONYMOUS, custom: Any = (), **settings: Any) -> dict[str, Any]:
    engine = Engine(Settings(**settings), catalog, LiveSchema())
    # As a client reads it.
    found: dict[str, Any] = json.loads(msgspec.json.encode(describe(engine, engine.context_of(who), custom)))
    return found


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return described(Catalog([THING]), api_title="Things", public_url="https://example.org/api")


def schema(document: dict[str, Any], part: str) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"][f"gr.f6..df.e{part}"]
    return found


def accepts(document: dict[str, Any], part: str, value: Any) -> bool:
    name = f"gr.f6..df.e{part}"
    whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid(value)


@pytest.mark.parametrize(
    ("catalog", "settings"),
    [
        (built_in(), {}),
        (Catalog([THING]), {"auth_secret_file": "secret", "auth_audience": "us"}),
        (Catalog([staff("staff")]), {"read_only": True, "operations_path": "", "docs_page": False}),
        (Catalog([Resource("bare", "/bare", "bare", methods=frozenset())]), {"admin_port": 1}),
    ],
)
def test_it_is_valid(catalog: Catalog, settings: dict[str, Any], tmp_path: Any) -> None:
    if "auth_secret_file" in settings:
        (tmp_path / "secret").write_text("s" * 32)
        settings = settings | {"auth_secret_file": tmp_path / "secret"}
    validate_openapi(described(catalog, **settings))


def test_every_route_of_the_table_is_described() -> None:
    of_resources = (Shape.COLLECTION, Shape.RESOURCE, Shape.RELATED, Shape.RELATIONSHIP)
    assert set(PURPOSES) == {(shape, row.name, row.is_to_many) for shape in of_resources for row in TABLE[shape]}
    paths = described(built_in())["paths"]
    for shape in (Shape.ROOT, Shape.LIVE, Shape.READY, Shape.METRICS, Shape.OPENAPI, Shape.OPERATIONS):
        rows = {name.lower() for name in methods_of(shape)} - {"head", "options"}
        assert set(paths[str(shape)]) == rows


def test_parameters_of_all_operations_of_a_path_are_those_of_the_path() -> None:
    paths = described(built_in())["paths"]
    shown = {
        name: [one["$ref"].rpartition("/")[2] for one in _parameters(member)]
        for name, member in paths["/users/{id}/relationships/computers"].items()
    }
    assert shown == {
        "parameters": ["id.bigint"],
        "get": [
            *("computer.filter", "computer.sort", "page", "computers.linkage", "fields"),
            *("If-None-Match", "Prefer.read"),
        ],
        "post": ["Prefer", "If-Match"],
        "patch": ["page", "computers.linkage", "fields", "Prefer", "If-Match"],
        "delete": ["Prefer", "If-Match"],
    }
    assert {name: len(_parameters(member)) for name, member in paths["/groups"].items()} == {
        "parameters": 5,
        "get": 9,
        "post": 1,
    }
    assert "parameters" not in paths["/"]


def test_tries_are_only_described_where_they_are_possible() -> None:
    assert '/Prefer"' in json.dumps(described(built_in()))
    assert '/Prefer"' not in json.dumps(described(built_in(), allow_rollback=False)["paths"])


def _parameters(member: Any) -> Any:
    return member if isinstance(member, list) else member.get("parameters", [])


def test_operations_are_those_that_the_declarations_allow(document: dict[str, Any]) -> None:
    limited = msgspec.structs.replace(
        THING,
        methods=frozenset({"list", "update"}),
        in_operations=False,
        relationships=(ToMany("parts", THING.type, foreign_key="parent_id", methods=frozenset({"read", "add"})),),
    )
    found = described(Catalog([limited]), admin_port=1, openapi=False)["paths"]
    shown = {path: sorted(set(item) - {"parameters"}) for path, item in found.items()}
    assert shown == {
        "/": ["get"],
        "/things": ["get"],
        "/things/{id}": ["patch"],
        "/things/{id}/parts": ["get"],
        "/things/{id}/relationships/parts": ["get", "post"],
    }
    assert set(document["paths"]["/things/{id}/relationships/maker"]) == {"get"}
    assert all(set(item) <= {"parameters", "get"} for item in described(built_in(), read_only=True)["paths"].values())


def test_fields_are_told_apart(document: dict[str, Any]) -> None:
    shown = schema(document, "")["properties"]["attributes"]["properties"]
    assert "secret" not in shown
    assert {name for name, one in shown.items() if one.get("readOnly")} == {"made"}
    assert shown["kind"] == {"type": ["string", "null"], "enum": ["a", "b", None]}
    assert shown["name"] == {"type": "string", "description": "What it is called."}
    created = schema(document, ".new")["properties"]
    assert set(created["attributes"]["properties"]) == {*shown, "secret"} - {"made"}
    assert created["attributes"]["required"] == ["name"]
    assert created["relationships"]["required"] == ["parent"]
    assert created["attributes"]["properties"]["secret"]["writeOnly"]
    changed = schema(document, ".changed")["properties"]
    assert set(changed["attributes"]["properties"]) == {*shown, "secret"} - {"made", "once"}
    assert changed["attributes"]["required"] == ["why"]
    assert set(changed["relationships"]["properties"]) == {"parent", "parts"}
    assert document["tags"] == [
        {"name": "größe", "description": "Things of all kinds."},
        {"name": "operations", "description": "Several writes in one transaction."},
        {"name": "server", "description": "The server itself."},
    ]
    assert document["components"]["schemas"]["JsonApi.Included"]["discriminator"] == {
        "propertyName": "type",
        "mapping": {"größe": "#/components/schemas/gr.f6..df.e"},
    }
    assert document["info"]["title"] == "Things"
    assert document["servers"] == [{"url": "https://example.org/api"}]


@pytest.mark.parametrize(
    ("attributes", "fits"),
    [
        ({}, True),
        ({"name": "x" * 9, "secret": None, "kind": "a", "price": "1.5", "sizes": [1, None]}, True),
        ({"price": 1.5, "at": {"x": 1}, "more": {"a": [None, "b"]}, "once": "2024-05-31"}, True),
        *(({"name": name}, False) for name in ("", "x" * 10, "a\0b", None, 5)),
        ({"made": "2024-05-31T00:00:00Z"}, False),
        ({"unknown": 1}, False),
        ({"at": {"x": "1"}}, False),
        ({"more": None}, False),
        ({"more": {"a\0": 1}}, False),
        ({"sizes": [2**31]}, False),
        ({"kind": "c"}, False),
    ],
)
def test_the_document_of_a_create(document: dict[str, Any], attributes: dict[str, Any], fits: bool) -> None:
    link = {"parent": {"data": {"type": "größe", "id": "123e4567-e89b-12d3-a456-426614174000"}}}
    data = {"type": "größe", "attributes": {"name": "x"} | attributes, "relationships": link}
    assert accepts(document, ".create", {"data": data}) is fits
    assert not accepts(document, ".create", {"data": data | {"relationships": {}}})
    assert not accepts(document, ".create", {"data": data | {"relationships": {"parent": {"data": None}}}})


@pytest.mark.parametrize(
    ("sent", "fits"), [(5, True), ("5", True), (None, True), (2**31, False), (-(10**30), False), ("05", False)]
)
def test_the_id_that_a_client_chooses(sent: Any, fits: bool) -> None:
    document = described(Catalog([Resource("a", "/a", "a", id=Id("id", INT), client_ids=True)]))
    whole = {"$ref": "#/components/schemas/a.create", "components": document["components"]}
    assert jsonschema_rs.Draft202012Validator(whole).is_valid({"data": {"type": "a", "id": sent}}) is fits


def test_pages_have_any_number(document: dict[str, Any]) -> None:
    """A page after the last one is empty."""
    accepts = jsonschema_rs.Draft202012Validator(document["components"]["parameters"]["page"]["schema"]).is_valid
    assert accepts({"number": 10**30, "size": 5})
    assert accepts({"offset": 10**30, "limit": 5})
    assert not accepts({"number": 0})
    assert not accepts({"number": 1, "limit": 5})


def test_examples_fit_their_schemas(document: dict[str, Any]) -> None:
    for whole in (document, described(built_in())):
        for body in whole["components"]["requestBodies"].values():
            [content] = body["content"].values()
            schemas = content["schema"] | {"components": whole["components"]}
            jsonschema_rs.Draft202012Validator(schemas, validate_formats=True).validate(content["example"])


def test_examples_of_filters_fit_their_schemas() -> None:
    keyed = Resource("pair", "/pairs", "pairs", id=Id(columns=("a", "b"), types=(INT, TEXT)))
    for catalog in (built_in(), Catalog([THING, keyed])):
        components = described(catalog)["components"]
        for resource in catalog:
            [content] = components["parameters"][component(resource.type, "filter")]["content"].values()
            schemas = content["schema"] | {"components": components}
            jsonschema_rs.Draft202012Validator(schemas).validate(content["example"])


def test_filters_have_the_operators_of_each_attribute() -> None:
    document = described(built_in())
    schemas = document["components"]["schemas"]
    for resource in built_in():
        found: dict[str, set[str]] = {}
        for one in schemas[f"{resource.type}.comparison"]["anyOf"]:
            [operators] = one["allOf"]
            kinds = schemas[operators["$ref"].rpartition("/")[2]]
            for name in one["properties"]["name"].get("enum", ()):
                found.setdefault(name, set()).update(
                    op for kind in kinds.get("anyOf", [kinds]) for op in kind["properties"]["op"]["enum"]
                )
        for attribute in resource.attributes:
            assert found[attribute.name] - {"in"} == set(operator_names(attribute)), attribute.name


@pytest.mark.parametrize(
    ("column_type", "op", "example"),
    [
        (waterspout.INT4RANGE, "contains", 5),
        (waterspout.INT4RANGE, "contains", "[1,5)"),
        (waterspout.DATERANGE, "contains", "2024-06-01"),
        (waterspout.POINT, "contained_in", "(2,2),(0,0)"),
        (waterspout.HSTORE, "has_key", "a"),
        (TEXT, "like", "a%"),
        (array(INT), "in_", 1),
    ],
)
def test_the_value_of_an_operator(column_type: ColumnType, op: str, example: Any) -> None:
    thing = Resource("thing", "/things", "things", (Attribute("a", column_type),))
    document = described(Catalog([thing]))
    whole = {"$ref": "#/components/schemas/thing.filter", "components": document["components"]}
    accepts = jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid
    assert accepts({"name": "a", "op": op, "val": example})
    assert not accepts({"name": "a", "op": op, "val": True})


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        ({"name": "price", "op": "lt", "field": "cost"}, True),
        ({"name": "price", "op": "lt", "field": "title"}, False),
        ({"name": "price", "op": "like", "field": "cost"}, False),
        ({"name": "title", "op": "like", "field": "kind"}, True),
        ({"name": "kind", "op": "eq", "field": "title", "val": "a"}, False),
        ([{"or": [{"name": "kind", "op": "eq", "val": "a"}, {"name": "price", "op": "is_", "val": None}]}], True),
        ({"not": {"name": "price", "op": "eq", "val": "x"}}, False),
        ({"and": [], "or": []}, False),
        ({"name": "above", "op": "has", "val": [{"name": "price", "op": "eq", "val": 1}]}, True),
        ({"name": "above", "op": "any", "val": [{"name": "price", "op": "eq", "val": 1}]}, False),
        ({"name": "below", "op": "any", "val": [{"name": "unknown", "op": "eq", "val": 1}]}, False),
    ],
)
def test_filter_objects(node: Any, fits: bool) -> None:
    attributes = [Attribute("price", NUMERIC), Attribute("cost", INT), Attribute("title", TEXT)]
    relationships = (ToOne("above", "thing"), ToMany("below", "thing", foreign_key="above_id"))
    thing = Resource("thing", "/things", "things", (*attributes, Attribute("kind", enum("a", "b"))), relationships)
    document = described(Catalog([thing]))
    whole = {"$ref": "#/components/schemas/thing.filter", "components": document["components"]}
    assert jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid(node) is fits


@pytest.mark.parametrize(
    ("op", "relationship", "to", "fits"),
    [
        ("update", "parent", {"type": "größe", "id": "123e4567-e89b-12d3-a456-426614174000"}, True),
        ("update", "parent", None, False),
        ("add", "parent", {"type": "größe", "id": "123e4567-e89b-12d3-a456-426614174000"}, False),
        ("add", "parts", [{"type": "größe", "id": "1"}], True),
        ("add", "parts", [{"type": "other", "id": "1"}], False),
        ("update", "maker", None, False),
        ("update", "unknown", None, False),
    ],
)
def test_operations_on_linkage(document: dict[str, Any], op: str, relationship: str, to: Any, fits: bool) -> None:
    named = {"type": "größe", "id": "123e4567-e89b-12d3-a456-426614174000", "relationship": relationship}
    whole = {"$ref": "#/components/schemas/JsonApi.Operations", "components": document["components"]}
    one = {"op": op, "ref": named, "data": to}
    assert jsonschema_rs.Draft202012Validator(whole).is_valid({"atomic:operations": [one]}) is fits


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        ({"filter": [], "max": 5}, True),
        ({"filter": {"name": "id", "op": "is_", "val": None}, "max": 5}, True),
        ({"filter": {"name": "unknown", "op": "is_", "val": None}, "max": 5}, False),
        ({"filter": []}, False),
        ({"max": 5}, False),
        ({"filter": [], "max": 0}, False),
        ({"filter": [], "max": 10_001}, False),
    ],
)
def test_operations_with_a_filter(document: dict[str, Any], sent: dict[str, Any], fits: bool) -> None:
    """Only without the extension."""
    for name in ("JsonApi.PlainOperations", "JsonApi.Operations"):
        whole = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        for op, more in (("remove", {}), ("update", {"data": {"attributes": {"why": "x"}}})):
            one = {"op": op, "ref": {"type": "größe"}, "meta": sent} | more
            is_valid = jsonschema_rs.Draft202012Validator(whole).is_valid({"atomic:operations": [one]})
            assert is_valid is (fits and "Plain" in name), (op, name)


def test_sorts_have_the_attributes_that_a_request_may_sort_by() -> None:
    types = {name.lower(): one for name, one in vars(waterspout).items() if isinstance(one, ColumnType)}
    types |= {"shapes": array(waterspout.BOX), "sizes": array(INT), "address": composite("address", street=TEXT)}
    catalog = Catalog([Resource("all", "/all", "all", tuple(Attribute(*one) for one in types.items()))])
    sort = described(catalog)["components"]["parameters"]["all.sort"]

    def may_sort(name: str) -> bool:
        try:
            read_collection("all", f"sort={name}", catalog=catalog)
        except ApiError:
            return False
        return True

    expected = {"id", *filter(may_sort, types)}
    assert len(expected) > 20
    own, inside = sort["schema"]["items"]["anyOf"]
    assert {name.lstrip("-") for name in own["enum"]} == expected
    assert inside["pattern"] == "^-?(jsonb([.][a-zA-Z0-9_]+)+)$"


def test_names_inside_json() -> None:
    facts = Attribute("facts", JSONB, paths=(waterspout.JsonPath("n.a", INT), waterspout.JsonPath("a\\.b", INT)))
    document = described(Catalog([Resource("thing", "/things", "things", (facts,))]))
    whole = {"$ref": "#/components/schemas/thing.filter", "components": document["components"]}
    accepts = jsonschema_rs.Draft202012Validator(whole).is_valid
    for name, val, fits in (
        ("facts.color", "red", True),
        ("facts.tags.0", 5, True),
        ("facts.color", [1], False),
        ("facts.n.a", 5, True),
        ("facts.n.a", "red", False),
        ("facts.a\\.b", 5, True),
        ("facts.", 5, False),
    ):
        assert accepts({"name": name, "op": "eq", "val": val}) == fits, name
    own, inside = document["components"]["parameters"]["thing.sort"]["schema"]["items"]["anyOf"]
    assert own["enum"] == ["id", "-id", "facts.n.a", "-facts.n.a", "facts.a\\.b", "-facts.a\\.b"]
    assert re.search(inside["pattern"], "-facts.color.0")
    assert not re.search(inside["pattern"], "facts.n.a")


def test_it_shows_what_the_principal_may_see() -> None:
    """The document of who may not read a field is that of declarations without it."""
    ann, eve = Principal(subject="ann"), Principal(subject="eve", roles=frozenset({"hr"}))
    # `twice` is for everybody, and cannot be declared without `salary`.
    whole = Catalog([staff("staff", "twice")])
    assert described(whole) == described(Catalog([staff("staff", "twice", "salary", "pin", "boss", "team")]))
    for_ann, for_eve = described(whole, ann), described(whole, eve)
    shown = for_ann["components"]["schemas"]["staff.attributes"]["properties"]
    assert set(shown) == {"name", "pin"}
    assert shown["pin"]["writeOnly"]
    assert "salary" not in json.dumps(for_ann)
    assert set(for_eve["components"]["schemas"]["staff"]["properties"]["attributes"]["properties"]) == {
        name for name, field in FIELDS.items() if isinstance(field, Attribute) and name != "twice"
    }
    assert "/staff/{id}/team" in for_eve["paths"]


def test_a_filter_takes_the_text_of_an_id_of_several_columns() -> None:
    thing = Resource("thing", "/things", "things", id=Id(columns=("a", "b"), types=(INT, INT)))
    document = described(Catalog([thing]))
    schema = {"$ref": "#/components/schemas/thing.comparison", "components": document["components"]}
    accepts = jsonschema_rs.Draft202012Validator(schema).is_valid
    valid, invalid = ("1,2", "-2147483648,2147483647"), ("1", 7, [True], "1,2147483648", "-2147483649,1", "01,1", "a,1")
    for val in (*valid, *invalid):
        assert accepts({"name": "id", "op": "eq", "val": val}) is (val in valid), val


def test_a_filter_takes_no_empty_id() -> None:
    thing = Resource("thing", "/things", "things", (Attribute("title", TEXT),), id=Id(type=TEXT))
    document = described(Catalog([thing]))
    schema = {"$ref": "#/components/schemas/thing.comparison", "components": document["components"]}
    accepts = jsonschema_rs.Draft202012Validator(schema).is_valid
    assert accepts({"name": "id", "op": "eq", "val": "a"})
    assert accepts({"name": "title", "op": "eq", "val": ""})
    for op, val in (("eq", ""), ("in_", [""])):
        assert not accepts({"name": "id", "op": op, "val": val}), op


def test_values_that_only_postgresql_can_check_have_a_format() -> None:
    attributes = (Attribute("during", TSRANGE), Attribute("hosts", array(INET)))
    document = described(Catalog([Resource("thing", "/things", "things", attributes)]))
    schemas = document["components"]["schemas"]
    for found in (schemas["thing"]["properties"]["attributes"], schemas["thing.attributes"]):
        assert found["properties"]["during"]["format"] == "tsrange"
        assert found["properties"]["hosts"]["items"]["format"] == "inet"


def test_a_range_of_integers_contains_no_last_integer() -> None:
    """PostgreSQL reads `[2147483647,2147483647]` as `[2147483647,2147483648)`, which is out of range."""
    thing = Resource("thing", "/things", "things", (Attribute("ages", INT4RANGE),))
    document = described(Catalog([thing]))
    schema = {"$ref": "#/components/schemas/thing.comparison", "components": document["components"]}
    accepts = jsonschema_rs.Draft202012Validator(schema).is_valid
    found = [accepts({"name": "ages", "op": "contains", "val": val}) for val in (2147483646, 2147483647)]
    assert found == [True, False]


def test_the_elements_of_an_array_have_the_bounds_of_its_column() -> None:
    bounded = written_schema(Attribute("rates", array(NUMERIC)), Limit(digits=4, scale=1))
    accepts = jsonschema_rs.Draft202012Validator(bounded).is_valid
    found = [accepts(value) for value in ([999.9, None], [-999.9], [1000], ["1000"], [[1]])]
    assert found == [True, True, False, False, False]


def test_lists_of_lists_and_lists_of_a_query() -> None:
    texts, grid = array(TEXT), array(INT, dimensions=2)
    thing = Resource("thing", "/things", "things", (Attribute("texts", texts), Attribute("grid", grid)))
    call = Function("call", arguments=(Attribute("texts", texts), Attribute("grid", grid)))
    document = described(Catalog([thing, call]))
    shown = document["components"]["schemas"]["thing"]["properties"]["attributes"]["properties"]
    number = {"type": ["integer", "null"], "format": "int32"}
    bounds = {"minimum": -2147483648, "maximum": 2147483647}
    assert shown["grid"]["items"] == {"type": "array", "items": number | bounds, "minItems": 1}
    by_name = {one["name"]: one for one in document["paths"]["/call"]["get"]["parameters"]}
    # A list in a query is separated by commas, and has no null.
    assert by_name["arg_texts"]["schema"]["items"] == {"type": "string", "pattern": "^[^\\u0000]*$"}
    assert by_name["arg_grid"]["content"]["application/json"]["schema"]["items"]["items"] == number | bounds


def test_a_create_below_an_owner_may_name_the_owner() -> None:
    to_ones = (ToOne("whole", "whole", nullable=False), ToOne("other", "whole"))
    part = Resource("part", "/parts", "parts", relationships=to_ones)
    whole = Resource("whole", "/wholes", "wholes", relationships=(ToMany("parts", "part", foreign_key="whole_id"),))
    components = described(Catalog([part, whole]))["components"]
    named = {"type": "part", "relationships": {"whole": {"data": {"type": "whole", "id": "1"}}}}
    for name, data, is_valid in (
        ("part.create", {"type": "part"}, False),
        ("part.create", named, True),
        ("part.create.whole", {"type": "part"}, True),
        ("part.create.whole", named, True),
    ):
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        assert jsonschema_rs.Draft202012Validator(schema).is_valid({"data": data}) is is_valid, name


def test_operations_that_need_a_token_say_so(tmp_path: Any) -> None:
    (tmp_path / "secret").write_text("s" * 32)
    catalog = Catalog([Resource("a", "/a", "a", access=(Allow(HR, "update"), Allow(lambda _: True, "read")))])
    document = described(catalog, auth_secret_file=tmp_path / "secret", auth_audience="us")
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    # Most operations need none: those of the server itself.
    assert document["security"] == [{}, {"bearer": []}]
    assert "security" not in document["paths"]["/a"]["get"]
    assert document["paths"]["/a/{id}"]["patch"]["security"] == [{"bearer": []}]
    refusal = document["paths"]["/a"]["get"]["responses"]["4XX"]["$ref"].rpartition("/")[2]
    assert "- 401: unauthenticated" in document["components"]["responses"][refusal]["description"]
    assert "security" not in described(catalog)
    path = {"get": {"operationId": "open", "responses": {"200": {"description": "Done."}}}}
    custom = described(catalog, custom=[{"/open": path}], auth_secret_file=tmp_path / "secret", auth_audience="us")
    assert custom["paths"]["/open"]["get"]["security"] == []
    assert path["get"].keys() == {"operationId", "responses"}


def test_custom_routes_that_describe_themselves() -> None:
    path = {"get": {"operationId": "report", "responses": {"200": {"description": "A report."}}}}

    class Report(CustomHandler):
        openapi = {"/reports/{year}": path}  # noqa: RUF012 - as users write it

    assert described(built_in(), custom=[Report.openapi, CustomHandler.openapi])["paths"]["/reports/{year}"] == path


def test_a_hundred_resources_are_less_than_2_6_megabytes() -> None:
    def resource(number: int) -> Resource:
        types = (TEXT, INT, NUMERIC, DATE, TIMESTAMPTZ, TEXT, INT, enum("a", "b", f"c{number % 10}"), TEXT, INT, DATE)
        attributes = [Attribute(f"attribute_{index}", one, nullable=True) for index, one in enumerate(types)]
        parent = ToOne("parent", f"resource_{(number + 1) % 100}")
        children = ToMany("children", f"resource_{(number - 1) % 100}", foreign_key="parent_id")
        name = f"resource_{number}"
        return Resource(name, f"/{name}", name, tuple(attributes), (parent, children))

    document = described(Catalog([resource(number) for number in range(100)]))
    assert len(json.dumps(document, separators=(",", ":"))) < 2_600_000


def test_a_document_larger_than_the_cache_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "MAX_BYTES", 1000)
    engine = Engine(Settings(), Catalog([THING]), LiveSchema())
    kept, context = descriptions.Descriptions(engine), engine.context_of(ANONYMOUS)
    first, second = (asyncio.run(kept.of(context)) for _ in range(2))
    assert len(first.body) > 1000
    assert first is second
