"""The statements for a total: one together with the page, and none if the page itself shows it."""

from __future__ import annotations

import pytest

from querybuild.sql import select
from server.execution import execute
from server.schema import live_references
from tests.http.conftest import Api, Sent, Serve
from tests.planning import filter_query


@pytest.fixture
def logged(sent: Sent, serve: Serve, rows_url: str, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return a server whose statements are recorded in `sent`. There are 65 persons, and 2 users in group 1."""
    # With this setting even few rows are counted by keys.
    monkeypatch.setattr(live_references, "MIN_REFERENCE_BYTES", 0)
    return serve(rows_url)


EXACT, ESTIMATED = "page[total]=exact", "page[total]=estimated"


@pytest.mark.parametrize(
    ("query", "total", "with_count", "count_only"),
    [
        # the exact total is in the statement of the page
        (f"persons?{EXACT}", 65, 1, 0),
        (f"persons?page[number]=2&{EXACT}", 65, 1, 0),
        (f"persons?page[after]=&page[size]=2&{EXACT}", 65, 1, 0),
        (f"groups/1/users?{EXACT}", 2, 1, 0),
        # after the last page there is no row with the total
        (f"persons?page[number]=9&{EXACT}", 65, 2, 1),
        # the first page without rows shows the total
        (f"persons?filter[name]=nobody&{EXACT}", 0, 1, 0),
        (f"groups/3/users?{EXACT}", 0, 1, 0),
        # and so does a page that is not full
        (f"persons?page[size]=100&{ESTIMATED}", 65, 0, 0),
        (f"persons?page[number]=3&{ESTIMATED}", 65, 0, 0),
        (f"groups/1/users?{ESTIMATED}", 2, 0, 0),
        (f"persons?filter[name]=nobody&{ESTIMATED}", 0, 0, 0),
        # not requested
        ("persons?page[total]=none", None, 0, 0),
        ("persons?page[after]=&page[size]=2", None, 0, 0),
        ("persons?page[number]=9&page[total]=none", None, 0, 0),
    ],
)
async def test_counting(
    logged: Api, sent: Sent, query: str, total: int | None, with_count: int, count_only: int
) -> None:
    """with_count: statements that contain a count. count_only: statements that are only a count."""
    document = (await logged.get(f"/{query}")).document
    assert document["meta"].get("total") == total
    counts = [statement for statement in set(sent) if "COUNT(*)" in statement]
    assert len([statement for statement in counts if statement.startswith("SELECT COUNT(*)")]) == count_only
    assert len(counts) == with_count
    assert not [statement for statement in sent if statement.startswith("EXPLAIN (")]


async def test_an_estimate_is_only_read_for_a_full_page(logged: Api, sent: Sent) -> None:
    document = (await logged.get(f"/persons?page[size]=5&{ESTIMATED}")).document
    assert document["meta"]["totalEstimated"] is True
    assert [statement for statement in sent if "persons" in statement][1:] == [
        'EXPLAIN (FORMAT JSON) SELECT 1 FROM "persons" "t0"'
    ]


def any_computer(val: object) -> str:
    return filter_query([{"name": "computers", "op": "any", "val": val}])


@pytest.mark.parametrize(
    ("query", "total", "begin"),
    [
        # user 2 has two of them, and one has no owner
        (any_computer({"name": "name", "op": "ne", "val": ""}), 3, 'SELECT DISTINCT "t1"."owner_id" FROM "computers"'),
        (any_computer({"name": "owner.age", "op": "gt", "val": 40}), 2, 'SELECT DISTINCT "t1"."owner_id" FROM'),
        (filter_query([{"name": "bio.birth_city", "op": "ne", "val": ""}]), 2, 'SELECT DISTINCT "t1"."user_id" FROM'),
        # other conditions on users need their rows
        (f"{any_computer({'name': 'name', 'op': 'ne', 'val': ''})}&filter[age]=36", 1, None),
        (
            filter_query([{"not": {"name": "computers", "op": "any", "val": {"name": "id", "op": "gt", "val": 0}}}]),
            3,
            None,
        ),
        (filter_query([{"name": "group.name", "op": "ne", "val": ""}]), 4, None),
        # the related row is compared with its parent
        (filter_query([{"name": "computers.id", "op": "le", "field": "id"}]), 2, None),
        (filter_query([{"name": "bio.birth_city", "op": "ne", "field": "computers.name"}]), 2, None),
    ],
)
async def test_counted_by_keys(logged: Api, sent: Sent, query: str, total: int, begin: str | None) -> None:
    document = (await logged.get(f"/users?page[size]=1&{query}&{EXACT}")).document
    assert document["meta"]["total"] == total
    [statement] = [statement for statement in sent if "COUNT(*)" in statement]
    counted = statement.partition("(SELECT COUNT(*) FROM ")[2]
    assert counted.startswith('"users"' if begin is None else f"({begin}")
    beyond = (await logged.get(f"/users?page[size]=1&page[number]=9&{query}&{EXACT}")).document
    assert (beyond["data"], beyond["meta"]["total"]) == ([], total)


async def test_a_related_collection_is_not_counted_by_keys(logged: Api, sent: Sent) -> None:
    query = any_computer({"name": "name", "op": "ne", "val": ""})
    document = (await logged.get(f"/groups/1/users?page[size]=1&{query}&{EXACT}")).document
    assert document["meta"]["total"] == 2
    assert not [statement for statement in sent if 'SELECT DISTINCT "' in statement]


@pytest.mark.parametrize(
    ("query", "meta"),
    [
        ("page[size]=5", {"count": 5, "total": 10, "totalCapped": True}),
        ("page[size]=5&page[number]=13", {"count": 5, "total": 10, "totalCapped": True}),
        ("page[size]=5&page[number]=14", {"count": 0, "total": 10, "totalCapped": True}),
        ("page[limit]=20&page[offset]=60", {"count": 5, "total": 10, "totalCapped": True}),
        ("page[after]=&page[size]=64", {"count": 64, "total": 10, "totalCapped": True}),
        ("page[size]=5&filter[id][le]=10", {"count": 5, "total": 10, "totalPages": 2}),
        ("page[size]=5&filter[id][le]=11", {"count": 5, "total": 10, "totalCapped": True}),
        ("page[size]=5&filter[id][le]=3", {"count": 3, "total": 3, "totalPages": 1}),
        ("page[size]=5&filter[id][le]=0", {"count": 0, "total": 0, "totalPages": 0}),
    ],
)
async def test_a_capped_total(
    logged: Api, monkeypatch: pytest.MonkeyPatch, query: str, meta: dict[str, object]
) -> None:
    """It is exact up to the cap. Beyond, there is no last page, but always a next one where there are rows."""
    for module in (select, execute):
        monkeypatch.setattr(module, "CAPPED_TOTAL", 10)
    found = (await logged.get(f"/persons?sort=id&page[total]=capped&{query}")).document
    exact = (await logged.get(f"/persons?sort=id&page[total]=exact&{query}")).document
    assert found["meta"] == meta
    assert found["data"] == exact["data"]
    same = found["links"].keys() - {"last"}
    assert same == exact["links"].keys() - {"last"}
    assert ("last" in found["links"]) == ("last" in exact["links"] and "totalCapped" not in meta)


async def test_a_capped_total_reads_no_more_rows(logged: Api, sent: Sent) -> None:
    await logged.get("/persons?page[total]=capped&page[size]=5")
    assert any('(SELECT 1 FROM "persons" "t0" LIMIT 10001) "n"' in statement for statement in sent), sent
