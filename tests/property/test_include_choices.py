"""A compound document shows the related resources that `includeFilter`, `includeSort` and `includePage` choose, as the
model in plain Python does: linkage, `meta`, the order of `included`, and the links to further pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.declarations.resource import Resource
from querybuild.planning import planner
from tests.first_rows import set_first_rows
from tests.property.choices import Chosen, Step, choices
from tests.property.model import Row
from tests.property.served import Served
from tests.property.subjects import SUBJECTS, Subject, open_subject
from tests.property.test_hidden_rows import includes

Identity = tuple[str, str]


@pytest.fixture(scope="module", params=[f"{name}-{fetch}" for name in SUBJECTS for fetch in ("ranked", "each")])
def subject(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Subject]:
    """ranked, each: how the first rows of each parent are found, which depends on indexes."""
    name, fetch = request.param.split("-")
    with open_subject(postgres_url, name, 3) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "chosen_fetch", lambda _, size: "keys" if size is None else fetch)
        yield opened


class Expected:
    """What a compound document shows, by the model."""

    def __init__(self, subject: Subject, chosen: dict[Step, Chosen]) -> None:
        self._subject = subject
        self._chosen = chosen
        self.linkage: dict[tuple[str, str, str], tuple[list[Row], list[Row]]] = {}
        self.order: dict[Identity, None] = {}

    def include(self, resource: Resource, rows: list[Row], paths: list[list[str]]) -> None:
        """Add the resources of paths, level by level, in the order of the declarations."""
        model, catalog = self._subject.model, self._subject.catalog
        for relationship in resource.relationships:
            below = [path[1:] for path in paths if path[0] == relationship.name]
            if not below:
                continue
            target, found = catalog.target(relationship), list[Row]()
            for row in rows:
                _, related = model.related(relationship.name, resource.type, row)
                shown, matching = self._first(resource.type, relationship.name, target.type, related)
                self.linkage[resource.type, str(row["id"]), relationship.name] = shown, matching
                found += [one for one in shown if one not in found]
            self.order |= dict.fromkeys((target.type, str(row["id"])) for row in found)
            self.include(target, found, [path for path in below if path])

    def _first(self, owner: str, name: str, target: str, related: list[Row]) -> tuple[list[Row], list[Row]]:
        model, one = self._subject.model, self._chosen.get((owner, name), Chosen())
        matching = [row for row in related if one.filter is None or model.holds(one.filter, target, row) is True]
        matching = model.sorted_rows(target, matching, one.sort)
        return matching[: one.size], matching


def identities(found: Any) -> list[Identity]:
    listed = found if isinstance(found, list) else [] if found is None else [found]
    return [(one["type"], one["id"]) for one in listed]


def check(expected: Expected, chosen: dict[Step, Chosen], document: Any, server: Served) -> None:
    primary = document["data"] if isinstance(document["data"], list) else [document["data"]]
    shown = {(one["type"], one["id"]): one for one in [*primary, *document["included"]]}
    for (owner, row_id, name), (first, matching) in expected.linkage.items():
        relationship = shown[owner, row_id]["relationships"][name]
        one = chosen.get((owner, name))
        is_counted = one is not None and one.is_counted
        if one is not None and one.size == 0:
            assert "data" not in relationship
        else:
            assert [row_id for _, row_id in identities(relationship["data"])] == ids(first)
        meta: dict[str, Any] = {"partial": True} if one is not None and one.is_partial else {}
        if is_counted:
            meta |= {"count": len(first), "hasMore": len(matching) > len(first)}
        if one is not None and one.total == "exact":
            meta["total"] = len(matching)
        assert relationship.get("meta", {}) == meta
        onward = relationship.get("links", {}).get("next")
        assert (onward is not None) == (bool(first) and len(matching) > len(first))
        if onward is not None:
            assert ids(first) + walk(server, onward) == ids(matching)


def ids(rows: list[Row]) -> list[str]:
    return [str(row["id"]) for row in rows]


def walk(server: Served, url: str) -> list[str]:
    """Follow pages of linkage to the end. Return the ids."""
    found: list[str] = []
    while url:
        answer = server.follow(url)
        assert answer.status == 200, answer.body
        found += answer.ids
        url = answer.document["links"].get("next", "")
    return found


@pytest.mark.parametrize("form", ["page", "whole", "stream"])
@given(data=st.data())
def test_compound_documents(subject: Subject, form: str, data: DataObject) -> None:
    type_name = data.draw(st.sampled_from([one for one in subject.types if subject.catalog.by_type[one].relationships]))
    resource = subject.catalog.by_type[type_name]
    paths = data.draw(includes(subject.catalog, resource))
    pairs, chosen = data.draw(choices(subject.catalog, resource, paths, subject.model.rows))
    is_streamed = form == "stream"
    sent = [("page[size]", "100" if form == "page" else "0"), ("include", ",".join(paths)), *pairs]
    rows = subject.model.sorted_rows(type_name, subject.model.rows[type_name], "")
    with pytest.MonkeyPatch.context() as patch:
        set_first_rows(patch, 0 if is_streamed else 1000, subject.server.engine)
        answer = subject.server.get(resource.path, *sent)
    assert answer.status == 200, answer.body
    assert ("transfer-encoding" in answer.headers) == (is_streamed and bool(rows))
    expected = Expected(subject, chosen)
    expected.include(resource, rows, [path.split(".") for path in paths])
    check(expected, chosen, answer.document, subject.server)
    primary = {(type_name, str(row["id"])) for row in rows}
    order = [one for one in expected.order if one not in primary]
    included = identities(answer.document["included"])
    # A stream has the included resources of one type after the other.
    assert (sorted(included) == sorted(order)) if is_streamed else (included == order)


@given(data=st.data())
def test_one_resource(subject: Subject, data: DataObject) -> None:
    """The document of one resource, twice: the second time its form is known."""
    type_name = data.draw(st.sampled_from([one for one in subject.types if subject.catalog.by_type[one].relationships]))
    resource = subject.catalog.by_type[type_name]
    paths = data.draw(includes(subject.catalog, resource))
    for _ in range(2):
        pairs, chosen = data.draw(choices(subject.catalog, resource, paths, subject.model.rows))
        row = data.draw(st.sampled_from(subject.model.rows[type_name]))
        answer = subject.server.get(
            f"{resource.path}/{quote(str(row['id']), safe='')}", ("include", ",".join(paths)), *pairs
        )
        assert answer.status == 200, answer.body
        expected = Expected(subject, chosen)
        expected.include(resource, [row], [path.split(".") for path in paths])
        check(expected, chosen, answer.document, subject.server)
        order = [one for one in expected.order if one != (type_name, str(row["id"]))]
        assert identities(answer.document["included"]) == order
