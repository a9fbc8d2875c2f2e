"""The OpenAPI document and its page, over a socket: the answers of the server are those that the document describes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import jsonschema_rs
import pytest
from tornado.ioloop import IOLoop

from server.resources import built_in
from tests.http.access.test_field_rights import ANN, EVE, served, staff
from tests.http.conftest import Api, Start
from tests.http.rows import ROWS
from tests.openapi import validate_openapi
from tests.principals import HEADER, trust_headers

PAGE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"
# As in swagger-ui-dist 5.31.0 of the npm registry.
VIEWER = {
    "viewer.js": "93b7b0862a80e2786f85b560be7693c2344354ffa7e7e224f850a54349724c31",
    "viewer.css": "9e576f8322132c76949da47f9bb53c891373c303ea3a761ff548ffc9de50a98c",
}


class Described:
    """The document of a server, which validates its answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def find(self, found: dict[str, Any]) -> dict[str, Any]:
        """Follow a reference."""
        if "$ref" not in found:
            return found
        _, _, kind, name = found["$ref"].split("/")
        followed: dict[str, Any] = self.document["components"][kind][name]
        return followed

    def schema(self, operation: dict[str, Any], status: int, media_type: str) -> dict[str, Any] | None:
        responses = operation["responses"]
        response = self.find(responses.get(str(status)) or responses[f"{status // 100}XX"])
        content = response.get("content")
        return None if content is None else content[media_type]["schema"]

    def check(self, operation: dict[str, Any], status: int, media_type: str, answer: Any) -> None:
        schema = self.schema(operation, status, media_type)
        assert schema is not None
        whole = schema | {"components": self.document["components"]}
        jsonschema_rs.Draft202012Validator(whole, validate_formats=True).validate(answer)


async def read(api: Api, **headers: str) -> Described:
    answer = await api.get("/-/openapi.json", **headers)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    return Described(answer.document)


async def test_every_operation_answers_as_described(start: Start, database_url: str) -> None:
    """Reads of the first rows, and the examples of writes."""
    api = await start(database_url, built_in())
    for statement in ROWS.split(";\n"):
        await api.sql(statement)
    described = await read(api)
    validate_openapi(described.document)
    statuses = []
    for method in ("get", "patch", "post", "delete"):
        for path, item in described.document["paths"].items():
            operation = item.get(method)
            if operation is None or path == "/-/metrics":
                continue
            forms: list[tuple[Any, dict[str, str]]] = [(None, {})]
            if "requestBody" in operation:
                sent = described.find(operation["requestBody"])["content"]
                forms = [(json.dumps(one["example"]), {"Content-Type": name}) for name, one in sent.items()]
            for body, headers in forms:
                answer = await api.request(method.upper(), path.replace("{id}", "1"), body=body, headers=headers)
                statuses.append(answer.status)
                described.check(operation, answer.status, answer.headers["Content-Type"], answer.document)
                if answer.status >= 400:
                    listed = described.find(operation["responses"]["4XX"])["description"]
                    found = answer.document.get("errors", ())
                    assert all(f"- {one['status']}: " in listed and one["code"] in listed for one in found)
    assert sum(status < 400 for status in statuses) > len(statuses) * 0.6


async def test_a_client_that_has_the_document_gets_304(api: Api) -> None:
    first = await api.get("/-/openapi.json")
    again = await api.get("/-/openapi.json", **{"If-None-Match": f'"other", {first.headers["ETag"]}'})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert first.headers["Cache-Control"] == "no-cache"
    assert (await api.get("/-/openapi.json", **{"If-None-Match": '"other"'})).status == 200
    assert (await api.get("/-/openapi.json?sort=x")).status == 400
    assert (await api.post("/-/openapi.json", {})).status == 405


def test_each_principal_sees_what_exists_for_it(io_loop: IOLoop, start: Start, database_url: str) -> None:
    async def work() -> None:
        api = await served(start, database_url, staff("staff"))
        trust_headers(api.app.engine)
        tags = set()
        for header, shown in (("{}", False), (ANN, False), (EVE, True)):
            answer = await api.get("/-/openapi.json", **{HEADER: header})
            tags.add(answer.headers["ETag"])
            assert (b"salary" in answer.body) is shown
            assert ("/staff/{id}/team" in answer.document["paths"]) is shown
        assert len(tags) == 2

    io_loop.run_sync(work)


async def test_the_page_loads_only_what_the_server_has(api: Api) -> None:
    page = await api.get("/-/docs")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    text = page.body.decode()
    names = re.findall(r'(?:src|href)="docs/([^"]+)" integrity="sha384-([^"]+)"', text)
    assert len(names) == text.count("docs/") == 4
    assert "http" not in text
    for name, digest in names:
        file = await api.get(f"/-/docs/{name}")
        assert file.status == 200
        assert file.headers["Content-Security-Policy"].startswith(PAGE_POLICY)
        assert base64.b64encode(hashlib.sha384(file.body).digest()).decode() == digest
        assert name not in VIEWER or hashlib.sha256(file.body).hexdigest() == VIEWER[name]
    assert page.headers["Content-Security-Policy"].startswith(PAGE_POLICY)
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert (await api.get("/-/docs/other.js")).status == 404


@pytest.mark.parametrize(
    ("settings", "document", "page"),
    [
        ({}, 200, 200),
        ({"docs_page": False}, 200, 404),
        ({"openapi": False}, 404, 404),
        ({"path_prefix": "/x"}, 404, 404),
    ],
)
async def test_settings_turn_them_off(
    start: Start, rows_url: str, settings: dict[str, Any], document: int, page: int
) -> None:
    api = await start(rows_url, built_in(), **settings)
    assert (await api.get("/-/openapi.json")).status == document
    assert (await api.get("/-/docs")).status == page
    assert (await api.get("/-/docs/page.js")).status == page


async def test_keys_of_requests_and_unique_keys(start: Start, database_url: str) -> None:
    """They are described where they are possible: keys as the setting says, `onConflict` for resources with a unique
    key that a client may send."""
    found = {}
    for idempotency in ("off", "on", "required"):
        document = (await read(await start(database_url, built_in(), idempotency=idempotency))).document
        parameters = document["components"]["parameters"]
        found[idempotency] = [name for name in parameters if name.startswith("Idempotency-Key")]
        create = document["paths"]["/groups"]["post"]
        names = [parameters[one["$ref"].rpartition("/")[2]]["name"] for one in create["parameters"]]
        assert ("onConflict" in names, "Idempotency-Key" in names) == (True, idempotency != "off")
        assert {"200", "201"} <= create["responses"].keys()
        assert parameters["group.onConflict"]["schema"]["enum"] == ["name"]
        assert "user.onConflict" not in parameters
        created = document["components"]["responses"][create["responses"]["201"]["$ref"].rpartition("/")[2]]
        assert ("Idempotent-Replayed" in created["headers"]) == (idempotency != "off")
        refusals = document["components"]["responses"][create["responses"]["4XX"]["$ref"].rpartition("/")[2]]
        assert ("idempotency_mismatch" in refusals["description"]) == (idempotency != "off")
    assert found == {"off": [], "on": ["Idempotency-Key"], "required": ["Idempotency-Key.required"]}
