"""Written values are read back unchanged: values of every type, parts of a resource, and a whole resource as it was
read."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn, SearchStrategy

from querybuild.declarations.operators import operator_names
from querybuild.declarations.resource import Attribute
from server.resources import built_in
from tests import catalog as corner
from tests.property.filters import PATHS, TYPES
from tests.property.rows import make_rows, store
from tests.property.served import MEDIA_TYPE, Answer, Served, served
from tests.property.values import Token, dump, near

# Values in the form in which they are read back.

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=4).map(lambda number: f"{number + 0:f}")
# At most six digits, and few before the point: PostgreSQL rounds a number midway between two values of float4.
singles = (
    st.floats(-1e7, 1e7, width=32)
    .map(lambda number: float(f"{number:.6g}"))
    .filter(lambda number: number == 0 or abs(number) > 1e-37)
)
json_numbers = st.one_of(
    st.integers(),
    st.integers(2**63, 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    decimals.map(Token),
    st.sampled_from(("1.00000000000000000001", "1e399", "-1E-30", "0.10")).map(Token),
)
json_trees = st.recursive(
    st.one_of(st.none(), st.booleans(), texts, json_numbers),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
days = st.dates(date(1, 1, 2), date(9999, 12, 30)).map(date.isoformat)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30, 23, 59, 59, 999999)).map(
    lambda moment: moment.isoformat() + "Z"
)
seconds = st.one_of(st.integers(0, 59_999_999), st.integers(0, 59).map(lambda whole: whole * 1_000_000))


def _second(microseconds: int) -> str:
    whole, rest = divmod(microseconds, 1_000_000)
    return f"{whole}" + (f".{rest:06}".rstrip("0") if rest else "")


@st.composite
def clocks(draw: DrawFn) -> str:
    if draw(st.integers(0, 9)) == 9:
        return "24:00:00"
    second, fraction = divmod(draw(seconds), 1_000_000)
    # A fraction is shown with six digits.
    return time(draw(st.integers(0, 23)), draw(st.integers(0, 59)), second, fraction).isoformat()


@st.composite
def spans(draw: DrawFn) -> str:
    """Draw a duration. PostgreSQL stores one sign for years and months, and one for the clock."""
    sign, clock_sign = draw(st.sampled_from(("", "-"))), draw(st.sampled_from(("", "-")))
    years, months = draw(st.integers(0, 9999)), draw(st.integers(0, 11))
    hours, minutes, microseconds = draw(st.integers(0, 99999)), draw(st.integers(0, 59)), draw(seconds)
    calendar = [(sign, str(years), "Y"), (sign, str(months), "M"), ("", str(draw(st.integers(-9999, 9999))), "D")]
    clock = [(clock_sign, str(hours), "H"), (clock_sign, str(minutes), "M"), (clock_sign, _second(microseconds), "S")]
    first, second = ("".join(f"{a}{n}{unit}" for a, n, unit in part if n != "0") for part in (calendar, clock))
    return f"P{first}" + (f"T{second}" if second else "") if first or second else "PT0S"


def listed(items: SearchStrategy[Any]) -> SearchStrategy[list[Any]]:
    return st.lists(items, max_size=3)


integers = st.integers(-(2**31), 2**31 - 1)
moods = st.sampled_from(("sad", "ok", "happy"))
tokens = st.uuids().map(str)
blobs = st.binary(max_size=20).map(lambda octets: base64.b64encode(octets).decode())


networks = st.ip_addresses(v=4).flatmap(lambda one: st.sampled_from((f"{one}", f"{one}/29")))
origins = st.fixed_dictionaries({"name": st.none() | texts, "since": st.none() | days})


@st.composite
def nights(draw: DrawFn) -> str:
    """Draw a range as PostgreSQL writes it: with its first day, and without its last."""
    first, last = sorted(draw(st.lists(st.dates(date(1, 1, 2)), min_size=2, max_size=2, unique=True)))
    return f"[{first},{last})" if last.year > 999 else "empty"


def padded(most: int) -> SearchStrategy[str]:
    """Return a strategy for texts of a char column, whose trailing blanks are not part of the value."""
    return texts.map(lambda text: text[:most].rstrip(" "))


VALUES: dict[str, SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.integers(-(2**15), 2**15 - 1),
    "medium": integers,
    "large": st.integers(-(2**63), 2**63 - 1),
    "exact": decimals,
    "price": st.integers(-(10**11), 10**11).map(lambda cents: Token(f"{Decimal(cents).scaleb(-2)}")),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "single": singles,
    "words": texts,
    "short": texts.map(lambda text: text[:10]),
    "fixed": padded(6),
    "mood": moods,
    "colour": st.sampled_from(("red", "green", "blue")),
    "token": tokens,
    "day": days,
    "clock": clocks(),
    "moment": moments,
    "instant": moments,
    "span": spans(),
    "blob": blobs,
    "plain_json": json_trees,
    "tree": json_trees,
    "flags": listed(st.booleans()),
    "numbers": listed(integers),
    "amounts": listed(decimals),
    "singles": listed(singles),
    "texts": listed(texts),
    "fixeds": listed(padded(3)),
    "moods": listed(moods),
    "tokens": listed(tokens),
    "days": listed(days),
    "clocks": listed(clocks()),
    "moments": listed(moments),
    "instants": listed(moments),
    "spans": listed(spans()),
    "blobs": listed(blobs),
    "trees": listed(json_trees),
    "percent": st.integers(0, 100),
    "label": texts.map(lambda text: text[:20]),
    "code": st.text(string.ascii_uppercase, min_size=1, max_size=20),
    "network": networks,
    "nights": nights(),
    "spot": st.tuples(integers, integers).map(lambda spot: f"({spot[0]},{spot[1]})"),
    "origin": origins,
    "origins": listed(st.none() | origins),
    "grid": listed(st.lists(integers, min_size=2, max_size=2)),
}
READ_ONLY = {"place": "(1,2)", "address": "10.0.0.1/32"}
SOME = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=8)


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, corner.CATALOG, corner.DDL) as running:
        yield running


@pytest.fixture(scope="module")
def people(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, built_in()) as running:
        store(running, make_rows(0))
        yield running


def parsed(text: str | bytes) -> Any:
    """Parse JSON, and keep all digits of numbers."""
    return json.loads(text, parse_float=Decimal)


def some(data: DataObject) -> dict[str, Any]:
    """Draw a few attributes, with values or null."""
    names = data.draw(SOME)
    return {name: data.draw(st.one_of(VALUES[name], VALUES[name], VALUES[name], st.none())) for name in names}


def write(server: Served, method: str, path: str, data: Any) -> Answer:
    return server.raw(method, path.encode(), (("Content-Type", MEDIA_TYPE),), dump({"data": data}).encode())


def create(server: Served, attributes: dict[str, Any]) -> tuple[str, Any]:
    """Create a resource. Return its id, and its attributes in the answer."""
    answer = write(server, "POST", "/samples", {"type": "sample", "attributes": attributes})
    assert answer.status == 201, answer.body
    data = parsed(answer.body)["data"]
    return data["id"], data["attributes"]


def read(server: Served, path: str) -> Any:
    answer = server.get(path)
    assert answer.status == 200, answer.body
    return parsed(answer.body)["data"]


def expected(attributes: dict[str, Any]) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys((*VALUES, *READ_ONLY))
    nothing.update(parsed(dump(attributes)))
    return nothing


@given(data=st.data())
def test_create_then_read(server: Served, data: DataObject) -> None:
    attributes = some(data)
    created, answered = create(server, attributes)
    assert answered == expected(attributes)
    assert read(server, f"/samples/{created}")["attributes"] == answered


@given(data=st.data())
def test_update_leaves_the_rest(server: Served, data: DataObject) -> None:
    before, change = some(data), some(data)
    created, _ = create(server, before)
    document = {"type": "sample", "id": created, "attributes": change}
    answer = write(server, "PATCH", f"/samples/{created}", document)
    assert answer.status == 200, answer.body
    assert parsed(answer.body)["data"]["attributes"] == expected(before | change)
    assert read(server, f"/samples/{created}")["attributes"] == expected(before | change)


@given(data=st.data())
def test_whole_sample_as_read(server: Served, data: DataObject) -> None:
    """The document includes read-only attributes."""
    created, _ = create(server, some(data))
    place = "UPDATE corner.samples SET place = '(1,2)', address = '10.0.0.1' WHERE id = $1"
    if data.draw(st.booleans()):
        server.sql((place, int(created)))
    unchanged(server, f"/samples/{created}", f"/samples/{created}")


@given(data=st.data())
def test_whole_resource_as_read(people: Served, data: DataObject) -> None:
    """The document includes the linkage of every relationship."""
    type_name = data.draw(st.sampled_from(TYPES))
    row = data.draw(st.sampled_from(make_rows(0)[type_name]))
    path = f"{PATHS[type_name]}/{row['id']}"
    relationships = read(people, path).get("relationships", {})
    included = f"?include={','.join(relationships)}" if relationships else ""
    unchanged(people, path, path + included)


def unchanged(server: Served, path: str, path_read: str) -> None:
    answer = server.raw("GET", path_read.encode())
    whole = parsed(answer.body)["data"]
    again = write(server, "PATCH", path, sendable(whole))
    assert again.status == 200, again.body
    assert parsed(again.body)["data"] == whole
    assert parsed(server.raw("GET", path_read.encode()).body) == parsed(answer.body)


def sendable(tree: Any) -> Any:
    """Return a tree in which numbers are sent with the same digits."""
    if isinstance(tree, Decimal):
        return Token(str(tree))
    if isinstance(tree, dict):
        return {name: sendable(value) for name, value in tree.items()}
    return [sendable(item) for item in tree] if isinstance(tree, list) else tree


@given(data=st.data())
def test_what_is_read_can_be_written(server: Served, data: DataObject) -> None:
    """A value may be written in several forms. The form in which it is read is one of them, and writing it changes
    nothing."""
    attribute = data.draw(st.sampled_from([corner.attribute_of(corner.SAMPLE_TYPE, name) for name in VALUES]))
    value = data.draw(near(attribute))
    answer = write(server, "POST", "/samples", {"type": "sample", "attributes": {attribute.name: value}})
    if answer.status != 201:
        assert answer.status in (400, 422), answer.body
        return
    unchanged(server, f"/samples/{parsed(answer.body)['data']['id']}", answer.headers["location"].partition(".org")[2])


def elements(value: Any, *, is_json: bool) -> Iterator[Any]:
    """Yield what a list of values for an attribute has: no null, and no list in a list, unless they are JSON."""
    if not isinstance(value, list):
        yield value
    elif is_json:
        yield from value
    else:
        for item in value:
            if item is not None:
                yield from elements(item, is_json=False)


def truths(value: Any, attribute: Attribute) -> dict[str, tuple[Any, bool]]:
    """Return for each operator a val, and whether the value meets the condition."""
    found = {"eq": True, "ne": False, "is_": True, "isnot": False, "le": True, "ge": True, "lt": False, "gt": False}
    found |= {"startswith": True, "endswith": True}
    tests = {op: (value, truth) for op, truth in found.items()}
    element = attribute.type.element
    items = list(elements(value, is_json=element is not None and element.family in ("json", "jsonb")))
    is_met = items != []
    tests |= {"in_": (items, is_met), "in": (items, is_met), "notin_": (items, not is_met)}
    tests["between"] = ([value, value], True)
    if isinstance(value, dict | list):
        tests["jsonb_contains"] = (value, True)
    if isinstance(value, str) and "%" not in value:
        likes = {"like": True, "ilike": True, "notlike": False, "notilike": False}
        tests |= {op: (value, truth) for op, truth in likes.items()}
    return tests


@given(data=st.data())
def test_what_is_read_can_be_found(server: Served, data: DataObject) -> None:
    """Every operator of a type accepts a value in the form in which it is read."""
    attribute = data.draw(st.sampled_from([corner.attribute_of(corner.SAMPLE_TYPE, name) for name in VALUES]))
    created, answered = create(server, {attribute.name: data.draw(VALUES[attribute.name])})
    value = answered[attribute.name]
    known = [op for op in truths(value, attribute) if op in operator_names(attribute)] if value is not None else []
    if attribute.type.family in ("json", "jsonb"):
        known = [op for op in known if op == "jsonb_contains"]
    for op in known:
        val, truth = truths(value, attribute)[op]
        test = {"name": attribute.name, "op": op, "val": sendable(val)}
        answer = server.get("/samples", ("filter", dump([test])), ("filter[id]", created), ("fields[sample]", ""))
        assert answer.status == 200, (test, answer.body)
        assert answer.ids == [created] * truth, test
