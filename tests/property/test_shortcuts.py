"""A request is answered by its shortcuts as it is answered without them. Two servers have the same rows. In one of them
no shortcut knows anything, so that each one steps aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.parse import ON_CONFLICT
from querybuild.planning.writes.conflicts import conflict_keys
from querybuild.shortcuts import Knows
from server.execution.writes.reply import Reply
from server.handlers.writing import WritingHandler
from server.resources import built_in
from tests import catalog as corner
from tests.first_rows import set_first_rows
from tests.property.filters import CORNER_TYPES, TYPES, filters, sorts
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import MEDIA_TYPE, Answer, Served, served
from tests.property.test_hidden_rows import CHANCE, HEADERS, Pair, chosen_includes, pages, writes
from tests.property.test_operations import EXTENDED, operations
from tests.property.test_operations import bodies as operation_bodies
from tests.property.wild import dump, targets

KEYS = count()
"""Keys that no other request of the tests has."""


def without_shortcuts(server: Served) -> None:
    """Make the server answer without shortcuts."""
    send = server.raw

    def raw(*request: Any) -> Answer:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Knows, "takes", lambda *_: False)
            patch.setattr(Knows, "takes_all", lambda *_: False)
            return send(*request)

    server.raw = raw  # type: ignore[method-assign]


@pytest.fixture(scope="module", params=["people", "corner"])
def pair(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both keep answers."""
    is_people = request.param == "people"
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    types, fill = (TYPES, store) if is_people else (CORNER_TYPES, store_corner)
    rows = make_rows(2) if is_people else make_corner_rows(2)
    serve = partial(served, postgres_url, catalog, ddl, idempotency="on")
    with serve() as short, serve() as plain:
        without_shortcuts(plain)
        found = Pair(short, plain, catalog, types, rows, rows, fill)
        found.reset()
        yield found


def test_only_one_of_the_servers_uses_shortcuts(pair: Pair) -> None:
    path = pair.catalog.by_type[pair.types[0]].path
    for size in (1, 2, 2):
        pair.check(f"{path}?page[size]={size}".encode())
    hits = [server.engine.caches["read_forms"].hits for server in (pair.hiding, pair.bare)]
    assert (hits[0] > 0, hits[1]) == (True, 0)


@given(data=st.data())
def test_lists(pair: Pair, data: DataObject) -> None:
    type_name = data.draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    pairs = [("filter", json.dumps([data.draw(filters(type_name, pair.rows))]))] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        pairs.append(("sort", data.draw(sorts(type_name))))
    if data.draw(st.booleans()):
        pairs += chosen_includes(pair, resource, data)
    pairs += data.draw(pages)
    target = f"{resource.path}?{urlencode(pairs, quote_via=quote)}".encode()
    # The second time the form is known, and the third time the whole text.
    for _ in range(3):
        pair.check(target)


@given(data=st.data())
def test_wild_requests(pair: Pair, data: DataObject) -> None:
    pair.check(data.draw(targets(pair.catalog).filter(lambda found: b"estimated" not in found and b"/-/" not in found)))


@given(data=st.data())
def test_streams(pair: Pair, data: DataObject) -> None:
    """Only the order of the included resources depends on whether a document is streamed."""
    type_name = data.draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    pairs = [("page[size]", "0")]
    if data.draw(st.booleans()):
        pairs.append(("filter", json.dumps([data.draw(filters(type_name, pair.rows))])))
    if resource.relationships:
        pairs += chosen_includes(pair, resource, data)
    target = f"{resource.path}?{urlencode(pairs, quote_via=quote)}".encode()
    with pytest.MonkeyPatch.context() as patch:
        set_first_rows(patch, 0, pair.hiding.engine)
        streamed, whole = [server.raw("GET", target, HEADERS) for server in (pair.hiding, pair.bare)]
    assert (streamed.status, document(streamed)) == (whole.status, document(whole)), target
    assert "transfer-encoding" not in whole.headers


def document(answer: Answer) -> Any:
    found = answer.document
    found["included"] = sorted(found.get("included", ()), key=lambda one: (one["type"], one["id"]))
    return found


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_writes(pair: Pair, data: DataObject) -> None:
    pair.reset()
    for thousands in range(1, 4):
        pair.number(thousands)
        method, path, sent = data.draw(writes(pair))
        short, plain = pair.write(method, path, sent)
        assert short.status < 500, (method, path, sent, short)
        assert (short.status, short.body) == (plain.status, plain.body), (method, path, sent)
    check_rows(pair)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_operations(pair: Pair, data: DataObject) -> None:
    pair.reset()
    body = data.draw(operation_bodies(pair.catalog).filter(lambda found: not CHANCE & set(found.split(b'"'))))
    headers = (*HEADERS, ("Content-Type", EXTENDED))
    short, plain = [server.raw("POST", b"/operations", headers, body) for server in (pair.hiding, pair.bare)]
    assert short.status < 500, body
    assert (short.status, short.body) == (plain.status, plain.body), body
    check_rows(pair)


@settings(max_examples=settings().max_examples // 5)
@given(data=st.data())
def test_adds_that_may_update(pair: Pair, data: DataObject) -> None:
    """The same, with `onConflict` in some of the adds."""
    pair.reset()
    # A request that is tried the short way first spends more numbers.
    pair.number(1)
    listed = data.draw(st.lists(operations(pair.catalog, is_wild=False), min_size=1, max_size=6))
    for operation in listed:
        is_add = operation["op"] == "add" and "relationship" not in operation.get("ref", ())
        keys = conflict_keys(pair.hiding.engine.catalog.by_type[operation["data"]["type"]]) if is_add else []
        if name := data.draw(st.sampled_from([*keys, *keys, "id", ""])):
            operation["meta"] = {ON_CONFLICT: name}
    headers = (*HEADERS, ("Content-Type", EXTENDED))
    sent = dump({"atomic:operations": listed}).encode("utf-8", "surrogatepass")
    assume(not CHANCE & set(sent.split(b'"')))
    short, plain = [server.raw("POST", b"/operations", headers, sent) for server in (pair.hiding, pair.bare)]
    assert short.status < 500, sent
    assert (short.status, short.body) == (plain.status, plain.body), sent
    check_rows(pair)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_writes_with_preconditions(pair: Pair, data: DataObject) -> None:
    """A version that no row has is never ignored, and `*` changes nothing."""
    pair.reset()
    method, path, sent = data.draw(writes(pair).filter(lambda found: found[0] != "POST" or "/rel" in found[1]))
    body = None if sent is None else json.dumps(sent).encode()
    for tag, number in ((b'"x"', 1), (b"*", 2)):
        pair.number(number)
        headers = (*HEADERS, ("Content-Type", "application/vnd.api+json"), ("If-Match", tag.decode()))
        short, plain = [server.raw(method, path.encode(), headers, body) for server in (pair.hiding, pair.bare)]
        assert (short.status, short.body) == (plain.status, plain.body), (method, path, sent, tag)
        assert (400 if tag != b"*" else 200) <= short.status < 500, (method, path, sent, short)
        check_rows(pair)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_writes_with_keys(pair: Pair, data: DataObject) -> None:
    """A single write makes its own answer in PostgreSQL. The plain server makes it in Python."""
    pair.reset()
    for number in range(1, 4):
        pair.number(number)
        method, path, sent = data.draw(writes(pair))
        path += data.draw(st.sampled_from(("", fields_of(pair))))
        body = None if sent is None else dump(sent).encode()
        headers = (*HEADERS, ("Content-Type", MEDIA_TYPE), ("Idempotency-Key", str(next(KEYS))))
        servers = (pair.hiding, pair.bare, pair.hiding)
        short, plain, again = [server.raw(method, path.encode(), headers, body) for server in servers]
        assert short.status < 500, (method, path, sent, short)
        assert seen(short) == seen(plain), (method, path, sent)
        if short.status < 300:
            assert again.headers["idempotent-replayed"] == "true"
            assert (*seen(again), again.headers.get("etag")) == (*seen(short), short.headers.get("etag"))
    check_rows(pair)


def fields_of(pair: Pair) -> str:
    """Return the parameters for the attributes that PostgreSQL can write as JSON, and for all relationships."""
    shown = {
        resource.type: [
            *[one.name for one in resource.attributes if one.type.sql.as_json is not None and one.compute is None],
            *[one.name for one in resource.relationships],
        ]
        for resource in map(pair.catalog.by_type.__getitem__, pair.types)
    }
    return "?" + urlencode([(f"fields[{name}]", ",".join(names)) for name, names in shown.items()])


def seen(answer: Answer) -> tuple[Any, ...]:
    return answer.status, answer.body, answer.headers.get("location"), answer.headers.get("content-type")


def test_only_one_of_the_servers_makes_answers_in_postgres(pair: Pair) -> None:
    pair.reset()
    resource = pair.catalog.by_type["group" if "group" in pair.types else "tag"]
    body = dump({"data": {"type": resource.type, "attributes": {"name": "new"}}}).encode()
    headers = (*HEADERS, ("Content-Type", MEDIA_TYPE), ("Idempotency-Key", str(next(KEYS))))
    made: list[Reply] = []
    take_reply = WritingHandler.take_reply

    def take(handler: WritingHandler, reply: Reply) -> None:
        made.append(reply)
        take_reply(handler, reply)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WritingHandler, "take_reply", take)
        for server in (pair.hiding, pair.bare):
            assert server.raw("POST", resource.path.encode(), headers, body).status == 201
    assert len(made) == 1


def check_rows(pair: Pair) -> None:
    """Check that both servers have the same rows and links."""
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        names = [relationship.name for relationship in resource.relationships]
        include = f"&include={','.join(names)}" if names else ""
        pair.check(f"{resource.path}?page[size]=0{include}".encode())
