"""Section 2: routes, methods, headers and parameters of reads. `test_sockets.py` tests bare sockets."""

from __future__ import annotations

import re

import pytest

from server.routes import ON_MANY, READ_ONE
from tests import catalog
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Serve
from tests.http.expected import PATHS, error, target

COLLECTION_ALLOW = "GET, POST, HEAD, QUERY, OPTIONS"
RESOURCE_ALLOW = "GET, PATCH, DELETE, HEAD, QUERY, OPTIONS"
FIXED_ALLOW = "GET, HEAD, OPTIONS"
ALLOW = [
    *((path, COLLECTION_ALLOW) for path in PATHS.values()),
    *((f"{path}/1", RESOURCE_ALLOW) for path in PATHS.values()),
    ("/users/", COLLECTION_ALLOW),
    ("/users/1/", RESOURCE_ALLOW),
    ("/", FIXED_ALLOW),
    ("/-/live", FIXED_ALLOW),
    ("/-/ready", FIXED_ALLOW),
]
READABLE = ["/", "/-/live", "/-/ready", "/users", "/users?page[size]=2&include=group", "/users/1", "/photos/1"]
FAILING = ["/nothing", "/users/99", "/users?foo=1", "/users?sort=x", "/users/1?page[size]=1"]

ONE, MANY = ", ".join(sorted(READ_ONE)), ", ".join(sorted(ON_MANY))
"""The parameters of a resource, and those of a list."""


def same_headers(answer: Answer) -> dict[str, str]:
    """Return the headers without those that differ between requests."""
    passing = {"Date", "X-Request-Id", "Server-Timing", "Connection"}
    return {name: value for name, value in answer.headers.get_all() if name not in passing}


# headers


@pytest.mark.parametrize("path", READABLE + FAILING)
async def test_headers(reader: Api, path: str) -> None:
    answer = await reader.get(path)
    has_tag = path.startswith(("/users", "/photos")) and path in READABLE
    assert same_headers(answer) == ({"Etag": answer.headers.get("ETag")} if has_tag else {}) | {
        "Cache-Control": "no-store" if path in FAILING or path.startswith("/-/") else "no-cache",
        "Content-Type": MEDIA_TYPE,
        "Content-Length": str(len(answer.body)),
        "Vary": "Accept",
        "X-Content-Type-Options": "nosniff",
    }
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", answer.headers["X-Request-Id"])


@pytest.mark.parametrize("path", READABLE + FAILING)
async def test_head_is_get_without_a_body(reader: Api, path: str) -> None:
    request_id = {"X-Request-Id": "the-same"}
    get = await reader.request("GET", path, headers=request_id)
    head = await reader.request("HEAD", path, headers=request_id)
    assert (head.status, head.body) == (get.status, b"")
    assert same_headers(head) == same_headers(get)
    assert int(head.headers["Content-Length"]) == len(get.body) > 0


@pytest.mark.parametrize("given", ["a", "A-1_b.c", "x" * 64])
@pytest.mark.parametrize("path", ["/users/1", "/nothing"])
async def test_a_valid_request_id_is_used(reader: Api, path: str, given: str) -> None:
    answer = await reader.get(path, **{"X-Request-Id": given})
    assert answer.headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a,b", "ä", "<x>", "a/b"])
async def test_an_invalid_request_id_is_replaced(reader: Api, given: str) -> None:
    ids = {(await reader.get("/users/1", **{"X-Request-Id": given})).headers["X-Request-Id"] for _ in range(2)}
    assert len(ids) == 2
    assert given not in ids
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,64}", made) for made in ids)


async def test_ids_of_errors(reader: Api) -> None:
    """The id of the request, a dot and the number of the error; the whole document."""
    answer = await reader.get("/users/1?foo=1&sort=age", **{"X-Request-Id": "my.id"})
    known = f"This route accepts {ONE}."
    assert (answer.status, answer.document) == (
        400,
        {
            "errors": [
                {
                    "id": "my.id.1",
                    "status": "400",
                    "code": "invalid_parameter",
                    "title": "Invalid Parameter",
                    "detail": f"There is no parameter “foo”. {known}",
                    "source": {"parameter": "foo"},
                },
                {
                    "id": "my.id.2",
                    "status": "400",
                    "code": "invalid_parameter",
                    "title": "Invalid Parameter",
                    "detail": "This route does not accept “sort”.",
                    "source": {"parameter": "sort"},
                },
            ],
            "jsonapi": {"version": "1.0"},
        },
    )


async def test_stages_are_timed(reader: Api) -> None:
    timing = (await reader.get("/users")).headers["Server-Timing"]
    assert re.sub(r"=[0-9]+\.[0-9]+", "", timing) == "parse;dur, plan;dur, execute;dur, encode;dur"


@pytest.fixture
def untimed(serve: Serve, rows_url: str) -> Api:
    return serve(rows_url, server_timing=False)


async def test_timing_is_a_setting(untimed: Api) -> None:
    assert "Server-Timing" not in (await untimed.get("/users")).headers


# methods


@pytest.mark.parametrize(("path", "allow"), ALLOW)
async def test_options(reader: Api, path: str, allow: str) -> None:
    answer = await reader.request("OPTIONS", path, headers={"Accept": f"{MEDIA_TYPE};charset=utf-8"})
    assert (answer.status, answer.headers["Allow"], answer.body) == (204, allow, b"")
    assert "Content-Type" not in answer.headers


async def test_options_of_a_path_without_a_route(reader: Api) -> None:
    assert (await reader.request("OPTIONS", "/nothing")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        *(("PUT", path, allow) for path, allow in ALLOW),
        ("PATCH", "/users", COLLECTION_ALLOW),
        ("DELETE", "/users", COLLECTION_ALLOW),
        ("POST", "/users/1", RESOURCE_ALLOW),
        ("POST", "/", FIXED_ALLOW),
        ("PATCH", "/-/live", FIXED_ALLOW),
        ("DELETE", "/-/ready", FIXED_ALLOW),
    ],
)
async def test_method_not_allowed(reader: Api, method: str, path: str, allow: str) -> None:
    answer = await reader.request(method, path)
    detail = f"“{method}” is not allowed here; allowed are {allow}."
    expected = error(405, "method_not_allowed", "Method Not Allowed", detail)
    assert (answer.status, answer.headers["Allow"], answer.errors) == (405, allow, [expected])


@pytest.fixture
def corners(serve: Serve, corner_url: str) -> Api:
    return serve(corner_url, catalog.CATALOG)


async def test_disabled_reads(corners: Api) -> None:
    """A 405 with Allow, and no link leads there."""
    await corners.sql("INSERT INTO corner.entries (id, line) VALUES (1, 'x')")
    for path in ("/unlisted", "/undetailed/1"):
        for method in ("GET", "HEAD"):
            answer = await corners.request(method, path)
            assert answer.status == 405
            assert not {"GET", "HEAD"} & set(answer.headers["Allow"].split(", "))
    assert (await corners.get("/undetailed")).document["data"] == [
        {
            "type": "undetailed",
            "id": "1",
            "attributes": {"line": "x"},
            "relationships": {
                "node": {
                    "links": {"self": "/undetailed/1/relationships/node", "related": "/undetailed/1/node"},
                }
            },
        }
    ]
    assert (await corners.get("/unlisted/1")).document["data"] == {
        "type": "unlisted",
        "id": "1",
        "attributes": {"line": "x"},
        "links": {"self": "/unlisted/1"},
    }
    links = (await corners.get("/")).document["links"]
    assert "/unlisted" not in links.values()
    assert "/undetailed" in links.values()


# routes


async def test_root(reader: Api) -> None:
    answer = await reader.get("/")
    links = answer.document["links"]
    assert (answer.status, answer.document) == (
        200,
        {"links": links, "meta": {}, "jsonapi": {"version": "1.0"}},
    )
    assert links["self"] == "/"
    assert {path[1:]: path for path in PATHS.values()}.items() <= links.items()
    for name in ("service-desc", "service-doc"):
        assert (await reader.get(links[name])).status == 200


@pytest.fixture(params=[("docs_page", {"service-desc"}), ("openapi", set())])
def described(request: pytest.FixtureRequest, serve: Serve, rows_url: str) -> tuple[Api, set[str]]:
    """Return a server without one of the descriptions, and the links that are left."""
    setting, names = request.param
    return serve(rows_url, **{setting: False}), names


async def test_the_root_links_the_descriptions_that_exist(described: tuple[Api, set[str]]) -> None:
    api, names = described
    links = (await api.get("/")).document["links"]
    assert {name for name in links if name.startswith("service")} == names


@pytest.mark.parametrize(("path", "status"), [("/-/live", "live"), ("/-/ready", "ready")])
async def test_health(reader: Api, path: str, status: str) -> None:
    answer = await reader.get(path)
    assert (answer.status, answer.document) == (200, {"meta": {"status": status}, "jsonapi": {"version": "1.0"}})


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/user",
        "/Users",
        "//users",
        "/users.json",
        "/users/1/nothing",
        "/users/1/first_name",
        "/users/1/relationships",
        "/users/1/relationships/nothing",
        "/users/1/computers/2",
        "/users/1/relationships/computers/2",
        "/-",
        "/-/",
        "/-/nothing",
        "/-/live/x",
        "/user_bio",
        "/users/%FF",
        "/favicon.ico",
        "/..",
        "/users/../groups",
    ],
)
async def test_a_path_without_a_route(reader: Api, path: str) -> None:
    answer = await reader.get(path)
    assert (answer.status, [found["status"] for found in answer.errors]) == (404, ["404"])
    assert answer.errors[0]["code"] in ("route_not_found", "resource_not_found")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/user", "/users"),
        ("/user/", "/users"),
        ("/Users", "/users"),
        ("/user_bio", "/user-bio"),
        ("/operation", "/operations"),
        ("/user/1", None),
        ("/nothing", None),
    ],
)
async def test_the_error_names_a_similar_path(reader: Api, path: str, meant: str | None) -> None:
    told = f"There is nothing at “{path}”." + (f" Did you mean “{meant}”?" if meant else "")
    assert (await reader.get(path)).errors[0]["detail"] == told


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("/users/", "/users"),
        ("/users/?page[size]=2", "/users?page[size]=2"),
        ("/users/1/", "/users/1"),
        ("/users/1/computers/", "/users/1/computers"),
        ("/users/1/relationships/computers/", "/users/1/relationships/computers"),
        ("/-/live/", "/-/live"),
        ("/users?page%5Bsize%5D=2&fields%5Buser%5D=age", "/users?page[size]=2&fields[user]=age"),
        ("/users?page%5bsize%5d=2", "/users?page[size]=2"),
        ("/users?filter%5Bage%5D%5Bgt%5D=36", "/users?filter[age][gt]=36"),
        ("/users?%73ort=age", "/users?sort=age"),
        ("/users?include=computers%2Cgroup", "/users?include=computers,group"),
        ("/users?include=computers%2Eowner", "/users?include=computers.owner"),
    ],
)
async def test_the_same_route(reader: Api, path: str, same: str) -> None:
    answer, other = await reader.get(path), await reader.get(same)
    assert (answer.status, answer.document) == (200, other.document)


# parameters


@pytest.mark.parametrize(
    ("path", "name", "detail"),
    [
        ("/users", "foo", f"There is no parameter “foo”. This route accepts {MANY}."),
        (
            "/users",
            "filters",
            f"There is no parameter “filters”. Did you mean “filter”? This route accepts {MANY}.",
        ),
        ("/users", "q", f"There is no parameter “q”. This route accepts {MANY}."),
        (
            "/users/1",
            "includes",
            f"There is no parameter “includes”. Did you mean “include”? This route accepts {ONE}.",
        ),
        ("/", "foo", "There is no parameter “foo”. This route accepts answerAs."),
        ("/computers/1/owner", "foo", f"There is no parameter “foo”. This route accepts {ONE}."),
        # known, but not accepted there
        ("/users/1", "filter", "This route does not accept “filter”."),
        ("/users/1", "filter[age]", "This route does not accept “filter”."),
        ("/users/1", "sort", "This route does not accept “sort”."),
        ("/users/1", "page[size]", "This route does not accept “page”."),
        ("/users/1", "page[nothing]", "This route does not accept “page”."),
        ("/computers/1/owner", "filter[age]", "This route does not accept “filter”."),
        ("/computers/1/owner", "sort", "This route does not accept “sort”."),
        ("/computers/1/owner", "page[number]", "This route does not accept “page”."),
        ("/", "include", "This route does not accept “include”."),
        ("/", "fields[user]", "This route does not accept “fields”."),
    ],
)
async def test_parameters_that_are_refused(reader: Api, path: str, name: str, detail: str) -> None:
    for value in ("1", ""):
        answer = await reader.get(target(path, [(name, value)]))
        expected = error(400, "invalid_parameter", "Invalid Parameter", detail, parameter=name)
        assert (answer.status, answer.errors) == (400, [expected])


@pytest.mark.parametrize("name", ["filter", "sort", "page[size]", "include", "fields[user]", "foo"])
async def test_parameters_on_delete(reader: Api, name: str) -> None:
    answer = await reader.request("DELETE", target("/users/99", [(name, "1")]))
    assert (answer.status, [found["source"] for found in answer.errors]) == (400, [{"parameter": name}])


@pytest.mark.parametrize(
    "query", ["my-own=1", "X=1", "camelCase=1", "a1=1", "_=1699", "utm_source=x", "a.b=1", "", "&", "%C3%A4=1", "=1"]
)
@pytest.mark.parametrize("path", ["/groups", "/groups/1", "/"])
async def test_parameters_that_are_ignored(reader: Api, path: str, query: str) -> None:
    answer, plain = await reader.get(f"{path}?{query}"), await reader.get(path)
    assert answer.status == 200
    assert answer.document.get("data") == plain.document.get("data")


async def test_many_parameters(reader: Api) -> None:
    """As many as fit into a URL."""
    answer = await reader.get("/groups/1?" + "&".join(["x-y=1"] * 2500))
    assert (answer.status, answer.document["data"]["id"]) == (200, "1")
    answer = await reader.get("/groups?" + "&".join(["foo=1"] * 2500))
    assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "foo"})


async def test_text_that_is_not_utf8(reader: Api) -> None:
    for name in ("filter[first_name]", "my-own"):
        answer = await reader.get(f"/users?{name}=%FF")
        detail = "The percent-encoded text is not UTF-8."
        expected = error(400, "invalid_parameter", "Invalid Parameter", detail, parameter=name)
        assert (answer.status, answer.errors) == (400, [expected])


async def test_faults_of_every_family_together(reader: Api) -> None:
    answer = await reader.get(
        "/users?include=x&sort=y&fields[user]=z&page[size]=q&filter[w]=1&filter=[&foo=1&fields[v]=u"
    )
    assert answer.status == 400
    assert sorted((found["code"], found["source"]["parameter"]) for found in answer.errors) == [
        ("invalid_fields", "fields[user]"),
        ("invalid_fields", "fields[v]"),
        ("invalid_filter", "filter"),
        ("invalid_filter", "filter[w]"),
        ("invalid_include", "include"),
        ("invalid_page", "page[size]"),
        ("invalid_parameter", "foo"),
        ("invalid_sort", "sort"),
    ]
    assert {found["status"] for found in answer.errors} == {"400"}


@pytest.mark.parametrize("name", ["sort", "include", "fields[user]", "filter", "filter[first_name]", "filter[age]"])
@pytest.mark.parametrize("value", ["\0", "a\0b", "\\", "'", '"', "%", "\U0001f9c0", "(", "x" * 10_000, "[[[[", "null"])
async def test_no_value_causes_a_fault(reader: Api, name: str, value: str) -> None:
    answer = await reader.get(target("/users", [(name, value)]))
    assert answer.status == (200 if name == "filter[first_name]" and "\0" not in value else 400)
    assert answer.document["jsonapi"] == {"version": "1.0"}


async def test_a_fault_has_no_internal_details(corners: Api, caplog: pytest.LogCaptureFixture) -> None:
    """A 500 with the id of the request, and a log line with the details."""
    await corners.sql(
        "CREATE FUNCTION corner.broken() RETURNS bigint LANGUAGE plpgsql AS $$BEGIN EXECUTE 'no SQL'; END$$"
    )
    await corners.sql("ALTER TABLE corner.rules RENAME TO kept")
    await corners.sql("CREATE VIEW corner.rules AS SELECT * FROM corner.broken() LEFT JOIN corner.kept ON true")
    answer = await corners.get("/rules", **{"X-Request-Id": "fault"})
    detail = "The server failed to answer this request. Its log has the details under the id of the request."
    assert (answer.status, answer.document) == (
        500,
        {
            "errors": [
                {
                    "id": "fault.1",
                    "status": "500",
                    "code": "internal_error",
                    "title": "Internal Server Error",
                    "detail": detail,
                }
            ],
            "jsonapi": {"version": "1.0"},
        },
    )
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "fault" in record.getMessage()
    assert record.exc_info is not None
