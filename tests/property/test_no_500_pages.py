"""No page, no form and no import causes a 500, whatever is sent, and none reveals internals."""

from __future__ import annotations

from html import unescape
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.declarations.resource import Resource
from tests.http.pages.html import parse
from tests.property.rows import HIDDEN
from tests.property.served import Answer, Target
from tests.property.test_no_500 import INSIDE, corners
from tests.property.wild import IDS, Request, queries, targets

__all__ = ["corners"]

BROWSER = ("Accept", "text/html")
FORM = (("Content-Type", "application/x-www-form-urlencoded"), ("Sec-Fetch-Site", "same-origin"), BROWSER)
ODD = ("", "1", "-1", "1.5", "true", "null", "{}", "[", "[1]", "2024-01-01", "'=1", '"', "a,b", "x\ny", "%")
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(ODD))


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if text else ""


@pytest.fixture(params=["people", "corners"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


def check(target: Target, request: Request) -> Answer:
    answer = target.server.raw(request.method, request.target, request.headers, request.body)
    assert answer.status < 500, (request, answer)
    assert HIDDEN.encode() not in answer.body, (request, answer)
    if answer.headers.get("content-type", "").startswith("text/html"):
        page = parse(answer.body)
        assert len(page.all("script")) == 1
        if answer.status >= 400:
            said = unescape(page.one("main").text)
            leaks = [word for word in INSIDE if word in said and word not in str(request)]
            assert not leaks, (request, said)
    return answer


def any_resource(target: Target, data: DataObject) -> Resource:
    return data.draw(st.sampled_from(list(target.catalog)))


@given(data=st.data())
def test_lists(target: Target, data: DataObject) -> None:
    resource = any_resource(target, data)
    query = data.draw(queries(target.catalog, resource))
    answer = data.draw(st.sampled_from([b"", b"&answerAs=html", b"&answerAs=csv", b"&answerAs=ndjson"]))
    path = resource.path.encode()
    check(target, Request("GET", path + b"?" + query + answer, (BROWSER,)))
    check(target, Request("GET", b"/-/pages/facets" + path + b"?" + query, (BROWSER,)))
    check(target, Request("GET", b"/-/pages/explain?url=" + quote(path + b"?" + query).encode(), (BROWSER,)))


@given(data=st.data())
def test_any_address(target: Target, data: DataObject) -> None:
    check(target, Request("GET", data.draw(targets(target.catalog)), (BROWSER,)))


@given(data=st.data())
def test_forms(target: Target, data: DataObject) -> None:
    """Any fields, some of them those of the form."""
    resource = any_resource(target, data)
    row_id = data.draw(st.sampled_from(IDS))
    actions = [f"new{resource.path}", f"import{resource.path}"]
    actions += [f"{action}{resource.path}/{quote(row_id)}" for action in ("edit", "delete")]
    actions += [f"links{resource.path}/{quote(row_id)}/{one.name}" for one in resource.relationships]
    action = data.draw(st.sampled_from(actions))
    known = [f"{mark}{one.name}" for one in resource.attributes for mark in ("a:", "s:", "n:", "z:")]
    known += [f"{mark}{one.name}" for one in resource.relationships for mark in ("r:", "t:", "q:")]
    names = st.sampled_from([*known, "version", "find", "owner", "id", "add", "remove", "text", "check", "key"])
    fields = data.draw(st.dictionaries(names, TEXTS, max_size=8))
    path = f"/-/pages/{action}".encode()
    check(target, Request("GET", path, (BROWSER,)))
    check(target, Request("POST", path, FORM, urlencode(fields, errors="replace").encode()))


@given(data=st.data())
def test_choices_of_lists(target: Target, data: DataObject) -> None:
    resource = any_resource(target, data)
    names = ["at", "field", "operator", "value", "choose", "column", "include", "search"]
    fields = data.draw(st.dictionaries(st.sampled_from(names), TEXTS))
    fields["join"] = data.draw(st.sampled_from(["", "or", "or-0", "or-1", "or-99999"]))
    fields.setdefault("at", f"{resource.path}?{data.draw(queries(target.catalog, resource)).decode('latin-1')}")
    if known := [one.name for one in resource.attributes]:
        fields.setdefault("field", data.draw(st.sampled_from(known)))
    sent = f"/-/pages/go?{urlencode(fields, errors='replace')}".encode()
    answer = check(target, Request("GET", sent, (BROWSER,)))
    if answer.status == 303:
        check(target, Request("GET", answer.headers["location"].encode(), (BROWSER,)))


@given(data=st.data())
def test_imports(target: Target, data: DataObject) -> None:
    """Lines of known and unknown fields, and bytes that are none."""
    resource = any_resource(target, data)
    names = [one.name for one in resource.attributes]
    names += [f"{one.name}.id" for one in resource.relationships] + ["id", "nope"]
    head = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    rows = data.draw(st.lists(st.lists(TEXTS, min_size=len(head), max_size=len(head)), max_size=4))
    lines = "\n".join([",".join(head), *[",".join(map(quoted, row)) for row in rows]])
    body = data.draw(st.one_of(st.just(as_bytes(lines)), st.binary(max_size=60), TEXTS.map(as_bytes)))
    kind = data.draw(st.sampled_from(["text/csv", "application/x-ndjson"]))
    headers = (("Content-Type", kind), ("Prefer", "tx=rollback"))
    check(target, Request("POST", resource.path.encode(), headers, body))
