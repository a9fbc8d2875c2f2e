"""The encoding of rows as documents."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

import pytest

from serializers.encode import DocumentEncoder
from serializers.json_api import JsonApiEncoder
from serializers.objects import Meta
from serializers.representation import Style
from tests.planning import document, encoded, read_collection, read_resource
from tests.statements import TOKEN


def test_the_bytes_of_a_list() -> None:
    planned = read_collection("tag", "")
    meta = Meta(count=2, total=12, totalPages=6)
    assert (
        encoded(planned, [[(1, "a"), (2, 'b"ß')]], meta=meta)
        == (
            '{"jsonapi":{"version":"1.0"},"data":['
            '{"type":"tag","id":"1","attributes":{"name":"a"},"relationships":{"articles":{"links":'
            '{"self":"/tags/1/relationships/articles","related":"/tags/1/articles"}}},"links":{"self":"/tags/1"}},'
            '{"type":"tag","id":"2","attributes":{"name":"b\\"ß"},"relationships":{"articles":{"links":'
            '{"self":"/tags/2/relationships/articles","related":"/tags/2/articles"}}},"links":{"self":"/tags/2"}}'
            '],"links":{"self":"/x"},"meta":{"count":2,"total":12,"totalPages":6}}'
        ).encode()
    )


def test_an_empty_document() -> None:
    assert document(read_collection("tag"), [[]]) == {
        "jsonapi": {"version": "1.0"},
        "data": [],
        "links": {"self": "/x"},
    }
    assert document(read_resource("tag"), [[]])["data"] is None
    assert document(read_collection("tag", "include=articles"), [[], []])["included"] == []
    assert document(read_collection("tag", "include="), [[(1, "a")]])["included"] == []
    alone = read_collection("article", "include=author&fields[article]=author&fields[author]=")
    assert document(alone, [[("a", None)], []])["included"] == []


def test_absolute_links() -> None:
    (tag,) = document(read_collection("tag", "fields[tag]=articles"), [[(1,)]], "https://x.org")["data"]
    assert tag == {
        "type": "tag",
        "id": "1",
        "relationships": {
            "articles": {
                "links": {
                    "self": "https://x.org/tags/1/relationships/articles",
                    "related": "https://x.org/tags/1/articles",
                }
            }
        },
        "links": {"self": "https://x.org/tags/1"},
    }


@pytest.mark.parametrize(
    ("identifier", "path"),
    [
        ("a", "a"),
        ("%s %b %%", "%25s%20%25b%20%25%25"),
        ('"\\/', "%22%5C%2F"),
        ("ö🧀", "%C3%B6%F0%9F%A7%80"),
        ("\n\x01\u2028", "%0A%01%E2%80%A8"),
        ("{id}?#&", "%7Bid%7D%3F%23%26"),
        ("\x7f", "%7F"),
    ],
)
def test_ids_of_text(identifier: str, path: str) -> None:
    (country,) = document(read_collection("country"), [[(identifier, "x")]])["data"]
    assert country == {
        "type": "country",
        "id": identifier,
        "attributes": {"name": "x"},
        "links": {"self": f"/countries/{path}"},
    }
    (tag,) = document(read_collection("tag", "include=articles&fields[article]="), [[(1, "x")], [(identifier, 1)]])[
        "data"
    ]
    assert tag["relationships"]["articles"]["data"] == [{"type": "article", "id": identifier}]


def test_ids_of_numbers() -> None:
    ids = [-(2**63), -1, 0, 2**63 - 1]
    tags = document(read_collection("tag", "fields[tag]="), [[(number,) for number in ids]])["data"]
    assert [tag["id"] for tag in tags] == [str(number) for number in ids]


def test_ids_of_uuid() -> None:
    (node,) = document(read_collection("node", "fields[node]="), [[(UUID(TOKEN),)]])["data"]
    assert node == {"type": "node", "id": TOKEN, "links": {"self": f"/nodes/{TOKEN}"}}


def test_attributes_by_type() -> None:
    names = "flag,large,exact,price,double,day,instant,span,blob,tree,flags,spans,trees,address"
    span = (3_600_000_000).to_bytes(8, "big") + (0).to_bytes(4, "big") + (14).to_bytes(4, "big")
    # in the declared order, whatever order is requested
    row = (
        *(1, True, 2**62, "1.50", "2.50", 0.1, date(2024, 2, 29), datetime(2024, 5, 31, 12, tzinfo=UTC), span),
        *(b"\0\xff", '{"b": 1, "a": [1.10]}', [True, None], [span, None], ["[1]", None], "10.0.0.1/8"),
    )
    (sample,) = document(read_collection("sample", f"fields[sample]={names}"), [[row]])["data"]
    assert sample["attributes"] == {
        "flag": True,
        "large": 2**62,
        "exact": "1.50",
        "price": 2.5,
        "double": 0.1,
        "day": "2024-02-29",
        "instant": "2024-05-31T12:00:00Z",
        "span": "P1Y2MT1H",
        "blob": "AP8=",
        "tree": {"b": 1, "a": [1.1]},
        "flags": [True, None],
        "spans": ["P1Y2MT1H", None],
        "trees": [[1], None],
        "address": "10.0.0.1/8",
    }


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_floats_without_a_form_in_json(number: float) -> None:
    (sample,) = document(read_collection("sample", "fields[sample]=double"), [[(1, number)]])["data"]
    assert sample["attributes"] == {"double": None}


def test_disabled_methods_have_no_links() -> None:
    (unlisted,) = document(read_collection("unlisted"), [[(1, "x")]])["data"]
    assert unlisted == {
        "type": "unlisted",
        "id": "1",
        "attributes": {"line": "x"},
        "links": {"self": "/unlisted/1"},
    }
    (undetailed,) = document(read_collection("undetailed"), [[(1, "x")]])["data"]
    assert "links" not in undetailed
    (log,) = document(read_collection("log"), [[(1, "x")]])["data"]
    assert log["relationships"] == {
        "node": {"links": {"self": "/logs/1/relationships/node", "related": "/logs/1/node"}}
    }


def test_members_are_in_the_order_of_the_specification() -> None:
    planned = read_collection("article", "include=author")
    found = document(planned, [[("a", "t", 1, 1)], [(1, "g", "f", "g f", None, None)]])
    (article,) = found["data"]
    assert list(found) == ["jsonapi", "data", "included", "links"]
    assert list(article) == ["type", "id", "attributes", "relationships", "links"]
    assert list(article["relationships"]) == ["author", "editor", "tags"]
    assert list(article["relationships"]["author"]) == ["links", "data"]
    (author,) = found["included"]
    assert author["attributes"] == {
        "given-name": "g",
        "family-name": "f",
        "full-name": "g f",
        "born": None,
        "größe": None,
    }


def test_json_of_several_lines() -> None:
    """A `json` column keeps its white space and line breaks. They must not be taken for the end of an object."""
    planned = read_collection("sample", "fields[sample]=plain_json")
    rows = [(1, '{\n "a": 1\n}'), (1, None), (1, "[\n]")]
    shown = [one["attributes"]["plain_json"] for one in document(planned, [rows])["data"]]
    assert shown == [{"a": 1}, None, []]


@pytest.mark.parametrize(
    ("type_name", "fields", "written", "row"),
    [
        ("tag", "", (), (1, "a")),
        ("tag", "fields[tag]=", (), (1,)),
        ("tag", "fields[tag]=articles", (), (-(2**63),)),
        ("country", "", (), ("%s %b", 'x"\n')),
        ("node", "", ("parent",), (UUID(TOKEN), "x", 1, UUID(TOKEN))),
        ("node", "", ("parent",), (UUID(TOKEN), "x", 1, None)),
        ("article", "fields[article]=author,editor", ("author", "editor"), ("a%b", 7, None)),
        ("sample", "fields[sample]=exact,tree,span", (), (1, "1.50", None, '{"a":\n1}')),
    ],
)
def test_one_resource_is_written_as_in_a_list(
    type_name: str, fields: str, written: tuple[str, ...], row: tuple[object, ...]
) -> None:
    planned = read_resource(type_name, fields, written=written)
    encoder = DocumentEncoder(planned.plan, JsonApiEncoder(planned.plan, Style("https://x.org/a%20b")))
    rows = [[row], *[[] for _ in written]]
    assert encoder.document(rows, {"self": "/x"}, Meta(count=1)) == encoder.encode(rows, {"self": "/x"}, Meta(count=1))
    assert encoder.document([[], *rows[1:]], {}) == encoder.encode([[], *rows[1:]], {})
